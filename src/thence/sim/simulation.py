"""A whole run: processes, network, disks, traffic and faults, from one options value.

A simulation owns a fabric and the parts that make things go wrong in it (``sim.faults``). Any mixture of them can happen.

Rules:

* Chance comes from the seed alone, in separate streams for traffic, network, disks and faults, so that adding a
  fault does not change the traffic.
* A run ends by itself: traffic is finite, every fault ends, and channels repeat until all is acknowledged. A limit
  on events stops a protocol that would go on for ever, loudly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, NamedTuple

from thence.core.member.contract import Delivery
from thence.core.member.limits import MemberOptions
from thence.core.ordering import ArrivalOrder, ordering_named
from thence.core.reconfig.retention import MAX_RETAINED_BYTES
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Packet
from thence.errors import UsageError
from thence.sim.disk import Disk, DiskOptions
from thence.sim.fabric import Fabric
from thence.sim.faults.copies import CopiesVerdict, CopyFaults
from thence.sim.faults.failures import Failures
from thence.sim.faults.reconfiguration import Changes, ReconfigurationFaults
from thence.sim.kernel import MAX_EVENTS, Kernel
from thence.sim.laws import Law, parse_law
from thence.sim.network import Link, Network, NetworkOptions, Partition
from thence.sim.node import SimulatedNode
from thence.sim.options import Pattern, SimulationOptions
from thence.sim.statistics import Statistics
from thence.trace.events import Event
from thence.trace.recorder import Recorder, Sink

QUIET_NS = 30_000_000_000
"""Where somebody is dead for good, others go on repeating to it: the run ends when nothing was sent or delivered for so long."""

QUIET_CONNECTED_NS = 20_000_000_000
"""The same where processes have connections, which they keep up for ever."""

MAX_ROUNDS = 200
"""How many times as long a run may take at most until it is quiet."""

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
    copies: CopiesVerdict | None = None
    """Where processes have connections: what became of what was accepted."""


class Simulation:
    """One run. ``where`` is a topology instead of the options' one domain, or several, one after the other.

    ``delays``, ``bandwidths_bytes_per_s`` and ``losses`` are those of some pairs of processes, where they are not the options'.
    With ``losses`` the options must have a loss too, or nobody repeats what is lost.
    ``node_type`` is for planted mistakes.
    """

    def __init__(
        self,
        options: SimulationOptions,
        sink: Sink,
        *,
        where: Topology | Changes | None = None,
        node_type: type[SimulatedNode] = SimulatedNode,
        max_events: int = MAX_EVENTS,
        delays: Mapping[Link, Law] | None = None,
        bandwidths_bytes_per_s: Mapping[Link, int] | None = None,
        losses: Mapping[Link, float] | None = None,
    ) -> None:
        """Set everything up; nothing has happened yet."""
        options.check()
        self.options = options
        self._progress: Callable[[int], None] | None = None
        self._traffic = Random(f"{options.seed}/traffic")
        self._gap = parse_law(options.gap)
        self._body = bytes(options.body_bytes)
        self._bodies = 0
        self._unsent = options.messages
        connected = options.copied or node_type.connected
        changes = where if isinstance(where, Changes) else Changes((where or Topology.flat(options.domain()),))
        topology, joining = changes.versions[0], changes.joining
        self.names = (*topology.processes, *joining)
        all_names = (*self.names, *changes.spares)
        self._spares = bool(changes.spares)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self.kernel = Kernel(max_events)
        self.statistics = Statistics()
        network = _network_options(options, topology, all_names, delays or {}, bandwidths_bytes_per_s or {})
        # Connections keep the order of what goes over them.
        network = dataclasses.replace(network, keep_fifo=network.keep_fifo or connected, link_losses=losses or {})
        self.network = Network(self.kernel, network, Random(f"{options.seed}/network"), self._receive)
        recorder = Recorder(sink, all_names, arrivals=options.arrivals)
        routes = Routes(topology)
        retain_bytes = MAX_RETAINED_BYTES if isinstance(where, Changes) else 0
        member_options = MemberOptions(reliable=options.acked, durable=options.on_disk, retain_bytes=retain_bytes)
        disk_options = DiskOptions(sync_delay=parse_law(options.sync))

        def make(name: str, known: Routes) -> SimulatedNode:
            disk = Disk(disk_options, Random(f"{options.seed}/disk/{name}"))
            node = node_type(name, known, member_options, self.kernel, self.network, disk, recorder, self.statistics)
            node.on_deliver = self._delivered
            return node

        self.fabric = Fabric(options, topology, self.names, self.kernel, self.network, self.statistics, make)
        self.nodes = self.fabric.nodes
        for name in self.names:
            self.fabric.add(name, Routes(joining[name]) if name in joining else routes)
        self.failures = Failures(self.fabric)
        self.copies = CopyFaults(self.fabric, self.failures) if connected else None
        self.reconfiguration = ReconfigurationFaults(self.fabric, self.failures, changes) if isinstance(where, Changes) else None
        if self.copies is not None and self.reconfiguration is not None:
            self.copies.on_made = self.reconfiguration.introductions.enlist

    @property
    def topology(self) -> Topology:
        """The version of the topology in force."""
        return self.fabric.topology

    def run(self, progress: Callable[[int], None] | None = None) -> Result:
        """Run to the end; tell ``progress`` of each message."""
        self._progress = progress
        if self.copies is not None:
            self.copies.schedule()
        self.failures.schedule(reconfigured=self.reconfiguration is not None)
        self.kernel.schedule(self._gap.draw_ns(self._traffic), self._next_send)
        events = self._run()
        waits = [wait for node in self.nodes.values() if node.up for wait in node.member.attachment.waiting()]
        # What a dead process sent behind something that reached nobody waits for it, and nobody waits for that.
        waiting = sum(wait.missing.sender.removeprefix("acks of ") not in self.failures.dead for wait in waits)
        verdict = None if self.copies is None else self.copies.verdict()
        return Result(self.statistics, self.network.counters(), events, self.kernel.now, waiting, verdict)

    def _run(self) -> int:
        if not self.failures.dead and self.copies is None and not (self.reconfiguration and self.options.deaths):
            return self.kernel.run()
        quiet_ns = max(QUIET_NS if self.copies is None else QUIET_CONNECTED_NS, self.fabric.options.span_ns)
        events, before = 0, (-1, -1, -1)
        for _ in range(MAX_ROUNDS):
            refusals = 0 if self.copies is None else self.copies.refusals
            done = (self.statistics.messages, self.statistics.deliveries, refusals)
            if done == before and (self.copies is not None or self.reconfiguration is None or self.reconfiguration.finished):
                return events
            before = done
            events += self.kernel.run(until_ns=self.kernel.now + quiet_ns)
        raise UsageError(f"the run was not quiet within {MAX_ROUNDS} times {quiet_ns} ns")

    # Traffic.

    def _next_send(self) -> None:
        if not self._unsent:
            return
        name = self._traffic.choice(self.topology.senders)
        if self.copies is None:
            self._send(self.nodes[name])
        else:
            self._send(self._traffic.choice([node for node in self.nodes.values() if node.name == name]))
        if self._unsent:
            self.kernel.schedule(self._gap.draw_ns(self._traffic), self._next_send)

    def _send(self, node: SimulatedNode) -> None:
        self._unsent -= 1
        to = self._destinations(node.name)
        if self.copies is None:
            self._attempt(node, to, self._body)
        else:
            self._bodies += 1  # A body is used once, so that it names the message whoever forgets.
            self._attempt(node, to, b"%d" % self._bodies)
        if self._progress:
            self._progress(1)

    def _attempt(self, node: SimulatedNode, to: tuple[str, ...] | None, body: bytes) -> None:
        if node.dead or node.fenced:
            return  # Its application is gone, or learns that it does not go on.
        if not node.up or not node.submit(to, body):
            self.kernel.schedule(RETRY_NS, self._attempt, node, to, body)

    def _destinations(self, sender: str) -> tuple[str, ...] | None:
        pattern = self.options.pattern
        if pattern == "mixed":
            pattern = self._traffic.choice(MIXED)
        if pattern == "broadcast":
            return None
        if self._spares:
            others_now = [name for name in self.topology.processes if name != sender]
            count = 1 if pattern == "unicast" else min(self.options.recipients, len(others_now))
            return tuple(self._traffic.sample(others_now, count)) or None
        # Numbers are drawn, of all but the sender: a list of the others, for every message, would cost more than the rest.
        others = range(len(self.names) - 1)
        count = 1 if pattern == "unicast" else min(self.options.recipients, len(others))
        drawn = (self._traffic.choice(others),) if pattern == "unicast" else sorted(self._traffic.sample(others, count))
        own = self._numbers[sender]
        return tuple(self.names[number + (number >= own)] for number in drawn)

    def _delivered(self, node: SimulatedNode, delivery: Delivery) -> None:
        envelope = delivery.envelope
        # A reply is meant per message, not per delivery.
        audience = len(self.names) if envelope.to is None else len(envelope.to)
        if self.topology.only_carries(node.name):
            return
        if self._unsent and envelope.origin != node.name and self._traffic.random() < self.options.replies / audience:
            # Not within the delivery: the application sends when it has done with it.
            self.kernel.schedule(0, self._reply, node)

    def _reply(self, node: SimulatedNode) -> None:
        if self._unsent:
            self._send(node)

    def _receive(self, target: str, source: str, packet: Packet[object]) -> None:
        self.nodes[target].receive(source, packet)


def _network_options(
    options: SimulationOptions,
    topology: Topology,
    names: tuple[str, ...],
    delays: Mapping[Link, Law],
    bandwidths: Mapping[Link, int],
) -> NetworkOptions:
    domains, links = topology.domains.values(), topology.links.values()
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
        keep_fifo=needs_fifo and not options.acked,
        partitions=_partitions(options, names),
    )


def _partitions(options: SimulationOptions, names: tuple[str, ...]) -> tuple[Partition, ...]:
    chance = Random(f"{options.seed}/partitions")
    partitions = []
    for _ in range(options.partitions):
        start = chance.randrange(options.span_ns)
        side = chance.sample(names, chance.randrange(1, len(names)))
        groups = (tuple(name for name in names if name in side), tuple(name for name in names if name not in side))
        partitions.append(Partition(start, start + chance.randrange(10_000_000, 2_000_000_000), groups))
    return tuple(partitions)


def simulate(options: SimulationOptions, where: Topology | None = None, sink: Sink | None = None) -> tuple[Result, list[Event]]:
    """Run to the end; return the result and the trace, which is empty if it went to a sink."""
    events: list[Event] = []
    result = Simulation(options, events.append if sink is None else sink, where=where).run()
    return result, events
