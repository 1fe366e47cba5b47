"""Crashes, deaths and suspicions: processes lose their memory, go for good, or are believed to have gone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random

from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.sim.fabric import Fabric
from thence.sim.node import SimulatedNode, peers

SUSPECT_AFTER_NS = 200_000_000
"""After how long those who share a domain or a link with a process suspect it when it is down."""

DEATHS_APART_NS = 3_000_000_000
"""How far apart deaths in one domain are. What the first one sent or passed on last may be with the second alone until the others
have asked for it; if both were gone by then, nobody would have it."""

SUSPICIONS_NS = 3_000_000_000
"""For how long beyond the traffic somebody may be suspected by mistake where the topology changes."""


class Failures:
    """The crashes, deaths and wrong suspicions of one run."""

    def __init__(self, fabric: Fabric) -> None:
        """Let happen what the options ask for."""
        self.dead: dict[str, None] = {}
        """Who will die for good."""
        self._fabric = fabric
        self._schedule = fabric.kernel.schedule

    def schedule(self, *, reconfigured: bool) -> None:
        """Draw what will happen. Where the topology is ``reconfigured``, it is known only then who may suspect whom."""
        options, span, nodes = self._fabric.options, self._fabric.options.span_ns, self._fabric.nodes
        chance = Random(f"{options.seed}/crashes")
        for _ in range(options.crashes):
            if reconfigured and options.deaths:
                self._schedule(chance.randrange(span), self._crash_some, chance)
                continue
            node = nodes[chance.choice(self._fabric.names)]
            self._schedule(chance.randrange(span), self.crash, node, chance.randrange(1_000_000, 1_000_000_000))
        chance = Random(f"{options.seed}/suspicions")
        groups = suspecting(self._fabric.topology)
        for _ in range(options.suspicions if groups or reconfigured else 0):
            if reconfigured:
                self._schedule(chance.randrange(span + SUSPICIONS_NS), self._suspect_some, chance)
                continue
            name, other = chance.sample(chance.choice(groups), 2)
            start, length = chance.randrange(span), chance.randrange(1_000_000, 1_000_000_000)
            self._schedule(start, self._suspect, nodes[name], other, True)
            self._schedule(start + length, self._suspect, nodes[name], other, False)
        if not reconfigured:  # There it is known only then who is not missed.
            self._schedule_deaths()

    def _schedule_deaths(self) -> None:
        options, topology = self._fabric.options, self._fabric.topology
        chance = Random(f"{options.seed}/deaths")
        able = mortal(topology)
        times: dict[str, list[int]] = {name: [] for name in topology.domains}
        for _ in range(options.deaths if able else 0):
            name, at = chance.choice(able), chance.randrange(options.span_ns)
            others = [other for other in topology.fellows.get(name, topology.processes) if other != name]
            before = [time for home in topology.homes[name] for time in times[home]]
            if name in self.dead or self.dead.keys() >= set(others) or any(abs(at - time) < DEATHS_APART_NS for time in before):
                continue
            self.dead[name] = None
            for home in topology.homes[name]:
                times[home].append(at)
            self._schedule(at, self.die, self._fabric.nodes[name])

    def _crash_some(self, chance: Random) -> None:
        self.crash(self._fabric.nodes[chance.choice(self._fabric.names)], chance.randrange(1_000_000, 1_000_000_000))

    def crash(self, node: SimulatedNode, down_ns: int) -> None:
        """Crash a process that comes back after a while."""
        if node.up:
            node.crash()
            self._schedule(SUSPECT_AFTER_NS, self._watch, node)
            self._schedule(down_ns, self._restart, node)

    def die(self, node: SimulatedNode) -> None:
        """Let a process go for good."""
        if node.up:
            node.crash()
        node.dead = True
        self._schedule(SUSPECT_AFTER_NS, self._watch, node)

    def gone(self, topology: Topology) -> tuple[str, ...]:
        """Return who of a fabric is dead."""
        return tuple(name for name in topology.processes if name in self.dead)

    def look(self, node: SimulatedNode) -> None:
        """Tell a process which of its peers are up, and those whether it is."""
        self._watch(node)
        for other in self._peers(node):
            node.suspect(other.name, not other.up)

    def switched(self, node: SimulatedNode) -> None:
        """Notice that a process has other peers."""
        self._schedule(SUSPECT_AFTER_NS, self.look, node)

    def _restart(self, node: SimulatedNode) -> None:
        node.restart()
        self.look(node)

    def _watch(self, node: SimulatedNode) -> None:
        """Tell everybody who has to do with a process whether it is up."""
        for other in self._peers(node):
            self._fabric.statistics.suspicions += not node.up
            other.suspect(node.name, not node.up)

    def _peers(self, node: SimulatedNode) -> list[SimulatedNode]:
        """Return who shares a domain or a link with a process, as far as it knows, and suspects others."""
        topology = node.member.topology
        if not topology.suspicious:
            return []
        return [self._fabric.nodes[name] for name in peers(topology, node.name) if name in topology.suspicious]

    def _suspect(self, node: SimulatedNode, other: str, suspected: bool) -> None:
        self._fabric.statistics.suspicions += suspected
        node.suspect(other, suspected or not self._fabric.nodes[other].up)

    def _suspect_some(self, chance: Random) -> None:
        groups = suspecting(self._fabric.topology)
        if groups:
            name, other = chance.sample(chance.choice(groups), 2)
            node = self._fabric.nodes[name]
            self._suspect(node, other, True)
            self._schedule(chance.randrange(1_000_000, 1_000_000_000), self._suspect, node, other, False)


def mortal(topology: Topology) -> list[str]:
    """Return who may die for good without being missed: others have all that it sent or passed on, and do what it did.

    Where messages wait until all have them, a member of a ``resilient`` domain is missed; where deliveries do, everybody but a
    replica that only carries.
    """
    linked = {relay for link in topology.links.values() for relay in link.members}
    joining = {name for name in topology.relays if name not in topology.fellows} | linked
    waits = topology.stability or any(domain.delivery != "at once" for domain in topology.domains.values())
    spares = {name for name, domain in topology.domains.items() if (domain.acks.whole if waits else domain.hands_on)}
    safe = any(domain.delivery == "safe" for domain in topology.domains.values())
    able = [name for name, homes in topology.homes.items() if name not in joining and spares.issuperset(homes)]
    return [name for name in able if not safe or topology.only_carries(name)]


def missed_by_nobody(topology: Topology, gone: Collection[str], now: int, deaths: Sequence[tuple[int, str]]) -> list[str]:
    """Return who of a fabric may die now, where these are gone already, and some ``deaths`` were not long ago.

    Of each relay one stays. In a domain whose members keep ``copies`` so many may die at once, in others one.
    """
    recent = [name for time, name in deaths if now - time < DEATHS_APART_NS and name in topology.homes]
    found = []
    for name in mortal(topology):
        others = [other for other in topology.fellows.get(name, topology.processes) if other != name]
        domains = [topology.domains[home] for home in topology.homes[name]]
        replaced = name not in gone and not set(others) <= set(gone)
        if replaced and all(sum(other in domain.members for other in recent) < at_once(domain) for domain in domains):
            found.append(name)
    return found


def at_once(domain: Domain) -> int:
    """Return how many members of a domain that hands on what a dead one sent may die at the same moment."""
    return 1 if domain.acks.whole else int(domain.options.get("copies", 1))


def suspecting(topology: Topology) -> Sequence[tuple[str, ...]]:
    """Return groups of processes that may suspect each other wrongly: replicas, or without them who ack to everybody."""
    domains = topology.domains.values()
    every = [domain.members for domain in domains if domain.acks.scheme == "distributed" and len(domain.members) > 1]
    return topology.replicas or every
