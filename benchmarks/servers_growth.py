"""Up to 150 running servers: what a message to a remote one and back takes, in one flat domain and in √n domains on a bus.

Claims M6 and M7 of domains §6.1 (Fig. 8 to 12): without domains the cost grows with the square of the number of servers, with √n
domains of √n servers on a bus it grows linearly. Both with full matrices, as in the paper; beside them a flat domain with
``stamps = "updates"``, its Appendix A. Servers are real ones in memory, joined by TCP, spread over a few processes; the sender
writes to one server after the other, and each answers before the next is asked. Times are medians of a pass over the servers, the
best of several passes; bytes are all that goes over the network, confirmations too; processor time is that of all servers
together, which a busy machine changes less than the time. What a full matrix costs is told from the rest by the same hop with
updates. Heartbeats are put off: 150 servers in one domain have 11,175 connections.
"""

from __future__ import annotations

import asyncio
import logging
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.brokers import with_free_addresses
from benchmarks.peers.processes import Turn, Worker
from benchmarks.peers.processes import run as run_workers
from benchmarks.table import Row, markdown
from thence.core import shapes
from thence.core.domain import Domain
from thence.core.topology import Topology
from thence.core.topology_text import parse, write
from thence.runtime import peers
from thence.runtime.embedded import Member
from thence.runtime.letters import Message

NOTES = """
![Bytes of a round trip](images/servers_growth_bytes.svg)

![Time of a round trip](images/servers_growth_time.svg)

Ours is √n domains with full matrices. In bytes the claims hold: in one domain with full matrices they grow with the square of
the number of servers (exponent 2.06 from 25 servers on, and 2.07 in a run before), with √n domains at most linearly (0.74,
and 0.93 before: at few servers the figure moves with what is repeated on a busy machine).

In time they are not shown. Up to 150 servers a flat domain was quicker than domains in this run; in a run before, both took
1.4 ms at 150. A message pays for its hops before it pays for its stamp, on a bus it takes three, and the noise of a shared
machine (load average above 10 on two cores) is as large as what the matrix adds: the times do not even rise steadily.

With `updates` a flat domain sends less than domains do here, where one server asks the others one after the other. Nothing is
stored in this run; the paper stores its matrix with each message.
"""
SIZES = ((3, 3), (5, 5), (7, 7), (10, 10), (12, 12), (15, 10))
"""Domains, and servers in each."""
FIRST = 25
"""From how many servers on growth is measured."""
PROCESSES = 3
MIN_PINGS = 100
PASSES = 5
NEVER_S = 3_600.0
PLOTS = Path(__file__).parent.parent / "docs" / "images"
FULL = {"stamps": "full"}
STYLE = """
text{font:12px sans-serif;fill:#444}.grid{stroke:#ccc;fill:none}.line{fill:none;stroke-width:2}
.line.s1{stroke:#1f6feb}.line.s2{stroke:#b35900;stroke-dasharray:6 3}.line.s3{stroke:#1a7f37;stroke-dasharray:2 2}
.label.s1{fill:#1f6feb}.label.s2{fill:#b35900}.label.s3{fill:#1a7f37}
@media(prefers-color-scheme:dark){text{fill:#bbb}.grid{stroke:#555}}
"""


class Trip(NamedTuple):
    """There and back."""

    seconds: float
    cpu_seconds: float
    wire_bytes: float


class Growth(NamedTuple):
    """Round trips by number of servers, for one kind of fabric."""

    name: str
    trips: dict[int, Trip]

    def exponent(self, what: Callable[[Trip], float]) -> float:
        """How fast it grows: 1 is linearly, 2 with the square."""
        return exponent({servers: what(trip) for servers, trip in self.trips.items()})


def exponent(values: Mapping[int, float]) -> float:
    """How fast a positive value grows with the number of servers, from ``FIRST`` of them on."""
    points = [(math.log(servers), math.log(value)) for servers, value in values.items() if servers >= FIRST]
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def matrix_cpu(full: Growth, updates: Growth) -> dict[int, float]:
    """Return the processor time that a full matrix adds to the same round trip, by number of servers."""
    return {servers: full.trips[servers].cpu_seconds - updates.trips[servers].cpu_seconds for servers in full.trips}


