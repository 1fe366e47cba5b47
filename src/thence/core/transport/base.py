"""The interface of a transport, which carries frames to the other members of a domain or link, and the rules for all of them.

* ``frames_in`` returns what is new in a packet. The caller answers with ``take`` for each accepted frame and with ``skip`` for
  each frame that is refused for good. A frame with neither answer is not acknowledged and comes again.
* Acks leave only in packets that are collected after ``take`` (``core.member.member``).
* A refused packet changes nothing.
* Silent peers cost nothing: a step visits only the peers that may have to be sent something.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from thence.core.epochs.progress import Progress
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.errors import StorageError

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


class Queue(Protocol):
    """What waits for one peer."""

    @property
    def here(self) -> int:
        """How many frames wait in memory."""

    @property
    def queued(self) -> int:
        """How many frames wait, in memory and on disk."""

    @property
    def queued_bytes(self) -> int:
        """About how many bytes wait in memory."""


class Queues:
    """One queue for each peer."""

    shared = False
    """Whether a message waits once, for all peers that lack it."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        """``queues`` holds the queue of each peer."""
        self._queues = queues

    @property
    def count(self) -> int:
        """How many queues fill up independently of each other."""
        return len(self._queues)

    def size(self, peer: str) -> tuple[int, int]:
        """Return how many frames wait in memory in the queue to a peer, and about how many bytes they take."""
        queue = self._queues[peer]
        return queue.here, queue.queued_bytes

    def sizes(self) -> Iterator[tuple[int, int]]:
        """Yield the ``size`` of each queue."""
        return map(self.size, self._queues)

    def slowest(self, peer: str) -> str:
        """Return the peer that lacks most of what is in the queue to ``peer``."""
        return peer

    def by_peer(self) -> dict[str, int]:
        """Return how many frames wait for each peer."""
        return {peer: queue.queued for peer, queue in self._queues.items()}

    def bytes_by_peer(self) -> dict[str, int]:
        """Return about how many bytes wait in memory for each peer."""
        return {peer: queue.queued_bytes for peer, queue in self._queues.items()}


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

    def unacked_messages(self) -> Iterator[Envelope]:
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
