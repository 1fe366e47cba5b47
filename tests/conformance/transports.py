"""What every transport is tried with: three members, a network with or without faults, and a way to restart a member.

A transport that is added needs an entry in ``TRANSPORTS``.
"""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from thence.core.ordering import ArrivalOrder
from thence.core.ordering.vector import VectorStamp
from thence.core.stability.layer import AckLayer
from thence.core.topology.ack_options import AckOptions
from thence.core.transport.ack_all.transport import AckAll
from thence.core.transport.base import Incoming, Transport
from thence.core.transport.channels import PeerChannels
from thence.core.transport.direct import Direct
from thence.core.wire.messages import Envelope, Frame, Packet

MEMBERS = ("a", "b", "c")
MS = 1_000_000
RESEND_NS = 200 * MS
MAX_STEPS = 3_000
"""In so many steps everything must have come to everybody."""

Make = Callable[[str], Transport]
"""Makes the transport of a member."""


class Faults(NamedTuple):
    """How often the network loses a packet, delivers it twice, or delivers another one first."""

    loss: float = 0.0
    twice: float = 0.0
    overtaking: float = 0.0


FAULTLESS = Faults()


def peers_of(me: str) -> list[str]:
    return [name for name in MEMBERS if name != me]


def direct(me: str) -> Transport:
    return Direct("d", me, peers_of(me))


def channels(arrival: ArrivalOrder = ArrivalOrder.ANY, kind: type[PeerChannels] = PeerChannels, **options: Any) -> Make:
    return lambda me: kind("d", me, peers_of(me), arrival, RESEND_NS, AckOptions(**options))


def ack_all(**options: Any) -> Make:
    return lambda me: AckAll("d", me, MEMBERS, RESEND_NS, AckOptions(scheme="distributed", **options))


def layer(inner: Make, *, stable: bool = False, uniform: bool = False) -> Make:
    def make(me: str) -> Transport:
        made = inner(me)
        return AckLayer(made, None if made.exact else RESEND_NS, stable=stable, uniform=uniform)

    return make


TRANSPORTS: dict[str, Make] = {
    "direct": direct,
    "channels": channels(),
    "channels in order": channels(ArrivalOrder.FIFO),
    "channels that ack late": channels(after_ns=5 * MS, after_messages=10),
    "acks to all": ack_all(),
    "acks to all, repeated by the nearest": ack_all(retransmission="nearest", after_ns=5 * MS),
    "stable over direct": layer(direct, stable=True),
    "stable over channels": layer(channels(), stable=True),
    "stable over acks to all": layer(ack_all(), stable=True),
    "notify over channels": layer(channels(), uniform=True),
    "stable and notify over channels": layer(channels(), stable=True, uniform=True),
}


def state_of(transport: Transport) -> Any:
    """Return a copy of everything that a restart needs."""
    acks = transport.save_acks() if isinstance(transport, AckLayer) else None
    return copy.deepcopy((transport.save(), acks))


class Net:
    """Members of one domain, and packets on their way between them. Chance decides what happens next, so one seed is one run."""

    def __init__(self, make: Make, seed: int = 1, faults: Faults = FAULTLESS) -> None:
        self.make = make
        self.members = {name: make(name) for name in MEMBERS}
        self.faults = FAULTLESS if self.members["a"].exact else faults
        self.chance = random.Random(seed)
        self.now = 0
        self.flying: dict[tuple[str, str], list[Packet[Any]]] = defaultdict(list)
        self.sent: dict[str, int] = dict.fromkeys(MEMBERS, 0)
        self.taken: dict[str, list[tuple[str, int]]] = {name: [] for name in MEMBERS}
        """What each member took: the sender of a message, and its number there."""
        self.refuse: Callable[[str, Incoming], bool] = lambda _, __: False
        """Says which frames are neither taken nor skipped."""

    def send(self, name: str, body: bytes = b"x") -> None:
        """Send a message to all others."""
        self.sent[name] += 1
        frame: Frame[Any] = Frame(VectorStamp(self.sent[name], ()), Envelope(name, self.sent[name], None, body))
        self.members[name].push([(peer, frame) for peer in peers_of(name)])

    def collect(self, name: str) -> int:
        """Hand the packets of a member to the network; return how many there are."""
        transport = self.members[name]
        if isinstance(transport, AckLayer) and transport.safe_notification is not None:
            transport.safe_notification.look(0, None)  # As the member does after each step.
        packets = transport.collect(self.now)
        for peer, packet in packets:
            if self.chance.random() >= self.faults.loss:
                copies = 2 if self.chance.random() < self.faults.twice else 1
                self.flying[name, peer] += [packet] * copies
        return len(packets)

    def arrive(self, source: str, target: str, at: int = 0) -> list[Incoming]:
        """Let a packet arrive; return the frames in it that are new."""
        packet = self.flying[source, target].pop(at)
        transport = self.members[target]
        transport.check(source, packet)
        incoming = transport.frames_in(source, packet, self.now)
        for one in incoming:
            if not self.refuse(target, one):
                self.take(target, one)
        return incoming

    def take(self, name: str, incoming: Incoming) -> None:
        transport = self.members[name]
        transport.take(incoming)
        envelope = incoming.frame.envelope
        assert envelope is not None
        self.taken[name].append((envelope.origin, envelope.number))
        if isinstance(transport, AckLayer) and transport.stable is not None:
            transport.stable.add(incoming.peer, incoming.number)  # Nobody else is to have it.

    def pass_time(self) -> None:
        """Let the time come at which somebody wants to do something."""
        times = [one.wake_at for one in self.members.values() if one.wake_at is not None]
        self.now = max(self.now + MS, min(times, default=self.now + RESEND_NS))
        for one in self.members.values():
            if one.wake_at is not None and one.wake_at <= self.now:
                one.visit_all()

    def step(self) -> None:
        """Let one thing happen."""
        for name in MEMBERS:
            self.collect(name)
        ways = [way for way, packets in sorted(self.flying.items()) if packets]
        if not ways:
            self.pass_time()
            return
        way = self.chance.choice(ways)
        overtakes = self.chance.random() < self.faults.overtaking
        self.arrive(*way, self.chance.randrange(len(self.flying[way])) if overtakes else 0)

    def restart(self, name: str) -> None:
        """End a member and start it from what it saved. What it has not sent yet is in there."""
        fresh, (saved, acks) = self.make(name), state_of(self.members[name])
        fresh.load(saved)
        if isinstance(fresh, AckLayer):
            fresh.load_acks(acks)
        fresh.visit_all()
        self.members[name] = fresh
        for one in peers_of(name):
            fresh.connected(one)
            self.members[one].connected(name)

    @property
    def quiet(self) -> bool:
        """Whether everything has come to everybody, and everybody knows."""
        return all(
            not any(transport.unacked_messages())
            and transport.queued == 0
            and len(self.taken[name]) == sum(self.sent[peer] for peer in peers_of(name))
            and all(transport.acked(peer, number) for peer in peers_of(name) for number in range(1, self.sent[name] + 1))
            for name, transport in self.members.items()
        ) and not any(self.flying.values())

    def finish(self) -> None:
        """Go on until everything has come to everybody."""
        for _ in range(MAX_STEPS):
            if self.quiet:
                return
            self.step()
        raise AssertionError(f"not everything came: {self.sent} sent, {self.taken} taken, {dict(self.flying)} on their way")
