"""An endpoint: messages and replies in their turn, and what counts as done. Whatever lies between it and others is played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import pytest

from tests.support.played import Played
from thence.client.message import Message
from thence.client.parts.requests import Requests
from thence.client.parts.state import EndpointState
from thence.core.reconfig.protocol import FABRIC, NewView
from thence.errors import Busy, MalformedFrame, UsageError
from thence.net.protocol import BatchItem, read_messages, write_messages

PATIENCE_S = 30.0


async def test_a_reply_comes_in_its_turn_among_the_messages_of_its_batch(me: Played) -> None:
    me.on_message(me.handle)
    asked = asyncio.ensure_future(me.request("you", b"?"))
    await asyncio.sleep(0.01)
    me.come(1, BatchItem(b"a"), BatchItem(b"b"), BatchItem(b"answer", reply=me.asked()), BatchItem(b"c"))
    assert me.happened == ["message a", "message b", "reply answer", "message c"]
    assert (await asked).body == b"answer"
    me.done()
    me.parts.acks.flush()  # Which it would do by itself, a little later.
    assert me.acknowledged == [4]


async def test_a_reply_alone_counts_as_done(me: Played) -> None:
    me.on_message(me.handle)
    me.come(1, BatchItem(b"a"), BatchItem(b"nobody asks any more", reply=7))
    me.come(3, BatchItem(b"again", reply=7))
    await asyncio.sleep(0.01)
    assert me.acknowledged == [3]
    assert me.happened == ["message a", "reply nobody asks any more", "reply again"]


@pytest.mark.parametrize(
    ("sender", "topic", "everyone", "why"),
    [
        ("mallory", None, False, "a reply from 'mallory', sent directly, to a request to 'you'"),
        ("you", "news", False, "a reply from 'you', sent on the topic 'news', to a request to 'you'"),
        ("you", None, True, "a reply from 'you', sent to everyone, to a request to 'you'"),
    ],
)
async def test_only_who_was_asked_replies_and_only_directly(
    me: Played, sender: str, topic: str | None, everyone: bool, why: str
) -> None:
    said: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
    asked = asyncio.ensure_future(me.request("you", b"?"))
    await asyncio.sleep(0.01)
    me.parts.deliveries.deliver(1, 0, sender, topic, write_messages([BatchItem(b"forged", reply=me.asked())]), everyone)
    await asyncio.sleep(0.01)
    assert not asked.done()
    assert len(said) == 1
    assert why in said[0]
    me.come(2, BatchItem(b"true", reply=me.asked()))
    assert (await asked).body == b"true"
    assert me.stray_replies == 1
    me.come(3, BatchItem(b"again", reply=me.asked()))
    await asyncio.sleep(0.01)
    assert (me.stray_replies, len(said), me.acknowledged[-1]) == (2, 1, 3)


async def test_ids_of_requests_cannot_be_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(EndpointState("me"))
    ids = [requests.ask("you")[0] for _ in range(100)]
    assert len(set(ids)) == 100
    assert all(0 < one < 2**63 for one in ids)
    assert min(ids) > 2**40, "one in 80,000 runs is wrong here"
    monkeypatch.setattr("thence.client.parts.requests.MAX_REQUESTS", 100)
    with pytest.raises(Busy, match="100 requests wait for their replies; MAX_REQUESTS is 100"):
        requests.ask("you")
    requests.forget(ids[0])
    requests.ask("you")


async def test_nothing_behind_a_message_at_which_the_program_failed_is_handed_over_or_done(me: Played) -> None:
    me.on_message(me.handle)
    asked = asyncio.ensure_future(me.request("you", b"?"))
    await asyncio.sleep(0.01)
    me.come(1, BatchItem(b"a"), BatchItem(b"bad"), BatchItem(b"b"), BatchItem(b"answer", reply=me.asked()), BatchItem(b"c"))
    me.come(6, BatchItem(b"d"))
    assert me.happened == ["message a"]
    with pytest.raises(ValueError, match="bad"):
        await asked
    assert me.acknowledged in ([], [1])


async def test_who_iterates_gets_all_messages_in_order_and_replies_where_they_are_awaited(me: Played) -> None:
    asked = asyncio.ensure_future(me.request("you", b"?"))
    await asyncio.sleep(0.01)
    me.come(1, BatchItem(b"a"), BatchItem(b"answer", reply=me.asked()), BatchItem(b"b"))
    me.come(4, BatchItem(b"c"))
    assert (await asked).body == b"answer"
    got = [await me.receive(1.0) for _ in range(3)]
    assert [(message.position, message.body) for message in got] == [(1, b"a"), (3, b"b"), (4, b"c")]
    me.done()
    await asyncio.sleep(0.01)
    assert me.acknowledged[-1] == 4


def view(version: int) -> tuple[NewView, bytes]:
    """Return the news of a view, and how it is written."""
    news = NewView(version, ("s1", "s2"), ("s2",))
    return news, write_messages([BatchItem(msgspec.msgpack.encode(news), coded=True)])


async def test_the_news_of_a_view_comes_in_its_turn_to_its_handler(me: Played) -> None:
    news, written = view(2)
    me.on_message(me.handle)
    me.on_view(lambda seen: me.happened.append(f"view {seen.version}"))
    me.come(1, BatchItem(b"a"))
    me.parts.deliveries.deliver(2, 0, FABRIC, None, written, everyone=False)
    me.come(3, BatchItem(b"b"))
    await asyncio.sleep(0.05)
    assert me.happened == ["message a", "view 2", "message b"]
    assert (me.view, me.acknowledged[-1]) == (news, 3)
    with pytest.raises(UsageError, match="there is a handler of views already"):
        me.on_view(lambda _: None)


async def test_news_that_came_before_there_was_a_handler_waits_in_its_turn(me: Played) -> None:
    me.come(1, BatchItem(b"a"))
    me.parts.deliveries.deliver(2, 0, FABRIC, None, view(2)[1], everyone=False)
    me.come(3, BatchItem(b"b"))
    me.parts.deliveries.deliver(4, 0, FABRIC, None, view(3)[1], everyone=False)
    me.on_view(lambda seen: me.happened.append(f"view {seen.version}"))
    me.on_message(me.handle)
    await asyncio.sleep(0.05)
    assert me.happened == ["message a", "view 2", "message b", "view 3"]
    assert me.acknowledged[-1] == 4


async def test_what_comes_while_a_handler_is_being_set_waits_behind_what_was_there(me: Played) -> None:
    me.come(1, BatchItem(b"a"), BatchItem(b"b"))
    me.on_message(me.handle)
    me.come(3, BatchItem(b"c"))
    me.parts.deliveries.deliver(4, 0, FABRIC, None, view(2)[1], everyone=False)
    me.come(5, BatchItem(b"bad"), BatchItem(b"d"))
    me.on_view(lambda seen: me.happened.append(f"view {seen.version}"))
    assert me.happened == []
    await asyncio.sleep(0.05)
    assert me.happened == ["message a", "message b", "message c", "view 2"]
    assert max(me.acknowledged) == 4  # And not what the program has not done.


async def test_what_waits_behind_the_news_is_not_done_before_it_is_handed_over(me: Played) -> None:
    me.come(1, BatchItem(b"a"))
    me.parts.deliveries.deliver(2, 0, FABRIC, None, view(2)[1], everyone=False)
    me.come(3, BatchItem(b"b"))

    def handle(messages: Sequence[Message]) -> None:
        me.parts.acks.flush()  # Which it may do at any moment.
        me.happened.append(f"{messages[0].body.decode()}, done {me.acknowledged}")

    me.on_batch(handle)
    await asyncio.sleep(0.05)
    assert me.happened == ["a, done []", "b, done [2]"]
    assert me.acknowledged == [2, 3]


async def test_whoever_iterates_or_receives_goes_past_the_news(me: Played) -> None:
    me.parts.deliveries.deliver(1, 0, FABRIC, None, view(2)[1], everyone=False)
    me.come(2, BatchItem(b"a"))
    before = me.view
    assert (before, (await me.receive()).body) == (None, b"a")
    assert me.view == view(2)[0]
    me.parts.deliveries.deliver(3, 0, FABRIC, None, view(3)[1], everyone=False)
    me.come(4, BatchItem(b"b"))
    async for message in me:
        assert message.body == b"b"
        break
    assert me.view == view(3)[0]


async def test_a_handler_of_views_that_fails_ends_the_endpoint_before_what_follows(me: Played) -> None:
    def fail(_: NewView) -> None:
        raise ValueError("bad")

    me.on_message(me.handle)
    me.on_view(fail)
    me.parts.deliveries.deliver(1, 0, FABRIC, None, view(2)[1], everyone=False)
    me.come(2, BatchItem(b"a"))
    await asyncio.sleep(0.05)
    assert (me.happened, me.acknowledged) == ([], [])
    with pytest.raises(ValueError, match="bad"):
        await me.send("you", b"?")


async def test_a_program_waits_for_a_message_to_be_safe_or_has_a_handler(me: Played) -> None:
    me.come(1, BatchItem(b"a"), BatchItem(b"b"))
    first, second = await me.receive(), await me.receive()
    told: list[int] = []
    waiting = asyncio.ensure_future(second.safe())
    handling = asyncio.ensure_future(me.on_safe(told.append))
    await asyncio.sleep(0)
    assert me.happened == ["asks what is safe"], "once"
    assert me.safe_upto == 0
    me.parts.safe_waits.on_safe(1, "")
    await handling
    await first.safe()
    assert not waiting.done()
    me.parts.safe_waits.on_safe(2, "")
    await waiting
    assert (told, me.safe_upto) == ([1, 2], 2)
    with pytest.raises(UsageError, match="there is a handler of what is safe already"):
        await me.on_safe(told.append)


async def test_where_nobody_finds_out_what_is_safe_all_who_wait_are_told_so(me: Played) -> None:
    me.come(1, BatchItem(b"a"))
    message = await me.receive()
    waiting = [asyncio.ensure_future(message.safe()), asyncio.ensure_future(me.on_safe(lambda _: None))]
    await asyncio.sleep(0)
    me.parts.safe_waits.on_safe(0, "nobody finds out")
    for one in waiting:
        with pytest.raises(UsageError, match="nobody finds out"):
            await one
    again = asyncio.ensure_future(me.on_safe(lambda _: None))  # The fabric may have changed: it asks again.
    await asyncio.sleep(0)
    assert me.happened == ["asks what is safe"] * 2
    me.parts.state.fail(ValueError("gone"))
    with pytest.raises(ValueError, match="gone"):
        await again


async def test_a_handler_of_what_is_safe_that_fails_ends_the_endpoint(me: Played) -> None:
    def handler(_: int) -> None:
        raise ValueError("bad")

    me.come(1, BatchItem(b"a"))
    registered = asyncio.ensure_future(me.on_safe(handler))
    await asyncio.sleep(0)
    me.parts.safe_waits.on_safe(0, "")
    await registered
    me.parts.safe_waits.on_safe(1, "")
    with pytest.raises(ValueError, match="bad"):
        me.post("you", b"more")


DEEP = b"\x91" * 100_000 + b"\xc0"


@pytest.mark.parametrize("body", [DEEP, b"\xc1", msgspec.msgpack.encode("text")], ids=["deep", "no msgpack", "no number"])
async def test_a_message_whose_value_cannot_be_read_does_not_stop_its_reader(me: Played, body: bytes) -> None:
    errors: list[MalformedFrame] = []
    values: list[int] = []
    me.unreadable = errors.append  # type: ignore[method-assign,assignment]
    me.on_message(lambda message: values.append(message.value(int)))
    await asyncio.sleep(0)
    good = BatchItem(msgspec.msgpack.encode(1), coded=True)
    me.come(1, good, BatchItem(body, coded=True), good)
    me.come(4, good)
    assert values == [1, 1, 1]
    assert [str(error).partition(":")[0] for error in errors] == ["a message from 'you' is no int"]
    assert (me.parts.acks.done, me.parts.state.failure) == (4, None)


@pytest.mark.parametrize("way", ["receive", "iterate", "handler"])
async def test_news_of_a_view_that_cannot_be_read_are_left_out(me: Played, way: str) -> None:
    errors: list[MalformedFrame] = []
    me.unreadable = errors.append  # type: ignore[method-assign,assignment]
    bodies: list[bytes] = []
    if way == "handler":
        me.on_message(lambda message: bodies.append(message.body))
        await asyncio.sleep(0)
    me.parts.deliveries.deliver(1, 0, FABRIC, None, write_messages([BatchItem(DEEP, coded=True)]), everyone=False)
    me.come(2, BatchItem(b"behind"))
    if way == "receive":
        bodies.append((await me.receive()).body)
    elif way == "iterate":
        async for message in me:
            bodies.append(message.body)
            break
    assert (bodies, len(errors), me.view) == ([b"behind"], 1, None)


HALF = "\udcff"
"""Half of a character, as names of files and what ``json`` reads may have them."""


@pytest.mark.parametrize(
    "say",
    [
        lambda me: me.post("you", HALF),
        lambda me: me.post(HALF, b"x"),
        lambda me: me.post(["you", HALF], b"x"),
        lambda me: me.post_topic(HALF, b"x"),
        lambda me: me.post("you", b"x", headers={"a": HALF}),
        lambda me: me.post("you", b"x", headers={HALF: "a"}),
    ],
)
async def test_halves_of_characters_are_refused_and_what_is_around_them_is_sent(
    me: Played, say: Callable[[Played], None]
) -> None:
    me.post("you", b"before")
    with pytest.raises(UsageError):
        say(me)
    me.post("you", b"behind")
    await me.flush()
    assert [item.body for publish in me.sent for item in read_messages(publish.messages, "me")] == [b"before", b"behind"]
