"""How a program learns that messages which came to it are safe (docs/concepts/stability.md).

Rules:

* Safety is one number: all messages up to this position are safe. It only grows while the program lives.
* The other side is asked once, when the program first wants to know, and again over each new connection. Where a domain does not
  find out, that is a ``UsageError``.
* At most ``MAX_AWAITED`` calls wait at a time.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
from collections.abc import Callable
from typing import Final

from thence.client.parts.state import EndpointState
from thence.errors import Busy, UsageError

MAX_AWAITED: Final = 65_536
"""How many calls of one program may wait until a message is safe."""

NOT_AWAITED: Final = "a handler of what is safe is called, and nothing that it returns is awaited: give a plain function"

SafeHandler = Callable[[int], None]


class SafeWaits:
    """The position up to which all messages are safe, and the calls that wait for more."""

    def __init__(self, state: EndpointState) -> None:
        """Start with nobody waiting. ``ask`` is set by the link, before anybody waits."""
        self.ask: Callable[[], None]
        """Asks the other side to say from now on which messages are safe."""
        self.wanted = False
        """Whether the other side was asked, and has not said that it does not know."""
        self.upto = -1
        """The position up to which all messages are safe; -1: the other side has not said."""
        self._state = state
        self._handler: SafeHandler | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0
        state.on_end.append(self.fail)

    def knows(self, position: int) -> bool:
        """Return whether all messages up to a position are known to be safe; for 0, whether the other side has answered."""
        return position <= self.upto and (position > 0 or self.wanted)

    def waiter(self, position: int) -> asyncio.Future[None]:
        """Return a future that is done when all messages up to a position are safe."""
        if len(self._waiting) >= MAX_AWAITED:
            raise Busy(
                f"{len(self._waiting)} calls of {self._state.name!r} wait for messages to be safe; MAX_AWAITED is {MAX_AWAITED}"
            )
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._waiting, (position, self._count, waiter))
        return waiter

    async def until(self, position: int) -> None:
        """Wait until all messages up to a position are safe."""
        if self.knows(position):
            return
        self._state.check()
        waiter = self.waiter(position)
        if not self.wanted:
            self.wanted = True
            self.ask()
        await waiter

    async def handle(self, handler: SafeHandler) -> None:
        """Call ``handler`` whenever more messages are safe. Return when the other side has answered."""
        if self._handler is not None:
            raise UsageError("there is a handler of what is safe already")
        if inspect.iscoroutinefunction(handler):
            raise UsageError(NOT_AWAITED)
        self._handler = handler
        try:
            if self.knows(0) and self.upto:
                _call(handler, self.upto)
            await self.until(0)
        except BaseException:
            self._handler = None
            raise

    def on_safe(self, upto: int, reason: str) -> None:
        """Note what the other side says: up to which position messages are safe, or why it does not find out."""
        if self.advance(upto, reason) and self._handler is not None:
            try:
                _call(self._handler, upto)
            except BaseException as error:  # noqa: BLE001  As with messages.
                self._state.handler_failed(error)

    def advance(self, upto: int, reason: str) -> bool:
        """Wake the calls whose messages are safe; return whether more messages are safe than before."""
        news, self.upto, self.wanted = upto > max(self.upto, 0), max(upto, self.upto), not reason
        while self._waiting and self.knows(self._waiting[0][0]):
            waiter = heapq.heappop(self._waiting)[2]
            if not waiter.done():
                waiter.set_result(None)
        if reason:
            self.fail(UsageError(reason))
        return news

    def fail(self, failure: Exception) -> bool:
        """Wake all calls with an error; return whether there were any."""
        waiting, self._waiting = [waiter for _, _, waiter in self._waiting if not waiter.done()], []
        for waiter in waiting:
            waiter.set_exception(failure)
        return bool(waiting)


def _call(handler: Callable[[int], object], upto: int) -> None:
    """Call a handler of what is safe; raise if it returns something to await."""
    result = handler(upto)
    if result is not None and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise UsageError(NOT_AWAITED)
