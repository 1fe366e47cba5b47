"""Clients of running servers: what they may rely on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

import thence
from tests.support.servers.running import addressed, assert_kept, flat, servers, started, until, url
from tests.unit.cli import refusal
from thence.cli.messages.listen import give_up_name
from thence.client.client import Client
from thence.errors import Refusal, UsageError
from thence.node.directory import directory, subscriptions
from thence.server import reception

TWO_DOMAINS = """
name = "two"
[domains.A]
members = ["s1", "s2"]
ordering = "matrix"
[domains.B]
members = ["s2", "s3"]
ordering = "vector"
"""


class Order(msgspec.Struct):
    item: str
    count: int


async def test_one_many_and_everyone() -> None:
    topology = addressed(TWO_DOMAINS)
    async with (
        servers(topology),
        thence.connect(url(topology, "s1"), "ann") as ann,
        thence.connect(url(topology, "s2"), "bob") as bob,
        thence.connect(url(topology, "s3"), "cleo") as cleo,
    ):
        # What bob and cleo send comes behind the notice of their coming, so ann then knows them.
        await bob.send("ann", b"here")
        await cleo.send("ann", b"here too")
        assert {(await ann.receive()).sender, (await ann.receive()).sender} == {"bob", "cleo"}
        await ann.send("bob", b"one")
        await ann.send(["bob", "cleo"], b"both")
        await ann.send(thence.EVERYONE, b"all")
        assert [(await bob.receive()).body for _ in range(3)] == [b"one", b"both", b"all"]
        assert [(await cleo.receive()).body for _ in range(2)] == [b"both", b"all"]
        assert (await ann.receive()).body == b"all"
        with pytest.raises(UsageError, match="nobody is called 'nobody'"):
            await ann.send("nobody", b"?")
        await ann.send("bob", b"still here")
        assert (await bob.receive()).body == b"still here"


async def test_topics_headers_and_typed_bodies() -> None:
    topology = addressed(TWO_DOMAINS)
    async with (
        servers(topology) as running,
        thence.connect(url(topology, "s1"), "ann") as ann,
        thence.connect(url(topology, "s3"), "cleo") as cleo,
    ):
        await cleo.subscribe("room.42")
        await cleo.send("ann", b"follow me")
        await ann.receive()
        await ann.publish("room.42", Order("tea", 3), headers={"priority": "low"})
        await ann.publish("room.43", b"for nobody")
        message = await cleo.receive()
        assert (message.topic, message.sender, message.headers) == ("room.42", "ann", {"priority": "low"})
        assert message.value(Order) == Order("tea", 3)
        with pytest.raises(thence.MalformedFrame, match="is no"):
            message.value(int)
        await ann.send("cleo", bytes(16))
        raw = await cleo.receive()
        assert [raw.value(), raw.value(bytes), raw.value(bytes | None), raw.value(bytearray)] == [bytes(16)] * 4
        for wrong in (int, str, Order, list[int], UUID, int | None):
            with pytest.raises(thence.MalformedFrame, match="it was sent as bytes, which are its body"):
                raw.value(wrong)
        await cleo.unsubscribe("room.42")
        await until(lambda: not running["s1"].node.directory.state.followers)
        await ann.publish("room.42", b"too late")
        await ann.send("cleo", b"last")
        assert (await cleo.receive()).body == b"last"


async def test_request_and_reply() -> None:
    topology = flat("s1", "s2")
    async with (
        servers(topology),
        thence.connect(url(topology, "s1"), "asker") as asker,
        thence.connect(url(topology, "s2"), "adder") as adder,
    ):
        adder.on_message(lambda message: message.reply(sum(message.value(list[int]))))
        await adder.send("asker", b"ready")
        await asker.receive()
        answers = await asyncio.gather(*(asker.request("adder", [number, 1]) for number in range(20)))
        assert [answer.value(int) for answer in answers] == list(range(1, 21))
        with pytest.raises(TimeoutError, match="no reply from 'asker'"):
            await asker.request("asker", b"?", within=0.05)


async def test_nobody_else_can_reply() -> None:
    topology = flat("s1", "s2")
    warned: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: warned.append(context["message"]))
    async with (
        servers(topology),
        thence.connect(url(topology, "s1"), "asker") as asker,
        thence.connect(url(topology, "s2"), "asked") as asked,
        thence.connect(url(topology, "s2"), "mallory") as mallory,
    ):
        await asker.subscribe("news")
        for other in (asked, mallory):
            await other.known("asker")
            await other.send("asker", b"ready")
        assert {(await asker.receive()).sender for _ in range(2)} == {"asked", "mallory"}
        asking = asyncio.create_task(asker.request("asked", b"?"))
        request = await asked.receive()
        # Even who learns the id of the request, as a relay would, cannot reply; and guesses reach nobody.
        for reply in (request.item.request, *range(1, 50)):
            mallory._outbox.add(("asker",), None, b"forged", None, reply=reply)
        for client, to, topic in ((mallory, None, "news"), (asked, None, "news"), (asked, None, None)):
            client._outbox.add(to, topic, b"forged", None, reply=request.item.request)
        await mallory.flush()
        await mallory.send("asker", b"behind it")
        assert (await asker.receive()).body == b"behind it"
        request.reply(b"true")
        assert (await asking).body == b"true"
        assert asker.stray_replies == 53
        assert len(warned) == 4
        assert any("from 'mallory', sent directly, to a request to 'asked'" in text for text in warned)


async def test_sending_while_iterating() -> None:
    topology = flat("s1", "s2")
    async with (
        servers(topology),
        thence.connect(url(topology, "s1"), "left") as left,
        thence.connect(url(topology, "s2"), "right") as right,
    ):
        await right.send("left", b"0")

        async def play(client: thence.Client, other: str) -> int:
            async for message in client:
                number = int(message.body)
                if number >= 50:
                    if number == 50:
                        await client.send(other, b"51")
                    return number
                await client.send(other, b"%d" % (number + 1))
            return -1

        assert sorted(await asyncio.gather(play(left, "right"), play(right, "left"))) == [50, 51]


async def test_a_client_misses_nothing_over_restarts_of_its_server(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    data, trace = tmp_path / "data", tmp_path / "trace"
    async with (
        servers(topology, data, trace) as running,
        thence.connect(url(topology, "s1"), "writer") as writer,
        thence.connect(url(topology, "s2"), "reader") as reader,
    ):
        await reader.send("writer", b"ready")
        await writer.receive()
        got: list[bytes] = []
        reader.on_message(lambda message: got.append(message.body))
        for number in range(300):
            if number % 100 == 50:
                for name in ("s1", "s2"):
                    await running[name].stop(drain_s=0)
                    running[name] = await started(topology, name, data, trace)
            await writer.room()
            writer.post("reader", b"%d" % number)
        await writer.flush()
        await until(lambda: len(got) == 300)
        assert got == [b"%d" % number for number in range(300)]
    assert_kept(trace)


async def test_what_was_not_done_comes_again_to_the_next_program(tmp_path: Path) -> None:
    topology = flat("s1")
    async with servers(topology, tmp_path):
        address = url(topology, "s1")
        async with thence.connect(address, "reader"), thence.connect(address, "writer") as writer:
            for number in range(5):
                await writer.send("reader", b"%d" % number)

        async def fails() -> None:
            async with thence.connect(address, "reader") as reader:
                assert [(await reader.receive()).body for _ in range(3)] == [b"0", b"1", b"2"]
                raise ValueError("the program fails at the third")  # So it is not done.

        with pytest.raises(ValueError, match="the program fails"):
            await fails()
        async with thence.connect(address, "reader") as reader:
            assert [(await reader.receive()).body for _ in range(3)] == [b"2", b"3", b"4"]
            reader.done()
        async with thence.connect(address, "reader") as reader:
            with pytest.raises(TimeoutError):
                await reader.receive(within=0.1)


async def test_a_name_has_one_server_and_one_connection() -> None:
    topology = flat("s1", "s2")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        await until(lambda: running["s2"].node.directory.home("ann") == "s1")
        with pytest.raises(Refusal, match="'ann' is a client of 's1'; connect there"):
            async with thence.connect(url(topology, "s2"), "ann"):
                pass
        with pytest.raises(Refusal, match="'s2' is the name of a server"):
            async with thence.connect(url(topology, "s1"), "s2"):
                pass
        async with thence.connect(url(topology, "s1"), "ann") as newer:
            await newer.send("ann", b"to myself")
            assert (await newer.receive()).body == b"to myself"
            with pytest.raises(Refusal, match="another program has the name 'ann' since"):
                await ann.send("ann", b"?")


NOT_NAMES = {
    "": "it is empty",
    "everyone": "the word stands for all clients",
    "#news": "what begins with # is a topic",
    "ann,bob": "a comma stands between several names",
    " ann": "it begins or ends with a space",
    "ann\n": "it begins or ends with a space",
    "a\nb": "it has characters that cannot be written",
    "a\x1b[2Jb": "it has characters that cannot be written",
    "a\u2028b": "it has characters that cannot be written",
    "a\u200bb": "it has characters that show nothing, which make it look like another one",
    "ann\U000e0061": "it has characters that show nothing",
    "ann\ufe00": "it has characters that show nothing",
    "ann\u200d": "it has characters that show nothing",
    "ann\ufe0f": "it has characters that show nothing",
    "\u2764\ufe0f\ufe0f": "it has characters that show nothing",
    "Zoe\u0308": "it looks like 'Zoë', which is written in other characters",
    "\u3164": "it has characters that show nothing, which make it look like another one",
    "a\u202eb": "it has marks of direction, which make it look like another one",
    "n" * 201: "a name of 201 characters; MAX_NAME_CHARACTERS is 200",
}


async def test_nobody_is_called_what_nobody_could_write_to() -> None:
    topology = flat("s1")
    async with servers(topology) as running:
        for name, why in NOT_NAMES.items():
            with pytest.raises(UsageError, match=why):
                thence.connect(url(topology, "s1"), name)
            if not name:
                continue  # It is that of those who only ask questions.
            with pytest.raises(Refusal, match=why):  # Somebody else's client may not look.
                async with Client(url(topology, "s1"), name) if len(name) < 200 else careless(url(topology, "s1"), name):
                    pass
        for name in (
            "ann smith",
            "ann.smith@example",
            "Zoë",
            "张伟",
            "x~y",
            "everyone else",
            "no#1",
            "👩\u200d💻",
            "\u2764\ufe0f",
            "क\u200dष",
        ):
            async with thence.connect(url(topology, "s1"), name) as client:
                await client.send(name, b"to myself")
                assert (await client.receive()).body == b"to myself"
        assert not NOT_NAMES.keys() & running["s1"].node.directory.state.mailboxes.keys()


@pytest.mark.parametrize("durable", [True, False])
async def test_clients_and_subscriptions_are_bounded(durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_CLIENTS", 2)
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS_EACH", 2)
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 3)
    topology = flat("s1", "s2")
    async with servers(topology, tmp_path if durable else None), thence.connect(url(topology, "s1"), "ann") as ann:
        async with thence.connect(url(topology, "s1"), "bob") as bob:
            asking = [ann.subscribe(topic) for topic in ("news", "sport", "art")]
            answers = await asyncio.gather(*asking, return_exceptions=True)
            assert answers[:2] == [None, None]
            assert isinstance(answers[2], UsageError)
            assert "'ann' follows 2 topics; MAX_SUBSCRIPTIONS_EACH is 2" in str(answers[2])
            await bob.subscribe("art")
            with pytest.raises(UsageError, match="MAX_SUBSCRIPTIONS is 3: follow it as a client of another server"):
                await bob.subscribe("news")
            await ann.unsubscribe("news")
            await bob.subscribe("news")
            with pytest.raises(Refusal, match="'s1' has 2 clients; MAX_CLIENTS is 2: connect to another server"):
                async with thence.connect(url(topology, "s1"), "cleo"):
                    pass
        async with thence.connect(url(topology, "s1"), "bob") as bob, thence.connect(url(topology, "s2"), "cleo"):
            await bob.subscribe("news")
            await bob.publish("news", b"still followed")
            assert (await bob.receive()).body == b"still followed"


async def test_who_has_no_name_can_only_ask_questions(caplog: pytest.LogCaptureFixture) -> None:
    topology = flat("s1")
    async with servers(topology) as running:
        acts: list[Callable[[Client], Awaitable[None]]] = [
            lambda client: client.send("ann", b"?"),
            lambda client: client.subscribe("news"),
            lambda client: client.known("ann"),
        ]
        for act in acts:
            async with Client(url(topology, "s1"), "", temporary=False) as nobody:
                assert (await nobody.status())["server"] == "s1"
                with pytest.raises(Refusal, match="from a client without a name, which can only ask questions"):
                    await act(nobody)
                assert "connect with a name" in caplog.text
        assert not running["s1"].node.directory.state.mailboxes


def careless(where: str, name: str) -> Client:
    """Return a client that does not look at how long its name is."""
    client = Client(where, "ann")
    client._parts.state.name = name
    return client


async def test_who_has_its_mailbox_already_keeps_its_name_and_can_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = flat("s1")
    async with servers(topology) as running:
        mailboxes = running["s1"].node.directory.state.mailboxes
        with monkeypatch.context() as before:
            before.setattr(reception, "objection_to_new", lambda *_: "")
            async with Client(url(topology, "s1"), "everyone") as everyone:
                await everyone.send("everyone", b"to myself")
        async with Client(url(topology, "s1"), "everyone") as everyone:
            assert (await everyone.receive()).body == b"to myself"
        await give_up_name(lambda: Client(url(topology, "s1"), "everyone"))
        await until(lambda: "everyone" not in mailboxes)


def test_commands_take_no_name_that_is_none() -> None:
    nobody = "thence://127.0.0.1:1"
    for command in (("send", nobody, "bob", "hello"), ("listen", nobody), ("chat", nobody)):
        assert refusal(*command, "--name", "") == "'' cannot be a name: it is empty"
        assert refusal(*command, "--name", "a,b") == "'a,b' cannot be a name: a comma stands between several names"
    assert refusal("listen", nobody, "--name", "", "--forget") == "--forget needs --name"
    assert refusal("send", nobody, "b\udcff", "hello") == r"'b\udcff' is no text, so it names nobody"


async def test_a_temporary_client_leaves_nothing_behind() -> None:
    topology = flat("s1", "s2")
    async with servers(topology) as running:
        async with thence.connect(url(topology, "s1")) as guest:
            await guest.subscribe("news")
            name = guest.name
            await until(lambda: running["s2"].node.directory.home(name) == "s1")
        await until(lambda: running["s2"].node.directory.home(name) is None)
        assert all(name not in server.node.directory.state.mailboxes for server in running.values())
        assert not any(server.node.directory.state.followers for server in running.values())


async def test_messages_for_a_server_itself_are_not_dropped_silently(caplog: pytest.LogCaptureFixture) -> None:
    topology = flat("s1", "s2")
    async with servers(topology), thence.connect(url(topology, "s1"), "ann") as ann:
        with pytest.raises(UsageError, match="'s1' is a server in which no program runs"):
            await ann.send("s1", b"is anybody in there?")
        await ann.send("s2", b"or there?")
        await until(lambda: "1 messages of ann are left out: they are for s2" in caplog.text)


async def test_what_is_no_recipient_topic_or_name_is_said_to_be_none() -> None:
    topology = flat("s1")
    nobody: Any
    async with servers(topology), thence.connect(url(topology, "s1"), "ann") as ann:
        for nobody in (None, 5, b"ann", [5], [["ann"]], ()):
            with pytest.raises(UsageError, match=r"names nobody; give a name, several names, or thence\.EVERYONE"):
                await ann.send(nobody, b"?")
            with pytest.raises(UsageError, match="names nobody"):
                ann.post(nobody, b"?")
            with pytest.raises(UsageError, match="is no name; a request goes to one who replies"):
                await ann.request(nobody, b"?")
            with pytest.raises(UsageError, match="is no topic; it must be text of 1 to 200 characters"):
                await ann.publish(nobody, b"?")
            with pytest.raises(UsageError, match="is no topic"):
                await ann.subscribe(nobody)
        with pytest.raises(UsageError, match="a name of 70000 characters; MAX_NAME_CHARACTERS is 200"):
            await ann.known("n" * 70_000)
        await ann.send("ann", b"still here")
        assert (await ann.receive()).body == b"still here"
        with pytest.raises(UsageError, match="a name of 70000 characters; MAX_NAME_CHARACTERS is 200"):
            thence.connect(url(topology, "s1"), "n" * 70_000)
        nobody = 5
        with pytest.raises(UsageError, match="5 is no name; it must be text"):
            thence.connect(url(topology, "s1"), nobody)


async def test_no_server_is_a_clear_error() -> None:
    topology = flat("s1")
    with pytest.raises(TimeoutError, match=r"no connection to thence://.* within 0.2 s"):
        async with thence.connect(url(topology, "s1"), "ann", connect_timeout=0.2):
            pass
