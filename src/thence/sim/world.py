"""A handful of members and the frames between them, moved one action at a time.

Scenarios stand on this, and the explorer begins with it: there is no time and no chance in it, only "this member sends" and "this
frame arrives".

Rules:

* A world is a value: ``send`` and ``arrive`` return a new one and leave the old one as it was, so that several futures
  of the same past can be tried. Only the member that acts is copied.
* The channels keep what the ordering was promised: where it needs FIFO arrival, only the oldest frame of a channel
  may arrive.
* Every frame is on its way by itself, also where a member put several into one packet; so is what a packet reports beside them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from thence.core.member.contract import Arrived, Delivery, Restored, Submit, Suspicion
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.ordering import ArrivalOrder, ordering_named
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.errors import FrameRefused, UsageError
from thence.words import counted


class FlyingFrame(NamedTuple):
    """What is on its way, a frame by itself or a report alone, the domain or link, and the number of the action that sent it."""

    packet: Packet[Any]
    place: str
    sent_at: int

    @property
    def frame(self) -> Frame[Any] | None:
        """The frame, if it is one."""
        return self.packet.frames[0] if self.packet.frames else None


class Happened(NamedTuple):
    """What an action brought about."""

    member: str
    submitted: Envelope | None
    delivered: tuple[Delivery, ...]
    refused: tuple[FrameRefused, ...]
    flights: tuple[tuple[str, str, Frame[Any]], ...]
    """Frames that went out: to whom, in which domain or link, and what."""


Flights = dict[tuple[str, str], tuple[FlyingFrame, ...]]


class World:
    """The members of a fabric and the frames on their way, as a value that a search can copy and compare."""

    __slots__ = ("actions", "fifo", "flights", "members", "routes")

    def __init__(self, routes: Routes, members: dict[str, Member], flights: Flights, actions: int, fifo: frozenset[str]) -> None:
        """Use ``World.of`` to make the first one."""
        self.routes = routes
        self.members = members
        self.flights = flights
        self.actions = actions
        self.fifo = fifo

    @classmethod
    def of(cls, where: Domain | Topology) -> World:
        """Return the world in which nothing has happened yet."""
        topology = where if isinstance(where, Topology) else Topology.flat(where)
        routes = Routes(topology)
        options = MemberOptions(reliable=False, durable=False)
        arrivals = {name: ordering_named(domain.ordering).traits.arrival for name, domain in topology.domains.items()}
        fifo = [name for name, arrival in arrivals.items() if arrival is ArrivalOrder.FIFO]
        fifo += [name for name, link in topology.links.items() if link.mode == "fifo"]
        return cls(routes, {name: Member(name, routes, options) for name in topology.processes}, {}, 0, frozenset(fifo))

    @property
    def topology(self) -> Topology:
        """The fabric that all of this happens in."""
        return self.routes.topology

    def may_arrive(self, source: str, target: str) -> list[tuple[int, FlyingFrame]]:
        """Return the frames from ``source`` to ``target`` that may arrive next, each with its place in the line."""
        flights = self.flights.get((source, target), ())
        if not self.fifo:
            return list(enumerate(flights))
        allowed = []
        blocked = set()
        for at, flight in enumerate(flights):
            if flight.place not in blocked:
                allowed.append((at, flight))
            if flight.place in self.fifo:
                blocked.add(flight.place)
        return allowed

    def send(self, sender: str, to: tuple[str, ...] | None, body: bytes = b"") -> tuple[World, Happened]:
        """Let ``sender`` send a message."""
        return self._step(sender, Submit(to, body), self.flights)

    def arrive(self, source: str, target: str, place: int = 0) -> tuple[World, Happened]:
        """Let the frame at ``place`` among those from ``source`` to ``target`` arrive."""
        waiting = self.flights.get((source, target), ())
        if not 0 <= place < len(waiting):
            raise UsageError(
                f"{counted(len(waiting), 'frame', 'are')} on the way from {source!r} to {target!r}; "
                f"there is no number {place + 1}"
            )
        if place not in [at for at, _ in self.may_arrive(source, target)]:
            raise UsageError(f"{waiting[place].place!r} needs FIFO channels: only the first frame may arrive")
        flights = dict(self.flights)
        flights[source, target] = waiting[:place] + waiting[place + 1 :]
        return self._step(target, Arrived(source, waiting[place].packet), flights)

    def lose(self, source: str, target: str, place: int = 0) -> World:
        """Let a frame get lost."""
        waiting = self.flights[source, target]
        flights = {**self.flights, (source, target): waiting[:place] + waiting[place + 1 :]}
        return World(self.routes, self.members, flights, self.actions + 1, self.fifo)

    def repeat(self, source: str, target: str, place: int = 0) -> World:
        """Let a frame be on its way once more."""
        waiting = self.flights[source, target]
        flights = {**self.flights, (source, target): (*waiting, waiting[place])}
        return World(self.routes, self.members, flights, self.actions + 1, self.fifo)

    def suspect(self, name: str, peer: str, suspected: bool) -> tuple[World, Happened]:
        """Let a member begin or end to suspect another one."""
        return self._step(name, Suspicion(peer, suspected), self.flights)

    def crash(self, name: str) -> World:
        """Let a member die: it does nothing any more, and nothing arrives at it."""
        members = {other: member for other, member in self.members.items() if other != name}
        flights = {pair: waiting for pair, waiting in self.flights.items() if pair[1] != name}
        return World(self.routes, members, flights, self.actions + 1, self.fifo)

    def restart(self, name: str) -> World:
        """Let a member go on from its snapshot, as after a restart."""
        snapshot = self.members[name].snapshot()
        member = type(self.members[name])(name, self.routes, self.members[name].options)
        member.step(Restored(snapshot, (), 0), self.actions)
        return World(self.routes, {**self.members, name: member}, self.flights, self.actions + 1, self.fifo)

    def _step(self, name: str, step_input: Submit | Arrived | Suspicion, flights: Flights) -> tuple[World, Happened]:
        member = self.members[name].fork()
        ready = member.step(step_input, self.actions)
        sent = tuple((peer, packet.domain, frame) for peer, packet in ready.send for frame in packet.frames)
        if ready.send:
            flights = dict(flights)
            for peer, part in [(peer, part) for peer, packet in ready.send for part in parts(packet)]:
                if peer not in self.members:
                    continue  # It is dead.
                flights[name, peer] = (*flights.get((name, peer), ()), FlyingFrame(part, part.domain, self.actions))
        world = World(self.routes, {**self.members, name: member}, flights, self.actions + 1, self.fifo)
        submitted = ready.accepted[0] if ready.accepted else None
        return world, Happened(name, submitted, ready.deliver, ready.refused, sent)

    @property
    def quiet(self) -> bool:
        """Whether nothing is on its way."""
        return not any(self.flights.values())


def parts(packet: Packet[Any]) -> list[Packet[Any]]:
    """Return what travels by itself: each frame of a packet, and what it reports, acks or says to be safe."""
    numbers = packet.numbers or (None,) * len(packet.frames)
    pairs = zip(packet.frames, numbers, strict=True)
    alone = [Packet(packet.domain, (frame,), () if number is None else (number,)) for frame, number in pairs]
    if packet.stable_ack is not None:
        alone.append(Packet(packet.domain, (), stable_ack=packet.stable_ack))
    if packet.acked or packet.acked_beyond or packet.safe_ack is not None:
        acks = (packet.acked, packet.acked_beyond)
        alone.append(Packet(packet.domain, (), (), *acks, safe_ack=packet.safe_ack))
    return alone
