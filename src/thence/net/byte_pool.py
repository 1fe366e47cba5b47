"""Bytes that several connections hold together, up to a limit: what is on its way in and out, and what waits to be done.

Rules:

* Counted are frames that are read in part, what the other side has not taken yet, and what was read and waits.
* While a pool is less than half full, whoever needs more gets it. From then on each has its share, and whoever holds more waits:
  it is not read any further, and gets nothing more.
* If somebody waits for ``ROOM_TIMEOUT_S``, whoever holds most is shown out, with the reason, and the log names it. So nobody can
  hold for ever what others wait for. Who is shown out may come again, and nothing is lost by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SHARE_OF_POOL: Final = 16
"""One part in so many of a pool is what each may hold, at least, when others hold much."""

ROOM_TIMEOUT_S: Final = 5.0
"""How long somebody may wait for room before whoever holds most is shown out."""

NO_LIMIT: Final = 2**62


class BytePool:
    """Bytes that several hold together, up to a limit."""

    def __init__(self, limit: int = NO_LIMIT) -> None:
        """Nobody holds anything."""
        self.limit = limit
        self.used = 0
        self.shown_out = 0
        """How many were, since they held most of a pool that was full."""
        self._waiting: dict[Callable[[], None], None] = {}
        self._full_since: float | None = None

    def has_room(self, held: int, more: int = 1) -> bool:
        """Whether somebody who holds so many bytes may hold more."""
        used = self.used + more
        return used <= self.limit and (2 * used <= self.limit or SHARE_OF_POOL * (held + more) <= self.limit)

    def wait(self, call: Callable[[], None]) -> None:
        """Call somebody when there may be room."""
        self._waiting[call] = None

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._waiting)

    def look(self, now: float, most: Callable[[], Callable[[str], None] | None]) -> None:
        """Let those go on who wait; to be called now and then.

        If there is no room for too long, ``most`` returns how to show out whoever holds most, if there is anybody.
        """
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call()
        if not self._waiting:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now
        elif now - self._full_since > ROOM_TIMEOUT_S:
            self._full_since = now
            show_out = most()
            if show_out is not None:
                self.shown_out += 1
                show_out(f"the limit of all is {self.limit}, {self.used} are used")


UNLIMITED: Final = BytePool()
"""For those who have no budget."""


class HeldBytes:
    """What one connection holds of a pool, by what it is for."""

    def __init__(self) -> None:
        """Start with nothing, in a pool without a limit."""
        self.pool = UNLIMITED
        self.bytes = 0
        self._parts: dict[str, int] = {}

    def enter(self, pool: BytePool) -> None:
        """Count what it holds in another pool from here on."""
        self.pool.used -= self.bytes
        self.pool = pool
        pool.used += self.bytes

    def note(self, part: str, size: int) -> None:
        """Note how many bytes it holds for one purpose."""
        more = size - self._parts.get(part, 0)
        self._parts[part] = size
        self.bytes += more
        self.pool.used += more

    def clear(self) -> None:
        """Hold nothing any more."""
        self.pool.used -= self.bytes
        self.bytes = 0
        self._parts.clear()

    def has_room(self, more: int = 1) -> bool:
        """Whether it may hold more."""
        return self.pool.has_room(self.bytes, more)
