"""The interface of a transport, which carries frames to the other members of a domain or link, and its two simplest forms.

``core.transport.ack_all`` and ``core.stability.layer`` hold the others. Rules for all of them:

* ``frames_in`` returns what is new in a packet. The caller answers with ``take`` for each accepted frame and with ``skip`` for
  each frame that is refused for good. A frame with neither answer is not acknowledged and comes again.
* Acks leave only in packets that are collected after ``take`` (``core.member.member``).
* A refused packet changes nothing.
* Silent peers cost nothing: a step visits only the peers that may have to be sent something.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from itertools import repeat
from typing import Any

import msgspec

from thence.core.epochs.progress import Progress
from thence.core.ordering import Arrival
from thence.core.topology.ack_options import AT_ONCE, ConfirmationOptions
from thence.core.transport.channel import UNHURRIED, Channel, ChannelState, Pace
from thence.core.transport.queues import Queues
from thence.core.transport.spill_queue import Numbered
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.core.wire.number_set import NumberSet
from thence.errors import MalformedFrame, StorageError

Frames = list[tuple[str, Frame[Any]]]
"""Frames, each with the member that it is for."""
Packets = list[tuple[str, Packet[Any]]]
"""Packets, each with the member that it is for."""


class Incoming(msgspec.Struct, frozen=True, gc=False):
    """A frame that came in, with its first sender, its number there, and the numbers of its recipients (None: all members)."""

    peer: str
    number: int
    frame: Frame[Any]
    to: tuple[int, ...] | None = None


class Transport(ABC):
    """One member's way to the others of one domain or link."""

    exact = False
    """Whether the network neither loses nor repeats anything."""
    repeated_by_others = False
    """Whether others may repeat our frames to a peer, so that it has more of them than we sent it."""
    queued = 0
    """How many frames wait in memory to be acknowledged, for all peers together."""
    queued_bytes = 0
    """About how many bytes they take."""
    wake_at: int | None = None
    """When to collect next if nothing comes in. It may be too early, never too late."""

    def __init__(self, name: str, me: str, peers: Iterable[str], queues: Queues) -> None:
        """``name`` is the domain or link."""
        self.name = name
        self.me = me
        self.peers = tuple(peers)
        self.queues = queues
        """What counts against limits."""
        self.unacked = queues
        """What is not acknowledged. It is less than ``queues`` where messages are kept until they are stable."""
        self.attention: dict[str, None] = {}
        """Peers whose queue should spill to disk, or be read back (``core.transport.spill_queue``)."""

    @abstractmethod
    def check(self, peer: str, packet: Packet[Any]) -> None:
        """Refuse an impossible packet."""

    @abstractmethod
    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        """Return for each frame of a checked packet whether we have it already."""

    @abstractmethod
    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        """Return the frames of a packet that are to be taken now."""

    @abstractmethod
    def take(self, incoming: Incoming) -> None:
        """Note that a frame was accepted."""

    @abstractmethod
    def skip(self, peer: str, number: int) -> None:
        """Note that a frame was refused for good, so that it does not come again."""

    @abstractmethod
    def push(self, frames: Frames) -> None:
        """Queue the frames of one message; ``collect`` sends them."""

    @abstractmethod
    def visit_all(self) -> None:
        """Visit every peer at the next ``collect``, which then finds out anew when to wake up."""

    @abstractmethod
    def connected(self, peer: str) -> None:
        """Note a new connection to a peer. Whatever was on the old one is lost."""

    def suspect(self, peer: str, suspected: bool) -> None:  # noqa: B027 - most have a queue for each peer
        """Note that a peer is suspected, or no longer. A suspected peer does not hold up the others."""

    @abstractmethod
    def collect(self, now: int) -> Packets:
        """Return the packets to send now. A peer gets several if one would be too large."""

    @abstractmethod
    def acked(self, peer: str, number: int) -> bool:
        """Return whether a peer has acknowledged our frame with this number."""

    @abstractmethod
    def moved(self, without: Collection[str] = ()) -> tuple[int, int]:
        """Return how many frames were sent and taken since the first start, except to and from members ``without``."""

    def unconfirmed(self) -> Iterator[Envelope]:
        """Yield the messages that somebody has not acknowledged."""
        return iter(())

    @abstractmethod
    def progress(self, peer: str) -> Progress | None:
        """Return how far the exchange with a peer is; None if that is not recorded."""

    def windows(self) -> dict[str, int]:
        """Return how many bytes may be in flight to each peer, where that is limited (``core.transport.window``)."""
        return {}

    def fork(self) -> Transport:
        """Return an independent copy."""
        return copy.deepcopy(self)

    @abstractmethod
    def save(self) -> Any:
        """Return everything that a restart needs."""

    @abstractmethod
    def load(self, saved: Any) -> None:
        """Restore what ``save`` returned."""


