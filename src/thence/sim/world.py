"""A handful of members and the frames between them, moved one action at a time.

Scenarios and the explorer stand on this: there is no time and no chance in it, only "this member sends" and "this
frame arrives".

Rules:

* A world is a value: ``send`` and ``arrive`` return a new one and leave the old one as it was, so that a search can
  try several futures of the same past. Only the member that acts is copied.
* The channels keep what the ordering was promised: where it needs FIFO arrival, only the oldest frame of a channel
  may arrive.
* Every frame is on its way by itself, also where a member put several into one packet.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from thence.core.member import Arrived, Delivery, Domain, Member, MemberOptions, Restored, Submit
from thence.core.messages import Envelope, Frame, Packet
from thence.core.ordering import Arrival, ordering_named
from thence.errors import FrameRefused, UsageError


class Flight(NamedTuple):
    """A frame on its way, and the number of the action that sent it."""

    frame: Frame[Any]
    sent_at: int


class Happened(NamedTuple):
    """What an action brought about."""

    member: str
    submitted: Envelope | None
    delivered: tuple[Delivery, ...]
    refused: tuple[FrameRefused, ...]
    flights: tuple[tuple[str, Frame[Any]], ...]


Flights = dict[tuple[str, str], tuple[Flight, ...]]


class World:
    """See the module's text."""

    __slots__ = ("actions", "domain", "fifo", "flights", "members")

    def __init__(self, domain: Domain, members: dict[str, Member], flights: Flights, actions: int) -> None:
        """Use ``World.of`` to make the first one."""
        self.domain = domain
        self.members = members
        self.flights = flights
        self.actions = actions
        self.fifo = ordering_named(domain.ordering).arrival is Arrival.FIFO

    @classmethod
    def of(cls, domain: Domain) -> World:
        """Return the world in which nothing has happened yet."""
        options = MemberOptions(reliable=False, durable=False)
        return cls(domain, {name: Member(name, domain, options) for name in domain.members}, {}, 0)

    def send(self, sender: str, to: tuple[str, ...] | None, body: bytes = b"") -> tuple[World, Happened]:
        """Let ``sender`` send a message."""
        return self._step(sender, Submit(to, body), self.flights)

    def arrive(self, source: str, target: str, place: int = 0) -> tuple[World, Happened]:
        """Let the frame at ``place`` among those from ``source`` to ``target`` arrive."""
        waiting = self.flights.get((source, target), ())
        if not 0 <= place < len(waiting):
            raise UsageError(
                f"{len(waiting)} frames are on their way from {source!r} to {target!r}; there is no number {place + 1}"
            )
        if place and self.fifo:
            raise UsageError(f"domain {self.domain.name!r} needs FIFO channels: only the first frame may arrive")
        flights = dict(self.flights)
        flights[source, target] = waiting[:place] + waiting[place + 1 :]
        packet = Packet(self.domain.name, (waiting[place].frame,))
        return self._step(target, Arrived(source, packet), flights)

    def lose(self, source: str, target: str, place: int = 0) -> World:
        """Let a frame get lost."""
        waiting = self.flights[source, target]
        flights = {**self.flights, (source, target): waiting[:place] + waiting[place + 1 :]}
        return World(self.domain, self.members, flights, self.actions + 1)

    def repeat(self, source: str, target: str, place: int = 0) -> World:
        """Let a frame be on its way once more."""
        waiting = self.flights[source, target]
        flights = {**self.flights, (source, target): (*waiting, waiting[place])}
        return World(self.domain, self.members, flights, self.actions + 1)

    def restart(self, name: str) -> World:
        """Let a member go on from its snapshot, as after a restart."""
        snapshot = self.members[name].snapshot()
        member = Member(name, self.domain, self.members[name].options)
        member.step(Restored(snapshot, (), 0), self.actions)
        return World(self.domain, {**self.members, name: member}, self.flights, self.actions + 1)

    def _step(self, name: str, step_input: Submit | Arrived, flights: Flights) -> tuple[World, Happened]:
        member = self.members[name].fork()
        ready = member.step(step_input, self.actions)
        sent = tuple((peer, frame) for peer, packet in ready.send for frame in packet.frames)
        if sent:
            flights = dict(flights)
            for peer, frame in sent:
                flights[name, peer] = (*flights.get((name, peer), ()), Flight(frame, self.actions))
        world = World(self.domain, {**self.members, name: member}, flights, self.actions + 1)
        submitted = ready.accepted[0] if ready.accepted else None
        return world, Happened(name, submitted, ready.deliver, ready.refused, sent)

    @property
    def quiet(self) -> bool:
        """Whether nothing is on its way."""
        return not any(self.flights.values())
