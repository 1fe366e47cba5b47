"""The model of daisy §5.1: sixty processes on a campus, as a daisy of three levels or as one flat group, under load.

It exists to set our own members, ordered by full vectors, into the network that the paper simulated, and to measure what its
Fig. 6 to 9 show. The members, their stamps and their deliveries are real; the network, the acknowledgements and the accounting
are the paper's model.

Rules:

* The network (``campus``): T is exponential with a mean of 2 ms on a building's backbone and 10 ms on the campus's, plus the
  size of the control information over the speed; a LAN takes a small constant. T depends on no load: nothing queues on a line.
  Every message is a packet of its own, as the paper has it.
* The control information is counted as the paper does, on the stamps that really travel: four bytes for each of their integers,
  and flat one bit more for each process, which says whom the message is for. ``encoded_bytes`` is what our codec writes.
* An acknowledgement takes the way of its message backwards. Flat, each receiver sends it when the message arrives, delivered or
  not. In a daisy so does each member of a group that passes nothing on; one that does acknowledges a message when it is stable
  in every group into which it passed it on (§3.1.2).
* A message is kept by its sender from its sending on, and by every other process from its arrival on, until it is stable in the
  group from which that process has it (§3.1.2: processes "buffer messages they send and receive").
* The first messages of a run only fill the system. Averages over time are over the sendings of those that are measured.

Source: daisy §5.1 and §5.2.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

import msgspec

from thence.core.wire.messages import MessageId, Packet, control_bytes
from thence.sim.kernel import Kernel
from thence.sim.node import SimulatedNode
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.studies.parts.campus import NS_PER_MS, NS_PER_S, WORST_HOPS, Campus, Map, stamp_bytes
from thence.studies.study import Measures, Point
from thence.trace.events import Event
from thence.trace.recorder import Sink


class MessageArrival(NamedTuple):
    """A message came to a process: when, by whom, in which group, and with how much control information."""

    at: int
    source: str
    domain: str
    control: int
    encoded: int


class CampusLog:
    """Writes down when each message is sent, comes to each process and is delivered there."""

    def __init__(self, kernel: Kernel, *, flat: bool) -> None:
        """Take the time from ``kernel``; ``flat`` says how control information is counted."""
        self.sends: dict[MessageId, tuple[int, int]] = {}
        """When each message was sent, and how long it is; in the order of sending."""
        self.arrivals: dict[tuple[str, MessageId], MessageArrival] = {}
        self.deliveries: dict[tuple[str, MessageId], int] = {}
        self._kernel, self._flat = kernel, flat

    def hear(self, event: Event) -> None:
        """Write down a sending or a delivery of the trace."""
        origin, _, number = (event.message or "").rpartition(":")
        message = MessageId(origin, int(number))
        if event.kind == "send":
            self.sends[message] = (event.time or 0, event.bytes or 0)
        else:
            self.deliveries[event.process, message] = event.time or 0

    def sent(self, source: str, target: str, packet: Packet[Any]) -> None:
        """Do nothing: the trace has it."""

    def arrived(self, source: str, target: str, packet: Packet[Any]) -> None:
        """Write down the messages of a packet."""
        for frame in packet.frames:
            if frame.envelope is not None:
                control = stamp_bytes(len(frame.stamp.clock), flat=self._flat)
                arrival = MessageArrival(self._kernel.now, source, packet.domain, control, control_bytes(frame.stamp))
                self.arrivals[target, frame.envelope.id] = arrival


class Load:
    """A run: Poisson senders, who broadcast bodies of changing length, and what was seen of it."""

    def __init__(self, point: Point, seed: int, sink: Sink) -> None:
        """Set up what the point says."""
        self.map = Map(msgspec.convert(dict(point), Campus))
        self.is_flat = point["architecture"] != "daisy"
        self.topology = self.map.flat if self.is_flat else self.map.daisy
        self.names = self.topology.processes
        self.warm_up = int(point["warm_up"])
        gap_ns = NS_PER_S / (float(point["rate_per_s"]) * len(self.names))
        options = SimulationOptions(
            messages=self.warm_up + int(point["messages"]),
            pattern="broadcast",
            replies=0.0,
            gap=f"exponential:{round(gap_ns)}ns",
            seed=seed,
        )
        lengths = Random(f"{seed}/lengths")
        node_type = sender_of(lambda: bytes(round(lengths.expovariate(1 / float(point["body_bytes"])))))

        def hear(event: Event) -> None:
            self.log.hear(event)
            sink(event)

        shared = point["architecture"] == "flat, shared copies"
        delays = self.map.shared_ways() if shared else self.map.ways(self.topology)
        self.simulation = Simulation(options, hear, where=self.topology, node_type=node_type, delays=delays)
        self.log = CampusLog(self.simulation.kernel, flat=self.is_flat)
        self.simulation.network.taps.append(self.log)


def sender_of(body: Callable[[], bytes]) -> type[SimulatedNode]:
    """Return a process that draws each body that it sends, and sends each message in a packet of its own.

    A server that may pass on several messages at once would put them into one packet, in which they stay in order.
    """

    class CampusNode(SimulatedNode):
        def submit(self, to: tuple[str, ...] | None, _: bytes) -> bool:
            return super().submit(to, body())

        def _transmit(self, peer: str, packet: Packet[Any]) -> None:
            for frame in packet.frames:
                super()._transmit(peer, Packet(packet.domain, (frame,)))

    return CampusNode


class MessageTree:
    """The way of one message through the groups, and when it became stable in each."""

    def __init__(self, message: MessageId, load: Load, chance: Random) -> None:
        """Follow a message that everybody has; ``chance`` is for its acknowledgements."""
        self.message = message
        self._load = load
        self._chance = chance
        self.children: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        """By whom it was sent, in which group, to whom."""
        for process in load.names:
            arrival = load.log.arrivals.get((process, message))
            if arrival is not None:
                self.children[arrival.source][arrival.domain].append(process)
        self.stable_at: dict[str, int] = {}
        """By whom it was sent: when that one knew that all have it in every group into which it sent it."""
        self._known: dict[tuple[str, str], int] = {}
        self._settle(message.origin)

    def _settle(self, sender: str) -> int:
        """Find out when what ``sender`` sent became stable, and whatever that depends on; it is at most three groups deep."""
        for domain, receivers in self.children[sender].items():
            self._known[sender, domain] = max(self._acknowledged(receiver, sender) for receiver in receivers)
        self.stable_at[sender] = max(self._known[sender, domain] for domain in self.children[sender])
        return self.stable_at[sender]

    def _acknowledged(self, receiver: str, sender: str) -> int:
        passes_on = receiver in self.children
        ready = self._settle(receiver) if passes_on else self._load.log.arrivals[receiver, self.message].at
        return ready + self._load.map.acknowledgement(receiver, sender).draw_ns(self._chance)

    def kept(self) -> Iterable[tuple[int, int, int]]:
        """Give from when until when each process keeps it, and the control information with which it does."""
        origin, arrivals = self.message.origin, self._load.log.arrivals
        for sender, groups in self.children.items():
            for domain, receivers in groups.items():
                for receiver in receivers:
                    arrival = arrivals[receiver, self.message]
                    yield arrival.at, self._known[sender, domain], arrival.control
        yield self._load.log.sends[self.message][0], self.stable_at[origin], self._own_control(origin)

    def kept_by_senders(self) -> Iterable[tuple[int, int, int]]:
        """Give the same for those only who sent it into a group: its origin, and whoever passed it on."""
        for sender, until in self.stable_at.items():
            start = self._load.log.deliveries[sender, self.message]
            yield start, until, self._own_control(sender)

    def _own_control(self, sender: str) -> int:
        first = next(iter(self.children[sender].values()))[0]
        return self._load.log.arrivals[first, self.message].control


class TimeAverage:
    """Adds up how much was there over a stretch of time, for an average."""

    def __init__(self, start: int, end: int) -> None:
        """From when until when."""
        self._start, self._end = start, end
        self.messages = 0.0
        self.bytes = 0.0

    def add(self, start: int, end: int, size: int) -> None:
        """So many bytes of one message were there from ``start`` until ``end``."""
        length = min(end, self._end) - max(start, self._start)
        if length > 0:
            share = length / (self._end - self._start)
            self.messages += share
            self.bytes += share * size


def run(point: Point, seed: int, sink: Sink) -> Measures:
    """Simulate one architecture under one load."""
    load = Load(point, seed, sink)
    events, log = load.simulation.run().events, load.log
    messages = list(log.sends)
    measured = messages[load.warm_up :]
    span = (log.sends[measured[0]][0], log.sends[measured[-1]][0])
    waiting, kept, kept_by_senders = TimeAverage(*span), TimeAverage(*span), TimeAverage(*span)
    chance = Random(f"{seed}/acknowledgements")
    stability_ns = 0
    for number, message in enumerate(messages):
        sent_at, length = log.sends[message]
        tree = MessageTree(message, load, chance)
        for start, end, control in tree.kept():
            kept.add(start, end, length + control)
        for start, end, control in tree.kept_by_senders():
            kept_by_senders.add(start, end, length + control)
        if number >= load.warm_up:
            stability_ns += tree.stable_at[message.origin] - sent_at
    for (process, message), arrival in log.arrivals.items():
        waiting.add(arrival.at, log.deliveries[process, message], log.sends[message][1] + arrival.control)
    processes, holders = len(load.names), _resequencing(load)
    frames = log.arrivals.values()
    delays = _delays_ns(load, set(measured))
    return {
        "delay_ms": sum(delays) / len(delays) / NS_PER_MS,
        "formula_ms": load.map.network_ms(load.topology),
        "buffer_messages": waiting.messages / holders,
        "buffer_bytes": waiting.bytes / holders,
        "spread_buffer_bytes": waiting.bytes / processes,
        "stability_ms": stability_ns / len(measured) / NS_PER_MS,
        "stability_formula_ms": load.map.stability_ms() if point["architecture"] == "flat" else math.nan,
        "storage_bytes": kept.bytes / processes,
        "storage_messages": kept.messages / processes,
        "sender_storage_bytes": kept_by_senders.bytes / processes,
        "control_bytes": sum(arrival.control for arrival in frames) / len(frames),
        "events": events,
        "encoded_bytes": sum(arrival.encoded for arrival in frames) / len(frames),
    }


def _delays_ns(load: Load, measured: set[MessageId]) -> list[int]:
    """Return the end-to-end delays in the worst case."""
    return [
        at - load.log.sends[message][0]
        for (process, message), at in load.log.deliveries.items()
        if message in measured and load.map.hops(message.origin, process) == WORST_HOPS
    ]


def _resequencing(load: Load) -> int:
    """Return how many processes get messages out of order: all, or those who are on a backbone."""
    return sum(load.is_flat or len(load.topology.homes[name]) > 1 for name in load.names)
