"""Random acyclic fabrics: every causal ordering with its options, every way of acknowledging, shared relays, replicas, links.

A fabric and everything that happens in it is drawn from one number, so a failure is that number. The command

    python -m tests.support.fabrics SEED

writes the fabric into a file and prints the one command that repeats the run; failing tests print both as well.

How no cycle can come about: the domains are the parts of a forest at first. Each new domain is joined with one or
more parts, by one shared process or one link of 1 to 3 pairs each, and they become one part; in the end links join what is left.
In every third fabric that promises causal order most relays then get replicas, and half of the links relays of their own that
take over from each other. In every fourth, messages are kept until all have them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from tests.support.papers.survivors import dead_in, still_waiting, wrong_among
from thence.core.ordering import ORDERINGS, ordering_named
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Promise, Topology
from thence.core.topology.toml import write
from thence.sim.node import SimulatedNode
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.trace.events import Event

MAX_DOMAINS: Final = 12
MAX_PROCESSES: Final = 60
MAX_FRESH: Final = 6
"""How many members a domain has that are in no other one yet; a few domains have three times as many."""

BODY_BYTES: Final = 20
"""How much each message says, so that one that lost its body on the way is seen."""

MAX_EVENTS: Final = 50_000
"""A run has far fewer. One that has more goes round in circles, and is stopped."""

CAUSAL: Final = tuple(sorted(name for name, ordering in ORDERINGS.items() if "causal" in ordering.traits.guarantees))
GATED: Final = (*(name for name in CAUSAL if ORDERINGS[name].traits.gated), "vector", "vector")
"""Orderings of domains in which relays may have replicas; the one in which they take over at once more often."""
ALWAYS: Final = frozenset({"well-formed", "creation", "duplication", "completeness"})
FAULTS: Final = ("lost", "duplicated", "reordered", "cut")


class _Builder:
    """Makes one fabric, domain by domain."""

    def __init__(self, chance: Random, promise: Promise) -> None:
        self.chance = chance
        self.promise = promise
        self.domains: dict[str, list[str]] = {}
        self.links: list[Link] = []
        self.parts: list[list[str]] = []
        """Domains that are joined already, part by part."""
        self.inner: list[str] = []
        """Domains inside another one. They carry no traffic, and nothing is joined with them."""
        self.processes = 0

    def build(self, seed: int) -> Topology:
        """Return the fabric."""
        small = self.chance.random() < 0.5
        for _ in range(self.chance.randint(2, 5 if small else MAX_DOMAINS)):
            self._add_domain(small=small)
        while len(self.parts) > 1:
            self._link(self.chance.choice(self.parts[0]), self.chance.choice(self.parts[1]))
            self.parts[:2] = [self.parts[0] + self.parts[1]]
        replicated = self.promise == "causal" and seed % 3 == 1
        orderings = (*CAUSAL, "fifo", "fifo") if self.promise == "fifo" else GATED if replicated else CAUSAL
        twins = self._replicate(Random(f"replicas/{seed}")) if replicated else []
        others = Random(f"confirmation/{seed}/{self.promise}")
        early = (None, None, 0, BODY_BYTES)
        domains = [
            Domain(
                name,
                tuple(members),
                ordering,
                options,
                confirming(ordering, members, others, nearest=replicated),
                others.choice(early),
            )
            for name, members in self.domains.items()
            for ordering in [self.chance.choice(orderings)]
            for options in [_variant(ordering, members, self.chance)]
        ]
        stability = Random(f"stability/{seed}").random() < 0.25
        return Topology(
            f"fabric-{seed}",
            domains,
            self.links,
            replicas=twins,
            local=self._locals(twins, domains, Random(f"local/{seed}")),
            promise=self.promise,
            stability=stability,
        )

    def _locals(self, groups: list[tuple[str, ...]], domains: list[Domain], chance: Random) -> dict[str, str]:
        """Let most replicas be ordinary members of one of their domains."""
        local = {}
        for group in groups:
            able = [one.name for one in domains if group[0] in one.members and ordering_named(one.ordering).traits.direct]
            if able and chance.random() < 0.7:
                local.update(dict.fromkeys(group, chance.choice(able)))
        return local

    def _replicate(self, chance: Random) -> list[tuple[str, ...]]:
        """Put one or two others beside most relays."""
        plain = Topology("plain", [Domain(name, tuple(members), "vector") for name, members in self.domains.items()], self.links)
        self.links = [self._with_takeover(link, chance) if chance.random() < 0.5 else link for link in self.links]
        busy = {relay for link in self.links for relay in link.members}
        busy.update(member for name in plain.inner for member in self.domains[name])
        groups = []
        for relay, names in plain.joints.items():
            if relay not in busy and chance.random() < 0.8:
                twins = [f"{relay}{item}" for item in "bc"[: chance.choice((1, 1, 2))]]
                for name in names:
                    self.domains[name] += twins
                groups.append(tuple(chance.sample([relay, *twins], 1 + len(twins))))
        return groups

    def _with_takeover(self, link: Link, chance: Random) -> Link:
        """Give a link two or three relays on each side, or on one side a single one; they are in no other domain."""
        count = chance.choice((2, 2, 3))
        sides = [[f"{link.name}{side}{number}" for number in range(1, 1 + most)] for side, most in (("n", count), ("f", count))]
        if chance.random() < 0.2:
            del sides[chance.randrange(2)][1:]
        for name, side in zip(link.between, sides, strict=True):
            self.domains[name] += side
        pairs = tuple((sides[0][at % len(sides[0])], sides[1][at % len(sides[1])]) for at in range(count))
        return link._replace(relays=pairs, takeover=True)

    def _add_domain(self, *, small: bool) -> None:
        name = f"d{len(self.domains) + 1}"
        if self.parts and self.chance.random() < 0.04:
            outer = self.domains[self.chance.choice(self.parts[0])]
            self.domains[name] = self.chance.sample(outer, self.chance.randint(1, len(outer)))
            self.inner.append(name)
            return
        most = MAX_FRESH // 2 if small else MAX_FRESH * (3 if self.chance.random() < 0.1 else 1)
        # Some consist of relays only.
        fresh = 0 if self.parts and self.chance.random() < 0.1 else self.chance.randint(1 if self.parts else 2, most)
        fresh = min(fresh, MAX_PROCESSES - self.processes)
        members = self.domains[name] = [f"p{self.processes + number}" for number in range(1, fresh + 1)]
        self.processes += fresh
        part = [name]
        # Few domains are joined with nothing yet; some join several parts, as a backbone does.
        joins = min(len(self.parts), self.chance.choice((0, 1, 1, 1, 1, 2, 3)) if fresh else self.chance.randint(1, 3))
        linked: list[str] = []
        for other in self.chance.sample(self.parts, joins):
            self.parts.remove(other)
            peer = self.chance.choice(other)
            if not fresh or self.chance.random() < 0.6:
                members.insert(self.chance.randint(0, len(members)), self.chance.choice(self.domains[peer]))
            else:
                linked.append(peer)
            part += other
        for peer in linked:
            self._link(peer, name)
        self.parts.append(part)

    def _link(self, one: str, other: str) -> None:
        pairs = [
            (self.chance.choice(self.domains[one]), self.chance.choice(self.domains[other]))
            for _ in range(self.chance.randint(1, 3))
        ]
        fifo = self.promise == "fifo" and self.chance.random() < 0.8
        ends = (one, other)
        if self.chance.random() < 0.5:
            ends, pairs = (other, one), [(far, near) for near, far in pairs]
        name = f"l{len(self.links) + 1}"
        self.links.append(Link(name, ends, tuple(dict.fromkeys(pairs)), "fifo" if fifo else "causal"))


def _variant(ordering: str, members: list[str], chance: Random) -> dict[str, Any]:
    if ordering in ("vector", "matrix") and chance.random() < 0.4:
        return {"stamps": "full"}
    if ordering == "sequenced" and chance.random() < 0.7:
        return {"coordinator": chance.choice(members)}
    if ordering == "grouped" and chance.random() < 0.7:
        shuffled = chance.sample(members, len(members))
        count = chance.randint(1, len(members))
        return {"groups": [shuffled[at::count] for at in range(count)]}
    if ordering == "resilient":
        return {"copies": chance.randrange(min(3, len(members)))}
    if ordering == "flood" and len(members) > 1:
        if chance.random() < 0.3 or len(members) > MAX_FRESH:
            return {"links": "ring"}
        if chance.random() < 0.6:
            return {"links": [[members[chance.randrange(at)], members[at]] for at in range(1, len(members))]}
    return {}


def confirming(ordering: str, members: list[str], chance: Random, *, nearest: bool) -> AckOptions:
    """Draw one of the ways in which a domain with this ordering may ack; with ``nearest`` mostly so that others repeat."""
    schemes = ["decentralised", "decentralised"]
    schemes += ["centralised"] if ORDERINGS[ordering].traits.centralised else []
    schemes += ["distributed"] * 4 if ORDERINGS[ordering].traits.one_stamp else []
    chosen: dict[str, Any] = {"scheme": chance.choice(schemes)}
    if chance.random() < 0.5:
        chosen |= {"after_messages": chance.randint(2, 8), "after_ns": chance.randint(1, 50) * 1_000_000}
    if nearest and ORDERINGS[ordering].traits.one_stamp and chance.random() < 0.8:
        chosen |= {"scheme": "distributed", "retransmission": "nearest", "whole": chance.random() < 0.8}
    elif chosen["scheme"] == "distributed" and chance.random() < 0.6:
        chosen["retransmission"] = "nearest"
        if chance.random() < 0.5:
            chosen["sites"] = (tuple(members[::2]), tuple(members[1::3]))[: chance.randint(1, 2) if len(members) < 3 else 1]
    return AckOptions(**chosen)


def fabric_for(seed: int, promise: Promise = "causal") -> Topology:
    """Return the fabric of this number."""
    return _Builder(Random(f"fabric/{seed}/{promise}"), promise).build(seed)


def options_for(seed: int) -> SimulationOptions:
    """Return what happens in the fabric of this number."""
    chance, suspicious = Random(f"fabric traffic/{seed}"), Random(f"fabric suspicions/{seed}")
    faulty = chance.random() < 0.5
    return SimulationOptions(
        topology=f"fabric-{seed}.toml",
        messages=chance.randint(10, 40),
        pattern=chance.choice(("mixed", "mixed", "mixed", "unicast", "multicast")),
        recipients=chance.randint(1, 5),
        body_bytes=BODY_BYTES,
        gap=chance.choice(("exponential:500us", "exponential:2ms", "exponential:20ms")),
        replies=chance.choice((0.3, 0.6, 0.9)),
        delay="exponential:10ms",
        link_delay=chance.choice((None, "exponential:50ms")),
        loss=chance.choice((0.0, 0.05, 0.2)) if faulty else 0.0,
        duplication=chance.choice((0.0, 0.1, 0.3)) if faulty else 0.0,
        reordering=chance.choice((0.0, 0.2)) if faulty else 0.0,
        partitions=chance.choice((0, 0, 1, 2)) if faulty else 0,
        crashes=chance.choice((0, 1, 4)) if faulty else 0,
        sync=chance.choice(("constant:100us", "exponential:5ms")) if faulty else "constant:100us",
        suspicions=suspicious.choice((0, 1, 4)),
        deaths=suspicious.choice((0, 1, 2)) if faulty else 0,
        seed=seed,
    )


def promise_for(seed: int) -> Promise:
    """Return what the fabric of this number promises: every eighth only FIFO."""
    return "fifo" if seed % 8 == 7 else "causal"


class Outcome(NamedTuple):
    """What one run came to."""

    seed: int
    kind: str
    """What the fabric promises, and how."""
    messages: int
    deliveries: int
    faults: Counter[str]
    shape: Counter[str]
    """What the fabric is made of."""
    broken: dict[str, int]

    @property
    def replay(self) -> str:
        """The command that writes the fabric and prints how to run it."""
        return f"python -m tests.support.fabrics {self.seed}"

    def explain(self) -> str:
        """Return all that is needed to repeat the run elsewhere."""
        return f"{self.broken}\n{self.replay}\n{command(self.seed)}\n{write(fabric_for(self.seed, promise_for(self.seed)))}"


def command(seed: int) -> str:
    """Return the command that runs the fabric, once it is written into its file."""
    return options_for(seed).replay()


def run_one(seed: int, node_type: type[SimulatedNode] = SimulatedNode, **changes: Any) -> Outcome:
    """Simulate and judge the run of this number; ``changes`` are options that differ."""
    promise = promise_for(seed)
    topology = fabric_for(seed, promise)
    options = msgspec.structs.replace(options_for(seed), **changes)
    events: list[Event] = []
    simulation = Simulation(options, events.append, where=topology, node_type=node_type, max_events=MAX_EVENTS)
    result = simulation.run()
    wrong = wrong_among(events, dead_in(simulation), ALWAYS | topology.guarantees | {promise})
    broken: dict[str, int] = Counter(row.property for row in wrong)
    broken |= {
        name: count
        for name, count in (
            ("still waiting", still_waiting(simulation)),
            ("repeated deliveries", result.statistics.repeated_deliveries),
            ("refused", result.statistics.refused),
            ("without body", sum(event.bytes != options.body_bytes for event in events if event.kind == "deliver")),
        )
        if count
    }
    faults = Counter({name: result.network[name] for name in FAULTS})
    faults["crashes"] = result.statistics.crashes
    faults["suspicions"] = result.statistics.suspicions
    faults["deaths"] = len(dead_in(simulation))
    return Outcome(seed, promise, options.messages, result.statistics.deliveries, faults, _shape(topology), broken)


def run_many(seeds: Iterable[int]) -> list[Outcome]:
    """Run some, one after the other."""
    return [run_one(seed) for seed in seeds]


def _shape(topology: Topology) -> Counter[str]:
    shape = Counter(
        processes=len(topology.processes),
        domains=len(topology.domains),
        inner=len(topology.inner),
        relays=len(topology.relays),
        links=len(topology.links),
        replicas=sum(len(group) for group in topology.replicas),
        stability=topology.stability,
        pairs=sum(len(link.relays) for link in topology.links.values()),
        takeover_links=sum(bool(domain.pairs) for domain in topology.domains.values()),
    )
    for domain in topology.domains.values():
        shape[ordering_named(domain.ordering).traits.name] += 1
        shape.update(list(domain.options))
        confirmation = domain.acks
        shape["early"] += domain.forward_early is not None
        shape.update([confirmation.scheme, confirmation.retransmission, "delayed" if confirmation.after_ns else "at once"])
    return shape


def main() -> int:
    """Write the fabric of a number into a file and print the command that runs it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--folder", type=Path, default=Path(), help="where to write the file")
    arguments = parser.parse_args()
    options = options_for(arguments.seed)
    path = arguments.folder / (options.topology or "")
    path.write_text(write(fabric_for(arguments.seed, promise_for(arguments.seed))), encoding="utf-8")
    sys.stdout.write(msgspec.structs.replace(options, topology=str(path)).replay() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
