"""Real members joined by wires, and a counter on every wire: what models use where not everybody can be simulated.

``Simulation`` makes every process of a fabric. With thousands of servers that is too much, and where only some of them ever
act it is needless: here a member is made when something is first sent to it.

Rules:

* Members are the real ones: they stamp, relay, hold back and deliver. Nothing about them is estimated.
* ``taking_part`` names those that matter to a run. What is sent to anybody else is counted like the rest, but not taken.
  That changes nothing as long as they are no destinations, no relays and never send: the caller sees to it.
* Between two of them a frame is never lost or doubled. ``Wires`` carry the latest frame first, at once; ``TimedWires`` take
  as long as the network says.
* Chance comes from the network's own ``Random`` alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar

from thence.core.member.codec import encode_record
from thence.core.member.contract import Arrived, Delivery, Ready, Submit
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Packet, control_bytes
from thence.errors import InternalError
from thence.sim.kernel import Kernel
from thence.sim.network import Link, Network, NetworkOptions
from thence.sim.node import FRAME_BYTES
from thence.trace.recorder import Recorder, Sink

TRUSTED: Final = MemberOptions(reliable=False, durable=False)
"""Nothing is lost here and nobody crashes, so nothing is acknowledged or stored."""

DURABLE: Final = MemberOptions(reliable=False)
"""Nothing is lost, but what a member would write to its disk is counted."""

ValueT = TypeVar("ValueT")


class Wires:
    """Real members joined by wires. What goes over them is counted in the public attributes."""

    options = TRUSTED

    def __init__(self, topology: Topology, sink: Sink, taking_part: Collection[str] | None = None) -> None:
        """Join the members of a fabric; ``taking_part``: who matters (None: everybody)."""
        self.routes = Routes(topology)
        self.on_deliver: Callable[[str, Delivery], None] = _ignore
        self.frames = self.control_bytes = self.largest_stamp = self.delivered = 0
        self.handled: Counter[str] = Counter()
        """Per process: the frames that were sent to it, and those that it sent on account of them.

        Not what it sends of its own accord: in a short run, who happens to send twice would look like the busiest.
        """
        self._taking_part = taking_part
        self._members: dict[str, Member] = {}
        self._recorder = Recorder(sink, topology.processes, overhead=False)
        self._pending: list[tuple[str, str, Packet[Any]]] = []
        self._size: tuple[object, int] = (None, 0)
        self._of_its_own = False

    @property
    def now(self) -> int:
        """The time in nanoseconds: here none passes."""
        return 0

    def submit(self, sender: str, to: tuple[str, ...] | None, body: bytes = b"") -> None:
        """Let a process send a message; what follows from it is on its way then."""
        ready = self.member(sender).step(Submit(to, body), self.now)
        self._of_its_own = True
        self._handle(sender, ready)

    def carry(self) -> None:
        """Let everything arrive that is on its way, and all that follows from it."""
        while self._pending:
            source, target, packet = self._pending.pop()
            self._arrive(target, source, packet)

    def member(self, name: str) -> Member:
        """Return a member, as it is now."""
        if name not in self._members:
            self._members[name] = Member(name, self.routes, self.options)
        return self._members[name]

    def forget(self, name: str) -> None:
        """Let go of a member that will never act again: its clock may be megabytes."""
        self._members.pop(name, None)

    def check_complete(self, deliveries: int) -> None:
        """Refuse a run in which not so many messages were delivered, or some still wait: its counts mean nothing."""
        waiting = sum(len(member.attachment.waiting()) for member in self._members.values())
        if self.delivered != deliveries or waiting:
            raise InternalError(f"{deliveries} deliveries expected, {self.delivered} made, {waiting} frames wait")

    def _arrive(self, target: str, source: str, packet: Packet[Any]) -> None:
        ready = self.member(target).step(Arrived(source, packet), self.now)
        self._of_its_own = False
        self._handle(target, ready)

    def _handle(self, name: str, ready: Ready) -> None:
        if ready.refused:
            raise InternalError(f"a frame was refused: {ready.refused[0]}")
        for envelope in ready.accepted:
            self._recorder.send(name, envelope, self.now, self.routes.topology.homes[name][0])
        for peer, packet in ready.send:
            size = self._count(name, peer, packet)
            if self._taking_part is None or peer in self._taking_part:
                self._transmit(name, peer, packet, size)
        for delivery in ready.deliver:
            self.delivered += 1
            self._recorder.deliver(name, delivery.envelope, self.now, delivery.domain, delivery.frame.stamp)
            self.on_deliver(name, delivery)

    def _transmit(self, source: str, target: str, packet: Packet[Any], size: int) -> None:
        self._pending.append((source, target, packet))

    def _count(self, source: str, target: str, packet: Packet[Any]) -> int:
        """Count the frames of a packet and their stamps; return its size in bytes."""
        size = FRAME_BYTES
        for frame in packet.frames:
            if frame.stamp is not self._size[0]:  # One stamp often goes to many.
                self._size = (frame.stamp, control_bytes(frame.stamp, frame.envelope))
            stamp_bytes = self._size[1]
            self.frames += 1
            self.control_bytes += stamp_bytes
            self.largest_stamp = max(self.largest_stamp, stamp_bytes)
            size += FRAME_BYTES + stamp_bytes + (len(frame.envelope.body) if frame.envelope else 0)
        if not self._of_its_own:
            self.handled[source] += len(packet.frames)
        self.handled[target] += len(packet.frames)
        return size


class StoringWires(Wires):
    """Wires between members with a disk; also counts what they would write to it."""

    options = DURABLE
    disk_bytes = 0

    def state_bytes(self, name: str) -> int:
        """Return how many bytes of a snapshot the orderings of a member take."""
        return sum(len(place.ordering.snapshot()) for place in self.member(name).attachment.domains.values())

    def _handle(self, name: str, ready: Ready) -> None:
        self.disk_bytes += sum(len(encode_record(record)) for record in ready.persist)
        super()._handle(name, ready)


class TimedWires(Wires):
    """Wires that take time; also counts how long messages take and how many wait where."""

    def __init__(
        self, topology: Topology, sink: Sink, network: NetworkOptions, chance: Random, taking_part: Collection[str] | None = None
    ) -> None:
        """Join the members of a fabric by a network."""
        super().__init__(topology, sink, taking_part)
        self.kernel = Kernel()
        self.network = Network(self.kernel, network, chance, self._arrive)
        self.delays_ns: list[int] = []
        self.held_ns = 0
        """The time that messages waited for others, all together, at destinations and at relays."""
        self.held_most = 0
        """The most messages that waited at one process at one time."""
        self._sent_at: dict[tuple[str, int], int] = {}
        self._held: dict[str, tuple[int, int]] = {}
        """Per process where something waits: how many messages, and since when it is that many."""

    @property
    def now(self) -> int:
        """The simulated time."""
        return self.kernel.now

    def submit_at(self, time_ns: int, sender: str, to: tuple[str, ...], body: bytes) -> None:
        """Let a process send a message at a time."""
        self.kernel.at(time_ns, self.submit, sender, to, body)

    def run(self) -> None:
        """Run to the end."""
        self.kernel.run()

    def _transmit(self, source: str, target: str, packet: Packet[Any], size: int) -> None:
        self.network.send(source, target, packet, size)

    def _handle(self, name: str, ready: Ready) -> None:
        for envelope in ready.accepted:
            self._sent_at[envelope.origin, envelope.number] = self.now
        for delivery in ready.deliver:
            envelope = delivery.envelope
            self.delays_ns.append(self.now - self._sent_at[envelope.origin, envelope.number])
        super()._handle(name, ready)
        self._note_held(name)

    def _note_held(self, name: str) -> None:
        before, since = self._held.get(name, (0, 0))
        count = sum(wait.message is not None for wait in self.member(name).attachment.waiting())
        if count == before:
            return
        self.held_ns += before * (self.now - since)
        self.held_most = max(self.held_most, count)
        self._held[name] = (count, self.now)


class Near(Mapping[Link, ValueT]):
    """A value for two processes at one site; for others there is none, and the network's own one counts.

    One pair stands for all where it is iterated over: there may be a hundred thousand.
    """

    def __init__(self, sites: Sequence[Sequence[str]], value: ValueT) -> None:
        """Give ``value`` to every two processes at the same site."""
        self._site_of = {name: number for number, site in enumerate(sites) for name in site}
        self._example = (sites[0][0], sites[0][-1])
        self._value = value

    def __getitem__(self, link: Link) -> ValueT:
        if self._site_of[link[0]] != self._site_of[link[1]]:
            raise KeyError(link)
        return self._value

    def __iter__(self) -> Iterator[Link]:
        return iter((self._example,))

    def __len__(self) -> int:
        return 1


def _ignore(name: str, delivery: Delivery) -> None:
    """Do nothing on a delivery."""