def refuse_snapshot(transport: Transport, saved: Any) -> StorageError:
    """Return the error for a snapshot of another kind of transport."""
    what = f"with channels to {', '.join(saved) or 'nobody'}" if isinstance(saved, dict) else "of members that ack to all"
    return StorageError(f"{transport.name!r} at {transport.me!r}: a snapshot {what}")


class DirectPeer:
    """What was exchanged with one peer over an exact network."""

    def __init__(self) -> None:
        """Nothing has been exchanged yet."""
        self.sent = self.taken = 0
        """How many frames."""
        self.numbered = 0
        """The number of the last frame that was sent."""
        self.received = NumberSet()
        """Which frames of the peer we acknowledge."""
        self.acked = NumberSet()
        """Which frames of ours it has acknowledged."""
        self.must_ack = False

    def fork(self) -> DirectPeer:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin.received, twin.acked = (NumberSet(one.upto, dict(one.beyond)) for one in (self.received, self.acked))
        return twin


class Direct(Transport):
    """Hands frames to an exact network. Frames have no numbers and no acks, unless an ack policy needs them."""

    exact = True

    def __init__(self, name: str, me: str, peers: Iterable[str]) -> None:
        super().__init__(name, me, peers, Queues({}))
        self.numbers = self.acks = False
        """Whether packets carry numbers, and whether they carry acks."""
        self.ends = {peer: DirectPeer() for peer in self.peers}
        self._frames: Frames = []

    def check(self, peer: str, packet: Packet[Any]) -> None:
        pass

    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        return [False] * len(packet.frames)

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        if self.acks:
            acked = self.ends[peer].acked
            for number in (*range(acked.upto + 1, packet.taken + 1), *packet.taken_beyond):
                acked.add(number)
        numbers = zip(packet.numbers or repeat(0), packet.frames, strict=False)
        return [Incoming(peer, number, frame) for number, frame in numbers]

    def take(self, incoming: Incoming) -> None:
        self.ends[incoming.peer].taken += 1
        self.skip(incoming.peer, incoming.number)

    def skip(self, peer: str, number: int) -> None:
        if self.acks:
            end = self.ends[peer]
            end.must_ack = end.received.add(number) or end.must_ack

    def push(self, frames: Frames) -> None:
        self._frames += frames
        for peer, _ in frames:
            self.ends[peer].sent += 1

    def visit_all(self) -> None:
        pass

    def connected(self, peer: str) -> None:
        pass

    def collect(self, now: int) -> Packets:
        if not self._frames and not self.acks:
            return []
        by_peer: dict[str, list[Frame[Any]]] = {}
        for peer, frame in self._frames:
            by_peer.setdefault(peer, []).append(frame)
        self._frames = []
        if self.acks:
            for peer, end in self.ends.items():
                if end.must_ack:
                    by_peer.setdefault(peer, [])
        return [(peer, self._packet(self.ends[peer], tuple(frames))) for peer, frames in by_peer.items()]

    def _packet(self, end: DirectPeer, frames: tuple[Frame[Any], ...]) -> Packet[Any]:
        numbers: tuple[int, ...] = ()
        if self.numbers:
            end.numbered += len(frames)
            numbers = tuple(range(end.numbered - len(frames) + 1, end.numbered + 1))
        if not end.must_ack:
            return Packet(self.name, frames, numbers)
        end.must_ack = False
        return Packet(self.name, frames, numbers, end.received.upto, tuple(sorted(end.received.beyond)))

    def acked(self, peer: str, number: int) -> bool:
        return not self.acks or number in self.ends[peer].acked

    def moved(self, without: Collection[str] = ()) -> tuple[int, int]:
        ends = [end for peer, end in self.ends.items() if peer not in without]
        return sum([end.sent for end in ends]), sum([end.taken for end in ends])

    def progress(self, peer: str) -> Progress | None:
        return None

    def fork(self) -> Direct:
        twin = copy.copy(self)
        twin._frames = list(self._frames)
        twin.ends = {peer: end.fork() for peer, end in self.ends.items()}
        return twin

    def save(self) -> dict[str, ChannelState[Any]]:
        return {}

    def load(self, saved: Any) -> None:
        if saved != {}:
            raise refuse_snapshot(self, saved)


