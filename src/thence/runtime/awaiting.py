"""How a program learns that messages which it got are safe (docs/stability.md): it waits for one of them, or has a handler.

Rules:

* What is told is one number: all messages up to this position are safe. It only grows while the program lives, and a program that
  starts again is told again.
* The other side is asked once, when somebody first wants to know, and again over each new connection. Where a domain does not
  find out, that is a ``UsageError``.
* At most ``MAX_AWAITED`` calls wait at a time.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from thence.errors import Busy, UsageError
from thence.runtime.letters import Message

MAX_AWAITED: Final = 65_536
"""How many calls of one program may wait until a message is safe."""

NOT_AWAITED: Final = "a handler of what is safe is called, and nothing that it returns is awaited: give a plain function"

SafeHandler = Callable[[int], None]


class Awaited:
    """What one program was told to be safe, and who in it waits for more."""

    def __init__(self) -> None:
        """Nobody has asked."""
        self.wanted = False
        """Whether the other side was asked, and has not said that it does not know."""
        self.upto = -1
        """Up to which position all messages are safe; -1: nobody has said."""
        self.handler: SafeHandler | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    def knows(self, position: int) -> bool:
        """Return whether all messages up to a position are safe, as far as we were told; of position 0, whether we are told."""
        return position <= self.upto and (position > 0 or self.wanted)

    def waiter(self, position: int, name: str) -> asyncio.Future[None]:
        """Return what is done when all messages up to a position are safe."""
        if len(self._waiting) >= MAX_AWAITED:
            raise Busy(f"{len(self._waiting)} calls of {name!r} wait for messages to be safe; MAX_AWAITED is {MAX_AWAITED}")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._waiting, (position, self._count, waiter))
        return waiter

    def told(self, upto: int, reason: str) -> bool:
        """Note how far messages are safe, or why nobody finds out; return whether there are more than before."""
        news, self.upto, self.wanted = upto > max(self.upto, 0), max(upto, self.upto), not reason
        while self._waiting and self.knows(self._waiting[0][0]):
            waiter = heapq.heappop(self._waiting)[2]
            if not waiter.done():
                waiter.set_result(None)
        if reason:
            self.fail(UsageError(reason))
        return news

    def fail(self, failure: Exception) -> bool:
        """Nobody who waits will be told any more; return whether anybody does."""
        waiting, self._waiting = [waiter for _, _, waiter in self._waiting if not waiter.done()], []
        for waiter in waiting:
            waiter.set_exception(failure)
        return bool(waiting)


class Awaiting(ABC):
    """The part of an endpoint that is about this. See the module's text."""

    name: str
    _awaited: Awaited

    @abstractmethod
    def _ask_safety(self) -> None:
        """Ask the other side to tell from now on what is safe, if there is a way to it."""

    @abstractmethod
    def _check_usable(self) -> None:
        """Raise if nothing can be done any more."""

    @abstractmethod
    def _handler_failed(self, error: Exception) -> None:
        """A handler has raised."""

    async def safe(self, message: Message) -> None:
        """Wait until a message that came in is safe: everybody who gets it in its domain has it on disk.

        Only where the domain says ``delivery = "notify"``, or ``"safe"``; elsewhere it is a ``UsageError``.
        """
        await self._until_safe(message.position)

    async def on_safe(self, handler: SafeHandler) -> None:
        """Call ``handler`` with a position whenever more messages are safe: all up to that position are.

        It is called from the loop, and must not block. Returns when the other side has said that it tells, and where it stands;
        where it does not find out, that is a ``UsageError``.
        """
        if self._awaited.handler is not None:
            raise UsageError("there is a handler of what is safe already")
        if inspect.iscoroutinefunction(handler):
            raise UsageError(NOT_AWAITED)
        self._awaited.handler = handler
        try:
            if self._awaited.knows(0) and self._awaited.upto:
                _call(handler, self._awaited.upto)
            await self._until_safe(0)
        except BaseException:
            self._awaited.handler = None
            raise

    @property
    def safe_upto(self) -> int:
        """Up to which position all messages are safe, as far as this endpoint was told; 0 if it has not asked."""
        return max(0, self._awaited.upto)

    async def _until_safe(self, position: int) -> None:
        awaited = self._awaited
        if awaited.knows(position):
            return
        self._check_usable()
        waiter = awaited.waiter(position, self.name)
        if not awaited.wanted:
            awaited.wanted = True
            self._ask_safety()
        await waiter

    def _on_safe(self, upto: int, reason: str) -> None:
        """The other side tells what is safe."""
        if self._awaited.told(upto, reason) and self._awaited.handler is not None:
            try:
                _call(self._awaited.handler, upto)
            except Exception as error:  # noqa: BLE001  As with messages.
                self._handler_failed(error)


def _call(handler: Callable[[int], object], upto: int) -> None:
    """Call a handler of what is safe; raise if it has only begun."""
    result = handler(upto)
    if result is not None and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise UsageError(NOT_AWAITED)
