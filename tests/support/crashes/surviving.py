"""Random fabrics that promise to outlive deaths, through deaths, changes and every other fault at once; judged among survivors.

In one run members of all kinds die for good (ordinary ones, causal servers, relays of links, replicas, holders of copies, and who
is asked in a change), others crash and come back, members suspect each other wrongly, packets are lost, doubled and reordered,
the network is cut, and meanwhile domains split and merge, members join, leave and move, and the dead are removed.

    python -m tests.support.crashes.surviving SEED      says what broke in the run of this number

Rules:

* Fabrics are those of ``thence topology make daisy``, with ``resilient`` groups, with links whose relays take over, or domains in
  a row.
* Who dies is drawn from those who are not missed by what the configuration promises (``sim.faults.failures.mortal``), at any
  moment, by the version in force and by the one that is to follow. Where a domain promises nothing about deaths, nobody in it
  dies but by being removed (``--lost``): ``BLOCKED`` says why.
* People decide on each change when the one before is done. Most have the dead removed with it; the others leave them where they
  are.
* What counts is what survivors have of survivors: nothing is missing, nothing is there twice, nothing is out of order. And of the
  dead: what one has delivered, all survivors have.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Final, NamedTuple

from tests.support.evolving import ALL_CHANGES, REQUIRED, Change, Parts, out_of_turn, views_apart
from tests.support.fabrics import FAULTS
from tests.support.papers.survivors import dead_in, still_waiting, wrong_among
from thence.core.ordering import ordering_named
from thence.core.reconfig.coordinator import Coordinator
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.errors import UsageError
from thence.sim.faults.reconfiguration import ChangeCommand, Changes, Trouble
from thence.sim.node import SimulatedNode
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.trace.events import Event

MAX_EVENTS: Final = 300_000
"""A run has far fewer. One that has more never comes to rest, and is stopped."""

MAX_CHANGES: Final = 3
SPARES: Final = tuple(f"n{number}" for number in range(1, 13))
TRIES: Final = 40
"""How many changes people think of at most until one is possible."""
TRIES_EACH: Final = 5
"""How many of these are of one kind: not every change fits every fabric."""
LIKELY: Final = (*ALL_CHANGES, "split", "split", "merge", "replicate")
"""The changes, some more often than others."""

WEAK: Final = 0.1
"""How often a domain promises nothing about deaths."""

BLOCKED: Final = {
    "vector": "acked one by one or without whole messages, what the dead one sent last is with some only, and others wait for it",
    "matrix": "what the dead one sent last is with its recipients only, and whoever learns of it from them waits for it",
    "sequenced": "nobody takes the place of the coordinator",
    "grouped": "nobody takes the place of a group's first member",
    "relayed": "nobody takes the place of the relay whose vector messages carry",
    "flood": "who forwards over a tree or a ring is missed by all behind it",
    "clocked": "everybody waits until the dead one's clock has gone on",
}
"""Where deaths for good are not drawn though they could be, and why. ``resilient``, and ``vector`` with whole messages, go on."""


def strong(domain: Domain, style: str) -> Domain:
    """Return a domain that outlives deaths, for the most part; the same for the same name and ordering, so that it can go on."""
    chance = Random(f"surviving/{style}/{domain.name}/{domain.ordering}")
    name = str(domain.ordering)
    if chance.random() >= WEAK:
        name = chance.choice(("vector", "vector", "resilient")) if name not in ("vector", "resilient") else name
    elif name == "vector":
        return domain._replace(ordering="matrix")
    if name == "vector":
        return domain._replace(ordering=name, acks=AckOptions.passing_on())
    return domain._replace(ordering=name, options={"copies": chance.choice((1, 1, 2))} if name == "resilient" else {})


class Hardy(Parts):
    """A fabric that is being changed, in which most relays have replicas and most domains outlive deaths."""

    def __init__(self, topology: Topology, chance: Random, fresh: Iterable[str], style: str) -> None:
        super().__init__(topology, chance, fresh)
        self.style = style
        self.early = 0

    def result(self, version: int) -> Topology:
        """Return the fabric as this version; a ``TopologyError`` if it cannot be."""
        domains = [
            strong(Domain(name, tuple(members), self.orderings[name]), self.style) for name, members in self.domains.items()
        ]
        if self.early:  # So that it is another version than one in which the dead one only leaves.
            domains[0] = domains[0]._replace(forward_early=self.early)
        direct = {domain.name for domain in domains if ordering_named(domain.ordering).traits.direct}
        groups = [tuple(group) for group in self.groups if len(group) > 1 and len(self.homes(group[0])) > 1]
        local = {
            name: home for group in groups for name in group if (home := self.local.get(group[0])) in direct & {*self.homes(name)}
        }
        return Topology(self.topology.name, domains, self.links.values(), replicas=groups, local=local, version=version)

    def mend(self) -> None:
        """Give relays that have no replica any more another one: a plain member, or a new server."""
        here = {member for members in self.domains.values() for member in members}
        self.groups = [found for group in self.groups if len(found := [name for name in group if name in here]) > 1]
        alone = {name for link in self.links.values() for name in link.members} | {
            name for group in self.groups for name in group
        }
        for relay in sorted(here):
            homes = self.homes(relay)
            if len(homes) < 2 or relay in alone or self.chance.random() < WEAK:
                continue
            plain = [name for name in self.domains[homes[0]] if len(self.homes(name)) == 1 and name not in alone]
            other = self.chance.choice(plain) if len(plain) > 1 or (plain and self.chance.random() < 0.3) else next(self.fresh)
            for name in homes:
                self.domains[name] += [other] if other not in self.domains[name] else []
            self.groups.append([relay, other])
            self.local.update(dict.fromkeys((relay, other), homes[0]))


def first_fabric(chance: Random, style: str) -> Topology:
    """Return a daisy, two groups joined by a link whose relays take over, or some domains in a row."""
    kind = chance.choice(("daisy", "daisy", "link", "row"))
    count = 2 if kind == "link" else chance.randint(2, 3)
    groups = [[f"{letter}{number}" for number in range(chance.randint(3, 4))] for letter in "abc"[:count]]
    parts = Hardy(Topology("surviving", [Domain("none", ("x",), "vector")]), chance, (), style)
    parts.domains = {f"d{at}": list(members) for at, members in enumerate(groups)}
    if kind == "daisy":
        parts.domains["servers"] = [name for members in groups for name in members[:2]]
        parts.groups = [members[:2] for members in groups]
    elif kind == "row":
        for at, members in enumerate(groups[:-1]):
            parts.domains[f"d{at + 1}"] += members[:2]
        parts.groups = [members[:2] for members in groups[:-1]]
    else:
        relays = tuple((one, other) for one, other in zip(*(members[:2] for members in groups), strict=True))
        parts.links["link"] = Link("link", ("d0", "d1"), relays, takeover=True)
    parts.local = {name: f"d{at}" for at, members in enumerate(groups) for name in members}
    parts.orderings = {name: chance.choice(("vector", "resilient")) for name in parts.domains}
    return parts.result(1)


class People:
    """What is wanted of a fabric, change by change."""

    def __init__(self, seed: int) -> None:
        self.style = str(seed % 97)
        self.chance = Random(f"surviving/{seed}")
        self.first = first_fabric(self.chance, self.style)
        self.done: list[str] = []
        """What was done, or would have been if nobody had died meanwhile."""
        self._left = self.chance.randint(1, MAX_CHANGES)
        self._spares = iter(SPARES)

    def following(self, topology: Topology, dead: tuple[str, ...]) -> tuple[Topology, tuple[str, ...]] | None:
        """Return the version that is wanted next and who is lost with it; None: no more."""
        if not self._left:
            return None
        self._left -= 1
        what = ""
        for at in range(TRIES):
            what = self.chance.choice(LIKELY) if at % TRIES_EACH == 0 else what
            parts = Hardy(topology, self.chance, self._spares, self.style)
            try:
                for gone in dead if self.chance.random() < 0.6 else ():
                    parts.drop(gone)
                ALL_CHANGES[what](parts)
                parts.mend()
                new, lost = parts.result(topology.version + 1), tuple(sorted(set(parts.lost)))
                lead = Coordinator(topology, new, lost)
                if all(name in lost for name in dead) or (not lost and lead.may_miss(dead)):
                    self.done.append(what)
                    return new, lost
            except (UsageError, IndexError, ValueError, KeyError):
                continue  # Not every change fits every fabric.
            except StopIteration:
                break
        self.done.append("remove the dead")
        found = without(topology, dead, self.style) if dead else None
        return None if found is None else (found, dead)


def without(topology: Topology, lost: tuple[str, ...], style: str) -> Topology | None:
    """Return the version that follows if these are gone for good; None if there is none."""
    if set(lost) >= set(topology.processes):
        return None
    for number in range(10):
        parts = Hardy(topology, Random(f"surviving-without/{topology.fingerprint}/{number}"), (), style)
        parts.early = 1 + topology.version
        try:
            for gone in lost:
                parts.drop(gone)
            parts.mend()
            made = parts.result(topology.version + 1)
            Coordinator(topology, made, tuple(lost))
        except (UsageError, IndexError, ValueError, KeyError, StopIteration):
            continue  # Whoever was to stand in for one cannot.
        return made
    return None


def options_for(seed: int) -> SimulationOptions:
    """Return traffic and faults."""
    chance = Random(f"surviving-options/{seed}")
    return SimulationOptions(
        messages=chance.randint(12, 36),
        pattern="mixed",
        recipients=2,
        replies=chance.choice((0.0, 0.3, 0.8)),
        gap=chance.choice(("exponential:8ms", "exponential:40ms", "exponential:120ms")),
        delay=chance.choice(("exponential:10ms", "uniform:1ms..30ms", "pareto:2ms,1.2")),
        loss=chance.choice((0.0, 0.1, 0.3)),
        duplication=chance.choice((0.0, 0.2)),
        reordering=chance.choice((0.0, 0.2)),
        partitions=chance.choice((0, 0, 1, 2)),
        crashes=chance.choice((0, 1, 3)),
        suspicions=chance.choice((0, 2, 6)),
        deaths=chance.choice((1, 1, 2, 3)),
        durable=True,
        reliable=True,
        seed=seed,
    )


def trouble_for(seed: int) -> Trouble:
    """Return what happens to commands."""
    chance = Random(f"surviving-trouble/{seed}")
    return Trouble(
        loss=chance.choice((0.0, 0.02)),
        death=chance.choice((0.0, 0.05, 0.1)),
        second=chance.choice((0.0, 0.5)),
        abort=chance.choice((0.0, 0.5)),
        mistaken=chance.choice((0.0, 0.5)),
    )


class Outcome(NamedTuple):
    """What came out of one run."""

    seed: int
    broken: tuple[str, ...]
    done: tuple[str, ...]
    faults: Counter[str]
    deliveries: int
    messages: int

    @property
    def replay(self) -> str:
        """The command that runs it again."""
        return f"python -m tests.support.crashes.surviving {self.seed}"


def run_one(
    seed: int,
    node_type: type[SimulatedNode] = SimulatedNode,
    command_type: type[ChangeCommand] = ChangeCommand,
    trouble: Trouble | None = None,
) -> Outcome:
    """Run one fabric through its deaths and changes, and judge what survivors have."""
    people, events = People(seed), list[Event]()
    wanted = Changes(
        [people.first],
        trouble_for(seed) if trouble is None else trouble,
        without=lambda topology, lost: without(topology, lost, people.style),
        command_type=command_type,
        following=people.following,
        spares=SPARES,
    )
    simulation = Simulation(options_for(seed), events.append, where=wanted, node_type=node_type, max_events=MAX_EVENTS)
    result, run = simulation.run(), simulation.reconfiguration
    assert run is not None
    changes = [Change(topology, "", lost) for topology, lost in run.plan]
    gone = {*dead_in(simulation), *(name for change in changes for name in change.lost)}
    broken = [f"{row.property} at {row.process}: {row.later}" for row in wrong_among(events, gone, REQUIRED)]
    broken += [what for what in out_of_turn(events) if what.rpartition(":")[0] not in gone]
    broken += views_apart(events, people.first, changes, gone)
    last = changes[-1].topology if changes else people.first
    for name, standing in run.standings().items():
        if name in gone or name not in last.homes:
            continue
        if (standing.version, standing.phase) != (last.version, "normal"):
            broken.append(f"{name} ends with version {standing.version} of {last.version}, {standing.phase}")
        if standing.waiting:
            broken.append(f"{name} ends with {standing.waiting} waiting: {standing.trouble}")
    if waiting := still_waiting(simulation, gone):
        broken.append(f"{waiting} messages of survivors still wait at survivors")
    faults = run.counts + Counter({name: result.network[name] for name in FAULTS}) + Counter(people.done)
    faults += Counter(crashes=result.statistics.crashes, suspicions=result.statistics.suspicions)
    faults += Counter(resumed=sum(node.participant.resumed for node in simulation.nodes.values() if node.participant))
    return Outcome(seed, tuple(broken), tuple(people.done), faults, result.statistics.deliveries, result.statistics.messages)


def run_many(seeds: Iterable[int]) -> list[Outcome]:
    """Run some, one after the other."""
    return [run_one(seed) for seed in seeds]


if __name__ == "__main__":
    outcome = run_one(int(sys.argv[1]))
    sys.stdout.write(f"{outcome}\n")
    sys.exit(bool(outcome.broken))
