"""Random changes of random fabrics: domains split and merge, members move, come and go, links change; and runs through them.

Everything is drawn from one number, so a failure is that number: ``python -m tests.evolving SEED`` says what broke.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, NamedTuple

from tests.fabrics import CAUSAL, FAULTS
from thence.core.domain import Domain
from thence.core.ordering import ordering_named
from thence.core.topology import Link, Topology
from thence.errors import UsageError
from thence.sim.evolution import Command, EvolvingNode, EvolvingSimulation, Trouble
from thence.sim.options import SimulationOptions
from thence.trace.events import Event
from thence.trace.judge import judge

MAX_VERSIONS: Final = 4
MAX_EVENTS: Final = 300_000
"""A run has far fewer. One that has more never comes to rest, and is stopped."""

REQUIRED: Final = ("well-formed", "creation", "duplication", "fifo", "causal", "completeness")


class Parts:
    """A fabric that is being changed: its domains and links, and who the next new process is."""

    def __init__(self, topology: Topology, chance: Random, fresh: Iterable[str]) -> None:
        self.chance = chance
        self.topology = topology
        self.domains = {name: list(domain.members) for name, domain in topology.domains.items()}
        self.orderings = {name: str(domain.ordering) for name, domain in topology.domains.items()}
        self.links = {link.name: link for link in topology.links.values()}
        self.fresh = iter(fresh)

    def result(self) -> Topology:
        """Return the next version; a ``TopologyError`` if it cannot be."""
        domains = [Domain(name, tuple(members), self.orderings[name]) for name, members in self.domains.items()]
        return Topology(self.topology.name, domains, self.links.values(), version=self.topology.version + 1)

    def split(self) -> None:
        """A domain becomes two, joined by one who is in both or by a link."""
        name = self.chance.choice([name for name, members in self.domains.items() if len(members) > 2])
        members = self.domains[name]
        at = self.chance.randrange(1, len(members))
        new = f"{name}-v{self.topology.version + 1}"
        one, other = members[:at], members[at:]
        if self.chance.random() < 0.5:
            one = [*one, other[0]]
        else:
            self.links[f"l-{new}"] = Link(f"l-{new}", (name, new), ((self.chance.choice(one), self.chance.choice(other)),))
        self.domains[name], self.domains[new] = one, other
        self.orderings[new] = self.chance.choice(CAUSAL)

    def merge(self) -> None:
        """Two domains become one."""
        one, other = self.chance.sample(list(self.domains), 2)
        self.domains[one] = list(dict.fromkeys(self.domains[one] + self.domains.pop(other)))
        for name, link in list(self.links.items()):
            between = tuple(one if domain == other else domain for domain in link.between)
            if between[0] == between[1]:
                del self.links[name]
            else:
                self.links[name] = link._replace(between=(between[0], between[1]))

    def move(self) -> None:
        """A member goes from one domain to another."""
        one, other = self.chance.sample(list(self.domains), 2)
        member = self.chance.choice(self.domains[one])
        self.domains[one].remove(member)
        if member not in self.domains[other]:
            self.domains[other].append(member)

    def add(self) -> None:
        """A new server."""
        members = self.domains[self.chance.choice(list(self.domains))]
        members.insert(self.chance.randint(0, len(members)), next(self.fresh))

    def remove(self) -> None:
        """A server goes."""
        gone = self.chance.choice(self.topology.processes)
        for members in self.domains.values():
            if gone in members:
                members.remove(gone)

    def level(self) -> None:
        """A domain above: one member of each of two domains that were linked."""
        name = self.chance.choice(list(self.links))
        link = self.links.pop(name)
        above = f"above-v{self.topology.version + 1}"
        self.domains[above] = list(link.relays[0])
        self.orderings[above] = self.chance.choice(CAUSAL)

    def widen(self) -> None:
        """One more pair of relays for a link, or one less."""
        name = self.chance.choice(list(self.links))
        link = self.links[name]
        if len(link.relays) > 1 and self.chance.random() < 0.5:
            self.links[name] = link._replace(relays=link.relays[:-1])
        else:
            pair = (self.chance.choice(self.domains[link.between[0]]), self.chance.choice(self.domains[link.between[1]]))
            self.links[name] = link._replace(relays=(*link.relays, pair))

    def reorder(self) -> None:
        """Another ordering in a domain."""
        self.orderings[self.chance.choice(list(self.domains))] = self.chance.choice(CAUSAL)


CHANGES: Final[dict[str, Callable[[Parts], None]]] = {
    change.__name__: change
    for change in (Parts.split, Parts.merge, Parts.move, Parts.add, Parts.remove, Parts.level, Parts.widen, Parts.reorder)
}


def first_fabric(chance: Random) -> Topology:
    """Return one to three small domains in a row, joined by members or links."""
    domains: list[Domain] = []
    links: list[Link] = []
    process = 0
    for number in range(chance.randint(1, 3)):
        members = [f"p{process + at}" for at in range(1, chance.randint(2, 4) + 1)]
        process += len(members)
        name = f"d{number + 1}"
        if domains and chance.random() < 0.5:
            members.append(domains[-1].members[0])
        elif domains:
            links.append(Link(f"l{number}", (domains[-1].name, name), ((domains[-1].members[-1], members[0]),)))
        domains.append(Domain(name, tuple(members), chance.choice(CAUSAL)))
    return Topology("evolving", domains, links)


def changed(topology: Topology, chance: Random, fresh: Iterable[str]) -> tuple[Topology, str]:
    """Return a version that may follow, and what was done."""
    fresh = list(fresh)
    while True:
        what = chance.choice(list(CHANGES))
        parts = Parts(topology, chance, fresh)
        try:
            CHANGES[what](parts)
            return parts.result(), what
        except (UsageError, IndexError, ValueError):
            continue  # Not every change fits every fabric.


def versions_for(seed: int) -> tuple[list[Topology], list[str]]:
    """Return a fabric and the versions that follow, and what is done from each to the next."""
    chance = Random(f"evolving/{seed}")
    versions, done = [first_fabric(chance)], []
    for number in range(chance.randint(1, MAX_VERSIONS - 1)):
        topology, what = changed(versions[-1], chance, [f"n{number}"])
        versions.append(topology)
        done.append(what)
    careful = Random(f"evolving-stability/{seed}")
    return [_careful(topology, careful) for topology in versions], done


def _careful(topology: Topology, chance: Random) -> Topology:
    """Return the same version, in which messages may be kept until all have them, and domains may deliver only what all have."""
    domains = [
        domain._replace(delivery="safe") if ordering_named(domain.ordering).direct and chance.random() < 0.3 else domain
        for domain in topology.domains.values()
    ]
    keeps = chance.random() < 0.4
    return Topology(topology.name, domains, topology.links.values(), version=topology.version, stability=keeps)


def options_for(seed: int) -> SimulationOptions:
    """Return traffic and faults."""
    chance = Random(f"evolving-options/{seed}")
    faulty = chance.random() < 0.8
    return SimulationOptions(
        messages=chance.randint(20, 80),
        pattern="mixed",
        replies=chance.choice((0.0, 0.3, 0.8)),
        gap="exponential:8ms",
        delay=chance.choice(("exponential:10ms", "uniform:1ms..30ms", "pareto:2ms,1.2")),
        loss=chance.choice((0.0, 0.1, 0.3)) if faulty else 0.0,
        duplication=chance.choice((0.0, 0.2)) if faulty else 0.0,
        reordering=chance.choice((0.0, 0.2)) if faulty else 0.0,
        partitions=chance.randint(0, 2) if faulty else 0,
        crashes=chance.randint(0, 6) if faulty else 0,
        durable=True,
        reliable=True,
        seed=seed,
    )


def trouble_for(seed: int) -> Trouble:
    """Return what happens to commands."""
    chance = Random(f"evolving-trouble/{seed}")
    return Trouble(
        loss=chance.choice((0.0, 0.02, 0.1)),
        death=chance.choice((0.0, 0.05, 0.15)),
        second=chance.choice((0.0, 0.5)),
        abort=chance.choice((0.0, 0.5)),
    )


class Outcome(NamedTuple):
    """What came out of one run."""

    seed: int
    broken: tuple[str, ...]
    done: tuple[str, ...]
    counts: Counter[str]
    deliveries: int
    messages: int
    lost: Counter[str]
    """What the network did, beside what ``counts`` says."""

    @property
    def faults(self) -> Counter[str]:
        """Everything that went wrong, and everything that was changed."""
        return self.counts + self.lost + Counter(self.done)

    @property
    def replay(self) -> str:
        """The command that runs it again."""
        return f"python -m tests.evolving {self.seed}"


def _out_of_turn(events: Iterable[Event]) -> list[str]:
    """Return what was sent before something that its application had submitted earlier: numbers are given on submission."""
    latest: dict[str, int] = {}
    found = []
    for event in events:
        if event.kind == "send" and event.message is not None:
            number = int(event.message.rpartition(":")[2])
            if number < latest.get(event.process, 0):
                found.append(f"{event.message} was sent after number {latest[event.process]}")
            latest[event.process] = number
    return found


def run_one(
    seed: int, node_type: type[EvolvingNode] = EvolvingNode, command_type: type[Command] = Command, trouble: Trouble | None = None
) -> Outcome:
    """Run one fabric through its changes, and judge the whole of it."""
    versions, done = versions_for(seed)
    events: list[Event] = []
    run = EvolvingSimulation(
        options_for(seed),
        events.append,
        versions,
        trouble_for(seed) if trouble is None else trouble,
        node_type=node_type,
        command_type=command_type,
        max_events=MAX_EVENTS,
    )
    result = run.run()
    verdict = judge(events, REQUIRED)
    broken = [f"{violation.property} at {violation.process}: {violation.later}" for violation in verdict.violations]
    broken += _out_of_turn(events)
    last = versions[-1]
    for name, standing in run.standings().items():
        if name in last.homes and (standing.version, standing.phase) != (last.version, "normal"):
            broken.append(f"{name} ends with version {standing.version}, {standing.phase}")
        if standing.waiting or not standing.idle:
            broken.append(f"{name} ends with {standing.waiting} waiting: {standing.trouble}")
    counts = run.counts + Counter(crashes=result.statistics.crashes, resumed=sum(run._node(name).resumed for name in run.names))
    lost = Counter({name: result.network[name] for name in FAULTS})
    return Outcome(seed, tuple(broken), tuple(done), counts, result.statistics.deliveries, result.statistics.messages, lost)


def run_many(seeds: Iterable[int]) -> list[Outcome]:
    """Run some, one after the other."""
    return [run_one(seed) for seed in seeds]


if __name__ == "__main__":
    outcome = run_one(int(sys.argv[1]))
    sys.stdout.write(f"{outcome}\n")
    sys.exit(bool(outcome.broken))
