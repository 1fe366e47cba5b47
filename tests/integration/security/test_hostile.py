"""What strangers, clients and servers that mean ill can do to others: nothing. All at once, and then one way each."""

from __future__ import annotations

import asyncio
import re
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

import thence
from examples.bank import Account
from tests.support.campaigns.attacks import EVIL_HOST
from tests.support.campaigns.hostile import FEWEST_MESSAGES, QUICK_RATE, Options, replay, run_once
from tests.support.servers.running import PATIENCE_S, abandon, addressed, flat, servers, started, until, url
from tests.support.servers.scraping import ask
from tests.support.servers.securing import Speaker, certificates, framed, recording
from tests.support.servers.server_processes import kill_processes, memory_of, start_process
from thence.agents.kinds import kinds_of
from thence.cli.servers.up import free_addresses
from thence.core.ordering.vector import VectorStamp
from thence.core.topology.toml import write
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.errors import ConfigError, MalformedFrame
from thence.net import framing
from thence.net.framing import HEADER, MAX_HELLO_BYTES
from thence.net.protocol import (
    CONTROL_KIND,
    PROTOCOL,
    BatchItem,
    ClientHello,
    Find,
    Publish,
    Refused,
    ServerHello,
    ServerWelcome,
    StatusQuestion,
    write_messages,
)
from thence.net.security.tls import client_side
from thence.node import listener
from thence.node.options import NodeOptions
from thence.observe import http
from thence.server.server import Server

MAX_WRONG_TOLD = 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1], ids=["with TLS", "without TLS"])
def test_whatever_strangers_do_the_others_are_served(seed: int, tmp_path: Path) -> None:
    options = Options(seed=seed, fault_s=8.0, kind="attacks", least_rate=QUICK_RATE)
    outcome = run_once(options, tmp_path / "run")
    assert not outcome.wrong, "\n".join([*outcome.wrong[:MAX_WRONG_TOLD], replay(options)])
    assert outcome.counts["accepted"] >= FEWEST_MESSAGES
    assert outcome.counts["visits of a guest"] > 0
    assert len(outcome.faults) == 18, "every kind of attack came"


@pytest.mark.slow
@pytest.mark.parametrize("secure", [True, False], ids=["with TLS", "without TLS"])
async def test_as_many_strangers_as_there_may_be_take_no_more_memory_than_the_limit_says(secure: bool, tmp_path: Path) -> None:
    """Each says a hello as long as can be, but for its last byte."""
    topology = flat("s1")
    tls = certificates(tmp_path / "tls", trustme.CA(), "s1")["s1"]
    context = client_side(None, tls.authority) if secure else None
    (tmp_path / "logs").mkdir()
    (tmp_path / "topology.toml").write_text(write(topology), encoding="utf-8")
    words = ["-m", "thence.cli.main", "serve", str(tmp_path / "topology.toml"), "--server", "s1", "--durability", "memory"]
    if secure:
        words += ["--tls-cert", str(tls.certificate), "--tls-key", str(tls.key), "--tls-ca", str(tls.authority)]
    server = start_process(tmp_path, "s1", words)
    crowd: list[Speaker] = []
    try:
        address = f"{'thences' if secure else 'thence'}://{topology.addresses['s1']}"
        async with thence.connect(address, "ann", authority=tls.authority, connect_timeout=PATIENCE_S) as ann:
            before = memory_of(server.pid)
            for number in range(2 * listener.MAX_STRANGERS):
                with suppress(OSError):
                    stranger = await Speaker.call(topology.addresses["s1"], context, "s1", f"127.0.0.{66 + number % 4}")
                    crowd.append(stranger)
                    stranger.writer.write(framed(bytes(MAX_HELLO_BYTES))[:-1])
                    await stranger.writer.drain()
            await ann.send("ann", b"served")
            assert (await ann.receive()).body == b"served"
            grown = memory_of(server.pid, "VmHWM") - before
    finally:
        kill_processes([server])
        for stranger in crowd:
            stranger.close()
    assert crowd
    assert grown <= listener.MAX_STRANGER_BYTES // (1 if secure else 4), f"{grown:,} bytes"


