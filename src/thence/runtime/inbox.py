"""The messages that came to one endpoint: they wait until the program asks for them, or go to its handler.

Rules:

* Messages come in order, one after the other. A message is done when the next one is asked for, when its handler has returned,
  or, if the handler gives something to await, when that has ended. Until then nothing behind it is handed over.
* A handler that raises, or is cancelled, ends the endpoint: nothing behind its message can be done before it. But a message that
  it cannot read (``MalformedFrame``) is left out: whoever wrote it must not be able to stop what comes behind.
* What a handler returns is looked at, not how it was written: a coroutine of a lambda or of an object is awaited as well. A
  generator has run nothing of its body, and is refused.
* While something is awaited, what comes waits here; the credit of the endpoint bounds it (``runtime.acks``). Replies do not come
  this way, so a handler may await one.
* The news of a view comes in its turn among the messages, to its own handler, and is done like a message.
* Whoever leaves in order ends what is in hand, and takes no more. A message that another task works on is not in hand of who
  leaves: it is not done.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from thence.core.views import FABRIC
from thence.errors import MalformedFrame, UsageError
from thence.runtime.acks import Acks
from thence.runtime.letters import Message
from thence.runtime.view_news import ViewHandler, ViewNews

Handler = Callable[[Message], object]
BatchHandler = Callable[[Sequence[Message]], object]


class Owner(NamedTuple):
    """Whose inbox it is."""

    check_usable: Callable[[], None]
    """Raises if nothing more will come."""
    unreadable: Callable[[MalformedFrame], None]
    """Is told of a message that could not be read, and is left out."""
    handler_failed: Callable[[Exception], None]
    """Is told that a handler has raised: nothing behind its message may be handed over."""


class Inbox:
    """See the module's text."""

    def __init__(self, name: str, acks: Acks, owner: Owner) -> None:
        """Start empty."""
        self.received = 0
        """The position of the last message that came."""
        self.stopped = False
        """Whether nothing more goes to handlers."""
        self.views = ViewNews()
        self._name = name
        self._acks = acks
        self._owner = owner
        self._waiting: deque[Message] = deque()
        self._arrival = asyncio.Event()
        self._askers = 0
        """How many wait for one to come."""
        self._handler: Callable[[Any], object] | None = None
        self._one_by_one = False
        """Whether the handler takes one message at a time."""
        self._task: asyncio.Task[None] | None = None
        """Awaits what a handler gave to be awaited."""
        self._current: Message | None = None
        """The message that the program has asked for and is not done with,"""
        self._holder: object = None
        """and who asked for it: a task."""

    # Handlers.

    def on_message(self, handler: Handler) -> None:
        """Hand each message to ``handler``."""
        self._set_handler(handler, one_by_one=True)

    def on_batch(self, handler: BatchHandler) -> None:
        """Hand all messages that came together to ``handler``."""
        self._set_handler(handler, one_by_one=False)

    def on_view(self, handler: ViewHandler) -> None:
        """Hand the news of views to ``handler``."""
        self.views.tell(_checked(handler))

    def _set_handler(self, handler: Callable[[Any], object], *, one_by_one: bool) -> None:
        if self._handler is not None:
            raise UsageError("there is a handler already")
        self._handler, self._one_by_one = _checked(handler), one_by_one
        asyncio.get_running_loop().call_soon(self._drain)  # Until then what comes waits behind what is there (``hand``).

    def hand(self, messages: Sequence[Message], last: int) -> None:
        """Messages have come, and with them everything up to ``last``: hand them to the program."""
        self.received = last
        if self._handler is not None and not self._waiting and self._task is None and not self.stopped:
            if messages and messages[0].sender == FABRIC:
                self._handle_view(messages[0])
            else:
                self._handle(self._handler, messages)
        else:
            self._waiting.extend(messages)
            self._arrival.set()
            self._finish_unless_in_hand()

    def skip(self, last: int) -> None:
        """Everything up to ``last`` has come, and is nothing for the program. What came before may still be waiting."""
        self.received = last
        self._finish_unless_in_hand()

    def _finish_unless_in_hand(self) -> None:
        if not self._waiting and self._current is None and self._task is None:
            self._acks.finish(self.received)

    def _finish(self, position: int) -> None:
        """The program is done with what was handed to it up to this position, and so with all that came if nothing waits."""
        self._acks.finish(position if self._waiting else self.received)

    def _drain(self) -> None:
        """Hand over what waits, as far as the handler takes it now; what waits behind news of a view is not done before it."""
        while self._waiting and self._handler is not None and self._task is None and not self.stopped:
            if self._waiting[0].sender == FABRIC:
                self._handle_view(self._waiting.popleft())
                continue
            if self._one_by_one:
                batch = [self._waiting.popleft()]
            else:
                batch = list(takewhile(lambda message: message.sender != FABRIC, self._waiting))
                for _ in batch:
                    self._waiting.popleft()
            self._handle(self._handler, batch)
        if not self.stopped:
            self._finish_unless_in_hand()

    def _handle(self, handler: Callable[[Any], object], messages: Sequence[Message]) -> None:
        begun = 0
        try:
            if self._one_by_one:
                coming = iter(messages)
                for message in coming:
                    begun = message.position
                    try:
                        result = handler(message)
                    except MalformedFrame as error:
                        self._owner.unreadable(error)
                        continue
                    if result is not None and _is_awaitable(result):
                        self._await(result, begun, coming)
                        return
            elif messages:
                result = handler(messages)
                if result is not None and _is_awaitable(result):
                    self._await(result, messages[-1].position)
                    return
        except Exception as error:  # noqa: BLE001  Whatever it is, the program has not done with these messages.
            self._acks.finish(begun - 1)
            self._owner.handler_failed(error)
            return
        if not self._waiting:
            self._acks.finish(self.received)
        elif messages:
            self._acks.finish(messages[-1].position)

    def _handle_view(self, message: Message) -> None:
        try:
            result = self._viewed(message)
        except Exception as error:  # noqa: BLE001  As with messages.
            self._owner.handler_failed(error)
            return
        if result is None:
            self._finish(message.position)
        else:
            self._await(result, message.position)

    def _viewed(self, message: Message) -> Awaitable[object] | None:
        """It is the turn of the news of a view; return what its handler gives to be awaited."""
        result = self.views.came(message, self._owner.unreadable)
        return result if result is not None and _is_awaitable(result) else None  # type: ignore[return-value]

    def _await(self, result: object, position: int, behind: Iterable[Message] = ()) -> None:
        """What was handed over up to ``position`` is done when this has ended; what came behind it waits."""
        self._waiting.extendleft(reversed(list(behind)))
        self._task = asyncio.get_running_loop().create_task(self._end(result, position))

    async def _end(self, result: Any, position: int) -> None:
        try:
            await result
        except asyncio.CancelledError:
            self._task = None
            if not self.stopped:
                self._owner.handler_failed(UsageError(f"a handler of {self._name!r} was cancelled while it awaited something"))
            raise
        except MalformedFrame as error:
            self._owner.unreadable(error)
        except Exception as error:  # noqa: BLE001  As above.
            self._task = None
            self._owner.handler_failed(error)
            return
        self._task = None
        self._finish(position)
        self._drain()

    # Asking for messages.

    def check_asking(self) -> None:
        """Raise if messages go to a handler."""
        if self._handler is not None:
            raise UsageError("messages go to the handler; they cannot be asked for too")

    async def messages(self) -> AsyncIterator[Message]:
        """Return messages as they come, until the endpoint is closed."""
        self.done()
        while await self._one_waits(closing=True):
            yield self._take()
            self.done()

    async def receive(self, within: float | None) -> Message:
        """Return the next message."""
        self.done()
        async with asyncio.timeout(within):
            await self._one_waits(closing=False)
        return self._take()

    async def _one_waits(self, *, closing: bool) -> bool:
        """Wait until a message is there; return whether one is. ``closing``: return if the endpoint is closed, else raise."""
        while True:
            if closing and self._acks.closed:
                return False
            self._owner.check_usable()  # What is done after the end is told nobody: it would come again.
            if self._waiting and self._waiting[0].sender != FABRIC:
                return True
            if self._waiting:
                news = self._waiting[0]  # It stays until it is done: nothing behind it may be.
                result = self._viewed(news)
                if result is not None:
                    await result
                if self._waiting and self._waiting[0] is news:  # Another task may have asked too.
                    self._waiting.popleft()
                    self._finish(news.position)
                continue
            self._arrival.clear()
            self._askers += 1
            try:
                await self._arrival.wait()
            finally:
                self._askers -= 1

    def _take(self) -> Message:
        self._current, self._holder = self._waiting.popleft(), asyncio.current_task()
        return self._current

    def done(self) -> None:
        """The program is done with the message that it asked for last."""
        current, self._current, self._holder = self._current, None, None
        if current is not None:
            self._finish(current.position)

    # The end.

    def wake(self) -> None:
        """Let those who wait for a message look whether one will come."""
        self._arrival.set()

    @property
    def waited_for(self) -> bool:
        """Whether somebody waits for a message."""
        return self._askers > 0

    def held_by(self, who: object) -> None:
        """Say who works on the message that was asked for last, if that is no task."""
        self._holder = who

    async def end_in_order(self, who: object) -> None:
        """Hand nothing more over, and end what is in hand of a handler, or of ``who`` leaves."""
        self.stopped = True
        task = self._task
        if task is not None and task is not who:
            await asyncio.wait((task,))
        self.release(who)

    def release(self, who: object) -> None:
        """Be done with the message that was asked for last, if that was by ``who`` leaves, or by a task that has returned."""
        self.stopped = True
        holder = self._holder
        if holder is who or (isinstance(holder, asyncio.Task) and _has_returned(holder)):
            self.done()

    async def end_at_once(self) -> None:
        """Hand nothing more over, and cancel a handler that awaits something: its message is not done."""
        self.stopped = True
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait((task,))

    @property
    def busy(self) -> bool:
        """Whether a handler awaits something."""
        return self._task is not None


def _checked(handler: Any) -> Any:
    """Return the handler, if what it does can be done at all."""
    called = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004  It may generate.
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise UsageError(f"{handler!r} is a generator, of which nothing would run; a handler returns, or is async without yield")
    return handler


def _is_awaitable(result: object) -> bool:
    """Return whether what a handler returned is to be awaited; raise if it has not run at all."""
    if inspect.isawaitable(result):
        return True
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise UsageError("a handler returned a generator, of which nothing has run: the message would count as done")
    return False


def _has_returned(task: asyncio.Task[Any]) -> bool:
    """Return whether a task has ended, and not by an error."""
    return task.done() and not task.cancelled() and task.exception() is None
