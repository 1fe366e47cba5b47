"""Members with disks and the packets between them, moved one by one: arrivals in any order, losses, copies, timers and crashes.

No network and no clock decides anything here: whoever plays does, hypothesis or chance. Everything that travels or is stored goes
through the codec.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final, NamedTuple

from thence.core.member.codec import decode_packet, decode_record, encode_packet, encode_record
from thence.core.member.contract import Arrived, Delivery, Ready, Restored, Submit, Timer
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.topology.model import Topology
from thence.core.wire.messages import MessageId, Packet
from thence.errors import FrameRefused, OverflowingFrame
from thence.trace.events import Event
from thence.trace.judge import judge

ACTIONS: Final = "sssaaaaaaaalrtcx"
"""Send, arrive, lose, repeat, let time pass until the next timer, crash after a step or in the middle of one: in these shares."""

MAX_SENT: Final = 12
QUIET_ROUNDS: Final = 200
"""After so many rounds without faults, all must be over."""


class Flight(NamedTuple):
    """A packet on its way."""

    source: str
    target: str
    packet: bytes


class Bag:
    """Members with disks, and the packets between them in no order at all."""

    def __init__(self, where: Topology, max_held: int = 100) -> None:
        self.names = where.processes
        self.where = where
        self.options = MemberOptions(max_held=max_held)
        self.members = {name: Member(name, self.where, self.options) for name in self.names}
        self.disks: dict[str, list[bytes]] = {name: [] for name in self.names}
        self.snapshots: dict[str, bytes | None] = dict.fromkeys(self.names)
        self.flights: list[Flight] = []
        self.wakes: dict[str, int | None] = {}
        self.positions = dict.fromkeys(self.names, 0)
        self.bodies: dict[MessageId, bytes] = {}
        self.events: list[Event] = []
        self.sent = 0
        self.now = 0

    def follow(self, name: str, ready: Ready) -> None:
        """Do what a step asks for, in its order."""
        wrong: list[FrameRefused] = [refusal for refusal in ready.refused if not isinstance(refusal, OverflowingFrame)]
        assert wrong == []
        self.disks[name] += [encode_record(record) for record in ready.persist]
        self.flights += [Flight(name, peer, encode_packet(packet)) for peer, packet in ready.send]
        for envelope in ready.accepted:
            self.note(name, "send", str(envelope.id), self.names if envelope.to is None else envelope.to)
        for delivery in ready.deliver:
            self.deliver(name, delivery)
        self.wakes[name] = ready.wake

    def deliver(self, name: str, delivery: Delivery) -> None:
        assert delivery.envelope.body == self.bodies[delivery.envelope.id]
        if delivery.position > self.positions[name]:
            assert delivery.position == self.positions[name] + 1
            self.positions[name] = delivery.position
            self.note(name, "deliver", str(delivery.envelope.id))

    def note(self, name: str, kind: str, message: str, to: tuple[str, ...] | None = None) -> None:
        index = sum(event.process == name for event in self.events)
        self.events.append(Event(process=name, index=index, kind=kind, message=message, to=to))

    def send(self, number: int) -> None:
        self.sent += 1
        name = self.names[number % len(self.names)]
        chance = Random(number)
        to = None if number % 3 else tuple(chance.sample(self.names, chance.randint(1, len(self.names))))
        body = f"the {self.sent}-th message".encode()
        ready = self.members[name].step(Submit(to, body), self.now)
        self.bodies[ready.accepted[0].id] = body
        self.follow(name, ready)

    def arrive(self, at: int, *, undone: bool = False) -> None:
        """Let a packet arrive; ``undone`` crashes the member before anything that followed from it was on disk."""
        flight = self.flights.pop(at)
        packet: Packet[Any] = decode_packet(flight.packet)
        ready = self.members[flight.target].step(Arrived(flight.source, packet), self.now)
        if undone:
            self.restart(flight.target)
        else:
            self.follow(flight.target, ready)

    def restart(self, name: str) -> None:
        member = self.members[name] = Member(name, self.where, self.options)
        records = [decode_record(record) for record in self.disks[name]]
        self.follow(name, member.step(Restored(self.snapshots[name], records, self.positions[name]), self.now))

    def compact(self, name: str) -> None:
        """Let a snapshot replace the records, and go on from it."""
        self.snapshots[name], self.disks[name] = self.members[name].snapshot(), []
        self.restart(name)

    def tick(self) -> bool:
        """Go on to the next timer; false if there is none."""
        times = [time for time in self.wakes.values() if time is not None]
        if not times:
            return False
        self.now = max(self.now, min(times))
        for name, time in list(self.wakes.items()):
            if time is not None and time <= self.now:
                self.follow(name, self.members[name].step(Timer(), self.now))
        return True

    def play(self, kind: str, number: int) -> None:
        if kind == "s" and self.sent < MAX_SENT:
            self.send(number)
        elif kind == "t":
            self.tick()
        elif kind == "c":
            name = self.names[number % len(self.names)]
            self.compact(name) if number % 2 else self.restart(name)
        elif self.flights:
            at = number % len(self.flights)
            if kind == "l":
                del self.flights[at]
            elif kind == "r":
                self.flights.append(self.flights[at])
            else:
                self.arrive(at, undone=kind == "x")

    def settle(self) -> None:
        """Let everything arrive, the newest first, until no timer is left."""
        for _ in range(QUIET_ROUNDS):
            while self.flights:
                self.arrive(len(self.flights) - 1)
            if not self.tick():
                return
        raise AssertionError(f"not at rest: {self.wakes}")

    def violations(self) -> dict[str, int]:
        """Return what the judge finds."""
        return {name: count for name, count in judge(self.events).properties.items() if count}