@pytest.mark.slow
async def test_as_many_as_may_ask_over_http_take_no_more_memory_than_the_limit_says(tmp_path: Path) -> None:
    """Each sends headers without end, as fast as they are taken."""
    metrics = free_addresses(1)[0]
    (tmp_path / "logs").mkdir()
    (tmp_path / "topology.toml").write_text(write(flat("s1")), encoding="utf-8")
    words = ["-m", "thence.cli.main", "serve", str(tmp_path / "topology.toml"), "--server", "s1", "--durability", "memory"]
    server = start_process(tmp_path, "s1", [*words, "--metrics", metrics])
    crowd: list[Speaker] = []
    try:
        await until_answered(metrics)
        before = memory_of(server.pid)
        for number in range(4 * http.MAX_CONNECTIONS):
            with suppress(OSError):
                stranger = await Speaker.call(metrics, local=f"127.0.0.{66 + number % 4}")
                crowd.append(stranger)
                stranger.writer.write(b"GET /metrics HTTP/1.1\r\nX: " + bytes(http.READ_BYTES))
                await asyncio.sleep(0)
        assert (await ask(metrics, "/healthz"))[0] == 200
        grown = memory_of(server.pid, "VmHWM") - before
    finally:
        kill_processes([server])
        for stranger in crowd:
            stranger.close()
    assert crowd
    assert grown <= http.MAX_KEPT_BYTES, f"{grown:,} bytes"


