"""Which messages an endpoint is done with, and when the other side is told.

Rules:

* Done is one position: all messages up to it are. It only grows.
* The other side is told at once if much is done, at the end of the turn of the loop if it is some, and ``ACKNOWLEDGE_WITHIN_S``
  later if it is little: nobody waits for it.
* Whoever must know that it is on disk there asks (``durable``). The answer is one position too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from thence.runtime.turns import turn_of

WINDOW_LETTERS: Final = 16_384
"""How many messages beyond those that are done the other side may send."""
ACKNOWLEDGE_EVERY: Final = 1_024
"""After how many letters done the other side is told at once,"""
ACKNOWLEDGE_SOON: Final = 64
"""after how many when the loop comes to rest,"""
ACKNOWLEDGE_SOON_BYTES: Final = 64 * 1024
"""or after how many bytes of them;"""
ACKNOWLEDGE_WITHIN_S: Final = 0.005
"""and how much later if there are fewer: nobody waits for it, and a letter alone is answered sooner without."""

Tell = Callable[[int, int, bool], None]
"""Takes up to where all is done, up to where more may come, and whether an answer is wanted when that is on disk."""


class Acks:
    """See the module's text."""

    def __init__(self, tell: Tell) -> None:
        """Nothing is done yet. ``tell`` tells the other side."""
        self.done = 0
        """The position of the last message that is done with."""
        self.untold_bytes = 0
        """How many bytes came since the other side was told last."""
        self.closed = False
        """Whether nobody is told anything any more."""
        self._told = 0
        self._durable = 0
        """Up to where the other side has said that it has it on disk."""
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._soon = turn_of(self._loop).soon
        self._telling_soon = False
        self._telling_later = False
        self._waiter: asyncio.Future[None] | None = None

    def begin(self, position: int) -> None:
        """Go on behind what an earlier program of this name was done with."""
        self.done = self._told = self._durable = position

    def finish(self, position: int) -> None:
        """Everything up to this position is done with: tell so, a little later or at once if it is much."""
        self.done = max(self.done, position)
        untold = self.done - self._told
        if untold >= ACKNOWLEDGE_EVERY:
            self.tell()
        elif untold >= ACKNOWLEDGE_SOON or self.untold_bytes >= ACKNOWLEDGE_SOON_BYTES:
            if not self._telling_soon:
                self._telling_soon = True
                self._soon(self.tell)
        elif untold and not self._telling_later:
            self._telling_later = True
            self._loop.call_later(ACKNOWLEDGE_WITHIN_S, self._tell_later)

    def _tell_later(self) -> None:
        self._telling_later = False
        self.tell()

    def tell(self) -> None:
        """Tell the other side now what is done, if it was not told."""
        self._telling_soon = False
        if self.done > self._told and not self.closed:
            self._say()

    def tell_again(self) -> None:
        """Tell it to an other side that may not have heard it."""
        self._say()

    def _say(self) -> None:
        self._told = self.done
        self.untold_bytes = 0
        self._tell(self.done, self.done + WINDOW_LETTERS, self._waiter is not None)

    def ask(self) -> bool:
        """Tell what is done if the other side has not said that it has it on disk, and return whether it has."""
        if self._durable < self.done and self._waiter is None and not self.closed:
            self._waiter = self._loop.create_future()
            self._say()  # Which may be answered at once.
        return self._durable >= self.done

    async def durable(self) -> None:
        """Tell what is done, and wait until the other side has it on disk."""
        while not self.ask() and self._waiter is not None:
            await asyncio.shield(self._waiter)

    def on_durable(self, upto: int) -> None:
        """The other side has on disk what is done up to this position."""
        self._durable = max(upto, self._durable)
        waiter = self._waiter
        if waiter is not None and upto >= self._told:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, failure: Exception) -> None:
        """Nobody will say so any more."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(failure)
            waiter.exception()  # Perhaps nobody waits any more.
