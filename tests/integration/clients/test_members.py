"""Members inside programs, peer to peer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import thence
from tests.support.servers.running import PATIENCE_S, addressed, assert_kept, flat, run, until
from thence.client.client import ask_status
from thence.client.parts import outbox
from thence.core.member.codec import MAX_PACKET_BYTES
from thence.core.member.limits import MemberOptions
from thence.errors import Busy, Refusal, UsageError
from thence.storage import mailbox as mailbox_module

ORDERINGS = ("vector", "matrix", "sequenced", "clocked", "flood")


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("durable", [False, True], ids=["memory", "disk"])
async def test_a_group_keeps_order(ordering: str, durable: bool, tmp_path: Path) -> None:
    names, count = ("a", "b", "c"), 200

    async def send(member: thence.Member) -> None:
        for number in range(count):
            member.post(thence.EVERYONE, b"%d" % number)
            if number % 7 == 0:
                await asyncio.sleep(0)
        await member.flush()

    topology = flat(*names, ordering=ordering)
    got: dict[str, list[tuple[str, bytes]]] = {name: [] for name in names}

    def note(name: str) -> Callable[[thence.Message], None]:
        return lambda message: got[name].append((message.sender, message.body))

    async with AsyncExitStack() as stack:
        members = [
            thence.Member(topology, name=name, data=tmp_path / name if durable else None, trace=tmp_path / "trace")
            for name in names
        ]
        for member in members:
            await stack.enter_async_context(member)
            member.on_message(note(member.name))
        await asyncio.gather(*map(send, members))
        await until(lambda: all(len(messages) == len(names) * count for messages in got.values()))
    for name in names:
        for sender in names:
            assert [body for who, body in got[name] if who == sender] == [b"%d" % number for number in range(count)]
    if ordering in ("sequenced", "clocked"):
        assert got["a"] == got["b"] == got["c"]
    assert_kept(tmp_path / "trace", sends=3)


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("scheme", ["decentralised", "distributed"])
async def test_what_waits_for_a_member_may_be_more_than_a_packet_takes(scheme: str, durable: bool, tmp_path: Path) -> None:
    text = (
        f'name = "large"\n[domains.D]\nmembers = ["a", "b", "c"]\nordering = "vector"\nconfirmation = {{ scheme = "{scheme}" }}\n'
    )
    count, size = 30, 4_000_000
    assert count * size > MAX_PACKET_BYTES
    topology = addressed(text)
    async with AsyncExitStack() as stack:
        a, b, c = [thence.Member(topology, name=name, data=tmp_path / name if durable else None) for name in "abc"]
        await stack.enter_async_context(a)
        for number in range(count):
            await a.send(["b", "c"], bytes([number]) * size)
        for member in (b, c):  # They get all of it at once.
            await stack.enter_async_context(member)
        for number in range(count):
            for member in (b, c):
                body = (await member.receive(60.0)).body
                assert (body[0], len(body)) == (number, size)


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "disk"])
async def test_a_member_that_does_not_listen_holds_no_more_than_its_limits(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, mailbox_messages, held_limit = 300, 20, 30
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", mailbox_messages)
    topology = flat("a", "b")
    a, b = (thence.Member(topology, name=name, data=tmp_path / name if durable else None) for name in "ab")
    b._options = b._options._replace(member=MemberOptions(max_unconsumed=held_limit))
    async with a, b:
        await a.connected()
        for number in range(count):
            a.post("b", b"%d" % number)
            await asyncio.sleep(0.001)  # Each in a packet of its own, more or less.
        assert b._link.node is not None
        assert "b" in b._link.node.directory.mailboxes.closed
        assert mailbox_messages <= b._link.node.directory.state.mailboxes["b"].position < 2 * (mailbox_messages + held_limit)
        got: list[bytes] = []
        b.on_message(lambda message: got.append(message.body))
        await until(lambda: len(got) == count)
    assert got == [b"%d" % number for number in range(count)]


async def test_a_member_goes_on_where_it_stopped(tmp_path: Path) -> None:
    topology = flat("a", "b")
    for life in range(3):
        async with (
            thence.Member(topology, name="a", data=tmp_path / "a") as a,
            thence.Member(topology, name="b", data=tmp_path / "b") as b,
        ):
            if life:
                assert (await b.receive()).body == b"left over %d" % (life - 1)
            await a.send("b", b"now")
            assert (await b.receive()).body == b"now"
            b.done()
            await a.send("b", b"left over %d" % life)


async def test_requests_topics_and_typed_bodies_need_no_server() -> None:
    topology = flat("a", "b")
    async with thence.Member(topology, name="a") as a, thence.Member(topology, name="b") as b:
        heard: list[int] = []

        def answer(message: thence.Message) -> None:
            if message.wants_reply:
                message.reply(message.value(int) + 1)
            else:
                heard.append(message.value(int))

        b.on_message(answer)
        assert (await a.request("b", 41)).value(int) == 42
        await a.subscribe("news")
        await a.send("b", 0)  # Behind the notice of the subscription, so b knows of it now.
        await until(lambda: heard)
        await b.publish("news", {"headline": "none"})
        message = await a.receive()
        assert (message.sender, message.topic, message.value()) == ("b", "news", {"headline": "none"})


async def test_too_much_on_its_way_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_UNACCEPTED", 10)
    topology = flat("a", "b")
    async with thence.Member(topology, name="a") as a:
        for _ in range(10):
            a.post("b", b"x")
        with pytest.raises(Busy, match="10 messages"):
            a.post("b", b"x")
        await a.room()
        a.post("b", b"x")


async def test_a_member_says_that_it_is_no_server() -> None:
    topology = flat("a", "b")
    async with thence.Member(topology, name="a"):
        url = f"thence://{topology.addresses['a']}"
        with pytest.raises(UsageError, match="'a' is a member inside a program"):
            await ask_status(url)
        with pytest.raises(Refusal, match="takes no clients"):
            async with thence.connect(url, name="ann"):
                raise AssertionError("it was let in")


def test_a_member_that_leaves_in_order_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    """Python prints warnings of programs that have set up no log: two members of one program would warn of each other's end."""

    async def main() -> None:
        topology = flat("left", "right")
        async with thence.Member(topology, name="left") as left:
            async with thence.Member(topology, name="right") as right:
                await left.send("right", b"hello")
                assert (await right.receive(PATIENCE_S)).body == b"hello"
            (peer,) = left._link.running[0].peers.peers.values()
            await until(lambda: peer.connection is None)
            assert peer.trouble == "connection lost: closed by the other side"

    with caplog.at_level("INFO", "thence"):
        run(main)
    said = {record.getMessage(): record.levelname for record in caplog.records}
    assert said["right: connection lost: closed by the other side"] == "INFO"


async def test_a_member_must_be_started() -> None:
    member = thence.Member(flat("a", "b"), name="a")
    with pytest.raises(UsageError, match="async with"):
        await member.connected()