async def until_answered(address: str) -> None:
    """Wait until a server answers over HTTP."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(OSError):
                assert (await ask(address, "/healthz"))[0] == 200
                return
            await asyncio.sleep(0.05)


# --- strangers -------------------------------------------------------------------------------------------------------


def complained(caplog: pytest.LogCaptureFixture, what: str, host: str = "127.0.0.1") -> bool:
    """Say whether the log of a server names a place and what was done from there."""
    return any(re.search(re.escape(host) + r":\d+: " + what, record.getMessage()) for record in caplog.records)


async def assert_served(topology: thence.core.topology.model.Topology) -> None:
    """Somebody who behaves is let in, and served."""
    async with thence.connect(url(topology, "s1"), "ann") as ann:
        await ann.send("ann", b"in")
        assert (await ann.receive()).body == b"in"
        ann.done()


async def test_a_crowd_that_says_nothing_keeps_nobody_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "HELLO_TIMEOUT_S", PATIENCE_S)  # Nobody goes because of the time.
    topology = flat("s1")
    async with servers(topology) as running:
        crowd = [
            await Speaker.call(topology.addresses["s1"], local=f"127.0.0.{place}") for place in (66, 67, 68) for _ in range(150)
        ]
        await until(lambda: running["s1"].turned_away >= 450 - listener.MAX_STRANGERS)
        assert len(running["s1"].listener.strangers) <= listener.MAX_STRANGERS
        await assert_served(topology)
        assert len(running["s1"].listener.strangers) >= listener.MAX_STRANGERS - 1, "the crowd is still there"
        for one in crowd:
            one.close()
    assert complained(caplog, r"shown out: .*MAX_STRANGERS_PER_PLACE \(128\)", EVIL_HOST)


async def test_a_crowd_that_fills_a_small_server_keeps_nobody_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where memory or open files allow fewer connections than strangers, those who came later were turned away."""
    monkeypatch.setattr(listener, "HELLO_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 20)
    topology = flat("s1")
    async with servers(topology) as running:
        crowd = [await Speaker.call(topology.addresses["s1"], local=EVIL_HOST) for _ in range(60)]
        await until(lambda: running["s1"].turned_away >= 40)
        await assert_served(topology)
        assert len(running["s1"].listener.connections) <= 20
        for one in crowd:
            one.close()
    assert complained(caplog, "shown out: it has not introduced itself, and MAX_CONNECTIONS, .* allow 20", EVIL_HOST)


async def test_with_tls_those_of_one_place_wait_for_their_turn_and_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Agreeing on TLS is the most that a stranger can make a server do."""
    monkeypatch.setattr(listener, "TLS_PER_S", 0.01)  # Nobody has its turn behind the first ones.
    monkeypatch.setattr(listener, "TLS_BURST", 3)
    monkeypatch.setattr(listener, "HELLO_TIMEOUT_S", 150.0)
    topology = flat("s1")
    tls = certificates(tmp_path, trustme.CA(), "s1")
    async with servers(topology, tls=tls["s1"]):
        context = client_side(None, tls["s1"].authority)
        for _ in range(3):
            (await Speaker.call(topology.addresses["s1"], context, "s1", "127.0.0.2")).close()
        waits = await Speaker.call(topology.addresses["s1"], local="127.0.0.2")
        await until(lambda: complained(caplog, "waits for its turn: more come from there than TLS_PER_S", "127.0.0.2"))
        turned_away = await Speaker.call(topology.addresses["s1"], local="127.0.0.2")
        assert await turned_away.ended()
        turned_away.close()
        assert complained(caplog, "no TLS with a stranger: turned away: more come", "127.0.0.2")
        (await Speaker.call(topology.addresses["s1"], context, "s1", "127.0.0.3")).close()
        waits.close()


async def test_there_are_only_so_many_connections(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 2)
    topology = flat("s1")
    async with servers(topology), thence.connect(url(topology, "s1"), "ann"), thence.connect(url(topology, "s1"), "bob"):
        third = await Speaker.call(topology.addresses["s1"])
        assert await third.ended()
        third.close()
    assert complained(caplog, "turned away: there are 2 connections; MAX_CONNECTIONS")


async def test_there_are_as_many_connections_as_open_files_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = {"files": listener.RESERVED_FILES + 1}
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed["files"], allowed["files"]))
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann"):
        other = await Speaker.call(topology.addresses["s1"])
        assert await other.ended()
        other.close()
        assert running["s1"].turned_away == 1
    allowed["files"] = listener.RESERVED_FILES
    with pytest.raises(ConfigError, match="the system allows 128 open files"):
        await started(topology, "s1")


async def test_a_stranger_that_says_a_byte_at_a_time_is_shown_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "HELLO_TIMEOUT_S", 0.5)
    topology = flat("s1")
    async with servers(topology):
        slow = await Speaker.call(topology.addresses["s1"])
        hello = framed(CONTROL_KIND + msgspec.msgpack.encode(ClientHello(PROTOCOL, "slow")))
        ended = asyncio.create_task(slow.ended())
        for byte in hello:
            slow.writer.write(bytes([byte]))
            await asyncio.sleep(0.1)
            if ended.done():
                break
        assert ended.done(), "it said all of it, and was borne with"
        await ended
        slow.close()
        await assert_served(topology)
    assert complained(caplog, "a stranger: it did not introduce itself within 0.5 s")


@pytest.mark.parametrize("length", [MAX_HELLO_BYTES, MAX_HELLO_BYTES + 1])
async def test_nobody_keeps_more_for_a_stranger_than_one_hello(length: int, caplog: pytest.LogCaptureFixture) -> None:
    topology = flat("s1")
    async with servers(topology) as running:
        stranger = await Speaker.call(topology.addresses["s1"])
        stranger.writer.write(framed(bytes(length))[:-1])
        if length > MAX_HELLO_BYTES:
            assert await stranger.ended()
            assert complained(caplog, f"a stranger: a frame of {length} bytes; the limit here is {MAX_HELLO_BYTES}")
        else:
            await until(lambda: running["s1"].listener.strangers)
            (connection,) = running["s1"].listener.strangers
            await until(lambda: connection.buffer.filled == HEADER.size + length - 1)
            assert len(connection.buffer.view) == HEADER.size + MAX_HELLO_BYTES
        stranger.close()
        await assert_served(topology)


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP, and no HTTP is spoken here"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00", "it speaks TLS, and no TLS is spoken here"),
        (b"\x00" * 12, "a frame of 0 bytes|the head of a frame"),
        (framed(b"\x07hello"), "a frame of kind 7 from it; there is no such kind"),
        (framed(CONTROL_KIND + b"\xc1"), "a frame from it that cannot be read"),
        (framed(CONTROL_KIND + msgspec.msgpack.encode([20])), "it begins with StatusQuestion"),
    ],
    ids=["http", "tls", "nothing", "unknown", "malformed", "no hello"],
)
async def test_the_log_says_who_said_what(said: bytes, what: str, caplog: pytest.LogCaptureFixture) -> None:
    topology = flat("s1")
    async with servers(topology):
        stranger = await Speaker.call(topology.addresses["s1"], local=EVIL_HOST)
        stranger.writer.write(said)
        assert await stranger.ended()
        stranger.close()
        await assert_served(topology)
    assert complained(caplog, f"a stranger: {what}", EVIL_HOST)


async def test_without_tokens_a_session_played_again_adds_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever is on the machine is trusted then; but each call is challenged, and an old answer is refused."""
    topology = flat("s1")
    async with servers(topology) as running:
        async with (
            recording(topology.addresses["s1"]) as recorded,
            thence.connect(recorded.url, "ann") as ann,
        ):
            await ann.send("ann", b"once")
            assert (await ann.receive()).body == b"once"
            ann.done()
        mailbox = running["s1"].node.directory.state.mailboxes["ann"]
        before = (mailbox.sent, mailbox.position)
        again = await Speaker.call(topology.addresses["s1"])
        again.writer.write(recorded.from_client)
        assert await again.ended()
        again.close()
        assert (mailbox.sent, mailbox.position) == before == (1, 1)
    assert [record for record in caplog.records if "it answers another challenge" in record.getMessage()]


# --- clients ---------------------------------------------------------------------------------------------------------


class Listening:
    """A client that listens in one of three ways, and what came to it."""

    def __init__(self, client: thence.Client, way: str) -> None:
        """Begin to listen."""
        self.bodies: list[bytes] = []
        self.errors: list[MalformedFrame] = []
        self._client = client
        client.unreadable = self.errors.append  # type: ignore[method-assign,assignment]
        if way == "handler":
            client.on_message(lambda message: self.bodies.append(message.body))
        else:
            self.task = asyncio.create_task(self._receive() if way == "receive" else self._iterate())

    async def _receive(self) -> None:
        while len(self.bodies) < 4:
            self.bodies.append((await self._client.receive()).body)
        self._client.done()

    async def _iterate(self) -> None:
        async for message in self._client:
            self.bodies.append(message.body)


@pytest.mark.parametrize("way", ["handler", "receive", "iterate"])
async def test_messages_that_cannot_be_read_are_left_out_and_all_else_comes(way: str) -> None:
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        listening = Listening(ann, way)
        mallory = await Speaker.call(topology.addresses["s1"])
        mallory.say(ClientHello(PROTOCOL, "mallory"))
        batches = [
            write_messages([BatchItem(b"1")]),
            b"\x93\x01\x01\x01",
            write_messages([BatchItem(b"2"), BatchItem(b"3")]),
            b"\x91\x01",
        ]
        number = 1
        for messages in (*batches, write_messages([BatchItem(b"4")])):
            count = messages[0] & 0x0F
            mallory.say(Publish(number, count, ("ann",), None, messages))
            number += count
        mailbox = running["s1"].node.directory.state.mailboxes["ann"]
        await until(lambda: len(listening.bodies) == 4)
        await until(lambda: mailbox.acknowledged == mailbox.position == 8)
        assert listening.bodies == [b"1", b"2", b"3", b"4"]
        assert [str(error).partition(":")[0] for error in listening.errors] == ["messages from 'mallory' that cannot be read"] * 2
        assert not ann.trouble
        assert running["s1"].clients.here["ann"].connection.frames_in < 20, "it is still the first connection"
        if way == "iterate":
            listening.task.cancel()
        mallory.close()


async def test_the_program_of_an_embedded_member_goes_on_too() -> None:
    topology = flat("s1", "b")
    server = await started(topology, "s1")
    try:
        async with thence.Member(topology, name="b") as member:
            errors: list[MalformedFrame] = []
            member.unreadable = errors.append  # type: ignore[method-assign,assignment]
            mallory = await Speaker.call(topology.addresses["s1"])
            mallory.say(ClientHello(PROTOCOL, "mallory"))
            mallory.say(Publish(1, 1, ("b",), None, b"\x91\x01"))
            mallory.say(Publish(2, 1, ("b",), None, write_messages([BatchItem(b"behind")])))
            assert (await member.receive(within=PATIENCE_S)).body == b"behind"
            assert len(errors) == 1
            mallory.close()
    finally:
        await server.stop(drain_s=0)


async def test_an_agent_sets_aside_what_it_cannot_read() -> None:
    topology = flat("s1")
    server = Server(topology, "s1", NodeOptions(), kinds_of([Account]))
    await server.start()
    try:
        async with thence.connect(url(topology, "s1"), "ann") as ann:
            await ann.agents.create("till", "Account")
            mallory = await Speaker.call(topology.addresses["s1"])
            mallory.say(ClientHello(PROTOCOL, "mallory"))
            mallory.say(Publish(1, 2, ("till",), None, b"\x92\x01\x01"))
            async with asyncio.timeout(30):
                while not (dead := await ann.agents.dead()):  # noqa: ASYNC110  A dead message tells nobody.
                    await asyncio.sleep(0.05)
            assert [(item["agent"], item["sender"]) for item in dead] == [("till", "mallory")]
            mallory.close()
    finally:
        await server.stop(drain_s=0)


async def test_what_comes_meanwhile_is_not_taken_for_done_with_the_message_in_hand(tmp_path: Path) -> None:
    """A reply, or what cannot be read, comes while the program has a message in hand: that one comes again after a crash."""
    topology = flat("s1")
    async with servers(topology, tmp_path) as running, thence.connect(url(topology, "s1"), "echo") as echo:
        echo.on_message(lambda message: message.reply(message.body))
        ann = thence.connect(url(topology, "s1"), "ann")
        await ann.__aenter__()
        await ann.send("ann", b"in hand")
        assert (await ann.receive()).body == b"in hand"
        assert (await ann.request("echo", b"meanwhile")).body == b"meanwhile"
        await asyncio.sleep(0.1)  # For whoever would acknowledge it.
        assert running["s1"].node.directory.state.mailboxes["ann"].acknowledged == 0
        await abandon(ann)
        async with thence.connect(url(topology, "s1"), "ann") as again:
            assert (await again.receive()).body == b"in hand"


CANNOT_BE: dict[str, Callable[[], Any]] = {
    "a number that nobody reaches": lambda: Publish(2**63, 1, ("ann",), None, write_messages([BatchItem(b"")])),
    "somebody twice": lambda: Publish(1, 1, ("ann", "ann"), None, write_messages([BatchItem(b"")])),
    "a long topic": lambda: Publish(1, 1, None, "x" * 201, write_messages([BatchItem(b"")])),
    "a long name": lambda: Find("x" * 1_000_000),
    "no topic": lambda: Publish(1, 1, None, "", write_messages([BatchItem(b"")])),
}


@pytest.mark.parametrize("said", CANNOT_BE.values(), ids=CANNOT_BE)
async def test_what_a_client_cannot_say_ends_its_own_connection(
    said: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        mallory = await Speaker.call(topology.addresses["s1"])
        mallory.say(ClientHello(PROTOCOL, "mallory"))
        await mallory.hear()
        mallory.say(said())
        assert await mallory.ended()
        mallory.close()
        await ann.send("ann", b"still here")
        assert (await ann.receive()).body == b"still here"
        assert running["s1"].node.directory.state.mailboxes["mallory"].sent == 0
    assert complained(caplog, "client 'mallory': ")


async def test_a_client_that_asks_and_does_not_read_is_shown_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(framing, "MAX_UNREAD_S", 0.5)
    topology = flat("s1")
    async with servers(topology) as running:
        mallory = await Speaker.call(topology.addresses["s1"])
        mallory.say(ClientHello(PROTOCOL, ""))
        await mallory.hear()
        mallory.writer.transport.pause_reading()  # type: ignore[attr-defined]
        (client,) = running["s1"].clients.all
        most = 0
        while client.connection.open:
            mallory.say(StatusQuestion())
            await asyncio.sleep(0)
            most = max(most, client.connection.writer.unsent_bytes)
        assert most < framing.MAX_WRITE_BUFFER + 64 * 1024, "no answer is made while others wait"
        mallory.close()
        await assert_served(topology)
    assert complained(caplog, "a client without a name: it does not read what it is told: ")


async def test_topics_that_nobody_follows_are_not_remembered() -> None:
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "mallory") as mallory:
        for number in range(1_000):
            await mallory.room()
            mallory.post(["mallory"], b"")
            await mallory.publish(f"topic {number}", b"")
        assert not running["s1"].node.directory.routes.by_topic


# --- servers ---------------------------------------------------------------------------------------------------------

TWO_DOMAINS = """
name = "two"
[domains.A]
members = ["s1", "s2"]
ordering = "vector"
[domains.B]
members = ["s2", "s3"]
ordering = "vector"
"""


async def test_a_server_gets_no_further_than_its_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody has the certificate of s1: it can be s1, in the domain of s1, and nobody and nowhere else.

    Who sent what it passes on there is believed: docs/how-to/security.md says so.
    """
    topology = addressed(TWO_DOMAINS)
    tls = certificates(tmp_path, trustme.CA(), "s1", "s2", "s3")
    context = client_side(tls["s1"])
    second = await started(topology, "s2", tls=tls["s2"])
    third = await started(topology, "s3", tls=tls["s3"])
    address = topology.addresses["s2"]
    try:
        await until(lambda: second.node.peers.peers["s3"].up)

        def hello(server: str, called: str = "s2", fingerprint: str = topology.fingerprint) -> ServerHello:
            return ServerHello(PROTOCOL, "two", fingerprint, server, called, "0123")

        refusals = [
            (hello("s3"), "somebody calls itself 's3' with a certificate for s1"),
            (hello("s1", "s3"), "s1 calls 's3'; this is s2"),
            (hello("s1", fingerprint="0"), "s1 has a topology of 'two' with fingerprint 0"),
            (msgspec.structs.replace(hello("s1"), fabric="other"), "s1 is of fabric 'other'; s2 is of fabric 'two'"),
        ]
        for said, why in refusals:
            false = await Speaker.call(address, context, "s2")
            false.say(said)
            refused = await false.hear()
            assert isinstance(refused, Refused)
            assert refused.reason.startswith(why)
            assert await false.ended()
            false.close()
            assert complained(caplog, f"refused server '{said.server}': {re.escape(why)}")
        evil = await Speaker.call(address, context, "s2")
        evil.say(hello("s1"))
        assert isinstance(await evil.hear(), ServerWelcome)
        for domain in ("B", "nowhere"):
            evil.say_packet(Packet(domain, (Frame(VectorStamp(1, ()), Envelope("s1", 1, None, b"")),), (1,)))
        await until(lambda: second.node.peers.refusals.counts == {"StrangerFrame": 2})
        assert not second.node.directory.state.mailboxes
        assert not third.node.peers.refusals.counts, "nothing of it went on"
        assert third.node.peers.peers["s2"].up
        evil.close()
    finally:
        await second.stop(drain_s=0)
        await third.stop(drain_s=0)
