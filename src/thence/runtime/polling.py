"""Staying awake for the next message: for a short while after one came, the loop looks again and again instead of sleeping.

To be put to sleep and woken costs a program more than a small message does, where the other side answers at once: on a virtual
machine several times as much. Who has a core to spare may trade it for latency. Off unless somebody asks for it.

Rules:

* After something came in, the loop looks for more for ``window``, and then sleeps as always. Whatever else there is to do in the
  program is done meanwhile; a processor that others wait for is left to them between two looks.
* The window grows only while it is worth it: when something comes, after a sleep, so soon that ``limit`` would have caught it.
  When something comes later than that, the window halves, down to nothing. A program that hears little does not look at all.
* It belongs to the loop: of those who ask, the one who asks for most is followed, until its block ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final
from weakref import WeakKeyDictionary

from thence.errors import UsageError

DEFAULT_AWAKE_S: Final = 0.0003
"""For how long a loop stays awake, at most, where somebody asks for that and gives no time."""

MAX_AWAKE_S: Final = 0.01
"""The longest time that can be asked for."""

FIRST_WINDOW_S: Final = 20e-6
"""How long the loop stays awake at first; less than this is nothing."""

leave_core: Final[Callable[[], object]] = getattr(os, "sched_yield", bool)
"""Let another program have the core, where the system knows how to."""


class Polling:
    """One for each loop; see the module's text."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = perf_counter) -> None:
        """Start asleep."""
        self._now = now
        self.limit = 0.0
        """The longest window that was asked for; nothing is done while this is 0."""
        self.window = 0.0
        self.caught = 0
        """How often something came while the loop was awake for it."""
        self.missed = 0
        """How often the loop stayed awake for nothing."""
        self._call_soon = loop.call_soon
        self._asked: list[float] = []
        self._awake = False
        self._until = 0.0
        self._came_at = 0.0

    def ask(self, seconds: float) -> None:
        """Follow somebody's wish, until ``withdraw``."""
        if not 0 <= seconds <= MAX_AWAKE_S:
            raise UsageError(f"a loop can stay awake for 0 to {MAX_AWAKE_S} s after a message, not for {seconds}")
        self._asked.append(seconds)
        self.limit = max(self._asked)

    def withdraw(self, seconds: float) -> None:
        """Follow it no longer."""
        self._asked.remove(seconds)
        self.limit = max(self._asked, default=0.0)
        self.window = min(self.window, self.limit)

    def came(self) -> None:
        """Something came in, and was dealt with."""
        now = self._now()
        if self._awake:
            self.caught += 1
        else:
            self._slept(now - self._came_at)
            if self.window:
                self._awake = True
                self._call_soon(self._look)
        self._came_at = now
        self._until = now + self.window

    def status(self) -> dict[str, float]:
        """Return how long the loop stays awake, and what came of it."""
        return {
            "limit_us": round(1e6 * self.limit),
            "window_us": round(1e6 * self.window),
            "caught": self.caught,
            "missed": self.missed,
        }

    def _slept(self, gap: float) -> None:
        """Learn from how long nothing came."""
        if gap <= self.limit:
            self.window = min(self.limit, max(FIRST_WINDOW_S, 2 * self.window))
        else:
            self.window = self.window / 2 if self.window >= 2 * FIRST_WINDOW_S else 0.0

    def _look(self) -> None:
        """Be called again at the next turn of the loop, which so does not sleep, until it is time to."""
        if self._now() < self._until:
            leave_core()
            self._call_soon(self._look)
        else:
            self._awake = False
            self.missed += 1


_pollings: WeakKeyDictionary[asyncio.AbstractEventLoop, Polling] = WeakKeyDictionary()


def polling_of(loop: asyncio.AbstractEventLoop) -> Polling:
    """Return what keeps a loop awake, the same for everybody."""
    polling = _pollings.get(loop)
    if polling is None:
        polling = _pollings[loop] = Polling(loop)
    return polling


@contextmanager
def stay_awake(seconds: float = DEFAULT_AWAKE_S) -> Iterator[Polling]:
    """Let the running loop stay awake for up to ``seconds`` after a message came, within this block.

    For programs that wait for answers and have a core to spare: a round trip gets quicker, and a processor busier.
    """
    polling = polling_of(asyncio.get_running_loop())
    polling.ask(seconds)
    try:
        yield polling
    finally:
        polling.withdraw(seconds)
