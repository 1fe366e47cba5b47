"""Which part of a server's time large messages have, beside the small ones of others.

A message of 15 MB takes a server a moment in which small ones wait: behind it on the way to the disk, and in the queue to a peer,
where order forbids that they overtake it. How long that is depends on the machine, so it is measured.

Rules:

* A batch of ``LARGE_BYTES`` or more is large. While others send small ones, one large batch is on its way at a time, of all
  clients together: until it is durable, and the peers that it went to have acknowledged it.
* The next one begins when ``LARGE_SHARE`` - 1 times as long has passed as that took. So large messages have at most one part in
  ``LARGE_SHARE`` of a server's time and of each queue to a peer. Whose turn it is then, ``fair_turns`` says.
* Others are those who sent no large batch for ``LARGE_FOR_S``. If none of them has sent anything for ``ACTIVE_S``, nobody waits:
  a client alone is not slowed.
* A peer whose queue was long before, or that takes longer than ``LONGEST_S``, is not waited for: it is away, or takes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Final

LARGE_BYTES: Final = 1024 * 1024
"""From which size on a batch is large: twice what clients put into a batch of small messages."""

LARGE_SHARE: Final = 8
"""One part in so many of a server's time is the most that large messages have while others send small ones."""

ACTIVE_S: Final = 1.0
"""For how long somebody who has sent a small message counts as one who sends."""

LARGE_FOR_S: Final = 10.0
"""For how long somebody who has sent a large one counts as one of those."""

LONGEST_S: Final = 5.0
"""How long a peer may take to acknowledge a large message and be waited for."""

LOOK_EVERY_S: Final = 0.005
"""How often it is looked at whether peers have."""


class LargeTurns:
    """The large messages of all clients of one server."""

    def __init__(
        self,
        now: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], object],
        queues: Callable[[], Mapping[str, int]],
        wake: Callable[[], None],
    ) -> None:
        """``queues`` returns how many bytes each peer that is there has not acknowledged; ``wake`` lets those try who wait."""
        self._now = now
        self._call_later = call_later
        self._queues = queues
        self._wake = wake
        self._small_at = -inf
        """When somebody sent a small message."""
        self._large_at: dict[str, float] = {}
        """When each client sent a large one, lately."""
        self._unstored = 0
        """How many large batches are not durable."""
        self._began: float | None = None
        """When the large batch that is on its way began."""
        self._peers: list[str] = []
        """To which peers that batch may have gone."""
        self._free_at = -inf
        """When the next one may begin."""
        self._paused: dict[str, Callable[[], None]] = {}
        self._wake_at = inf
        """When those who wait are woken next."""

    def note_small(self, client: str) -> None:
        """Take note that a client has sent a small batch."""
        now = self._now()
        if now - self._large_at.get(client, -inf) >= LARGE_FOR_S:
            self._small_at = now

    def may_begin(self) -> bool:
        """Return whether a large batch may go on; if not, those who wait are woken when it may."""
        now = self._now()
        if now - self._small_at >= ACTIVE_S:
            return True
        if self._began is None and now >= self._free_at:
            return True
        self._wake_later()
        return False

    def when_free(self, client: str, call: Callable[[], None]) -> None:
        """Call this when a large batch may go on; once for each client."""
        self._paused[client] = call
        self._wake_later()

    def begin(self, client: str) -> None:
        """A large batch of a client is about to go on."""
        now = self._now()
        self._large_at = {one: at for one, at in self._large_at.items() if now - at < LARGE_FOR_S}
        self._large_at[client] = now
        self._unstored += 1
        if self._began is None:
            self._began = now
            self._peers = [peer for peer, size in self._queues().items() if size < LARGE_BYTES]

    def stored(self) -> None:
        """A large batch is durable, and has left for its peers; or it was not taken."""
        self._unstored -= 1
        self._look()

    def _look(self) -> None:
        if self._began is None or self._unstored:
            return
        took = self._now() - self._began
        queues = self._queues()
        if took < LONGEST_S and any(queues.get(peer, 0) >= LARGE_BYTES for peer in self._peers):
            self._call_later(LOOK_EVERY_S, self._look)
            return
        self._began = None
        self._free_at = self._now() + (LARGE_SHARE - 1) * took
        self._wake_later()

    def _wake_later(self) -> None:
        """Let those try again who wait, when it may be their turn, and at least each ``ACTIVE_S``."""
        now = self._now()
        delay = ACTIVE_S if self._began is not None else min(ACTIVE_S, max(0.0, self._free_at - now))
        if now + delay < self._wake_at:
            self._wake_at = now + delay
            self._call_later(delay, self._wake_now)

    def _wake_now(self) -> None:
        if self._now() + LOOK_EVERY_S < self._wake_at:
            return  # They were woken before, and wait for another moment.
        self._wake_at = inf
        paused, self._paused = self._paused, {}
        self._wake()
        for call in paused.values():
            call()
