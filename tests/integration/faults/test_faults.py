"""What running servers and clients do when something goes wrong, one fault each; test_crashes.py has all of them together."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest

import thence
from tests.support.servers.running import addressed, flat, servers, started, until, url
from thence.client import admin as admin_module
from thence.client import connector as connector_module
from thence.client.client import ask_status
from thence.core.member.limits import MemberOptions
from thence.core.topology.model import Topology
from thence.errors import Refusal, StoreFull, UsageError
from thence.net.framing import HEADER
from thence.net.proxy import Mode, Proxy
from thence.node import listener as node_listener
from thence.node.peers import connections
from thence.server import clients, reception
from thence.server.server import Server
from thence.storage import mailbox as mailbox_module


async def proxied(topology: Topology, server: str) -> Proxy:
    """Return a proxy in front of a server."""
    proxy = Proxy(topology.addresses[server], Random(1))
    await proxy.start()
    return proxy


# --- clients ---------------------------------------------------------------------------------------------------------


async def test_a_client_waits_while_its_server_is_busy() -> None:
    topology = flat("s1")
    async with servers(topology) as running:
        running["s1"].node.driver.commits.stalled = "a full disk"

        async def join() -> None:
            async with thence.connect(url(topology, "s1"), "ann") as ann:
                await ann.send("ann", b"in")

        joining = asyncio.create_task(join())
        await asyncio.sleep(0.3)
        assert not joining.done()
        running["s1"].node.driver.commits.stalled = ""
        await joining


async def test_a_temporary_client_that_was_forgotten_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "AWAY_S", 0.1)
    topology = flat("s1")
    async with servers(topology) as running:
        proxy = await proxied(topology, "s1")
        async with thence.connect(f"thence://{proxy.address}", "guest", temporary=True) as guest:
            await guest.send("guest", b"to myself")
            await guest.receive()
            guest.done()
            proxy.set_mode(Mode.CUT)
            await until(lambda: "guest" not in running["s1"].node.directory.state.mailboxes)
            proxy.set_mode(Mode.WELL)
            with pytest.raises(Refusal, match="was away for too long and was forgotten"):
                await guest.send("guest", b"?")
        await proxy.close()


async def test_what_a_failing_handler_did_not_do_comes_again() -> None:
    topology = flat("s1")
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    done: list[bytes] = []

    def handle(message: thence.Message) -> None:
        if message.body == b"3":
            raise ValueError("three")
        done.append(message.body)

    async with servers(topology), thence.connect(url(topology, "s1"), "writer") as writer:
        async with thence.connect(url(topology, "s1"), "reader") as reader:
            reader.on_message(handle)
            for number in range(6):  # In one batch.
                writer.post("reader", b"%d" % number)
            await until(lambda: reported)
            with pytest.raises(ValueError, match="three"):
                await reader.send("writer", b"?")
        assert done == [b"0", b"1", b"2"]
        async with thence.connect(url(topology, "s1"), "reader") as again:
            assert [(await again.receive()).body for _ in range(3)] == [b"3", b"4", b"5"]


async def test_a_failing_handler_does_not_stop_the_member_it_runs_in() -> None:
    topology = flat("A", "B")
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def fail(message: thence.Message) -> None:
        raise ValueError(message.body)

    async with thence.Member(topology, name="B") as b:
        a = await thence.Member(topology, name="A").__aenter__()
        await asyncio.gather(a.connected(), b.connected())
        a.on_message(fail)
        await b.send("A", b"bad")
        await until(lambda: reported)
        await b.send("A", b"accepted all the same")
        assert a._link.node is not None
        assert not a._link.node.driver.commits.closed
        with pytest.raises(ValueError, match="bad"):  # Nobody was told before: it comes when the block is left.
            await a.__aexit__(None, None, None)


async def test_a_question_whose_answer_never_comes_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = flat("s1")
    async with servers(topology):
        proxy = await proxied(topology, "s1")
        async with thence.connect(f"thence://{proxy.address}", "ann") as ann:
            proxy.delay_s = 0.5
            proxy.set_mode(Mode.SLOW)
            monkeypatch.setattr(admin_module, "QUESTION_TIMEOUT_S", 0.1)
            with pytest.raises(TimeoutError):
                await ann.status()
            monkeypatch.setattr(admin_module, "QUESTION_TIMEOUT_S", 30.0)
            assert (await ann.status())["server"] == "s1"
            question = asyncio.create_task(ann.status())
            await asyncio.sleep(0.1)
            proxy.set_mode(Mode.CUT)
            with pytest.raises(ConnectionError, match="was lost"):
                await question
            proxy.set_mode(Mode.WELL)
            await ann.send("ann", b"still here")
        await proxy.close()


@pytest.mark.parametrize("restarted", [False, True], ids=["the connection is cut", "and the server starts again"])
async def test_what_was_rejected_does_not_pass_for_accepted_when_the_answer_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, restarted: bool
) -> None:
    topology = flat("s1")
    server = await started(topology, "s1", tmp_path)
    proxy = await proxied(topology, "s1")
    heard: list[str] = []
    async with (
        thence.connect(url(topology, "s1"), "bob") as bob,
        thence.connect(f"thence://{proxy.address}", "ann") as ann,
    ):
        monkeypatch.setattr(ann, "refused", heard.append)
        proxy.delay_s = 0.5
        proxy.set_mode(Mode.SLOW)
        to_nobody = asyncio.create_task(ann.send("nobody", b"never"))
        await asyncio.sleep(0)
        ann.post("no one", b"never")
        to_bob = asyncio.create_task(ann.send("bob", b"accepted"))
        await until(lambda: server.node.intake.accepted_of("ann") == 3)
        proxy.set_mode(Mode.CUT)  # The answers are on their way.
        assert not to_nobody.done()
        if restarted:
            await server.stop()
            server = await started(topology, "s1", tmp_path)
        proxy.set_mode(Mode.WELL)
        with pytest.raises(UsageError, match="nobody is called 'nobody'"):
            await to_nobody
        await to_bob
        assert (await bob.receive()).body == b"accepted"
        proxy.set_mode(Mode.CUT)
        proxy.set_mode(Mode.WELL)
        await ann.send("bob", b"once more")
        assert len(heard) == 1
        assert "nobody is called 'no one'" in heard[0]
    async with thence.connect(url(topology, "s1"), "ann") as another:
        monkeypatch.setattr(another, "refused", heard.append)
        await another.send("bob", b"of a new program, which has not sent any of that")
        assert len(heard) == 1
    await proxy.close()
    await server.stop()


async def test_whoever_leaves_hears_that_its_name_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector_module, "SILENCE_S", 1.0)
    monkeypatch.setattr(connector_module, "HEARTBEAT_S", 0.3)
    topology = flat("s1")
    async with servers(topology) as running:
        mailboxes_there = running["s1"].node.directory.state.mailboxes
        proxy = await proxied(topology, "s1")
        for mode in (Mode.WELL, Mode.BLACKHOLE, Mode.CUT):
            async with thence.connect(f"thence://{proxy.address}", "ann") as ann:
                proxy.set_mode(mode)
                leaving = asyncio.create_task(ann.leave())
                if mode is not Mode.WELL:
                    await asyncio.sleep(0.2)
                    assert not leaving.done()
                    assert "ann" in mailboxes_there
                    proxy.set_mode(Mode.WELL)
                await leaving
                assert "ann" not in mailboxes_there
        await proxy.close()


@pytest.mark.parametrize("did", ["read", "sent"])
async def test_a_client_whose_name_another_program_has_used_meanwhile_is_told(did: str) -> None:
    topology = flat("s1")
    async with servers(topology), thence.connect(url(topology, "s1"), "bob") as bob:
        proxy = await proxied(topology, "s1")
        async with thence.connect(f"thence://{proxy.address}", "ann") as ann:
            await bob.send("ann", b"first")
            assert (await ann.receive()).body == b"first"
            ann.done()
            proxy.set_mode(Mode.CUT)
            async with thence.connect(url(topology, "s1"), "ann") as another:
                if did == "read":
                    await bob.send("ann", b"second")
                    assert (await another.receive(10)).body in {b"first", b"second"}
                    another.done()
                    await bob.send("ann", b"third")
                    await another.receive(10)
                    another.done()
                else:
                    await another.send("bob", b"as ann")
            proxy.set_mode(Mode.WELL)
            with pytest.raises(Refusal, match="another program has the name 'ann' since"):
                await ann.receive(10)
        await proxy.close()


async def test_a_client_is_patient_with_somebody_who_hangs_up() -> None:
    calls: list[float] = []

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(asyncio.get_running_loop().time())
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as listener:
        host, port = listener.sockets[0].getsockname()
        client = thence.connect(f"thence://{host}:{port}", "ann", connect_timeout=3.0)
        with pytest.raises(TimeoutError, match="hung up"):
            await client.__aenter__()
    assert 2 <= len(calls) <= 12, "at a twentieth of a second each there would be sixty"


@pytest.mark.parametrize("mode", [Mode.CUT, Mode.BLACKHOLE, Mode.CORRUPT, Mode.SLOW])
async def test_a_client_loses_nothing_over_a_bad_network(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector_module, "SILENCE_S", 1.0)
    monkeypatch.setattr(connector_module, "HEARTBEAT_S", 0.3)
    topology = flat("s1", "s2")
    async with servers(topology):
        proxy = await proxied(topology, "s1")
        proxy.corrupt_every_bytes = 300
        async with (
            thence.connect(f"thence://{proxy.address}", "ann") as ann,
            thence.connect(url(topology, "s2"), "bob") as bob,
        ):
            got: list[bytes] = []
            bob.on_message(lambda message: got.append(message.body))
            await bob.send("ann", b"here")
            await ann.receive()
            for number in range(100):
                ann.post("bob", b"%d" % number)
                if number % 30 == 10:
                    proxy.set_mode(mode)
                    await asyncio.sleep(0.3)
                    proxy.set_mode(Mode.WELL)
                await asyncio.sleep(0)
            await ann.flush()
            await until(lambda: len(got) == 100)
            assert got == [b"%d" % number for number in range(100)]
        await proxy.close()


# --- what is full ----------------------------------------------------------------------------------------------------


SMALL = MemberOptions(max_unconsumed=10, max_queued=10)
SMALL_BYTES = MemberOptions(max_unconsumed_bytes=5_000, max_queued_bytes=5_000)


@pytest.mark.parametrize("small", [SMALL, SMALL_BYTES], ids=["count", "bytes"])
@pytest.mark.parametrize("durable", [False, True], ids=["memory", "disk"])
async def test_a_full_mailbox_makes_senders_wait_and_nothing_is_lost(
    durable: bool, small: MemberOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 10)
    topology = flat("s1", "s2")
    async with (
        servers(topology, tmp_path if durable else None, member=small) as running,
        thence.connect(url(topology, "s1"), "writer") as writer,
        thence.connect(url(topology, "s2"), "reader") as reader,
    ):
        await reader.send("writer", b"ready")
        await writer.receive()
        for number in range(200):
            writer.post("reader", b"%500d" % number)
            await asyncio.sleep(0)  # Each in a batch of its own.
        await until(lambda: "reader" in running["s2"].node.directory.mailboxes.closed)
        await asyncio.sleep(0.5)
        assert writer._outbox.unaccepted
        assert "the mailbox of 'reader' is full" in (await ask_status(url(topology, "s2")))["stalled"]
        assert running["s2"].node.dispatch.held < 40
        assert [(await reader.receive()).body for _ in range(200)] == [b"%500d" % number for number in range(200)]
        await writer.flush()
        assert running["s2"].node.dispatch.held_bytes == running["s2"].node.member.log.unconsumed_bytes == 0


def _full(*_: int) -> int:
    raise StoreFull("no room")


async def test_a_full_disk_makes_everybody_wait_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = flat("s1", "s2")
    async with (
        servers(topology, tmp_path) as running,
        thence.connect(url(topology, "s1"), "writer") as writer,
        thence.connect(url(topology, "s2"), "reader") as reader,
    ):
        await reader.send("writer", b"ready")
        await writer.receive()
        for name in ("s1", "s2"):
            with monkeypatch.context() as filled:
                filled.setattr(running[name].node.driver.store, "commit", _full)
                sends = [asyncio.create_task(writer.send("reader", b"%d" % number)) for number in range(20)]
                await until(partial(stalled, running[name]))
                assert "no room" in (await ask_status(url(topology, name)))["stalled"]
                if name == "s2":
                    await asyncio.gather(*sends)  # Only the server with the full disk must wait.
                assert all(send.done() for send in sends) == (name == "s2")
            await asyncio.gather(*sends)
            assert [(await reader.receive()).body for _ in range(20)] == [b"%d" % number for number in range(20)]


async def test_work_that_is_done_again_waits_until_it_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = flat("s1")
    async with (
        servers(topology, tmp_path) as running,
        thence.connect(url(topology, "s1"), "reader") as reader,
    ):
        ann = await thence.connect(url(topology, "s1"), "ann").__aenter__()
        with monkeypatch.context() as filled:
            filled.setattr(running["s1"].node.driver.store, "commit", _full)
            ann.post("reader", b"1")
            await until(lambda: running["s1"].node.directory.state.mailboxes["ann"].sent == 1)

            async def again() -> None:
                async with thence.connect(url(topology, "s1"), "ann") as again:
                    again.number_from(0)
                    again.post("reader", b"1")
                    await again.flush()

            working = asyncio.create_task(again())
            await asyncio.sleep(0.3)
            assert not working.done()
            filled.undo()
            await working
        with pytest.raises(Refusal, match="another program has the name 'ann' since"):
            await ann.__aexit__(None, None, None)
        assert (await reader.receive()).body == b"1"
        with pytest.raises(TimeoutError):
            await reader.receive(within=0.1)


# --- peers ------------------------------------------------------------------------------------------------------


def stalled(server: Server) -> str:
    return server.node.driver.commits.stalled


def trouble(server: Server, peer: str) -> str:
    return server.node.peers.peers[peer].trouble


async def test_a_server_that_has_lost_its_data_is_refused(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    async with servers(topology, tmp_path) as running:
        await running["s2"].stop(drain_s=0)
        running["s2"] = await started(topology, "s2", tmp_path / "elsewhere")
        await until(lambda: "'s2' has lost its state" in trouble(running["s1"], "s2"))
        await until(
            lambda: "'s2' has lost its state, or runs on an old copy of its store" in running["s2"].node.peers.epochs.fenced
        )
        assert "'s2' is fenced since it met 's1'" in trouble(running["s2"], "s1")
        await running["s2"].stop(drain_s=0)
        running["s2"] = await started(topology, "s2", tmp_path)
        await running["s1"].node.peers.wait_connected()
        assert trouble(running["s1"], "s2") == "", "on its old data it is welcome again"


async def test_a_server_with_another_topology_is_refused() -> None:
    topology = flat("s1", "s2")
    text = 'name = "flat"\n[domains.D]\nmembers = ["s1", "s2"]\nordering = "matrix"\n'
    other = addressed(text)
    other = Topology(other.name, other.domains.values(), addresses=topology.addresses)
    one, two = await started(topology, "s1"), await started(other, "s2")
    await until(lambda: "s2 has one with" in trouble(one, "s2"))
    assert topology.fingerprint in trouble(one, "s2")
    assert other.fingerprint in trouble(one, "s2")
    await one.stop(drain_s=0)
    await two.stop(drain_s=0)


async def test_a_peer_that_does_not_answer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENCE_S", 1.0)
    monkeypatch.setattr(connections, "HEARTBEAT_S", 0.3)
    topology = flat("s1", "s2")
    two = await started(topology, "s2")
    proxy = await proxied(topology, "s2")
    seen = Topology(topology.name, topology.domains.values(), addresses={**topology.addresses, "s2": proxy.address})
    one = await started(seen, "s1")
    await one.node.peers.wait_connected()
    proxy.set_mode(Mode.BLACKHOLE)
    # Whoever notices first hangs up, and that may be all that the other one gets to see.
    await until(lambda: "silent for" in trouble(one, "s2") + trouble(two, "s1"))
    await until(lambda: trouble(one, "s2") and trouble(two, "s1"))
    proxy.set_mode(Mode.WELL)
    await one.node.peers.wait_connected()
    assert one.node.peers.peers["s2"].traffic.connections == 2, "it has been called again"
    assert trouble(one, "s2") == ""
    for server in (one, two):
        await server.stop(drain_s=0)
    await proxy.close()


# --- strangers -------------------------------------------------------------------------------------------------------


def head(length: int, checksum: int) -> bytes:
    """Return the head of a frame."""
    return HEADER.pack(length, checksum, crc32(struct.pack("<II", length, checksum)))


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "nothing": head(0, 0),
    "too long": head(2**31, 0),
    "damaged": head(4, 12345) + b"abcd",
    "unknown": head(2, crc32(b"\x09\x00")) + b"\x09\x00",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_ends_its_own_connection_and_nothing_else(garbage: bytes) -> None:
    topology = flat("s1")
    async with servers(topology), thence.connect(url(topology, "s1"), "ann") as ann:
        host, _, port = topology.addresses["s1"].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(garbage)
        with suppress(ConnectionResetError):  # That is the same, less politely.
            assert await reader.read() == b""
        writer.close()
        await ann.send("ann", b"still here")
        assert (await ann.receive()).body == b"still here"


async def test_strangers_that_say_nothing_are_shown_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_listener, "HELLO_TIMEOUT_S", 0.3)
    monkeypatch.setattr(node_listener, "MAX_STRANGERS", 3)
    topology = flat("s1")
    async with servers(topology) as running:
        host, _, port = topology.addresses["s1"].rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(6)]
        await until(lambda: running["s1"].turned_away == 3)
        await until(lambda: not running["s1"].listener.strangers)
        for reader, writer in silent:
            with suppress(ConnectionResetError):  # That is the same, less politely.
                assert await reader.read() == b"", "nobody said a word to them"
            writer.close()
        async with thence.connect(url(topology, "s1"), "ann") as ann:
            await ann.send("ann", b"in")
            assert (await ann.receive()).body == b"in"


async def test_whoever_was_found_is_not_looked_for_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many others a client waits for at a time is bounded, not how many it ever waited for."""
    monkeypatch.setattr(clients, "MAX_FINDING", 1)
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:

        async def look_for(name: str) -> None:
            looking = asyncio.create_task(ann.known(name))
            await until(lambda: name in running["s1"].searches.waiting)
            async with thence.connect(url(topology, "s1"), name):
                await looking

        for name in ("bob", "cid", "dan"):
            await look_for(name)
        assert running["s1"].clients.here["ann"].finding == {}
        assert running["s1"].clients.here["ann"].connection.open


async def test_a_server_that_stops_waits_for_peers_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them may tell it to switch meanwhile: then frames are queued for others than when it began to stop."""
    topology = flat("s1", "s2")
    server = await started(topology, "s1")
    monkeypatch.setattr(server.node.member.attachment, "queued", lambda: {"s2": 1, "one that came with the switch": 1})
    await server.stop()
    assert server.status.stopping


async def test_a_server_whose_clock_fails_says_so_and_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would go on without anybody being pinged, forgotten or let go."""
    topology = flat("s1")
    async with servers(topology) as running:

        def fail() -> None:
            raise ZeroDivisionError("in the clock")

        monkeypatch.setattr(running["s1"].node.history, "tick", fail)
        await until(running["s1"].stopped.done)
        assert str(running["s1"].stopped.result()) == "the clock of 's1': ZeroDivisionError: in the clock"
