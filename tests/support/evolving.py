"""Random changes of random fabrics: domains split and merge, members move, come and go, links change; and runs through them.

Everything is drawn from one number, so a failure is that number: ``python -m tests.support.evolving SEED`` says what broke. A
second argument, the name of a change, asks for that one as the last.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

from tests.support.fabrics import CAUSAL, FAULTS, GATED, confirming
from thence.core.ordering import ordering_named
from thence.core.reconfig.concern import concerned_by, why_everybody
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.errors import UsageError
from thence.sim.faults.reconfiguration import ChangeCommand, Changes, Trouble
from thence.sim.node import SimulatedNode
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.trace.events import Event
from thence.trace.judge import judge

MAX_VERSIONS: Final = 4
MAX_EVENTS: Final = 300_000
"""A run has far fewer. One that has more never comes to rest, and is stopped."""

REQUIRED: Final = ("well-formed", "creation", "duplication", "fifo", "causal", "completeness")


class Change(NamedTuple):
    """From one version to the next."""

    topology: Topology
    what: str
    lost: tuple[str, ...]


class Parts:
    """A fabric that is being changed: its domains, links and replicas, and who the next new process is."""

    def __init__(self, topology: Topology, chance: Random, fresh: Iterable[str]) -> None:
        self.chance = chance
        self.topology = topology
        plain = {name: domain for name, domain in topology.domains.items() if not domain.pairs}
        self.domains = {name: list(domain.members) for name, domain in plain.items()}
        self.orderings = {name: str(domain.ordering) for name, domain in plain.items()}
        self.links = {link.name: link for link in topology.links.values()}
        for name, domain in topology.domains.items():
            if domain.pairs:  # A link whose relays take over, as it was before it became a domain.
                near, far = (next(home for home in topology.homes[relay] if home in plain) for relay in domain.pairs[0])
                self.links[name] = Link(name, (near, far), domain.pairs, takeover=True)
        linked = {group for link in self.links.values() for group in link.sequencers}
        self.groups = [list(group) for group in topology.replicas if group not in linked]
        self.local = dict(topology.local)
        self.fresh = iter(fresh)
        self.lost: list[str] = []

    def result(self, version: int) -> Topology:
        """Return the fabric as this version; a ``TopologyError`` if it cannot be."""
        domains = [Domain(name, tuple(members), self.orderings[name]) for name, members in self.domains.items()]
        here = {member for members in self.domains.values() for member in members}
        groups = [[name for name in group if name in here] for group in self.groups]
        replicas = [tuple(group) for group in groups if len(group) > 1 and len(self.homes(group[0])) > 1]
        local = {name: home for group in replicas for name in group if (home := self.local.get(name)) in self.homes(name)}
        return Topology(self.topology.name, domains, self.links.values(), replicas=replicas, local=local, version=version)

    def homes(self, process: str) -> list[str]:
        """Return the domains in which a process is."""
        return [name for name, members in self.domains.items() if process in members]

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

    def lose(self) -> None:
        """One or two servers are gone for good. Where one joined domains, another one does."""
        for gone in self.chance.sample(self.topology.processes, self.chance.choice((1, 1, 1, 2))):
            self.drop(gone)

    def drop(self, gone: str) -> None:
        """A server is gone for good. Where it joined domains, another one does."""
        self.lost.append(gone)
        homes = self.homes(gone)
        for name in homes:
            self.domains[name].remove(gone)
        first = self.domains[homes[0]]
        stand_in = any(gone in group and set(group) - set(self.lost) for group in self.groups)
        for name in () if stand_in else homes[1:]:
            self.domains[name].append(self.chance.choice(first))
        for name, link in list(self.links.items()):
            pairs = dict.fromkeys(
                tuple(
                    self.chance.choice(self.domains[link.between[side]]) if relay == gone else relay
                    for side, relay in enumerate(pair)
                )
                for pair in link.relays
            )
            self.links[name] = link._replace(relays=tuple((near, far) for near, far in pairs))

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

    def replicate(self) -> None:
        """One or two others stand for a relay with it: new ones, or one who was a plain member before."""
        linked = {relay for link in self.links.values() for relay in link.members}
        relays = [relay for relay in self.topology.joints if relay not in linked and len(self.homes(relay)) > 1]
        relay = self.chance.choice([name for name in relays if not any(name in group for group in self.groups)])
        homes = self.homes(relay)
        others = [next(self.fresh) for _ in range(self.chance.choice((1, 1, 2)))]
        if self.chance.random() < 0.3:
            others = [self.chance.choice([name for name in self.domains[homes[0]] if len(self.homes(name)) == 1])]
        for name in homes:
            self.domains[name] += [other for other in others if other not in self.domains[name]]
            self.orderings[name] = self.chance.choice(GATED)
        group = self.chance.sample([relay, *others], 1 + len(others))
        self.groups.append(group)
        able = [name for name in homes if self.orderings[name] in SENDING]
        if able and self.chance.random() < 0.5:
            self.local.update(dict.fromkeys(group, self.chance.choice(able)))

    def take_over(self) -> None:
        """The relays of a link take over from each other: new ones, or those who were plain members before."""
        name = self.chance.choice([name for name, link in self.links.items() if not link.takeover])
        link = self.links[name]
        sides = []
        for domain in link.between:
            count = self.chance.choice((1, 2, 2, 3))
            new = [next(self.fresh) for _ in range(count)]
            sides.append(new if self.chance.random() < 0.7 else self.chance.sample(self.domains[domain], count))
            self.domains[domain] += [relay for relay in sides[-1] if relay not in self.domains[domain]]
            self.orderings[domain] = self.chance.choice(GATED)
        near, far = sides
        pairs = tuple((near[at % len(near)], far[at % len(far)]) for at in range(max(len(near), len(far))))
        self.links[name] = link._replace(relays=pairs, takeover=True)

    def give_up(self) -> None:
        """Who stood for one relay do so no more: the others go, or are plain relays of their link."""
        link = self.chance.choice([None, *(link for link in self.links.values() if link.takeover)])
        if link is not None:
            self.links[link.name] = link._replace(takeover=False)
            return
        stays, *others = self.groups.pop(self.chance.randrange(len(self.groups)))
        homes = self.homes(stays)
        for other in others:
            for name in homes:
                self.domains[name].remove(other)
        if self.chance.random() < 0.5:  # Some stay as plain members.
            self.domains[homes[0]] += others


CHANGES: Final[dict[str, Callable[[Parts], None]]] = {
    change.__name__: change
    for change in (
        Parts.split,
        Parts.merge,
        Parts.move,
        Parts.add,
        Parts.remove,
        Parts.lose,
        Parts.level,
        Parts.widen,
        Parts.reorder,
    )
}

SENDING: Final = tuple(name for name in GATED if ordering_named(name).traits.direct)
"""Orderings of domains in which replicas may send."""
STANDING_IN: Final = (Parts.replicate, Parts.take_over)
OF_REPLICAS: Final = {change.__name__: change for change in (*STANDING_IN, Parts.give_up)}
ALL_CHANGES: Final = {**CHANGES, **OF_REPLICAS}
WITH_REPLICAS: Final = (*CHANGES, *OF_REPLICAS, *OF_REPLICAS, *OF_REPLICAS)
"""What may happen to a fabric whose relays have replicas; what makes or unmakes such more often, since it fits few fabrics."""


def replicated(seed: int) -> bool:
    """Return whether there are replicas in the run of this number."""
    return seed % 2 == 1


def wide(seed: int) -> bool:
    """Return whether the run of this number is of a longer fabric of which most changes concern a part."""
    return seed % 8 == 4


WIDE: Final = ("split", "merge", "move", "level", "widen", "reorder", "reorder")
JOINING: Final = (*WIDE, *("add",) * len(WIDE))
"""Every other change is a new server."""


def standing_in(seed: int) -> bool:
    """Return whether relays of such a longer fabric have replicas."""
    return seed % 16 == 12


def joining(seed: int) -> bool:
    """Return whether new servers come into such a longer fabric."""
    return seed % 64 in (20, 44, 52)


def first_fabric(chance: Random, most: int = 3) -> Topology:
    """Return some small domains in a row, joined by members or links; as a rule up to three."""
    domains: list[Domain] = []
    links: list[Link] = []
    process = 0
    for number in range(chance.randint(1 if most == 3 else 3, most)):
        members = [f"p{process + at}" for at in range(1, chance.randint(2, 4) + 1)]
        process += len(members)
        name = f"d{number + 1}"
        if domains and chance.random() < 0.5:
            members.append(domains[-1].members[0])
        elif domains:
            links.append(Link(f"l{number}", (domains[-1].name, name), ((domains[-1].members[-1], members[0]),)))
        domains.append(Domain(name, tuple(members), chance.choice(CAUSAL)))
    return Topology("evolving", domains, links)


def changed(topology: Topology, chance: Random, fresh: Iterable[str], what: Iterable[str]) -> Change:
    """Return a version that may follow, what was done, one of the changes ``what``, and who is lost with it."""
    fresh, possible = list(fresh), list(what)
    while True:
        done = chance.choice(possible)
        parts = Parts(topology, chance, fresh)
        try:
            ALL_CHANGES[done](parts)
            return Change(parts.result(topology.version + 1), done, tuple(sorted(parts.lost)))
        except (UsageError, IndexError, ValueError, StopIteration):
            continue  # Not every change fits every fabric.


def with_replicas(topology: Topology, chance: Random, ways: Sequence[Callable[[Parts], None]] = STANDING_IN) -> Topology:
    """Return a fabric in which relays have replicas, if some can have any."""
    for change in chance.sample(ways, len(ways)):
        fresh = (f"r{number}" for number in range(1, 20) if f"r{number}" not in topology.homes)
        parts = Parts(topology, chance, fresh)
        try:
            change(parts)
            topology = parts.result(topology.version)
        except (UsageError, IndexError, ValueError):
            continue  # There is no such relay or link.
    return topology


def changes_for(seed: int, wanted: str | None = None) -> tuple[Topology, list[Change]]:
    """Return a fabric and how it changes; the last change is the one that is ``wanted``, if one is."""
    chance = Random(f"evolving/{seed}")
    long = wide(seed) and wanted is None
    first = first_fabric(chance, 6 if long else 3)
    possible = (JOINING if joining(seed) else WIDE) if long else tuple(CHANGES)
    if replicated(seed):
        first, possible = with_replicas(first, chance), WITH_REPLICAS
    for _ in range(4 if long and standing_in(seed) else 0):
        first = with_replicas(first, chance, (Parts.replicate,))
    topology = first
    done: list[Change] = []
    count = chance.randint(1, MAX_VERSIONS - 1)
    while len(done) < count:
        # A fabric of two cannot lose much, so it begins with one that can.
        last = wanted is not None and len(done) == count - 1 and len(topology.processes) > 2
        fresh = [f"n{len(done)}", *(f"n{len(done)}-{number}" for number in range(1, 8))]
        done.append(changed(topology, chance, fresh, (wanted,) if last and wanted else possible))
        topology = done[-1].topology
    if long:
        return first, done
    careful = Random(f"evolving-stability/{seed}")
    return _careful(first, careful), [change._replace(topology=_careful(change.topology, careful)) for change in done]


def _careful(topology: Topology, chance: Random) -> Topology:
    """Return the same version, in which messages may be kept until all have them, and domains may deliver only what all have.

    Or they tell later that all have it. Fabrics with replicas do neither; in most of them others repeat what a dead one sent.
    """
    with_fellows = {name for name, domain in topology.domains.items() if any(one in topology.fellows for one in domain.members)}
    able = {} if topology.replicas else topology.domains
    direct = {name for name, domain in able.items() if ordering_named(domain.ordering).traits.direct}
    domains = [
        domain._replace(delivery="safe") if domain.name in direct and chance.random() < 0.3 else domain
        for domain in topology.domains.values()
    ]
    telling = Random(f"evolving-notices/{topology.fingerprint}")
    if telling.random() < 0.5:
        domains = [
            domain._replace(delivery="notify") if domain.name in direct and telling.random() < 0.8 else domain
            for domain in domains
        ]
    ways = Random(f"evolving-ways/{topology.fingerprint}")
    domains = [
        domain._replace(acks=confirming(str(domain.ordering), list(domain.members), ways, nearest=True))
        if domain.name in with_fellows and not domain.pairs
        else domain
        for domain in domains
    ]
    keeps = chance.random() < 0.4
    return Topology(
        topology.name,
        domains,
        topology.links.values(),
        replicas=topology.replicas,
        version=topology.version,
        stability=keeps,
    )


def part_concerned(seed: int) -> int:
    """Return how many changes of this run concern some processes and not others."""
    first, changes = changes_for(seed)
    versions = [first, *(change.topology for change in changes)]
    steps = zip(versions, versions[1:], changes, strict=False)
    return sum(0 < len(concerned_by(old, new, change.lost)) < len(old.processes) for old, new, change in steps)


def options_for(seed: int) -> SimulationOptions:
    """Return traffic and faults."""
    chance, suspicious = Random(f"evolving-options/{seed}"), Random(f"evolving-suspicions/{seed}")
    faulty = chance.random() < 0.8
    return SimulationOptions(
        messages=chance.randint(12, 48),
        pattern="mixed",
        replies=chance.choice((0.0, 0.3, 0.8)),
        # Traffic goes on while the fabric changes once, or for most of the time.
        gap=suspicious.choice(("exponential:8ms", "exponential:30ms", "exponential:80ms")),
        delay=chance.choice(("exponential:10ms", "uniform:1ms..30ms", "pareto:2ms,1.2")),
        loss=chance.choice((0.0, 0.1, 0.3)) if faulty else 0.0,
        duplication=chance.choice((0.0, 0.2)) if faulty else 0.0,
        reordering=chance.choice((0.0, 0.2)) if faulty else 0.0,
        partitions=chance.randint(0, 2) if faulty else 0,
        crashes=chance.randint(0, 6) if faulty else 0,
        suspicions=suspicious.choice((0, 2, 6)) if replicated(seed) or standing_in(seed) else 0,
        durable=True,
        reliable=True,
        seed=seed,
    )


def without(topology: Topology, lost: tuple[str, ...]) -> Topology | None:
    """Return the version that follows if these are gone for good; None if there is none."""
    if set(lost) >= set(topology.processes):
        return None
    for number in range(10):
        parts = Parts(topology, Random(f"evolving-without/{topology.fingerprint}/{number}"), ())
        try:
            for gone in lost:
                parts.drop(gone)
            made = parts.result(topology.version + 1)
        except (UsageError, IndexError, ValueError):
            continue  # Whoever was to stand in for one cannot.
        return made
    return None


def trouble_for(seed: int) -> Trouble:
    """Return what happens to commands."""
    chance = Random(f"evolving-trouble/{seed}")
    return Trouble(
        loss=chance.choice((0.0, 0.02, 0.05)),  # Of a question to one of many: with more, hardly any command gets anywhere.
        death=chance.choice((0.0, 0.05, 0.1)),
        second=chance.choice((0.0, 0.5)),
        abort=chance.choice((0.0, 0.5)),
        mistaken=chance.choice((0.0, 0.5)),
        unforeseen=chance.choice((0.0, 0.5)),
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
    wanted: str | None = None
    """What the last change was to be."""

    @property
    def faults(self) -> Counter[str]:
        """Everything that went wrong, and everything that was changed."""
        return self.counts + self.lost + Counter(self.done)

    @property
    def replay(self) -> str:
        """The command that runs it again."""
        return f"python -m tests.support.evolving {self.seed}{f' {self.wanted}' if self.wanted else ''}"


def out_of_turn(events: Iterable[Event]) -> list[str]:
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


def views_apart(events: Iterable[Event], first: Topology, changes: list[Change], gone: Collection[str] = ()) -> list[str]:
    """Return whose views do not come in order, or who delivered in one view what another one delivered in another view.

    Where not all hold, messages go on from one view into the next: only changes that concern everybody divide them.
    """
    versions = [first, *(change.topology for change in changes)]
    steps = zip(versions, versions[1:], changes, strict=False)
    limited = [not why_everybody(old, new, change.lost) for old, new, change in steps]
    since = [at - sum(limited[:at]) for at in range(len(versions))]
    """For each view, how many changes of everybody came before."""
    views: dict[str, int] = dict.fromkeys(first.processes, 0)
    for at, change in enumerate(changes, 1):
        views |= {name: at for name in change.topology.processes if name not in views}
    lost = {*gone, *(name for change in changes for name in change.lost)}
    delivered: dict[str, tuple[str, int]] = {}
    found = []
    for event in events:
        if event.process in lost:
            continue
        if event.kind == "view":
            views[event.process] += 1
            if (event.to or ()) != changes[views[event.process] - 1].lost:
                found.append(f"{event.process} was told that {event.to} were lost")
        elif event.kind == "deliver" and event.message is not None:
            at = since[views[event.process]]
            other, there = delivered.setdefault(event.message, (event.process, at))
            if there != at:
                found.append(f"{event.message} is in view {at} of {event.process} and in view {there} of {other}")
    return found


def run_one(
    seed: int,
    node_type: type[SimulatedNode] = SimulatedNode,
    command_type: type[ChangeCommand] = ChangeCommand,
    trouble: Trouble | None = None,
    wanted: str | None = None,
) -> Outcome:
    """Run one fabric through its changes, and judge the whole of it."""
    first, changes = changes_for(seed, wanted)
    events: list[Event] = []
    wanted_changes = Changes(
        [first, *(change.topology for change in changes)],
        trouble_for(seed) if trouble is None else trouble,
        {change.topology.version: change.lost for change in changes if change.lost},
        without,
        command_type,
    )
    simulation = Simulation(options_for(seed), events.append, where=wanted_changes, node_type=node_type, max_events=MAX_EVENTS)
    result, run = simulation.run(), simulation.reconfiguration
    assert run is not None
    whats = [change.what for change in changes]
    if run.unforeseen:
        whats = [*whats[: len(run.plan) - 1], *(["lose"] * (len(run.plan) - len(whats) or 1))]
    changes = [Change(topology, what, lost) for (topology, lost), what in zip(run.plan, whats, strict=True)]
    gone = {*run.unforeseen, *(name for change in changes for name in change.lost)}
    verdict = judge(events, REQUIRED)
    broken = [f"{violation.property} at {violation.process}: {violation.later}" for violation in verdict.violations]
    broken += out_of_turn(events)
    last = changes[-1].topology
    broken += views_apart(events, first, changes)
    for name, standing in run.standings().items():
        if name in gone:
            continue  # It is dead, or lives on without the others.
        if name in last.homes and (standing.version, standing.phase) != (last.version, "normal"):
            broken.append(f"{name} ends with version {standing.version}, {standing.phase}")
        if standing.waiting or not standing.idle:
            broken.append(f"{name} ends with {standing.waiting} waiting: {standing.trouble}")
        if unsafe := simulation.nodes[name].member.log.unsafe:
            broken.append(f"{name} was never told that its last {unsafe} deliveries are safe")
    counts = run.counts + Counter(crashes=result.statistics.crashes, suspicions=result.statistics.suspicions)
    counts += Counter(resumed=sum(node.participant.resumed for node in simulation.nodes.values() if node.participant))
    lost = Counter({name: result.network[name] for name in FAULTS})
    done = tuple(change.what for change in changes)
    return Outcome(seed, tuple(broken), done, counts, result.statistics.deliveries, result.statistics.messages, lost, wanted)


def run_many(seeds: Iterable[int]) -> list[Outcome]:
    """Run some, one after the other."""
    return [run_one(seed) for seed in seeds]


def run_many_losing(seeds: Iterable[int]) -> list[Outcome]:
    """Run some in which the last change is made without servers that are lost."""
    return [run_one(seed, wanted="lose") for seed in seeds]


if __name__ == "__main__":
    outcome = run_one(int(sys.argv[1]), wanted=sys.argv[2] if len(sys.argv) > 2 else None)
    sys.stdout.write(f"{outcome}\n")
    sys.exit(bool(outcome.broken))
