"""What is to be done once at the end of a turn of the loop: batches, acks and writes, each for all that came before it.

Rules:

* ``soon`` calls at the end of the present turn: when all that came in together has been handled, or else from the loop, next.
* First what makes packets (``BATCHES``), then what only acks some (``ACKS``), since a packet acks too, and then
  what writes (``WRITES``), so that everything for one peer leaves in one piece.
* What is called may ask for more; that comes behind it, in the same turn. Who asks again and again gets ``MAX_PASSES`` of that,
  and then the loop goes on: a program that writes to itself must not keep others from being heard.
* One call that fails keeps no other from being made; the loop's handler of exceptions is told.
* ``later`` makes one call in each turn of the loop, in the order in which they were asked for: for work that others can wait for.
* Whoever writes asks whether it is ``alone``: with nothing else to come in this turn, waiting for company would only delay it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

MAX_PASSES: Final = 8
"""How often in one turn what was asked for meanwhile is looked at."""

BATCHES: Final = 0
ACKS: Final = 1
WRITES: Final = 2

Call = Callable[[], object]


class Turn:
    """One for each loop; see the module's text."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start with nothing to do."""
        self._call_soon = loop.call_soon
        self._tell = loop.call_exception_handler
        self._stages: tuple[list[Call], list[Call], list[Call]] = ([], [], [])
        self._later: deque[Call] = deque()
        self.awaited = False
        """Whether somebody will call ``end``: the loop, or whoever has set this because something comes in."""
        self.busy = False
        """Whether something may be left for the end of the turn."""
        self.alone = False
        """Whether nothing else is known to come in this turn beside what is being done now."""

    def soon(self, call: Call, stage: int = BATCHES) -> None:
        """Call this at the end of the turn."""
        self._stages[stage].append(call)
        self.busy = True
        if not self.awaited:
            self.awaited = True
            self._call_soon(self.end)

    def later(self, call: Call) -> None:
        """Call this in a turn of its own, when those who asked for that before have had theirs."""
        self._later.append(call)
        if len(self._later) == 1:
            self._call_soon(self._next_later)

    def _next_later(self) -> None:
        call = self._later.popleft()
        if self._later:
            self._call_soon(self._next_later)
        call()

    def end(self) -> None:
        """Do what is to be done."""
        self.awaited = True
        self.busy = False
        for stage in self._stages:
            if stage:
                self._do(stage)
        self.alone = False
        if self.busy and any(self._stages):
            self._call_soon(self.end)
        else:
            self.awaited = self.busy = False

    def _do(self, stage: list[Call]) -> None:
        """Make the calls of one stage, and those that they ask for, as long as ``MAX_PASSES`` allows."""
        for _ in range(MAX_PASSES):
            calls = stage[:]
            del stage[:]
            self.alone = len(calls) == 1
            for call in calls:
                try:
                    call()
                except Exception as error:  # noqa: BLE001  The others must be called all the same.
                    self._tell({"message": f"thence: at the end of a turn: {error}", "exception": error})
            if not stage:
                break


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turn] = WeakKeyDictionary()


def turn_of(loop: asyncio.AbstractEventLoop) -> Turn:
    """Return the turn of a loop, the same for everybody."""
    turn = _turns.get(loop)
    if turn is None:
        turn = _turns[loop] = Turn(loop)
    return turn
