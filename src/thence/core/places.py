"""Where a member takes part: a domain or a link, each with its own channels to the others who take part in it.

A place hides whether frames are numbered, acknowledged and repeated (``channel``) or handed to a network that is
trusted to be exact.

Rules:

* A step must not cost more because others are silent: only peers to whom there may be something to say are visited.
* Frames of different places never share a channel: their orderings may need different orders of arrival.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Generic, TypeVar, cast

import msgspec

from thence.core.channel import Channel, ChannelState
from thence.core.domain import Domain
from thence.core.links import LINK_STAMPS, LinkEnd, LinkState
from thence.core.messages import Frame, Packet
from thence.core.ordering import Arrival, Ordering, make_ordering
from thence.core.topology import Link
from thence.errors import StorageError, StrangerFrame

StampT = TypeVar("StampT")


class SavedPlace(msgspec.Struct, Generic[StampT], array_like=True):
    """A place's snapshot: one of ``ordering`` and ``link`` is there."""

    ordering: bytes | None
    link: LinkState | None
    channels: dict[str, ChannelState[StampT]]
    echoes: list[str]


class Place:
    """One domain or link, as one member sees it."""

    def __init__(self, name: str, me: str, members: Iterable[str], arrival: Arrival, resend_after_ns: int | None) -> None:
        """``resend_after_ns`` is None where the network is trusted to be exact."""
        self.name = name
        self.me = me
        self.peers = {member: None for member in members if member != me}
        self.channels = {} if resend_after_ns is None else {peer: Channel(arrival, resend_after_ns) for peer in self.peers}
        self.reliable = resend_after_ns is not None
        self.echoes: dict[str, None] = {}
        """Messages that we put into this domain for all, and that will come back to us: nothing is done with them then."""
        self._direct: list[tuple[str, Frame[Any]]] = []
        self._to_visit: dict[str, None] = {}
        self.wake_at: int | None = None
        """No channel wants to be woken earlier. It may be too early by now, which a timer then finds out."""

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[tuple[int, Frame[Any]]]:
        """Return the frames of a packet that are to be taken now, each with its number on the channel."""
        if peer not in self.peers:
            raise StrangerFrame(
                f"a packet for {self.name!r} from {peer!r} at {self.me!r}, where the others are {', '.join(self.peers)}"
            )
        if not self.reliable:
            return [(0, frame) for frame in packet.frames]
        self.channels[peer].check(peer, packet)
        frames = self.channels[peer].arrived(packet, now)
        self._to_visit[peer] = None
        return frames

    def take(self, peer: str, number: int) -> None:
        """Let the channel acknowledge a frame."""
        if self.reliable:
            self.channels[peer].take(number)

    def push(self, frames: list[tuple[str, Frame[Any]]]) -> None:
        """Send frames, as soon as they are collected."""
        if not self.reliable:
            self._direct += frames
            return
        for peer, frame in frames:
            self.channels[peer].push(frame)
            self._to_visit[peer] = None

    def visit_all(self) -> None:
        """Look at every channel when packets are collected next, and find out anew when to wake up."""
        self._to_visit = dict.fromkeys(self.channels)
        self.wake_at = None

    def collect(self, now: int) -> list[tuple[str, Packet[Any]]]:
        """Return the packets to send: one for each peer to whom there is anything to say."""
        packets: list[tuple[str, Packet[Any]]] = []
        if not self._direct and not self._to_visit:
            return packets
        if not self.reliable:
            by_peer: dict[str, list[Frame[Any]]] = {}
            for peer, frame in self._direct:
                by_peer.setdefault(peer, []).append(frame)
            self._direct = []
            return [(peer, Packet(self.name, tuple(frames))) for peer, frames in by_peer.items()]
        for peer in self._to_visit:
            channel = self.channels[peer]
            packet = channel.collect(self.name, now)
            if packet is not None:
                packets.append((peer, packet))
            if channel.resend_at is not None and (self.wake_at is None or channel.resend_at < self.wake_at):
                self.wake_at = channel.resend_at
        self._to_visit = {}
        return packets

    def fork(self) -> Place:
        """Return a place that goes on from here on its own."""
        twin = copy.copy(self)
        twin.channels = {peer: copy.deepcopy(channel) for peer, channel in self.channels.items()}
        twin.echoes = dict(self.echoes)
        twin._direct = list(self._direct)
        twin._to_visit = dict(self._to_visit)
        return twin

    def queued(self) -> int:
        """Return how many frames are not acknowledged."""
        return sum(len(channel.state.queue) for channel in self.channels.values())

    def save(self) -> SavedPlace[Any]:
        """Return everything, for a snapshot."""
        return SavedPlace(None, None, {peer: channel.state for peer, channel in self.channels.items()}, list(self.echoes))

    def load(self, saved: SavedPlace[Any]) -> None:
        """Become what ``save`` returned."""
        if set(saved.channels) != set(self.channels):
            raise StorageError(
                f"{self.name!r} at {self.me!r}: a snapshot with channels to {', '.join(saved.channels) or 'nobody'}"
            )
        for peer, state in saved.channels.items():
            self.channels[peer].state = state
        self.echoes = dict.fromkeys(saved.echoes)


class DomainPlace(Place):
    """A domain, with the ordering kept in it."""

    def __init__(self, domain: Domain, me: str, max_held: int, resend_after_ns: int | None) -> None:
        """Take part in ``domain`` as ``me``."""
        self.ordering: Ordering = make_ordering(domain.ordering, me, domain.members, domain.options, max_held=max_held)
        super().__init__(domain.name, me, domain.members, self.ordering.arrival, resend_after_ns)

    @property
    def stamps(self) -> tuple[type, ...]:
        """The kinds of stamp that travel here."""
        return self.ordering.stamps

    def fork(self) -> DomainPlace:
        """Return a place that goes on from here on its own."""
        twin = cast("DomainPlace", super().fork())
        twin.ordering = self.ordering.fork()
        return twin

    def save(self) -> SavedPlace[Any]:
        """Return everything, for a snapshot."""
        saved = super().save()
        saved.ordering = self.ordering.snapshot()
        return saved

    def load(self, saved: SavedPlace[Any]) -> None:
        """Become what ``save`` returned."""
        if saved.ordering is None:
            raise StorageError(f"{self.name!r} at {self.me!r}: the snapshot of a domain without its ordering")
        super().load(saved)
        self.ordering.restore(saved.ordering)


class LinkPlace(Place):
    """A link, with our end of it."""

    stamps = LINK_STAMPS

    def __init__(self, link: Link, me: str, resend_after_ns: int | None) -> None:
        """Take part in ``link`` as ``me``."""
        self.end = LinkEnd(link, me)
        # Without numbers, the order in which a relay transfers is the order that the far side must keep.
        arrival = Arrival.FIFO if link.mode == "fifo" else Arrival.ANY
        super().__init__(link.name, me, link.members, arrival, resend_after_ns)

    def fork(self) -> LinkPlace:
        """Return a place that goes on from here on its own."""
        twin = cast("LinkPlace", super().fork())
        twin.end = copy.copy(self.end)
        twin.end.state = copy.deepcopy(self.end.state)
        return twin

    def save(self) -> SavedPlace[Any]:
        """Return everything, for a snapshot."""
        saved = super().save()
        saved.link = self.end.state
        return saved

    def load(self, saved: SavedPlace[Any]) -> None:
        """Become what ``save`` returned."""
        if saved.link is None:
            raise StorageError(f"{self.name!r} at {self.me!r}: the snapshot of a link without its state")
        super().load(saved)
        self.end.state = saved.link
