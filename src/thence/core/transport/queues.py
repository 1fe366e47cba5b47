"""How much waits in the queues of a transport. Limits (``core.transport.quotas``) read these numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol


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