def seconds(trip: Trip) -> float:
    return trip.seconds


def cpu_seconds(trip: Trip) -> float:
    return trip.cpu_seconds


def wire_bytes(trip: Trip) -> float:
    return trip.wire_bytes


def flat(servers: int, stamps: str) -> Topology:
    """Return one domain with everybody in it."""
    return Topology("flat", [Domain("all", tuple(f"p{at}" for at in range(servers)), "matrix", {"stamps": stamps})])


def bus(domains: int, size: int) -> Topology:
    """Return √n domains on a bus, with full matrices."""
    made = shapes.bus(domains, size)
    return Topology("bus", [domain._replace(options=FULL) for domain in made.domains.values()])


def asked(topology: Topology) -> tuple[str, list[str]]:
    """Return who asks and who answers: on a bus, servers that are no relays, the one in the first domain, the others beyond."""
    plain = [name for name, homes in topology.homes.items() if len(homes) == 1]
    asks = plain[0]
    homes = topology.homes
    return asks, [name for name in plain if name != asks and (topology.name == "flat" or homes[name] != homes[asks])]


async def host(turn: Turn, *, topology: str, place: int, asks: str, answers: Sequence[str]) -> tuple[list[float], float, int]:
    """Run one share of the servers; whoever has the one that asks measures the time, all count bytes and processor time."""
    logging.disable(logging.ERROR)
    peers.HEARTBEAT_S = peers.SILENCE_S = NEVER_S  # type: ignore[misc]
    peers.MAX_BACKOFF_S = 0.2  # type: ignore[misc]
    fabric = parse(topology)
    async with AsyncExitStack() as stack:
        running: dict[str, Member] = {}
        # From the last one on: of two servers the first in the topology calls, and then the other one is there already.
        for name in reversed(list(fabric.processes)[place::PROCESSES]):
            running[name] = await stack.enter_async_context(Member(fabric, name=name))
            if name != asks:
                _answer(running[name])
        for member in running.values():
            await member.connected()
        await turn.all()
        before, began = _bytes_out(running.values()), time.process_time()
        times = await _ask(running[asks], answers) if asks in running else []
        await turn.all()
        sent, worked = _bytes_out(running.values()) - before, time.process_time() - began
    return times, worked, sent


def _bytes_out(members: Iterable[Member]) -> int:
    connections = [peer.connection for member in members for peer in member._running.peers.neighbours.values()]
    return sum(connection.bytes_out for connection in connections if connection is not None)


def _answer(member: Member) -> None:
    def answer(messages: Sequence[Message]) -> None:
        for message in messages:
            member.post(message.sender, message.body)

    member.on_batch(answer)


async def _ask(member: Member, answers: Sequence[str]) -> list[float]:
    """Return the median of each pass."""
    back = asyncio.Event()
    member.on_batch(lambda _: back.set())
    medians = []
    for _ in range(PASSES):
        times = []
        for at in range(pings(answers)):
            back.clear()
            began = time.perf_counter()
            member.post(answers[at % len(answers)], b"ping")
            await back.wait()
            times.append(time.perf_counter() - began)
        medians.append(statistics.median(times))
    return medians


def pings(answers: Sequence[str]) -> int:
    """Return how many go to and fro in one pass."""
    return max(MIN_PINGS, len(answers))


def round_trip(topology: Topology) -> Trip:
    """Run all servers of a fabric, and measure."""
    asks, answers = asked(topology)
    text = write(with_free_addresses(topology))
    common = {"topology": text, "asks": asks, "answers": answers}
    reports = [report.said for report in run_workers([Worker(host, {"place": place, **common}) for place in range(PROCESSES)])]
    trips = PASSES * pings(answers)
    worked, sent = sum(report[1] for report in reports), sum(report[2] for report in reports)
    return Trip(min(min(report[0]) for report in reports if report[0]), worked / trips, sent / trips)


