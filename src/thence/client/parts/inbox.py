"""The messages that wait at an endpoint until the program asks for them, or that go to its handler.

Rules:

* Messages come in order, one after the other. A message is done when the next one is asked for, when its handler has returned,
  or, if the handler returns an awaitable, when that has ended. Until then nothing behind it is handed over.
* A handler that raises, whatever that is, or is cancelled, ends the endpoint: nothing behind its message can be done before it.
  But a message that it cannot read (``MalformedFrame``) is left out: its writer must not be able to stop what comes behind. Of
  several messages nobody knows which one that is: a handler of batches ends the endpoint by that too.
* What a handler returns counts, not how it was written: a coroutine of a lambda or of an object is awaited as well. A generator
  has run nothing of its body, and is refused.
* While something is awaited, what comes waits here; the credit of the endpoint bounds it (``client.parts.acks``). Replies do
  not come this way, so a handler may await one.
* The news of a view (docs/how-to/removal.md) comes in its turn among the messages, to its own handler, and is done like a
  message. News that cannot be read are left out.
* A program that leaves in order finishes the message in hand, and takes no more. A message that another task works on is not in
  its hand: it is not done.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any

from thence.client.message import Message
from thence.client.parts.acks import Acks
from thence.client.parts.state import EndpointHooks, EndpointState
from thence.core.reconfig.protocol import FABRIC, NewView
from thence.errors import MalformedFrame, UsageError

Handler = Callable[[Message], object]
BatchHandler = Callable[[Sequence[Message]], object]
ViewHandler = Callable[[NewView], object]


class ViewNews:
    """The last view that an endpoint knows, and the handler of views."""

    def __init__(self) -> None:
        """Start without a view."""
        self.view: NewView | None = None
        """The last view; None: there was no change since the endpoint was made."""
        self._handler: ViewHandler | None = None

    def handle(self, handler: ViewHandler) -> None:
        """Call ``handler`` with each view from now on."""
        if self._handler is not None:
            raise UsageError("there is a handler of views already")
        self._handler = _checked(handler)

    def on_message(self, message: Message, hooks: EndpointHooks) -> object:
        """Call the handler with the view in a message, and return what it returns."""
        try:
            self.view = message.value(NewView)
        except MalformedFrame as error:
            hooks.unreadable(error)
            return None
        return None if self._handler is None else self._handler(self.view)


class EndpointInbox:
    """Keeps the messages of one endpoint in order, and hands them over one by one."""

    def __init__(self, state: EndpointState, acks: Acks, hooks: EndpointHooks) -> None:
        """Start empty."""
        self.received = 0
        """The position of the last message that came."""
        self.stopped = False
        """Whether nothing more goes to handlers."""
        self.views = ViewNews()
        self._state = state
        self._acks = acks
        self._hooks = hooks
        self._waiting: deque[Message] = deque()
        self._arrival = asyncio.Event()
        self._askers = 0
        """How many calls wait for a message."""
        self._handler: Callable[[Any], object] | None = None
        self._one_by_one = False
        """Whether the handler takes one message at a time."""
        self._task: asyncio.Task[None] | None = None
        """Awaits what a handler returned."""
        self._current: Message | None = None
        """The message that the program has asked for and not finished."""
        self._holder: object = None
        """The task that asked for it."""
        state.on_end.append(self._wake)

    # Handlers.

    def set_handler(self, handler: Callable[[Any], object], *, one_by_one: bool) -> None:
        """Hand each message to ``handler``, or all messages that came together."""
        if self._handler is not None:
            raise UsageError("there is a handler already")
        self._handler, self._one_by_one = _checked(handler), one_by_one
        asyncio.get_running_loop().call_soon(self._drain)  # Until then what comes waits behind what is there (``hand``).

    def hand(self, messages: Sequence[Message], last: int) -> None:
        """Hand messages to the program. With them everything up to ``last`` has come."""
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
        """Note that everything up to ``last`` has come, and that it is nothing for the program."""
        self.received = last
        self._finish_unless_in_hand()

    def _finish_unless_in_hand(self) -> None:
        if not self._waiting and self._current is None and self._task is None:
            self._acks.finish(self.received)

    def _finish(self, position: int) -> None:
        """Note that the program has done what was handed to it up to this position; if nothing waits, all that came."""
        self._acks.finish(position if self._waiting else self.received)

    def _drain(self) -> None:
        """Hand over what waits, as far as the handler takes it now."""
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
                        self._hooks.unreadable(error)
                        continue
                    if result is not None and _is_awaitable(result):
                        self._await(result, begun, coming, skips=True)
                        return
            elif messages:
                result = handler(messages)
                if result is not None and _is_awaitable(result):
                    self._await(result, messages[-1].position)
                    return
        except BaseException as error:  # noqa: BLE001  Whatever it is, the program has not done with these messages.
            self._acks.finish(begun - 1)
            self._state.handler_failed(error)
            return
        if not self._waiting:
            self._acks.finish(self.received)
        elif messages:
            self._acks.finish(messages[-1].position)

    def _handle_view(self, message: Message) -> None:
        try:
            result = self._viewed(message)
        except BaseException as error:  # noqa: BLE001  As with messages.
            self._state.handler_failed(error)
            return
        if result is None:
            self._finish(message.position)
        else:
            self._await(result, message.position)

    def _viewed(self, message: Message) -> Awaitable[object] | None:
        """Give the news of a view to its handler; return what that returns to be awaited."""
        result = self.views.on_message(message, self._hooks)
        return result if result is not None and _is_awaitable(result) else None  # type: ignore[return-value]

    def _await(self, result: object, position: int, behind: Iterable[Message] = (), *, skips: bool = False) -> None:
        """Await what a handler returned. Then everything up to ``position`` is done; what came ``behind`` waits.

        ``skips``: a message that cannot be read is left out.
        """
        self._waiting.extendleft(reversed(list(behind)))
        self._task = asyncio.get_running_loop().create_task(self._end(result, position, skips=skips))

    async def _end(self, result: Any, position: int, *, skips: bool) -> None:
        try:
            try:
                await result
            except MalformedFrame as error:
                if not skips:
                    raise
                self._hooks.unreadable(error)
        except asyncio.CancelledError:
            self._task = None
            if not self.stopped:
                self._state.handler_failed(
                    UsageError(f"a handler of {self._state.name!r} was cancelled while it awaited something")
                )
            raise
        except BaseException as error:  # noqa: BLE001  As above.
            self._task = None
            self._state.handler_failed(error)
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
        """Yield messages as they come, until the endpoint is closed."""
        self.done()
        while await self._one_waits(closing=True):
            yield self._take()
            self.done()

    async def receive(self, within: float | None) -> Message:
        """Return the next message."""
        self.done()
        try:
            async with asyncio.timeout(within):
                await self._one_waits(closing=False)
        except TimeoutError as late:
            raise TimeoutError(str(late) or f"no message for {self._state.name!r} within {within:g} s") from None
        return self._take()

    async def _one_waits(self, *, closing: bool) -> bool:
        """Wait for a message; return whether there is one. ``closing``: return False if the endpoint is closed, do not raise."""
        while True:
            if closing and self._state.closed:
                return False
            self._state.check()  # After the end no ack is sent, so the message would come again.
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
        """Note that the program has done the message that it asked for last."""
        current, self._current, self._holder = self._current, None, None
        if current is not None:
            self._finish(current.position)

    # The end.

    def _wake(self, _: Exception) -> bool:
        """Hand nothing more over, and let those who wait for a message look why."""
        self.stopped = True
        self._arrival.set()
        return self._askers > 0

    def held_by(self, who: object) -> None:
        """Note who works on the message that was asked for last, if that is no task."""
        self._holder = who

    async def end_in_order(self, who: object) -> None:
        """Hand nothing more over. Wait for the handler, and finish the message in hand of ``who``, which leaves."""
        self.stopped = True
        task = self._task
        if task is not None and task is not who:
            await asyncio.wait((task,))
        self.release(who)

    def release(self, who: object) -> None:
        """Finish the message that was asked for last, if that was by ``who``, which leaves, or by a task that has returned."""
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
    """Return the handler; raise if it is a generator."""
    called = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004  It may generate.
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise UsageError(f"{handler!r} is a generator, of which nothing would run; a handler returns, or is async without yield")
    return handler


def _is_awaitable(result: object) -> bool:
    """Return whether to await what a handler returned; raise if nothing of it has run."""
    if inspect.isawaitable(result):
        return True
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise UsageError("a handler returned a generator, of which nothing has run: the message would count as done")
    return False


def _has_returned(task: asyncio.Task[Any]) -> bool:
    """Return whether a task has ended, and not by an error."""
    return task.done() and not task.cancelled() and task.exception() is None
