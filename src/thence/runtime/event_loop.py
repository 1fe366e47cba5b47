"""The event loop of a program: which one runs, what is done at the end of its turns, and whether it stays awake.

The loop is uvloop where that is installed, since latency gains by it, and asyncio's own otherwise.

**Turns.** Batches, acks and writes are made once at the end of a turn, each for all that came before it.

* ``soon`` calls at the end of the present turn: when all that came in together has been handled, or else from the loop, next.
* First what makes packets (``BATCHES``), then what only acks some (``ACKS``), since a packet acks too, and then
  what writes (``WRITES``), so that everything for one peer leaves in one piece.
* What is called may ask for more; that comes behind it, in the same turn. Who asks again and again gets ``MAX_PASSES`` of that,
  and then the loop goes on: a program that writes to itself must not keep others from being heard.
* One call that fails keeps no other from being made; the loop's handler of exceptions is told.
* ``later`` makes one call in each turn of the loop, in the order in which they were asked for: for work that others can wait for.
* Whoever writes asks whether it is ``alone``: with nothing else to come in this turn, waiting for company would only delay it.

**Staying awake.** To be put to sleep and woken costs a program more than a small message does, where the other side answers at
once: on a virtual machine several times as much. Who has a core to spare may trade it for latency: for a short while after a
message came, the loop looks again and again instead of sleeping. Off unless somebody asks for it.

* After something came in, the loop looks for more for ``window``, and then sleeps as always. Whatever else there is to do in the
  program is done meanwhile; a processor that others wait for is left to them between two looks.
* The window grows only while it is worth it: when something comes, after a sleep, so soon that ``limit`` would have caught it.
  When something comes later than that, the window halves, down to nothing. A program that hears little does not look at all.
* It belongs to the loop: of those who ask, the one who asks for most is followed, until its block ends.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from thence.errors import InternalError, UsageError

MAX_PASSES: Final = 8
"""How often in one turn what was asked for meanwhile is looked at."""

BATCHES: Final = 0
ACKS: Final = 1
WRITES: Final = 2

DEFAULT_AWAKE_S: Final = 0.0003
"""For how long a loop stays awake, at most, where somebody asks for that and gives no time."""

MAX_AWAKE_S: Final = 0.01
"""The longest time that can be asked for."""

FIRST_WINDOW_S: Final = 20e-6
"""How long the loop stays awake at first; less than this is nothing."""

leave_core: Final[Callable[[], object]] = getattr(os, "sched_yield", bool)
"""Let another program have the core, where the system knows how to."""

Call = Callable[[], object]
T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def ignore(*_: object) -> None:
    """Do nothing: what is called until whoever owns a callback sets another one."""


async def repeat(every_s: float, call: Callable[[], None]) -> None:
    """Call a function every so many seconds, until this is cancelled."""
    while True:
        await asyncio.sleep(every_s)
        call()


def tell_if_it_fails(task: asyncio.Task[None], what: str, failed: Callable[[Exception], None]) -> None:
    """Call ``failed`` if a task that runs for as long as its server ends with an error; ``what`` says whose task it is.

    Otherwise a server would go on without its clock, its connections or its agents, and nobody would know why.
    """

    def ended(done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            failed(InternalError(f"{what}: {type(error).__name__}: {error}"))

    task.add_done_callback(ended)


class Turn:
    """What is to be done at the end of a turn of one loop."""

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


class Polling:
    """Keeps one loop awake for a while after a message came."""

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
