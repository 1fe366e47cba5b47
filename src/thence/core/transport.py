"""How frames get from one member of a domain or link to the others: one small interface, and its two simplest forms.

Rules, for each of them (``core.distributed`` is the third):

* ``frames_in`` returns what is new in a packet. What of it was accepted comes back by ``take``, what was refused for good by
  ``skip``; what comes back by neither was not taken: it is not confirmed, and comes again.
* Nothing is confirmed but in packets that are collected after ``take`` (``core.member``).
* A packet that is refused has changed nothing.
* A step must not cost more because others are silent: only peers to whom there may be something to say are visited.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from thence.core.channel import UNHURRIED, Channel, ChannelState, Pace
from thence.core.confirmation import AT_ONCE, ConfirmationOptions
from thence.core.messages import Envelope, Frame, Packet
from thence.core.ordering import Arrival
from thence.core.overflow import Numbered
from thence.core.progress import Progress
from thence.errors import MalformedFrame, StorageError

Frames = list[tuple[str, Frame[Any]]]
"""Frames, each with the member that it is for."""
Packets = list[tuple[str, Packet[Any]]]


class Incoming(msgspec.Struct, frozen=True, gc=False):
    """A frame that came in: by whom it was first sent, its number there, and for whom it is (numbers of members; None: all)."""

    peer: str
    number: int
    frame: Frame[Any]
    to: tuple[int, ...] | None = None


class Transport(ABC):
    """One member's way to the others of one domain or link. See the module's text."""

    exact = False
    """Whether the network is trusted to be so: then nothing comes again."""
    repeated_by_others = False
    """Whether a peer may get our frames from others, too: then it may have more of them than we sent to it."""
    queued = 0
    """How many frames are not confirmed, of all peers together, as far as they are in memory."""
    queued_bytes = 0
    """How many bytes these take, about."""
    wake_at: int | None = None
    """Nothing needs to be done earlier. It may be too early by now, which a timer then finds out."""

    def __init__(self, name: str, me: str, peers: Iterable[str]) -> None:
        """``name`` is the domain or link."""
        self.name = name
        self.me = me
        self.peers = tuple(peers)
        self.attention: dict[str, None] = {}
        """Peers with frames that should go elsewhere, or are there and may be wanted back (``core.overflow``)."""

    @abstractmethod
    def check(self, peer: str, packet: Packet[Any]) -> None:
        """Refuse a packet that cannot be."""

    @abstractmethod
    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        """Return of each frame of a packet that has been checked whether we have it already."""

    @abstractmethod
    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        """Return the frames of a packet that are to be taken now."""

    @abstractmethod
    def take(self, incoming: Incoming) -> None:
        """Note that a frame was accepted."""

    @abstractmethod
    def skip(self, peer: str, number: int) -> None:
        """Note that a frame was refused for good: it is not asked for again."""

    @abstractmethod
    def push(self, frames: Frames) -> None:
        """Send frames, as soon as they are collected: what an ordering or a link made of one message."""

    @abstractmethod
    def visit_all(self) -> None:
        """Look at everything when packets are collected next, and find out anew when to wake up."""

    @abstractmethod
    def connected(self, peer: str) -> None:
        """The way to a peer is new, and what was on the old one is lost."""

    def suspect(self, peer: str, suspected: bool) -> None:  # noqa: B027 - most have a way of its own to each peer
        """A peer is held for dead, or no longer: where many confirm one message, its silence is not to hold up the others."""

    @abstractmethod
    def collect(self, now: int) -> Packets:
        """Return the packets to send to each peer to whom there is anything to say: one, unless that is too much for one."""

    @abstractmethod
    def queued_by_peer(self) -> dict[str, int]:
        """Return how many frames each peer has not confirmed."""

    def unconfirmed_by_peer(self) -> dict[str, int]:
        """The same, also where frames count as queued for longer than that (``core.settling``)."""
        return self.queued_by_peer()

    @abstractmethod
    def confirmed(self, peer: str, number: int) -> bool:
        """Return whether a peer has confirmed the frame with this number, which we sent it."""

    @abstractmethod
    def queued_bytes_by_peer(self) -> dict[str, int]:
        """Return how many bytes each peer has not confirmed, about."""

    # Room (``core.quotas``).

    one_queue = False
    """Whether a message waits once, for all who lack it."""

    @property
    def queues(self) -> int:
        """How many queues there are that fill up by themselves."""
        return len(self.peers)

    @abstractmethod
    def queue_of(self, peer: str) -> tuple[int, int]:
        """Return how many frames wait in memory in the queue to a peer, and about how many bytes they take."""

    def on_the_way_to(self, peer: str) -> tuple[int, int]:
        """The same, also where frames count as queued for longer than until they are acknowledged (``core.settling``)."""
        return self.queue_of(peer)

    def queue_sizes(self, *, on_the_way: bool = False) -> Iterator[tuple[int, int]]:
        """Give ``queue_of`` of each queue, or ``on_the_way_to``."""
        return map(self.on_the_way_to if on_the_way else self.queue_of, self.peers)

    def slowest(self, peer: str) -> str:
        """Return who has not acknowledged most of what is in the queue to a peer."""
        return peer

    @abstractmethod
    def moved(self, without: Collection[str] = ()) -> tuple[int, int]:
        """Return how many frames were sent, and how many taken, since the first start; none to or from members ``without``."""

    def unconfirmed(self) -> Iterator[Envelope]:
        """Give the messages that somebody has not confirmed."""
        return iter(())

    @abstractmethod
    def progress(self, peer: str) -> Progress | None:
        """Return how far we are with a peer; None: nothing is kept of that."""

    def windows(self) -> dict[str, int]:
        """Return how many bytes may be on their way to each peer (``core.window``), where that is limited."""
        return {}

    def fork(self) -> Transport:
        """Return a transport that goes on from here on its own."""
        return copy.deepcopy(self)

    @abstractmethod
    def save(self) -> Any:
        """Return everything that a restart must find again."""

    @abstractmethod
    def load(self, saved: Any) -> None:
        """Become what ``save`` returned."""

    def _refuse_snapshot(self, saved: Any) -> StorageError:
        what = f"with channels to {', '.join(saved) or 'nobody'}" if isinstance(saved, dict) else "of members that confirm to all"
        return StorageError(f"{self.name!r} at {self.me!r}: a snapshot {what}")


class Direct(Transport):
    """Hands frames to a network that is trusted to be exact."""

    exact = True

    def __init__(self, name: str, me: str, peers: Iterable[str]) -> None:
        super().__init__(name, me, peers)
        self._frames: Frames = []
        self._sent = dict.fromkeys(self.peers, 0)
        self._taken = dict.fromkeys(self.peers, 0)

    def check(self, peer: str, packet: Packet[Any]) -> None:
        pass

    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        return [False] * len(packet.frames)

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        return [Incoming(peer, 0, frame) for frame in packet.frames]

    def take(self, incoming: Incoming) -> None:
        self._taken[incoming.peer] += 1

    def skip(self, peer: str, number: int) -> None:
        pass

    def push(self, frames: Frames) -> None:
        self._frames += frames
        for peer, _ in frames:
            self._sent[peer] += 1

    def visit_all(self) -> None:
        pass

    def connected(self, peer: str) -> None:
        pass

    def collect(self, now: int) -> Packets:
        if not self._frames:
            return []
        by_peer: dict[str, list[Frame[Any]]] = {}
        for peer, frame in self._frames:
            by_peer.setdefault(peer, []).append(frame)
        self._frames = []
        return [(peer, Packet(self.name, tuple(frames))) for peer, frames in by_peer.items()]

    def queued_by_peer(self) -> dict[str, int]:
        return {}

    def confirmed(self, peer: str, number: int) -> bool:
        return True

    def queued_bytes_by_peer(self) -> dict[str, int]:
        return {}

    queues = 0

    def queue_of(self, peer: str) -> tuple[int, int]:
        return 0, 0

    def queue_sizes(self, *, on_the_way: bool = False) -> Iterator[tuple[int, int]]:
        return iter(())

    def moved(self, without: Collection[str] = ()) -> tuple[int, int]:
        others = [peer for peer in self.peers if peer not in without]
        return sum([self._sent[peer] for peer in others]), sum([self._taken[peer] for peer in others])

    def progress(self, peer: str) -> Progress | None:
        return None

    def fork(self) -> Direct:
        twin = copy.copy(self)
        twin._frames = list(self._frames)
        twin._sent, twin._taken = dict(self._sent), dict(self._taken)
        return twin

    def save(self) -> dict[str, ChannelState[Any]]:
        return {}

    def load(self, saved: Any) -> None:
        if saved != {}:
            raise self._refuse_snapshot(saved)


class Channels(Transport):
    """A channel to each of the others: each confirms to whom it got a frame from, and that one repeats it."""

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
        super().__init__(name, me, peers)
        self.channels = {peer: Channel(arrival, resend_after_ns, confirmation, pace) for peer in self.peers}
        self._spills = pace.spill is not None
        self.to_visit: dict[str, None] = {}

    def check(self, peer: str, packet: Packet[Any]) -> None:
        if packet.receipts is not None:
            raise MalformedFrame(f"a packet from {peer!r} for {self.name!r} at {self.me!r}: here nobody confirms to everybody")
        self.channels[peer].check(peer, packet)

    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        return [self.channels[peer].had(number) for number in packet.numbers]

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        channel = self.channels[peer]
        state = channel.state
        if packet.taken > state.last_number or packet.taken_beyond or packet.receipts is not None:
            self.check(peer, packet)
        elif len(packet.numbers) != len(packet.frames):
            self.check(peer, packet)  # Which refuses it, as what is wrong with the others.
        if state.elsewhere is not None:
            self.attention[peer] = None  # Perhaps the peer has taken what is elsewhere.
        before, bytes_before = channel.here, channel.queued_bytes
        frames = channel.arrived(packet, now)
        confirm_at = channel.confirm_at
        if before:
            self.queued += channel.here - before
            self.queued_bytes += channel.queued_bytes - bytes_before
        if state.queue or state.elsewhere is not None or (confirm_at is not None and confirm_at <= now):
            self.to_visit[peer] = None
        elif confirm_at is not None and (self.wake_at is None or confirm_at < self.wake_at):
            self.wake_at = confirm_at
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
            wake_at, confirm_at = channel.resend_at, channel.confirm_at
            if wake_at is None or (confirm_at is not None and confirm_at < wake_at):
                wake_at = confirm_at
            if channel.state.elsewhere is not None and channel.wanted:
                self.attention[peer] = None
            if wake_at is not None and (self.wake_at is None or wake_at < self.wake_at):
                self.wake_at = wake_at
        self.to_visit = {}
        return packets

    def queued_by_peer(self) -> dict[str, int]:
        return {peer: channel.queued for peer, channel in self.channels.items()}

    def confirmed(self, peer: str, number: int) -> bool:
        return not self.channels[peer].lacks(number)

    def queued_bytes_by_peer(self) -> dict[str, int]:
        return {peer: channel.queued_bytes for peer, channel in self.channels.items()}

    def queue_of(self, peer: str) -> tuple[int, int]:
        channel = self.channels[peer]
        return channel.here, channel.queued_bytes

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
            raise self._refuse_snapshot(saved)
        for peer, state in saved.items():
            self.channels[peer].load(state)
        self._count()

    def _count(self) -> None:
        self.queued_bytes = sum(channel.queued_bytes for channel in self.channels.values())
        self.queued = sum(channel.here for channel in self.channels.values())

    # What is elsewhere (``core.overflow``).

    def spilled(self, peer: str, upto: int) -> None:
        """The next frames for a peer up to a number are elsewhere now."""
        self.channels[peer].spilled(upto)
        self._count()

    def fetched(self, peer: str, frames: Numbered) -> None:
        """The next frames for a peer of those elsewhere are here again."""
        self.channels[peer].fetched(frames)
        self._count()
        self.to_visit[peer] = None
