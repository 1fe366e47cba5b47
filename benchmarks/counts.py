"""What order costs, counted: frames, hops and control bytes per delivery, for each paper's configuration, up to 4,000 processes.

Nothing is estimated: real members stamp, relay and deliver messages from one process to another, both drawn from a seed, and
every frame between two of them is counted with the bytes of its stamp. Members are made when something is sent to them. In one
flat domain only a few processes take part (``CAST``, and their gateways): what is sent to the others is counted like the rest,
but not taken, which changes nothing, because they never send. Where one stamp is 64 MB, one message is counted.

    python -m benchmarks.counts          print the table and write docs/research/counts.md
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from time import process_time
from typing import Any, Final, NamedTuple

from benchmarks.table import as_csv
from thence.core.member.contract import Arrived, Ready, Submit
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Packet, control_bytes
from thence.studies.parts import shapes

SIZES: Final = (60, 250, 1_000, 4_000)
SHOWN_SIZE: Final = 1_000
"""The page has the rows of this size."""
MESSAGES: Final = 300
CAST: Final = 12
"""How many processes take part where one domain holds them all."""

TWO_LEVELS: Final = {60: (6, 10), 250: (10, 25), 1_000: (25, 40), 4_000: (50, 80)}
"""How many domains of how many: the nearest to the square root."""

THREE_LEVELS: Final = {60: ((3, 4), 5), 250: ((5, 5), 10), 1_000: ((10, 10), 10), 4_000: ((10, 20), 20)}
LAYERS_OF_FOUR: Final = {60: 3, 250: 4, 1_000: 5, 4_000: 6}
"""How many layers of clusters of four make 64, 256, 1,024 and 4,096 processes."""

REPORT: Final = Path(__file__).parent.parent / "docs" / "research" / "counts.md"


class Formula(NamedTuple):
    """What a paper says about one header, in integers, and what that is for ``n`` processes; None: it gives no number."""

    text: str
    value: Callable[[int], float | None]


class Configuration(NamedTuple):
    """A fabric for each size, and what is said about it."""

    name: str
    build: Callable[[int], Topology]
    formula: Formula
    flat: bool = False
    messages: Callable[[int], int] = lambda _: MESSAGES


class Count(NamedTuple):
    """What was counted."""

    processes: int
    messages: int
    frames: int
    hops: int
    control_bytes: int
    largest_stamp: int


class Wires:
    """Members that hand each other packets at once, with a counter on every wire."""

    def __init__(self, topology: Topology, cast: set[str] | None) -> None:
        """``cast``: who takes part (None: everybody)."""
        self.routes = Routes(topology)
        self._cast = cast
        self._members: dict[str, Member] = {}
        self._pending: deque[tuple[str, str, Packet[Any]]] = deque()
        self.frames = self.control_bytes = self.largest_stamp = self.delivered = 0
        self._size: tuple[object, int] = (None, 0)

    def send(self, sender: str, target: str) -> None:
        """Send a message and carry everything that follows from it."""
        self._handle(sender, self._member(sender).step(Submit((target,), b""), 0))
        while self._pending:
            source, receiver, packet = self._pending.popleft()
            self._count(packet)
            if self._cast is None or receiver in self._cast:
                self._handle(receiver, self._member(receiver).step(Arrived(source, packet), 0))

    def _member(self, name: str) -> Member:
        if name not in self._members:
            self._members[name] = Member(name, self.routes, MemberOptions(reliable=False, durable=False))
        return self._members[name]

    def _handle(self, name: str, ready: Ready) -> None:
        if ready.refused:
            raise AssertionError(f"a frame was refused: {ready.refused[0]}")
        self._pending.extend((name, peer, packet) for peer, packet in ready.send)
        self.delivered += len(ready.deliver)

    def _count(self, packet: Packet[Any]) -> None:
        for frame in packet.frames:
            if frame.stamp is not self._size[0]:
                self._size = (frame.stamp, control_bytes(frame.stamp, frame.envelope))
            self.frames += 1
            self.control_bytes += self._size[1]
            self.largest_stamp = max(self.largest_stamp, self._size[1])


def count(configuration: Configuration, size: int) -> Count:
    """Build the fabric, send the messages and count."""
    topology = configuration.build(size)
    chance = Random(size)
    names = topology.processes
    cast = chance.sample(names, CAST) if configuration.flat else list(names)
    messages = configuration.messages(size)
    wires = Wires(topology, _with_gateways(topology, cast) if configuration.flat else None)
    hops = 0
    for _ in range(messages):
        sender, target = chance.sample(cast, 2)
        hops += len(wires.routes.path(sender, target)) // 2
        wires.send(sender, target)
    if wires.delivered != messages:
        raise AssertionError(f"{configuration.name}: {messages} messages were sent, and {wires.delivered} delivered")
    return Count(len(names), messages, wires.frames, hops, wires.control_bytes, wires.largest_stamp)


def _with_gateways(topology: Topology, cast: Iterable[str]) -> set[str]:
    """Return these processes, and the gateways of their subgroups, where there are any."""
    (domain,) = topology.domains.values()
    groups: list[list[str]] = domain.options.get("groups", [])
    return {*cast, *(group[0] for group in groups if not set(group).isdisjoint(cast))}


def _with_options(topology: Topology, **options: Any) -> Topology:
    domains = [domain._replace(options=options) for domain in topology.domains.values()]
    return Topology(topology.name, domains, topology.links.values(), promise=topology.promise)


def _subgroups(size: int) -> Topology:
    names = [f"p{number}" for number in range(size)]
    groups = [names[at : at + 10] for at in range(0, size, 10)]
    return Topology.flat(Domain("all", tuple(names), "grouped", {"groups": groups}))


def _behind_gateways(size: int) -> Topology:
    bus = shapes.bus(size // 10, 10)
    leaves = [domain for domain in bus.domains.values() if domain.name != "bus"]
    mixed = [domain._replace(ordering=("sequenced", "vector")[at % 2]) for at, domain in enumerate(leaves)]
    return Topology("gateways", [*mixed, bus.domains["bus"]._replace(ordering="relayed")])


def _few_where_large(size: int) -> int:
    return {1_000: 10, 4_000: 1}.get(size, MESSAGES)


SQUARE = Formula("n^2: the whole matrix", lambda n: n * n)
BUS = Formula("(√n)^2 = n on each of at most 3 hops: linear", lambda n: n)
NO_NUMBER = Formula("only what changed", lambda _: None)

CONFIGURATIONS: Final = (
    Configuration(
        "flat, vector, full stamps",
        lambda n: _with_options(shapes.flat(n, "vector"), stamps="full"),
        Formula("n: the whole vector, to everybody", lambda n: n),
        flat=True,
        messages=lambda _: 20,
    ),
    Configuration(
        "flat, matrix, full stamps",
        lambda n: _with_options(shapes.flat(n, "matrix"), stamps="full"),
        SQUARE,
        flat=True,
        messages=_few_where_large,
    ),
    Configuration("flat, matrix, updates", lambda n: shapes.flat(n, "matrix"), NO_NUMBER, flat=True),
    Configuration(
        "domains on a bus, matrix, full stamps",
        lambda n: _with_options(shapes.bus(*TWO_LEVELS[n], "matrix"), stamps="full"),
        BUS,
        messages=lambda _: 60,
    ),
    Configuration("domains on a bus, matrix, updates", lambda n: shapes.bus(*TWO_LEVELS[n], "matrix"), NO_NUMBER),
    Configuration(
        "daisy, three levels, vector, full stamps",
        lambda n: _with_options(shapes.hierarchy(3, *THREE_LEVELS[n], "vector"), stamps="full"),
        Formula("n^(1/3): the vector of one group", lambda n: n ** (1 / 3)),
        messages=lambda _: 60,
    ),
    Configuration(
        "clusters, two layers, matrix, full stamps",
        lambda n: _with_options(shapes.hierarchy(2, *TWO_LEVELS[n], "matrix"), stamps="full"),
        Formula("n with b = √n: linear", lambda n: n),
        messages=lambda _: 60,
    ),
    Configuration(
        "clusters of 4 in layers, matrix, full stamps",
        lambda n: _with_options(shapes.hierarchy(LAYERS_OF_FOUR[n], 4, 4, "matrix"), stamps="full"),
        Formula("4^2 = 16 on each of O(log n) hops", lambda _: 16),
    ),
    Configuration(
        "clusters, two layers, sequenced",
        lambda n: shapes.hierarchy(2, *TWO_LEVELS[n], "sequenced"),
        Formula("1: a number", lambda _: 1),
    ),
    Configuration(
        "gateways, subgroups of 10 in one domain (grouped)",
        _subgroups,
        Formula("n/10: one entry per subgroup, a tenth of flat", lambda n: n / 10),
        flat=True,
    ),
    Configuration(
        "gateways, subgroups of 10 (sequenced or vector), relayed between them",
        _behind_gateways,
        Formula("n/10: one entry per subgroup", lambda n: n / 10),
    ),
    Configuration(
        "interconnected systems, two parallel links each, vector, full stamps",
        lambda n: _with_options(shapes.linked(*TWO_LEVELS[n], 2, "star", "causal", "vector"), stamps="full"),
        Formula("√n in a system, and 1 number on a link", lambda n: n**0.5),
        messages=lambda _: 60,
    ),
)

HEAD: Final = (
    "configuration",
    "processes",
    "messages counted",
    "hops per delivery",
    "frames per delivery",
    "control bytes per frame",
    "largest stamp (bytes)",
    "control bytes per delivery",
    "the paper's header, in integers",
    "that is",
)


def rows(sizes: Iterable[int] = SIZES) -> Iterator[tuple[str, ...]]:
    """Count everything, at these sizes."""
    for configuration in CONFIGURATIONS:
        for size in sizes:
            began = process_time()
            found = count(configuration, size)
            value = configuration.formula.value(found.processes)
            yield (
                configuration.name,
                f"{found.processes:,}",
                f"{found.messages:,}",
                f"{found.hops / found.messages:.2f}",
                f"{found.frames / found.messages:,.1f}",
                f"{found.control_bytes / found.frames:,.1f}",
                f"{found.largest_stamp:,}",
                f"{found.control_bytes / found.messages:,.0f}",
                configuration.formula.text,
                "" if value is None else f"{value:,.0f}",
            )
            print(f"{configuration.name}, {size:,}: {process_time() - began:.1f} s", flush=True)


def page(table: list[tuple[str, ...]]) -> str:
    """Return the page with the table."""
    shown = table[SIZES.index(SHOWN_SIZE) :: len(SIZES)]
    lines = [f"| {' | '.join(row)} |" for row in (HEAD, ("---", *["---:"] * 7, "---", "---:"), *shown)]
    about = " ".join((__doc__ or "").strip().split("\n\n")[1].replace("``CAST``", f"{CAST} of them").split())
    return (
        "# Counts\n\nWhat order costs in each configuration, counted. Written by `make counts`.\n\n"
        f"{about}\n\n"
        "A message goes from one process to another. A *hop* is a step of its route, inside a domain or over a link. *Frames* "
        "are all that travels for it: also markers for those who are no recipients (`vector`), requests to a coordinator "
        "(`sequenced`), and what the relays of a link hand each other. Control bytes are the stamps, and vectors in envelopes, "
        "as they are on the wire, "
        "where a small integer takes one byte and an entry of a full matrix four. The stamps of `updates` grow with the variety "
        "of the traffic: what is counted here is the beginning of a run (and, in the flat domain, of one in which only twelve "
        "write), while full stamps are always the same.\n\n"
        + "\n".join(lines)
        + f"\n\nAll {len(table)} rows, from {SIZES[0]} to {SIZES[-1]:,} processes: [counts.csv](data/counts.csv).\n"
    )


def main() -> None:
    """Count, print and write the page."""
    table = list(rows())
    text = page(table)
    REPORT.write_text(text, encoding="utf-8")
    (REPORT.parent / "data" / "counts.csv").write_text(as_csv(HEAD, table), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