class Channels(Transport):
    """A channel to each peer: the receiver of a frame acks it to the sender, and the sender repeats it."""

    def __init__(
        self,
        name: str,
        me: str,
        peers: Iterable[str],
        arrival: Arrival,
        resend_after_ns: int,
        confirmation: ConfirmationOptions = AT_ONCE,
        pace: Pace = UNHURRIED,
    ) -> None:
        names = tuple(peers)
        self.channels = {peer: Channel(arrival, resend_after_ns, confirmation, pace) for peer in names}
        super().__init__(name, me, names, Queues(self.channels))
        self._spills = pace.spill is not None
        self.to_visit: dict[str, None] = {}

    def check(self, peer: str, packet: Packet[Any]) -> None:
        if packet.receipts is not None:
            raise MalformedFrame(f"a packet from {peer!r} for {self.name!r} at {self.me!r}: here nobody acks to everybody")
        self.channels[peer].check(peer, packet)

    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        return [self.channels[peer].had(number) for number in packet.numbers]

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        channel = self.channels[peer]
        state = channel.state
        if packet.taken > state.last_number or packet.taken_beyond or packet.receipts is not None:
            self.check(peer, packet)
        elif len(packet.numbers) != len(packet.frames):
            self.check(peer, packet)  # Which refuses it.
        if state.elsewhere is not None:
            self.attention[peer] = None  # Perhaps the peer has what was spilled.
        before, bytes_before = channel.here, channel.queued_bytes
        frames = channel.arrived(packet, now)
        ack_at = channel.ack_at
        if before:
            self.queued += channel.here - before
            self.queued_bytes += channel.queued_bytes - bytes_before
        if state.queue or state.elsewhere is not None or (ack_at is not None and ack_at <= now):
            self.to_visit[peer] = None
        elif ack_at is not None and (self.wake_at is None or ack_at < self.wake_at):
            self.wake_at = ack_at
        return [Incoming(peer, number, frame) for number, frame in frames] if frames else []

    def take(self, incoming: Incoming) -> None:
        taken = self.channels[incoming.peer].state.taken
        if incoming.number == taken.upto + 1 and not taken.beyond:
            taken.upto = incoming.number
        else:
            taken.add(incoming.number)

    def skip(self, peer: str, number: int) -> None:
        self.channels[peer].take(number)

    def push(self, frames: Frames) -> None:
        channels, to_visit = self.channels, self.to_visit
        for peer, frame in frames:
            weight = frame.weight
            channels[peer].push(frame, weight)
            to_visit[peer] = None
            self.queued_bytes += weight
        self.queued += len(frames)
        if self._spills:
            for peer, _ in frames:
                if channels[peer].crowded:
                    self.attention[peer] = None

    def visit_all(self) -> None:
        self.to_visit = dict.fromkeys(self.channels)
        self.wake_at = None

    def connected(self, peer: str) -> None:
        self.channels[peer].connected()
        self.to_visit[peer] = None

    def collect(self, now: int) -> Packets:
        packets: Packets = []
        if not self.to_visit:
            return packets
        for peer in self.to_visit:
            channel = self.channels[peer]
            packet = channel.collect(self.name, now)
            if packet is not None:
                packets.append((peer, packet))
                while channel.more and (packet := channel.collect(self.name, now)) is not None:
                    packets.append((peer, packet))
            wake_at, ack_at = channel.resend_at, channel.ack_at
            if wake_at is None or (ack_at is not None and ack_at < wake_at):
                wake_at = ack_at
            if channel.state.elsewhere is not None and channel.wanted:
                self.attention[peer] = None
            if wake_at is not None and (self.wake_at is None or wake_at < self.wake_at):
                self.wake_at = wake_at
        self.to_visit = {}
        return packets

    def acked(self, peer: str, number: int) -> bool:
        return not self.channels[peer].lacks(number)

    def moved(self, without: Collection[str] = ()) -> tuple[int, int]:
        states = [channel.state for peer, channel in self.channels.items() if peer not in without]
        return sum(state.last_number for state in states), sum(state.taken.count for state in states)

    def unconfirmed(self) -> Iterator[Envelope]:
        for state in [channel.state for channel in self.channels.values()]:
            behind = () if state.elsewhere is None else state.elsewhere.behind.values()
            yield from [frame.envelope for frame in (*state.queue.values(), *behind) if frame.envelope is not None]

    def progress(self, peer: str) -> Progress | None:
        return self.channels[peer].progress

    def windows(self) -> dict[str, int]:
        return {peer: channel.window.bytes for peer, channel in self.channels.items()}

    def save(self) -> dict[str, ChannelState[Any]]:
        return {peer: channel.state for peer, channel in self.channels.items()}

    def load(self, saved: Any) -> None:
        if not isinstance(saved, dict) or set(saved) != set(self.channels):
            raise refuse_snapshot(self, saved)
        for peer, state in saved.items():
            self.channels[peer].load(state)
        self._count()

    def _count(self) -> None:
        self.queued_bytes = sum(channel.queued_bytes for channel in self.channels.values())
        self.queued = sum(channel.here for channel in self.channels.values())

    def spilled(self, peer: str, upto: int) -> None:
        """Note that the next frames for a peer, up to a number, are on disk."""
        self.channels[peer].spilled(upto)
        self._count()

    def fetched(self, peer: str, frames: Numbered) -> None:
        """Put back the next frames for a peer that were on disk."""
        self.channels[peer].fetched(frames)
        self._count()
        self.to_visit[peer] = None
