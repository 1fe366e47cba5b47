"""What one client has on its way to the disk, and how much it may have there.

Rules:

* A client has ``IN_FLIGHT_BYTES`` of messages at most that are submitted and not durable, or one batch: others do not have much
  of it before theirs on the way to the disk.
* However short they are, a client has ``MAX_IN_FLIGHT`` batches and subscriptions on that way. All with more than ``FEW_WAITING``
  beside them share that: each has an equal part, and ``LEAST_IN_FLIGHT`` at least. Whoever sends little does not wait for those
  who send much, but for a short commit of theirs.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from thence.node.driver.commits import COMMIT_BYTES

IN_FLIGHT_BYTES: Final = COMMIT_BYTES
"""How many bytes of messages of one client may be on their way to the disk: about what one commit takes."""

MAX_IN_FLIGHT: Final = 1_024
"""How many batches and subscriptions of a client may be on that way: others wait for what is done when they arrive."""

FEW_WAITING: Final = 32
"""With more than this beside them, a client shares that with others."""

LEAST_IN_FLIGHT: Final = 16
"""How many it has then, however many others there are."""


class InFlight:
    """Batches and subscriptions of one client that are not durable."""

    def __init__(self, senders: set[InFlight] | None) -> None:
        """Start with nothing. ``senders`` are all who have something in flight; None: it is shared with nobody."""
        self._senders = senders
        self._batches: deque[tuple[int, int]] = deque()
        """The number of the last message of each batch, and how many bytes it has."""
        self._bytes = 0
        self._follows = 0

    @property
    def is_shared(self) -> bool:
        """Whether others wait for what this client has in flight."""
        return self._senders is not None

    def has_room(self, size: int, waiting: int) -> bool:
        """Return whether a batch of so many bytes may go on, with so much waiting behind it."""
        if self._bytes and self._bytes + size > IN_FLIGHT_BYTES:
            return False
        return self._senders is None or not self.is_full(waiting)

    def is_full(self, waiting: int) -> bool:
        """Return whether the client has its part of what all may have in flight."""
        number = len(self._batches) + self._follows
        if self._senders is None or number < LEAST_IN_FLIGHT:
            return False
        return number >= (MAX_IN_FLIGHT if waiting <= FEW_WAITING else MAX_IN_FLIGHT // len(self._senders))

    def add(self, last: int, size: int) -> None:
        """Note a batch up to message ``last``."""
        self._batches.append((last, size))
        self._bytes += size
        if self._senders is not None:
            self._senders.add(self)

    def take_back(self) -> None:
        """Forget the batch that was noted last."""
        self._bytes -= self._batches.pop()[1]
        if self._senders is not None:
            self._share(self._senders)

    def add_follow(self) -> None:
        """Note a subscription, or the end of one."""
        self._follows += 1
        if self._senders is not None:
            self._senders.add(self)

    def land_follow(self) -> None:
        """Note that one of them is durable."""
        self._follows -= 1
        if self._senders is not None:
            self._share(self._senders)

    def land(self, upto: int) -> None:
        """Note that all batches up to a message are durable."""
        batches = self._batches
        while batches and batches[0][0] <= upto:
            self._bytes -= batches.popleft()[1]
        if self._senders is not None:
            self._share(self._senders)

    def _share(self, senders: set[InFlight]) -> None:
        """Leave those who share what may be in flight, if nothing is left."""
        if not self._batches and not self._follows:
            senders.discard(self)

    def leave(self) -> None:
        """Leave the client's part to others: it is gone."""
        if self._senders is not None:
            self._senders.discard(self)
            self._senders = None
