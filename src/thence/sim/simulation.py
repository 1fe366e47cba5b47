"""A whole run: processes, network, disks, traffic and faults, from one options value.

Rules:

* Chance comes from the seed alone, in separate streams for traffic, network, disks and faults, so that adding a
  fault does not change the traffic.
* A run ends by itself: traffic is finite, every fault ends, and channels repeat until all is acknowledged. A limit
  on events stops a protocol that would go on for ever, loudly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from thence.core.member.contract import Delivery
from thence.core.member.member import MemberOptions
from thence.core.ordering import ArrivalOrder, ordering_named
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Packet
from thence.sim.disk import Disk, DiskOptions
from thence.sim.kernel import MAX_EVENTS, Kernel
from thence.sim.laws import Law, parse_law
from thence.sim.network import Link, Network, NetworkOptions, Partition
from thence.sim.node import Node
from thence.sim.options import Pattern, SimulationOptions
from thence.sim.statistics import Statistics
from thence.trace.events import Event
from thence.trace.recorder import Recorder, Sink

SUSPECT_AFTER_NS = 200_000_000
"""After how long those who share a domain or a link with a process hold it for dead when it is."""

SETTLED_AFTER_NS = 30_000_000_000
"""Where somebody is dead for good, others go on repeating to it: the run ends when nothing was sent or delivered for so long."""

RETRY_NS = 50_000_000
"""How long an application waits before it tries again to send, when its process is down or busy."""


MIXED: Final[tuple[Pattern, ...]] = ("broadcast", "unicast", "multicast")
"""What each message of a mixed run is one of."""


class Result(NamedTuple):
    """What came out: the counts, how many events the kernel ran, and how much simulated time went by."""

    statistics: Statistics
    network: dict[str, int]
    events: int
    duration_ns: int
    waiting: int
    """Frames that still wait at the end: none, unless the ordering blocks."""
    copies: Any = None
    """Where processes ran on copies of their disks: what became of what was accepted (``sim.copies.Verdict``)."""


class Simulation:
    """See the module's text. ``where`` is a fabric instead of the options' one domain; ``node_type`` is for planted mistakes.

    ``delays`` and ``bandwidths_bytes_per_s`` are those of some pairs of processes, where they differ from the options' ones.
    """

    retain_bytes = 0
    """How much members keep, so that some can be lost (``core.reconfig.retention``)."""

    def __init__(
        self,
        options: SimulationOptions,
        sink: Sink,
        *,
        where: Topology | None = None,
        node_type: type[Node] = Node,
        max_events: int = MAX_EVENTS,
        delays: Mapping[Link, Law] | None = None,
        bandwidths_bytes_per_s: Mapping[Link, int] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Set everything up; nothing has happened yet."""
        options.check()
        self.options = options
        self.kernel = Kernel(max_events)
        self.statistics = Statistics()
        self._progress = progress
        self._traffic = Random(f"{options.seed}/traffic")
        self._gap = parse_law(options.gap)
        self._body = bytes(options.body_bytes)
        self._unsent = options.messages
        self._dead: dict[str, None] = {}
        """Who will die for good."""
        self.topology = Topology.flat(options.domain()) if where is None else where
        joining = self._joining()
        self.names = (*self.topology.processes, *joining)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        network = self._network_options(delays or {}, bandwidths_bytes_per_s or {})
        self.network = Network(self.kernel, network, Random(f"{options.seed}/network"), self._receive)
        recorder = Recorder(sink, self.names, arrivals=options.arrivals)
        routes = Routes(self.topology)
        member_options = MemberOptions(reliable=options.confirmed, durable=options.on_disk, retain_bytes=self.retain_bytes)
        disk_options = DiskOptions(sync_delay=parse_law(options.sync))
        self.nodes: dict[str, Node] = {}
        for name in self.names:
            disk = Disk(disk_options, Random(f"{options.seed}/disk/{name}"))
            known = Routes(joining[name]) if name in joining else routes
            node = node_type(name, known, member_options, self.kernel, self.network, disk, recorder, self.statistics)
            node.on_deliver = self._delivered
            self.nodes[name] = node

    def _joining(self) -> Mapping[str, Topology]:
        """Return the processes that come in with a later version of the fabric (``sim.reconfiguration``), and that version."""
        return {}

    def run(self) -> Result:
        """Run to the end."""
        self._schedule_crashes()
        self._schedule_suspicions()
        self._schedule_deaths()
        self.kernel.schedule(self._gap.draw_ns(self._traffic), self._next_send)
        events = self._run()
        waits = [wait for node in self.nodes.values() if node.up for wait in node.member.waiting()]
        # What a dead process sent behind something that reached nobody waits for it, and nobody waits for that.
        waiting = sum(wait.missing.sender not in self._dead for wait in waits)
        return Result(self.statistics, self.network.counters(), events, self.kernel.now, waiting)

    def _run(self) -> int:
        if not self._dead:
            return self.kernel.run()
        events, before = 0, (-1, -1)
        while (done := (self.statistics.messages, self.statistics.deliveries)) != before:
            before = done
            events += self.kernel.run(until_ns=self.kernel.now + max(SETTLED_AFTER_NS, self._span_ns()))
        return events

    # Traffic.

    def _next_send(self) -> None:
        if not self._unsent:
            return
        self._send(self.nodes[self._traffic.choice(self.topology.senders)])
        if self._unsent:
            self.kernel.schedule(self._gap.draw_ns(self._traffic), self._next_send)

    def _send(self, node: Node) -> None:
        self._unsent -= 1
        self._attempt(node, self._destinations(node.name))
        if self._progress:
            self._progress(1)

    def _attempt(self, node: Node, to: tuple[str, ...] | None) -> None:
        if not node.up or not node.submit(to, self._body):
            self.kernel.schedule(RETRY_NS, self._attempt, node, to)

    def _destinations(self, sender: str) -> tuple[str, ...] | None:
        pattern = self.options.pattern
        if pattern == "mixed":
            pattern = self._traffic.choice(MIXED)
        if pattern == "broadcast":
            return None
        # Numbers are drawn, of all but the sender: a list of the others, for every message, would cost more than the rest.
        others = range(len(self.names) - 1)
        count = 1 if pattern == "unicast" else min(self.options.recipients, len(others))
        drawn = (self._traffic.choice(others),) if pattern == "unicast" else sorted(self._traffic.sample(others, count))
        own = self._numbers[sender]
        return tuple(self.names[number + (number >= own)] for number in drawn)

    def _delivered(self, node: Node, delivery: Delivery) -> None:
        envelope = delivery.envelope
        # A reply is meant per message, not per delivery.
        audience = len(self.names) if envelope.to is None else len(envelope.to)
        if node.name in self.topology.fellows:
            return
        if self._unsent and envelope.origin != node.name and self._traffic.random() < self.options.replies / audience:
            # Not within the delivery: the application sends when it has done with it.
            self.kernel.schedule(0, self._reply, node)

    def _reply(self, node: Node) -> None:
        if self._unsent:
            self._send(node)

    def _receive(self, target: str, source: str, packet: Packet[object]) -> None:
        self.nodes[target].receive(source, packet)

    # Faults.

    def _network_options(self, delays: Mapping[Link, Law], bandwidths: Mapping[Link, int]) -> NetworkOptions:
        options = self.options
        domains, links = self.topology.domains.values(), self.topology.links.values()
        needs_fifo = any(ordering_named(domain.ordering).traits.arrival is ArrivalOrder.FIFO for domain in domains)
        needs_fifo = needs_fifo or any(link.mode == "fifo" for link in links)
        # Between two sites all may talk to each other; over a link only its pairs do.
        paired = [(one, other) for domain in domains for one, _ in domain.pairs for _, other in domain.pairs]
        paired += [pair for link in links for pair in link.relays]
        pairs = [way for near, far in paired for way in ((near, far), (far, near))]
        far_law, far_speed = parse_law(options.link_delay or options.delay), options.link_bandwidth_bytes_per_s
        return NetworkOptions(
            delay=parse_law(options.delay),
            link_delays={**dict.fromkeys(pairs, far_law), **delays},
            bandwidth_bytes_per_s=options.bandwidth_bytes_per_s,
            link_bandwidths_bytes_per_s={**({} if far_speed is None else dict.fromkeys(pairs, far_speed)), **bandwidths},
            loss=options.loss,
            duplication=options.duplication,
            reordering=options.reordering,
            reorder_delay=parse_law(options.reorder_delay),
            # Over an exact network nobody puts frames back in order, so the network keeps the order that the ordering needs.
            keep_fifo=needs_fifo and not options.confirmed,
            partitions=self._partitions(),
        )

    def _span_ns(self) -> int:
        """Return about how long the traffic will take."""
        return max(1_000_000, int(self._gap.mean_ns() * self.options.messages))

    def _partitions(self) -> tuple[Partition, ...]:
        chance = Random(f"{self.options.seed}/partitions")
        names = self.names
        partitions = []
        for _ in range(self.options.partitions):
            start = chance.randrange(self._span_ns())
            side = chance.sample(names, chance.randrange(1, len(names)))
            groups = (tuple(name for name in names if name in side), tuple(name for name in names if name not in side))
            partitions.append(Partition(start, start + chance.randrange(10_000_000, 2_000_000_000), groups))
        return tuple(partitions)

    def _schedule_crashes(self) -> None:
        chance = Random(f"{self.options.seed}/crashes")
        for _ in range(self.options.crashes):
            node = self.nodes[chance.choice(self.names)]
            self.kernel.schedule(chance.randrange(self._span_ns()), self._crash, node, chance.randrange(1_000_000, 1_000_000_000))

    def _crash(self, node: Node, down_ns: int) -> None:
        if node.up:
            node.crash()
            self.kernel.schedule(SUSPECT_AFTER_NS, self._watch, node)
            self.kernel.schedule(down_ns, self._restart, node)

    def _restart(self, node: Node) -> None:
        node.restart()
        self._watch(node)
        for other in self._peers(node):
            node.suspect(other.name, not other.up)

    def _watch(self, node: Node) -> None:
        """Tell everybody who has to do with a process whether it is up."""
        for other in self._peers(node):
            self.statistics.suspicions += not node.up
            other.suspect(node.name, not node.up)

    def _peers(self, node: Node) -> list[Node]:
        """Return who shares a domain or a link with a process, and watches over others."""
        topology = self._known_to(node)
        if not topology.suspicious:
            return []
        return [self.nodes[name] for name in peers(topology, node.name) if name in topology.suspicious]

    def _known_to(self, node: Node) -> Topology:
        """Return the fabric as a process knows it."""
        return self.topology

    def _schedule_suspicions(self) -> None:
        chance = Random(f"{self.options.seed}/suspicions")
        groups = suspecting(self.topology)
        for _ in range(self.options.suspicions if groups else 0):
            node, other = chance.sample(chance.choice(groups), 2)
            start, length = chance.randrange(self._span_ns()), chance.randrange(1_000_000, 1_000_000_000)
            self.kernel.schedule(start, self._suspect, self.nodes[node], other, True)
            self.kernel.schedule(start + length, self._suspect, self.nodes[node], other, False)

    def _suspect(self, node: Node, other: str, suspected: bool) -> None:
        self.statistics.suspicions += suspected
        node.suspect(other, suspected or not self.nodes[other].up)

    def _schedule_deaths(self) -> None:
        chance = Random(f"{self.options.seed}/deaths")
        able = [group for group in self.topology.replicas if self.topology.takes_over_at_once(group)]
        for _ in range(self.options.deaths if able else 0):
            group = chance.choice(able)
            alive = [name for name in group if name not in self._dead]
            if len(alive) > 1:
                name = chance.choice(alive)
                self._dead[name] = None
                self.kernel.schedule(chance.randrange(self._span_ns()), self._die, self.nodes[name])

    def _die(self, node: Node) -> None:
        if node.up:
            node.crash()
        node.dead = True
        self.kernel.schedule(SUSPECT_AFTER_NS, self._watch, node)


def suspecting(topology: Topology) -> Sequence[tuple[str, ...]]:
    """Return groups of processes that may suspect each other wrongly: replicas, or without them who ack to everybody."""
    domains = topology.domains.values()
    every = [domain.members for domain in domains if domain.acks.scheme == "distributed" and len(domain.members) > 1]
    return topology.replicas or every


def peers(topology: Topology, process: str) -> list[str]:
    """Return who shares a domain or a link with a process."""
    names = {name for home in topology.homes[process] for name in topology.domains[home].members}
    names.update(name for link in topology.links.values() if process in link.members for name in link.members)
    return sorted(names - {process})


def simulate(options: SimulationOptions, where: Topology | None = None, sink: Sink | None = None) -> tuple[Result, list[Event]]:
    """Run to the end; return the result and the trace, which is empty if it went to a sink."""
    events: list[Event] = []
    result = Simulation(options, events.append if sink is None else sink, where=where).run()
    return result, events
