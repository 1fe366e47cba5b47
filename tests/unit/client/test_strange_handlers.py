"""Handlers and hooks that raise what nobody expects: what they were given is not done, and the endpoint ends and says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.played import Played
from tests.unit.client.test_handlers import settle
from thence.client.message import Message
from thence.errors import MalformedFrame, UsageError
from thence.net.protocol import BatchItem

A, BAD, B = BatchItem(b"a"), BatchItem(b"bad"), BatchItem(b"b")


def listens(me: Played, error: BaseException, form: str) -> None:
    """Let the endpoint fail by this at the message that is bad."""

    def one(message: Message) -> None:
        me.happened.append(message.body.decode())
        if message.body == b"bad":
            raise error

    async def one_later(message: Message) -> None:
        await asyncio.sleep(0)
        one(message)

    def some(messages: Sequence[Message]) -> None:
        for message in messages:
            one(message)

    async def some_later(messages: Sequence[Message]) -> None:
        await asyncio.sleep(0)
        some(messages)

    if form.startswith("batch"):
        me.on_batch(some if form == "batch" else some_later)
    else:
        me.on_message(one if form == "plain" else one_later)


@pytest.mark.parametrize("form", ["plain", "async", "batch", "batch, async"])
@pytest.mark.parametrize("error", [asyncio.CancelledError(), BaseExceptionGroup("g", [asyncio.CancelledError()])], ids=type)
async def test_whatever_a_handler_raises_its_message_is_not_done(me: Played, error: BaseException, form: str) -> None:
    listens(me, error, form)
    await settle()
    me.come(1, A)
    await settle()
    me.come(2, BAD, B)
    await settle()
    me.come(4, B)
    await settle()
    me.parts.acks.flush()
    assert me.happened == ["a", "bad"]
    assert me.acknowledged[-1] == 1
    with pytest.raises(UsageError, match=r"a handler of 'me' (raised BaseExceptionGroup|raised CancelledError|was cancelled)"):
        await me.flush()


def test_a_handler_that_ends_the_program_has_not_done_its_message() -> None:
    met: list[Played] = []

    async def run() -> None:
        met.append(me := Played())
        asyncio.get_running_loop().set_exception_handler(lambda _, __: None)
        listens(me, SystemExit(3), "plain")
        await settle()
        asyncio.get_running_loop().call_soon(me.come, 1, A, BAD, B)
        await asyncio.sleep(30)

    with pytest.raises(SystemExit):
        asyncio.run(run())
    assert met[0].happened == ["a", "bad"]
    assert met[0].parts.acks.done == 1
    assert "raised SystemExit" in str(met[0].parts.state.failure)


@pytest.mark.parametrize("form", ["batch", "batch, async"])
async def test_of_a_batch_nobody_knows_which_message_could_not_be_read_so_all_of_it_stays(me: Played, form: str) -> None:
    listens(me, MalformedFrame("bad"), form)
    await settle()
    me.come(1, A, BAD, B)
    await settle()
    me.parts.acks.flush()
    assert me.acknowledged == []
    with pytest.raises(MalformedFrame, match="bad"):
        await me.flush()


def unreadable_one(me: Played) -> None:
    me.on_message(lambda message: message.value(int))
    me.come(1, BatchItem(b"\xc1", coded=True))


def unreadable_one_later(me: Played) -> None:
    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        message.value(int)

    me.on_message(handle)
    me.come(1, BatchItem(b"\xc1", coded=True))


def unreadable_batch(me: Played) -> None:
    me.parts.deliveries.deliver(1, 0, "you", None, b"\x91\x05", everyone=False)


def came_back(me: Played) -> None:
    me.parts.deliveries.deliver(1, 0, "#undeliverable:you", None, b"\x91\x91\xc4\x00", everyone=False)


def refused(me: Played) -> None:
    me.post("you", b"x")
    me.parts.outbox.on_undeliverable(1, 1, "nobody", forbidden=False)


@pytest.mark.parametrize("cause", [unreadable_one, unreadable_one_later, unreadable_batch, came_back, refused])
async def test_a_hook_that_raises_ends_the_endpoint_and_what_it_was_told_of_is_not_done(
    me: Played, cause: Callable[[Played], None]
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("hook")

    me.link.accepts = False
    me.unreadable = me.returned = me.refused = fail  # type: ignore[method-assign,assignment]
    cause(me)
    await settle()
    me.parts.acks.flush()
    assert me.acknowledged == []
    with pytest.raises(KeyError, match="hook"):
        await me.flush()
