"""Handlers of messages and views that are plain, or give something to be awaited; and what is done when a program leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from tests.support.played import Played
from tests.unit.client.test_endpoint import view
from thence.client.endpoint import Endpoint
from thence.client.message import Message
from thence.core.reconfig.protocol import FABRIC, NewView
from thence.errors import MalformedFrame, UsageError
from thence.net.protocol import BatchItem


async def settle() -> None:
    """Let everything happen that is about to."""
    for _ in range(10):
        await asyncio.sleep(0)


class Slow:
    """A handler that goes on when it is told to."""

    def __init__(self, me: Played) -> None:
        self.me = me
        self.gates: dict[bytes, asyncio.Event] = {}

    async def handle(self, message: Message) -> None:
        self.me.happened.append(f"begin {message.body.decode()}")
        self.gates[message.body] = asyncio.Event()
        await self.gates[message.body].wait()
        if message.body == b"bad":
            raise ValueError("bad")
        self.me.happened.append(f"end {message.body.decode()}")

    async def __call__(self, message: Message) -> None:
        await self.handle(message)

    async def let_end(self, body: bytes) -> None:
        self.gates[body].set()
        await settle()
        self.me.parts.acks.flush()


FORMS: dict[str, Callable[[Slow], Any]] = {
    "async def": lambda slow: slow.handle,
    "partial": lambda slow: partial(Slow.handle, slow),
    "lambda": lambda slow: lambda message: slow.handle(message),  # noqa: PLW0108  It looks like a plain one.
    "object": lambda slow: slow,
    "task": lambda slow: lambda message: asyncio.ensure_future(slow.handle(message)),
}


@pytest.mark.parametrize("form", FORMS)
async def test_an_async_handler_is_awaited_and_only_then_its_message_is_done(me: Played, form: str) -> None:
    slow = Slow(me)
    me.on_message(FORMS[form](slow))
    me.come(1, BatchItem(b"a"), BatchItem(b"b"))
    me.come(3, BatchItem(b"c"))
    await settle()
    me.parts.acks.flush()
    assert (me.happened, me.acknowledged) == (["begin a"], [])
    await slow.let_end(b"a")
    assert (me.happened, me.acknowledged) == (["begin a", "end a", "begin b"], [1])
    await slow.let_end(b"b")
    await slow.let_end(b"c")
    assert me.happened == ["begin a", "end a", "begin b", "end b", "begin c", "end c"]
    assert me.acknowledged == [1, 2, 3]
    me.come(4, BatchItem(b"d"))
    await settle()
    await slow.let_end(b"d")
    assert me.acknowledged[-1] == 4


async def test_what_came_before_there_was_an_async_handler_comes_to_it_in_order(me: Played) -> None:
    slow = Slow(me)
    me.come(1, BatchItem(b"a"), BatchItem(b"b"))
    me.on_message(slow.handle)
    me.come(3, BatchItem(b"c"))
    for body in (b"a", b"b", b"c"):
        await settle()
        await slow.let_end(body)
    assert me.happened == ["begin a", "end a", "begin b", "end b", "begin c", "end c"]
    assert me.acknowledged == [1, 2, 3]


async def test_an_async_handler_may_send_reply_and_wait_for_replies(me: Played) -> None:
    answers: list[bytes] = []

    async def handle(message: Message) -> None:
        await me.send("you", b"sent")
        answers.append((await me.request("you", b"?")).body)
        if message.wants_reply:
            message.reply(b"replied")

    me.on_message(handle)
    me.come(1, BatchItem(b"a", request=7), BatchItem(b"b"))
    await asyncio.sleep(0.01)
    assert len(me.sent) == 2
    me.come(3, BatchItem(b"one", reply=me.asked()))
    await asyncio.sleep(0.01)
    assert answers == [b"one"]
    me.parts.acks.flush()
    assert me.acknowledged[-1] == 1, "the reply is behind a message that is not done"
    me.come(4, BatchItem(b"two", reply=me.asked()))
    await asyncio.sleep(0.01)
    assert answers == [b"one", b"two"]
    assert me.acknowledged[-1] == 4
    assert len(me.sent) == 5


async def test_an_async_handler_that_raises_ends_the_endpoint_before_what_follows(me: Played) -> None:
    slow = Slow(me)
    me.on_message(slow.handle)
    me.come(1, BatchItem(b"a"), BatchItem(b"bad"), BatchItem(b"b"))
    await settle()
    await slow.let_end(b"a")
    waiting = asyncio.ensure_future(me.request("you", b"?"))
    await settle()
    await slow.let_end(b"bad")
    me.come(4, BatchItem(b"c"))
    await settle()
    assert me.happened == ["begin a", "end a", "begin bad"]
    assert me.acknowledged == [1]
    with pytest.raises(ValueError, match="bad"):
        await waiting
    with pytest.raises(ValueError, match="bad"):
        me.post("you", b"more")


async def test_a_message_that_an_async_handler_cannot_read_is_left_out(me: Played) -> None:
    errors: list[MalformedFrame] = []
    me.unreadable = errors.append  # type: ignore[method-assign,assignment]
    values: list[int] = []

    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        values.append(message.value(int))

    me.on_message(handle)
    me.come(1, BatchItem(b"\x01", coded=True), BatchItem(b"\xc1", coded=True), BatchItem(b"\x02", coded=True))
    await asyncio.sleep(0.02)
    assert (values, len(errors), me.acknowledged[-1], me.parts.state.failure) == ([1, 2], 1, 3, None)


async def test_an_async_handler_that_is_cancelled_has_not_done_its_message(me: Played) -> None:
    async def handle(_: Message) -> None:
        raise asyncio.CancelledError

    me.on_message(handle)
    me.come(1, BatchItem(b"a"), BatchItem(b"b"))
    await settle()
    me.parts.acks.flush()
    assert me.acknowledged == []
    with pytest.raises(UsageError, match="a handler of 'me' was cancelled while it awaited something"):
        await me.flush()


async def test_a_handler_may_be_async_for_some_messages_only(me: Played) -> None:
    slow = Slow(me)

    def handle(message: Message) -> object:
        if message.body.isupper():
            return slow.handle(message)
        me.handle(message)
        return None

    me.on_message(handle)
    me.come(1, BatchItem(b"a"), BatchItem(b"B"), BatchItem(b"c"), BatchItem(b"d"))
    await settle()
    me.parts.acks.flush()
    assert (me.happened, me.acknowledged) == (["message a", "begin B"], [1]) or me.acknowledged == []
    await slow.let_end(b"B")
    me.come(5, BatchItem(b"e"))
    assert me.happened == ["message a", "begin B", "end B", "message c", "message d", "message e"]
    await asyncio.sleep(0.01)
    assert me.acknowledged[-1] == 5


async def test_an_async_handler_of_batches_has_done_them_when_it_returns(me: Played) -> None:
    gate = asyncio.Event()

    async def handle(messages: Sequence[Message]) -> None:
        me.happened.append(" ".join(message.body.decode() for message in messages))
        await gate.wait()

    me.on_batch(handle)
    me.come(1, BatchItem(b"a"), BatchItem(b"b"))
    me.come(3, BatchItem(b"c"))
    me.come(4, BatchItem(b"d"))
    await asyncio.sleep(0.01)
    assert (me.happened, me.acknowledged) == (["a b"], [])
    gate.set()
    await asyncio.sleep(0.01)
    assert (me.happened, me.acknowledged[-1]) == (["a b", "c d"], 4)


@pytest.mark.parametrize("listens", ["handler", "receives", "iterates"])
async def test_an_async_handler_of_views_is_awaited_in_its_turn(me: Played, listens: str) -> None:
    gate = asyncio.Event()

    async def viewed(news: NewView) -> None:
        me.happened.append(f"view {news.version}")
        await gate.wait()
        me.happened.append("view is known")

    async def receive() -> None:
        for _ in range(2):
            me.handle(await me.receive())
        me.done()

    async def iterate() -> None:
        async for message in me:
            me.handle(message)

    me.on_view(viewed)
    if listens == "handler":
        me.on_message(me.handle)
    listening = asyncio.ensure_future({"receives": receive, "iterates": iterate}.get(listens, settle)())
    me.come(1, BatchItem(b"a"))
    me.parts.deliveries.deliver(2, 0, FABRIC, None, view(2)[1], everyone=False)
    await settle()
    me.come(3, BatchItem(b"b"))
    me.come(4, BatchItem(b"nobody asks any more", reply=7))
    await settle()
    me.parts.acks.flush()
    assert me.happened == ["message a", "view 2", "reply nobody asks any more"]
    assert me.acknowledged == [1]
    gate.set()
    await settle()
    assert me.happened[-2:] == ["view is known", "message b"]
    me.parts.acks.flush()
    assert me.acknowledged[-1] == 4
    listening.cancel()


async def test_the_news_of_a_view_is_not_done_if_who_waits_for_a_message_gives_up(me: Played) -> None:
    seen: list[int] = []

    async def viewed(news: NewView) -> None:
        seen.append(news.version)
        await asyncio.sleep(0.05 if len(seen) == 1 else 0)

    me.on_view(viewed)
    me.parts.deliveries.deliver(1, 0, FABRIC, None, view(2)[1], everyone=False)
    with pytest.raises(TimeoutError):
        await me.receive(within=0.01)
    me.parts.acks.flush()
    assert me.acknowledged == []
    me.come(2, BatchItem(b"a"))
    assert ((await me.receive()).body, seen) == (b"a", [2, 2])


async def test_handlers_of_which_nothing_would_run_are_refused(me: Played) -> None:
    def generates(message: Message) -> Iterator[Message]:
        yield message

    async def generates_too(message: Message) -> AsyncIterator[Message]:
        yield message

    async def told(_: int) -> None:
        raise AssertionError("is not called")

    handlers: list[Any] = [generates, generates_too]
    for handler in handlers:
        for register in (me.on_message, me.on_batch, me.on_view):
            with pytest.raises(UsageError, match="is a generator, of which nothing would run"):
                register(handler)
    for wrong in (told, lambda upto: told(upto)):  # noqa: PLW0108
        me.parts.safe_waits.advance(1, "")
        with pytest.raises(UsageError, match="nothing that it returns is awaited: give a plain function"):
            await me.on_safe(wrong)  # type: ignore[arg-type]
    me.on_message(lambda message: generates(message))  # noqa: PLW0108
    me.come(1, BatchItem(b"a"))
    me.parts.acks.flush()
    assert me.acknowledged == []
    with pytest.raises(UsageError, match="a handler returned a generator, of which nothing has run"):
        await me.flush()


# Leaving.


async def test_who_leaves_in_order_ends_the_message_in_hand_of_a_handler_and_takes_no_more(me: Played) -> None:
    slow = Slow(me)
    me.on_message(slow.handle)
    me.come(1, BatchItem(b"a"), BatchItem(b"b"))
    await settle()
    leaving = asyncio.ensure_future(me.parts.departure.leave(orderly=True, within=30.0))
    await settle()
    assert not leaving.done()
    await slow.let_end(b"a")
    await leaving
    assert (me.happened, me.acknowledged) == (["begin a", "end a"], [1])


async def test_who_leaves_by_an_error_cancels_the_handler_and_its_message_is_not_done(me: Played) -> None:
    slow = Slow(me)
    me.on_message(slow.handle)
    me.come(1, BatchItem(b"a"), BatchItem(b"b"))
    await settle()
    await slow.let_end(b"a")
    await me.parts.departure.leave(orderly=False, within=30.0)
    await settle()
    assert (me.happened, me.acknowledged) == (["begin a", "end a", "begin b"], [1])
    me.parts.state.check()  # It was not the handler's fault.


async def test_who_leaves_while_a_handler_has_no_end_is_told_so(me: Played) -> None:
    slow = Slow(me)
    me.on_message(slow.handle)
    me.come(1, BatchItem(b"a"))
    await settle()
    with pytest.raises(TimeoutError, match=r"nothing happened for 0.01 s \(close_timeout\): a handler still awaits something"):
        await me.parts.departure.leave(orderly=True, within=0.01)
    assert me.acknowledged == []


async def iterates(me: Endpoint) -> None:
    async for _ in me:
        break


async def receives(me: Endpoint) -> None:
    await me.receive()


@pytest.mark.parametrize("asks", [iterates, receives])
@pytest.mark.parametrize("leaves", ["in order", "by an error"])
async def test_who_leaves_in_order_has_done_the_message_in_hand(
    me: Played, asks: Callable[[Endpoint], Awaitable[None]], leaves: str
) -> None:
    me.come(1, BatchItem(b"a"), BatchItem(b"b"), BatchItem(b"c"))
    await asks(me)
    await asyncio.wait_for(asks(me), 1.0)  # In another task, which has returned.
    await me.parts.departure.leave(orderly=leaves == "in order", within=30.0)
    assert me.acknowledged[-1] == (2 if leaves == "in order" else 1)


async def test_a_message_that_another_task_works_on_is_not_done_by_leaving(me: Played) -> None:
    me.come(1, BatchItem(b"a"), BatchItem(b"b"))

    async def work() -> None:
        async for message in me:
            if message.body == b"b":
                await asyncio.sleep(60)

    working = asyncio.ensure_future(work())
    await settle()
    await me.parts.departure.leave(orderly=True, within=30.0)
    assert me.acknowledged == [1]
    working.cancel()


async def test_who_leaves_after_a_failure_of_which_it_was_not_told_is_told(me: Played) -> None:
    me.on_message(me.handle)
    me.come(1, BatchItem(b"bad"))
    with pytest.raises(ValueError, match="bad"):
        await me.parts.departure.leave(orderly=True, within=30.0)
    me.parts.state.failure_seen = False
    with pytest.raises(ValueError, match="bad"):
        await me.flush()
    await me.parts.departure.leave(orderly=True, within=30.0)  # It knows.


async def test_outside_a_block_nothing_can_be_done() -> None:
    me = Played()
    me.parts.state.usable = False
    calls: dict[str, Callable[[], Any]] = {
        "send": lambda: me.send("you", b"?"),
        "publish": lambda: me.publish("news", b"?"),
        "request": lambda: me.request("you", b"?"),
        "flush": me.flush,
        "receive": me.receive,
        "iterate": lambda: iterates(me),
        "room": me.room,
        "stable": me.stable,
    }
    for name, call in calls.items():
        with pytest.raises(UsageError, match="'me' is not connected: use it in an 'async with' block"):
            await call()
        assert name
    for post in (me.post, me.post_topic):
        with pytest.raises(UsageError, match="use it in an 'async with' block"):
            post("you", b"?")
    me.parts.state.enter()
    with pytest.raises(UsageError, match="was used in a block already: make another one"):
        me.parts.state.enter()