def measure(sizes: Sequence[tuple[int, int]] = SIZES) -> list[Growth]:
    """Run every kind of fabric in every size."""
    growths = [Growth("flat, full", {}), Growth("flat, updates", {}), Growth("√n domains", {})]
    for count, size in sizes:
        servers = count * size
        fabrics = (flat(servers, "full"), flat(servers, "updates"), bus(count, size))
        for growth, fabric in zip(growths, fabrics, strict=True):
            trip = growth.trips[servers] = round_trip(fabric)
            shown = f"{trip.seconds * 1e3:.2f} ms, {trip.cpu_seconds * 1e3:.2f} ms of processors, {trip.wire_bytes:,.0f} B"
            print(f"  {servers} servers, {growth.name}: {shown}", file=sys.stderr, flush=True)
    return growths


def draw(growths: Sequence[Growth], title: str, what: Callable[[Trip], float], words: Callable[[float], str]) -> str:
    """Return a plot."""
    from thence.pipeline.reporting.plots import Line, Tick, line_plot

    largest = max(growths[0].trips)
    about = "; ".join(f"{growth.name}: {words(what(growth.trips[largest]))} with {largest} servers" for growth in growths)
    lines = [Line(growth.name, [(servers, what(trip)) for servers, trip in growth.trips.items()]) for growth in growths]
    ticks = [Tick(servers, str(servers)) for servers in (0, 50, 100, 150)]
    plot = line_plot(title, about, lines, x_ticks=ticks, y_words=words, x_name="servers")
    start, behind = plot.split(">", 1)
    return start.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1) + f"><style>{STYLE}</style>{behind}\n"


def run() -> list[Row]:
    growths = measure()
    PLOTS.mkdir(exist_ok=True)
    plots = {
        "servers_growth_time": draw(growths, "A round trip to a remote server: time", seconds, _milliseconds),
        "servers_growth_cpu": draw(growths, "A round trip to a remote server: processor time", cpu_seconds, _milliseconds),
        "servers_growth_bytes": draw(
            growths, "A round trip to a remote server: bytes", wire_bytes, lambda at: f"{at / 1e3:.3g} kB"
        ),
    }
    for name, plot in plots.items():
        (PLOTS / f"{name}.svg").write_text(plot, encoding="utf-8")
    *flats, domains = growths
    rows = []
    for servers, ours in domains.trips.items():
        for peer in flats:
            theirs = peer.trips[servers]
            what = f"{servers} servers, {peer.name}"
            rows += [
                _row(f"{what}: time", seconds, ours, theirs),
                _row(f"{what}: processor time", cpu_seconds, ours, theirs),
                Row(
                    f"{what}: bytes",
                    f"{ours.wire_bytes:,.0f} B",
                    f"{theirs.wire_bytes:,.0f} B",
                    theirs.wire_bytes / ours.wire_bytes,
                ),
            ]
    return rows + list(_exponents(domains, *flats))


def _exponents(domains: Growth, full: Growth, updates: Growth) -> Iterator[Row]:
    """Give how fast things grow."""
    for peer in (full, updates):
        yield _compared(f"bytes, {peer.name}", domains.exponent(wire_bytes), peer.exponent(wire_bytes))
    yield _compared("processor time, flat, full", domains.exponent(cpu_seconds), full.exponent(cpu_seconds))
    added = exponent(matrix_cpu(full, updates))
    yield _compared("processor time, flat, what full adds to updates", domains.exponent(cpu_seconds), added)


def _compared(what: str, ours: float, theirs: float) -> Row:
    return Row(f"exponent from {FIRST} servers on: {what}", f"{ours:.2f}", f"{theirs:.2f}", theirs / ours)


def _row(what: str, of: Callable[[Trip], float], ours: Trip, theirs: Trip) -> Row:
    return Row(what, f"{of(ours) * 1e3:.2f} ms", f"{of(theirs) * 1e3:.2f} ms", of(theirs) / of(ours))


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def main() -> None:
    print(markdown(run()))


if __name__ == "__main__":
    main()
