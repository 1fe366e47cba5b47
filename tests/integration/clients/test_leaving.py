"""What is done when a program leaves the block of its client: the message in hand, what it posted, what its server has noted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import thence
from tests.support.servers.running import flat, servers, started, until, url
from thence.client.parts.acks import Acks
from thence.core.topology.model import Topology
from thence.errors import Refusal, StoreFull, UsageError


async def sent(topology: Topology, count: int) -> None:
    """Let messages wait for ``reader``."""
    async with (
        thence.connect(url(topology, "s1"), "reader"),
        thence.connect(url(topology, "s1"), "writer") as writer,
    ):
        for number in range(count):
            writer.post("reader", b"%d" % number)


async def left(topology: Topology) -> list[bytes]:
    """Return what still waits for ``reader``, without being done with it: what it is told not to be left."""
    async with thence.connect(url(topology, "s1"), "probe") as probe, thence.connect(url(topology, "s1"), "reader") as reader:
        await probe.send("reader", b"last")
        found: list[bytes] = []
        async for message in reader:
            if message.body == b"last":
                return found
            found.append(message.body)
    raise AssertionError


async def test_a_program_that_breaks_out_of_its_loop_leaves_no_message_behind(tmp_path: Path) -> None:
    topology = flat("s1")
    server = await started(topology, "s1", tmp_path)
    await sent(topology, 5)
    async with thence.connect(url(topology, "s1"), "reader") as reader:
        async for message in reader:
            if message.body == b"2":
                break
    # At the very moment in which the block has ended, it is on disk: no orderly stop is needed for that.
    server.node.driver.commits.closed = True
    await server.stop(drain_s=0)
    server = await started(topology, "s1", tmp_path)
    try:
        assert await left(topology) == [b"3", b"4"]
    finally:
        await server.stop(drain_s=0)


async def test_who_leaves_waits_until_what_is_done_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = flat("s1")
    async with servers(topology, tmp_path) as running:
        await sent(topology, 1)

        def full(*_: object) -> None:
            raise StoreFull("no room")

        reader = await thence.connect(url(topology, "s1"), "reader").__aenter__()
        assert (await reader.receive()).body == b"0"
        mailbox = running["s1"].node.directory.state.mailboxes["reader"]
        with monkeypatch.context() as filled:
            filled.setattr(running["s1"].node.driver.store, "commit", full)
            reader.done()
            leaving = asyncio.create_task(reader.__aexit__(None, None, None))
            await until(lambda: running["s1"].node.acknowledgements.of("reader") == 1)
            await asyncio.sleep(0.05)
            assert not leaving.done()
            assert mailbox.acknowledged == 0
        await leaving
        assert mailbox.acknowledged == 1


async def test_who_leaves_while_the_server_restarts_is_told_by_the_next_one(tmp_path: Path) -> None:
    topology = flat("s1")
    server = await started(topology, "s1", tmp_path)
    await sent(topology, 2)
    reader = await thence.connect(url(topology, "s1"), "reader").__aenter__()
    await reader.receive()
    await server.stop(drain_s=0)
    reader.done()
    leaving = asyncio.create_task(reader.__aexit__(None, None, None))
    await asyncio.sleep(0.1)
    assert not leaving.done()
    server = await started(topology, "s1", tmp_path)
    try:
        await leaving
        assert await left(topology) == [b"1"]
    finally:
        await server.stop(drain_s=0)


async def test_a_server_that_does_not_say_what_it_has_noted_is_left_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = flat("s1")
    async with servers(topology):
        await sent(topology, 2)
        monkeypatch.setattr(Acks, "on_durable", lambda *_: pytest.fail("it does not"))
        async with thence.connect(url(topology, "s1"), "reader") as reader:
            reader._link._answers = False  # As one of version 0.1 says.
            await reader.receive()
        monkeypatch.undo()
        assert await left(topology) == [b"1"]


async def test_an_async_handler_at_work_when_its_program_leaves(tmp_path: Path) -> None:
    topology = flat("s1")
    async with servers(topology, tmp_path):
        await sent(topology, 4)
        handled: list[bytes] = []
        gate = asyncio.Event()

        async def handle(message: thence.Message) -> None:
            if message.body == b"1":
                await gate.wait()
            answer = await reader.request("reader2", message.body)  # Its replies come in while it awaits.
            handled.append(answer.body)

        async with thence.connect(url(topology, "s1"), "reader2") as other:
            other.on_message(lambda message: message.reply(b"re: " + message.body))
            async with thence.connect(url(topology, "s1"), "reader") as reader:
                await reader.known("reader2")
                reader.on_message(handle)
                await until(lambda: handled)
                asyncio.get_running_loop().call_later(0.05, gate.set)
            assert handled == [b"re: 0", b"re: 1"]
        assert await left(topology) == [b"2", b"3"]


CALLS: dict[str, Callable[[Any], Any]] = {
    "send": lambda one: one.send("ann", b"?"),
    "publish": lambda one: one.publish("news", b"?"),
    "request": lambda one: one.request("ann", b"?"),
    "flush": lambda one: one.flush(),
    "receive": lambda one: one.receive(),
    "iterate": lambda one: anext(aiter(one)),
    "subscribe": lambda one: one.subscribe("news"),
    "unsubscribe": lambda one: one.unsubscribe("news"),
    "known": lambda one: one.known("bob"),
    "stable": lambda one: one.stable(),
}


@pytest.mark.parametrize("kind", ["client", "member", "script"])
async def test_outside_of_its_block_nothing_hangs(kind: str) -> None:
    topology = flat("s1")
    ran = 0

    async def refuses(one: thence.Client | thence.Member, why: str) -> None:
        nonlocal ran
        for name, call in CALLS.items():
            if name == "iterate" and why == "is closed":
                continue  # It ends.
            async with asyncio.timeout(5.0):
                with pytest.raises(UsageError, match=why):
                    await call(one)
            ran += 1

    if kind == "script":
        script = thence.connect_blocking(url(topology, "s1"), "ann")
        for name, call in CALLS.items():
            if name not in ("flush", "iterate"):
                with pytest.raises(UsageError, match="use the client in a 'with' block"):
                    call(script)
        script._loop.close()
    elif kind == "member":
        member = thence.Member(topology, name="s1")
        await refuses(member, "'s1' is not connected: use it in an 'async with' block")
        async with member:
            await member.send("s1", b"to myself")
        await refuses(member, "is closed")
    else:
        async with servers(topology):
            client = thence.connect(url(topology, "s1"), "ann")
            await refuses(client, "'ann' is not connected: use it in an 'async with' block")
            async with client:
                await client.send("ann", b"to myself")
            await refuses(client, "is closed")
    assert kind == "script" or ran == 2 * len(CALLS) - 1


async def test_a_dead_server_does_not_keep_a_program_for_ever() -> None:
    topology = flat("s1")
    server = await started(topology, "s1")
    ann = await thence.connect(url(topology, "s1"), "ann", close_timeout=0.2).__aenter__()
    await server.stop(drain_s=0)
    ann.post("ann", b"?")
    why = r"'ann' was left, and nothing happened for 0.2 s \(close_timeout\): 1 message was not accepted"
    with pytest.raises(TimeoutError, match=why):
        await ann.__aexit__(None, None, None)


async def test_a_dead_server_does_not_keep_who_gives_up_its_name_and_the_client_goes_on(tmp_path: Path) -> None:
    topology = flat("s1")
    server = await started(topology, "s1", tmp_path)
    async with thence.connect(url(topology, "s1"), "ann", close_timeout=0.2) as ann:
        await server.stop(drain_s=0)
        why = r"the name 'ann' is given up: \S+ said nothing for 0.2 s \(close_timeout; .+\).+thence client remove \S+ ann$"
        for posted in ("", ", 1 message not accepted", ", 2 messages not accepted"):
            if posted:
                ann.post("ann", b"?")
            async with asyncio.timeout(30):
                with pytest.raises(TimeoutError, match=why) as caught:
                    await ann.leave()
            assert f"{posted}). Leave again" in str(caught.value)
        server = await started(topology, "s1", tmp_path)
        try:
            assert [(await ann.receive(30)).body for _ in range(2)] == [b"?", b"?"]
            await ann.leave()
            assert "ann" not in server.node.directory.state.mailboxes
        finally:
            await server.stop(drain_s=0)


async def test_a_server_that_accepts_slowly_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = flat("s1")
    async with servers(topology), thence.connect(url(topology, "s1"), "ann", close_timeout=0.5) as ann:
        accepted = ann._outbox.on_accepted
        pace = iter(range(1, 100))

        def slowly(upto: int) -> None:
            """Hear of one message each 0.2 s: all of them take longer than who leaves waits for one."""
            number = next(pace)
            accepted(min(upto, number))
            if number < upto:
                asyncio.get_running_loop().call_later(0.2, slowly, upto)

        monkeypatch.setattr(ann._outbox, "on_accepted", slowly)
        for _ in range(5):
            ann.post("ann", b"?")
    assert ann._outbox.accepted == 5


async def test_scripts_leave_nothing_behind_either(tmp_path: Path) -> None:
    def use(address: str) -> None:
        with thence.connect_blocking(address, "reader") as script:
            assert script.receive(within=30).body == b"0"
        with thence.connect_blocking(address, "reader") as script:
            for message in script:
                if message.body == b"2":
                    break
        other = threading.Event()

        def work() -> None:
            assert script.receive(within=30).body == b"3"
            other.set()
            leaving.wait(30)

        leaving = threading.Event()
        with thence.connect_blocking(address, "reader") as script:
            worker = threading.Thread(target=work)
            worker.start()
            assert other.wait(30)
        leaving.set()  # The other thread has not done with it.
        worker.join()

    topology = flat("s1")
    async with servers(topology, tmp_path):
        await sent(topology, 5)
        await asyncio.to_thread(use, url(topology, "s1"))
        assert await left(topology) == [b"3", b"4"]


async def test_a_member_in_a_program_leaves_nothing_behind_either(tmp_path: Path) -> None:
    topology = flat("A", "B")
    handled: list[bytes] = []

    async def handle(message: thence.Message) -> None:
        await asyncio.sleep(0.02)
        handled.append(message.body)

    async with thence.Member(topology, name="A", data=tmp_path / "A") as a:
        async with thence.Member(topology, name="B", data=tmp_path / "B") as b:
            for number in range(3):
                await a.send("B", b"%d" % number)
            assert (await b.receive()).body == b"0"
        async with thence.Member(topology, name="B", data=tmp_path / "B") as b:
            b.on_message(handle)
            await until(lambda: handled)
        count = len(handled)
        assert handled == [b"1", b"2"][:count]
        async with thence.Member(topology, name="B", data=tmp_path / "B") as b:
            await a.send("B", b"last")
            assert (await b.receive()).body == ([b"1", b"2", b"last"][count:][0])


async def test_who_has_lost_its_name_and_waits_for_nothing_is_told_when_it_leaves() -> None:
    topology = flat("s1")
    said: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
    async with servers(topology):
        ann = await thence.connect(url(topology, "s1"), "ann").__aenter__()
        async with thence.connect(url(topology, "s1"), "ann"):
            await until(lambda: said)
            assert said == ["thence: 'ann' has ended, and nobody waits for anything"]
            for call in (ann.flush, ann.status, ann.receive, ann.stable):
                with pytest.raises(Refusal, match="another program has the name 'ann' since"):
                    await call()
            ann._parts.state.failure_seen = False
            with pytest.raises(Refusal, match="another program has the name 'ann' since"):
                await ann.__aexit__(None, None, None)
