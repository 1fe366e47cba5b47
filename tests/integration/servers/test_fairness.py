"""One client takes as much as it can: large messages, mailboxes, connections. Others have their part all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import thence
from tests.integration.security.test_captured_server import FLAT, captured, packet
from tests.support.campaigns.attacks import EVIL_HOST
from tests.support.servers.running import addressed, flat, fleet, servers, started, until, url
from tests.support.servers.securing import EVERYTHING, Access, Speaker, prove
from thence.client.client import ask_status
from thence.core.topology.model import Topology
from thence.net.protocol import PROTOCOL, BatchItem, ClientHello, Refused, write_messages
from thence.net.security.tokens import parse_token
from thence.node import listener
from thence.server.server import Server
from thence.storage import mailbox as mailbox_module
from thence.storage.bodies import Joined
from thence.storage.mailbox import Batch

LARGE_BYTES = 3 * 1024 * 1024
SMALL = 3
"""How many small messages are sent, one after the other."""
HUGE_BYTES = 15_000_000
HUGE = 4
"""How many of them are sent in a turn."""
CALM_S = 2.0
LEAST_RATE = 0.5
"""How much of its rate a client keeps beside them; less than is promised, since tests run beside others."""
MAX_BEFORE = 4
"""How many large ones may be accepted while a small one waits: what is on its way to the disk, and those whose turn it is."""


@asynccontextmanager
async def flooded(server: str) -> AsyncIterator[thence.Client]:
    """Let two clients send large messages without end, to one that reads them."""

    async def read() -> None:
        async with thence.connect(server, "sink") as sink:
            async for _ in sink:
                pass

    async def flood(name: str) -> None:
        async with thence.connect(server, name) as heavy:
            await heavy.known("sink")
            while True:
                await heavy.room()
                heavy.post("sink", bytes(LARGE_BYTES))

    tasks = [asyncio.create_task(task) for task in (read(), flood("heavy"), flood("heavier"))]
    try:
        async with thence.connect(server, "light") as light:
            yield light
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def accepted_meanwhile(running: Server, light: thence.Client) -> list[int]:
    """Return of each small message how many others were accepted until it was."""
    between = []
    for _ in range(SMALL):
        before = running.node.intake.messages_accepted
        await light.send("light", b"x")
        between.append(running.node.intake.messages_accepted - before - 1)
        await light.receive()
    return between


async def test_small_messages_do_not_wait_for_large_ones_of_others(tmp_path: Path) -> None:
    topology = flat("s1")
    async with servers(topology, tmp_path) as running, flooded(url(topology, "s1")) as light:
        server = running["s1"]
        await until(lambda: server.node.intake.messages_accepted > 20)
        between = await accepted_meanwhile(server, light)
        assert max(between) <= MAX_BEFORE, between


async def test_whoever_does_not_read_what_it_writes_to_itself_stops_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOXES_BYTES", 100_000)
    topology = flat("s1")
    async with servers(topology, tmp_path) as running, thence.connect(url(topology, "s1"), "light") as light:
        mailboxes = running["s1"].node.directory.mailboxes
        async with thence.connect(url(topology, "s1"), "greedy") as greedy:

            async def write() -> None:
                for _ in range(300):
                    await greedy.send("greedy", bytes(1_000))

            writing = asyncio.create_task(write())
            await until(lambda: "greedy" in mailboxes.refused)
            for _ in range(SMALL):
                await light.send("light", b"x")
                assert (await light.receive()).body == b"x"
                light.done()
            assert (mailboxes.full, writing.done()) == ("", False)
            for _ in range(300):
                await greedy.receive()
                greedy.done()
            await writing


class Walker:
    """Sends a small message to another server, waits until it has come, and sends the next."""

    def __init__(self) -> None:
        self.walked = 0
        self._begun = (0, 0.0)

    async def walk(self, sender: thence.Client, receiver: thence.Client) -> None:
        while True:
            await sender.send("receiver", b"x")
            await receiver.receive()
            receiver.done()
            self.walked += 1

    def begin(self) -> None:
        self._begun = self.walked, time.monotonic()

    def rate(self) -> float:
        walked, began = self._begun
        return (self.walked - walked) / (time.monotonic() - began)


async def in_turns(first: str, second: str) -> tuple[float, float]:
    """Return the rate of a walker between two servers in peace, and beside very large messages."""
    async with (
        thence.connect(first, "sender") as sender,
        thence.connect(second, "receiver") as receiver,
        thence.connect(second, "sink") as sink,
        thence.connect(first, "huge") as huge,
    ):
        sink.on_message(lambda _: None)
        for name in ("receiver", "sink"):
            await sender.known(name)
            await huge.known(name)
        walker = Walker()
        walking = asyncio.create_task(walker.walk(sender, receiver))
        calm, attacked = 0.0, 0.0
        for _ in range(2):
            await asyncio.sleep(CALM_S / 2)
            walker.begin()
            await asyncio.sleep(CALM_S)
            calm += walker.rate()
            walker.begin()
            for _ in range(HUGE):
                await huge.send("sink", bytes(HUGE_BYTES))
            attacked += walker.rate()
        walking.cancel()
        with suppress(asyncio.CancelledError):
            await walking
    return calm, attacked


@pytest.mark.slow
def test_very_large_messages_leave_others_their_rate(tmp_path: Path) -> None:
    """Between two servers: before, next to nothing of others got through beside them."""
    with fleet(flat("s1", "s2"), tmp_path) as running:
        calm, attacked = asyncio.run(in_turns(url(running.topology, "s1"), url(running.topology, "s2")))
    assert attacked >= LEAST_RATE * calm, f"{attacked / 2:.0f} messages a second, and {calm / 2:.0f} in peace"


# --- connections


async def test_one_token_takes_no_more_connections_than_leave_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It allows nothing; before, all others waited until it was taken out of the access file."""
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 32)
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann=EVERYTHING, bob=EVERYTHING, mal={})
    mal = parse_token(access.tokens["mal"])
    async with servers(topology, access=access.path) as running:
        called, crowd, refused = [], [], []
        for _ in range(40):
            speaker = await Speaker.call(topology.addresses["s1"], local=EVIL_HOST)
            called.append(speaker)
            try:
                await prove(speaker, "", mal)
                crowd.append(speaker)
            except (ConnectionError, EOFError) as error:
                refused.append(str(error))
        assert len(crowd) == 32 - 32 // listener.SPARE_SHARE
        assert "the token of 'mal' has 30 connections, and others want some" in refused[0]
        async with AsyncExitStack() as stack:
            for name in ("ann", "bob"):
                for number in range(3):
                    one = thence.connect(url(topology, "s1"), f"{name}{number}", token=access.tokens[name])
                    client = await stack.enter_async_context(one)
                    await client.send(f"{name}{number}", b"in")
                    assert (await client.receive()).body == b"in"
                    client.done()
            assert isinstance(await crowd[-1].hear(), Refused), "the newest made room, and was told"
            assert len(running["s1"].clients.all) == 30
            assert [one.guest.rights.entry for one in running["s1"].clients.all if one.guest].count("mal") == 30 - 6
        for speaker in called:
            speaker.close()
    lines = [record.getMessage() for record in caplog.records if "one more of the token of 'mal'" in record.getMessage()]
    assert len(lines) == 1, lines


async def test_a_peer_gets_in_where_clients_have_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 32)
    topology = flat("s2", "s1")  # The first one calls.
    server = await started(topology, "s1")
    crowd = []
    try:
        for _ in range(40):
            speaker = await Speaker.call(topology.addresses["s1"], local=EVIL_HOST)
            speaker.say(ClientHello(PROTOCOL, ""))
            crowd.append(speaker)
        await until(lambda: server.turned_away >= 40 - 32)
        peer = await started(topology, "s2")
        await until(lambda: server.node.peers.peers["s2"].up)
        await peer.stop(drain_s=0)
    finally:
        for speaker in crowd:
            speaker.close()
        await server.stop(drain_s=0)


# --- mailboxes at other servers

OTHERS = 20
"""How many messages others exchange while the mailbox is closed."""

WAYS = ["name", "topic", "everyone"]


@asynccontextmanager
async def filled(
    topology: Topology, data: Path | None, monkeypatch: pytest.MonkeyPatch, way: str = "name", **options: Any
) -> AsyncIterator[tuple[dict[str, Server], thence.Client]]:
    """Run servers; a client of s1 writes without end to one of s2 that reads nothing. Give them when that mailbox is closed."""
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOXES_BYTES", 200_000)
    async with servers(topology, data, **options) as running:
        async with thence.connect(url(topology, "s2"), "sleeper") as sleeper:
            await sleeper.subscribe("news")
        async with thence.connect(url(topology, "s1"), "greedy") as greedy:
            await greedy.known("sleeper")

            async def write() -> None:
                for _ in range(2_000):
                    if way == "name":
                        await greedy.send("sleeper", bytes(1_000))
                    elif way == "topic":
                        await greedy.publish("news", bytes(1_000))
                    else:
                        await greedy.send(thence.EVERYONE, bytes(1_000))

            writing = asyncio.create_task(write())
            reading = asyncio.create_task(_read(greedy))
            await until(lambda: "sleeper" in running["s1"].node.directory.closings.closed)
            yield running, greedy
            writing.cancel()
            reading.cancel()
            for task in (writing, reading):
                with suppress(asyncio.CancelledError, thence.UsageError):
                    await task
            if "sleeper" in running["s2"].node.directory.state.mailboxes:  # What is left to say can be said.
                running["s2"].node.removal.purge("sleeper", lambda _: None)


async def _read(client: thence.Client) -> None:
    async for _ in client:
        client.done()


async def exchange(topology: Topology, count: int = OTHERS) -> None:
    """Let clients of both servers write to each other, and read."""
    async with thence.connect(url(topology, "s1"), "ann") as ann, thence.connect(url(topology, "s2"), "bob") as bob:
        await ann.known("bob")
        await bob.known("ann")
        for number in range(count):
            await ann.send("bob", str(number).encode())
            assert (await bob.receive()).body == str(number).encode()
            bob.done()
            await bob.send("ann", str(number).encode())
            assert (await ann.receive()).body == str(number).encode()
            ann.done()


MODES = [("memory", False), ("memory", True), ("spill", True)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("mode", "stored"), MODES, ids=["volatile", "memory", "spill"])
async def test_whoever_fills_a_mailbox_at_another_server_waits_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, mode: str, stored: bool
) -> None:
    topology = flat("s1", "s2")
    options: dict[str, Any] = {}
    if mode == "spill":
        options = {"spill_after_bytes": 20_000, "max_store_bytes": 4_000_000}
    async with filled(topology, tmp_path if stored else None, monkeypatch, way, **options) as (running, _):
        await exchange(topology)
        mailboxes = running["s2"].node.directory.mailboxes
        assert (mailboxes.full, running["s2"].node.dispatch.held, list(mailboxes.closed)) == ("", 0, ["sleeper"])
        assert mailboxes.in_memory <= mailboxes.most_bytes + mailboxes.most_late_bytes
        before = running["s2"].node.directory.state.mailboxes["sleeper"].position
        await exchange(topology, 3)
        assert running["s2"].node.directory.state.mailboxes["sleeper"].position == before
        told = (await ask_status(url(topology, "s1")))["stalled"]
        assert told.startswith("the mailbox of 'sleeper' at 's2' is full; whoever writes there waits")
        assert f"thence client show|purge|remove thence://{topology.addresses['s2']} sleeper" in running["s1"].status.remedy
        assert running["s1"].status.not_ready == running["s2"].status.not_ready == ""


@pytest.mark.parametrize("remedy", ["purge", "read"])
async def test_the_remedy_opens_the_mailbox_and_whoever_waited_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remedy: str
) -> None:
    topology = flat("s1", "s2")
    async with filled(topology, tmp_path, monkeypatch) as (running, _):
        near, far = running["s1"].node, running["s2"].node
        before = near.intake.messages_accepted
        if remedy == "read":
            async with thence.connect(url(topology, "s2"), "sleeper") as sleeper:
                for _ in range(before):
                    await sleeper.receive()
                    sleeper.done()
        else:
            far.removal.purge("sleeper", lambda _: None)
        await until(lambda: near.intake.messages_accepted > before)


async def restart(running: dict[str, Server], topology: Topology, name: str, data: Path) -> None:
    await running[name].stop(drain_s=0)
    running[name] = await started(topology, name, data)


async def test_a_restart_goes_on_with_closed_mailboxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = flat("s1", "s2")
    async with filled(topology, tmp_path, monkeypatch) as (running, _):
        for name in ("s2", "s1"):
            await restart(running, topology, name, tmp_path)
            assert "sleeper" in running[name].node.directory.closings.closed
        assert list(running["s2"].node.directory.mailboxes.closed) == ["sleeper"]
        await exchange(topology)
        running["s2"].node.removal.purge("sleeper", lambda _: None)
        await until(lambda: not running["s1"].node.directory.closings.closed)
        await restart(running, topology, "s2", tmp_path)
        assert not running["s2"].node.directory.mailboxes.closed
        await exchange(topology)


def batch(number: int, client: str, body: bytes) -> Batch:
    return Batch("mallory", number, 1, (client,), None, write_messages([BatchItem(body)]))


async def test_a_captured_server_that_does_not_keep_to_it_stops_deliveries_until_a_purge(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the mailbox, memory stays within its bound, and nothing is lost."""
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOXES_BYTES", 100_000)
    topology = addressed(FLAT)
    async with captured(topology) as (server, evil), thence.connect(url(topology, "s1"), "ann") as ann:
        node = server.node
        mailboxes = node.directory.mailboxes
        async with thence.connect(url(topology, "s1"), "victim"):
            pass
        evil.say_packet(packet(1, Joined("mallory", "s2", temporary=False)))
        sent = 1
        while not mailboxes.full and sent < 500:
            sent += 1
            evil.say_packet(packet(sent, batch(sent, "victim", bytes(1_000)), to=("s1",)))
            await asyncio.sleep(0.001)
        assert 100 < sent < 140, "four fifths of 100 messages, and 25 that come late, with what is on its way"
        for _ in range(50):
            sent += 1
            evil.say_packet(packet(sent, batch(sent, "victim", bytes(1_000)), to=("s1",)))
        waiting = asyncio.create_task(ann.send("ann", b"goes on"))
        await until(lambda: "the mailbox of 'victim' is full" in caplog.text and "no deliveries are taken" in caplog.text)
        assert not waiting.done()
        assert server.status.not_ready.startswith("the mailbox of 'victim' is full")
        assert server.status.remedy.endswith(" victim")
        assert (mailboxes.full, node.dispatch.held > 0) == ("victim", True)
        assert mailboxes.in_memory <= mailboxes.most_bytes + mailboxes.most_late_bytes
        while node.directory.state.mailboxes["victim"].position < sent - 1:
            node.removal.purge("victim", lambda _: None)
            await asyncio.sleep(0.01)
        await waiting
        assert (await ann.receive()).body == b"goes on"
        assert (mailboxes.full, node.dispatch.held, node.directory.state.mailboxes["victim"].position) == ("", 0, sent - 1)


async def test_a_server_that_does_not_know_of_closed_mailboxes_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of an earlier version: deliveries stop until the victim reads, which gets all of them in order."""
    topology = flat("s1", "s2")
    async with servers(topology, tmp_path) as running:
        mailboxes = running["s2"].node.directory.mailboxes
        mailboxes.late_spilled_bytes, mailboxes.limit = 0, 100_000
        monkeypatch.setattr(running["s1"].node.directory.closings, "to", lambda *_: "")
        async with thence.connect(url(topology, "s2"), "victim"):
            pass
        async with thence.connect(url(topology, "s1"), "old") as old:
            await old.known("victim")
            for number in range(COUNT):
                old.post("victim", str(number).encode() + bytes(1_000))
                await asyncio.sleep(0)  # Each in a batch of its own.
            await until(lambda: mailboxes.full == "victim")
            async with thence.connect(url(topology, "s2"), "victim") as victim:
                for number in range(COUNT):
                    assert (await victim.receive(60.0)).body.rstrip(b"\0") == str(number).encode()
                victim.done()
            await old.flush()
            await exchange(topology)


# --- nothing waits for itself ------------------------------------------------------------------------------------------

COUNT = 300
LARGE = 10_000
ROOM = 2_000_000
"""What the mailboxes of a server take here. So many messages of so many bytes, of each client, are more."""


@asynccontextmanager
async def two(
    topology: Topology, data: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[dict[str, Server], thence.Client, thence.Client]]:
    """Run two servers with small mailboxes, and a client at each."""
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOXES_BYTES", ROOM)
    async with (
        servers(topology, data) as running,
        thence.connect(url(topology, "s1"), "ann") as ann,
        thence.connect(url(topology, "s2"), "bob") as bob,
    ):
        await ann.known("bob")
        await bob.known("ann")
        yield running, ann, bob


async def until_closed(running: dict[str, Server], names: set[str]) -> None:
    """Wait until both servers know that these mailboxes are closed."""
    await until(lambda: all(names == set(server.node.directory.closings.closed) for server in running.values()))


def keep(into: list[tuple[str, int]], message: thence.Message) -> None:
    into.append((message.sender, int(bytes(message.body).rstrip(b"\0"))))


async def test_clients_whose_mailboxes_are_closed_and_who_write_to_closed_ones_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writes to itself and to the other; reading is enough to end that."""
    topology = flat("s1", "s2")
    async with two(topology, tmp_path, monkeypatch) as (running, ann, bob):
        got: dict[str, list[tuple[str, int]]] = {"ann": [], "bob": []}
        for number in range(COUNT):
            for client in (ann, bob):
                client.post(["ann", "bob"], str(number).encode() + bytes(LARGE))
            await asyncio.sleep(0)
        await until_closed(running, {"ann", "bob"})
        for client in (ann, bob):
            client.on_message(partial(keep, got[client.name]))
        await asyncio.gather(ann.flush(), bob.flush())
        await until(lambda: all(len(came) == 2 * COUNT for came in got.values()))
        for came in got.values():
            for sender in got:
                assert [number for name, number in came if name == sender] == list(range(COUNT))


async def test_requests_and_replies_between_clients_with_closed_mailboxes_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = flat("s1", "s2")
    async with two(topology, tmp_path, monkeypatch) as (running, ann, bob):
        asking = [
            asyncio.create_task(client.request(to, bytes(LARGE), within=120.0))
            for client, to in ((ann, "bob"), (bob, "ann"))
            for _ in range(COUNT)
        ]
        await until_closed(running, {"ann", "bob"})
        for client in (ann, bob):
            client.on_message(partial(client.reply, body=bytes(LARGE)))
        replies = await asyncio.gather(*asking)
        assert [reply.sender for reply in replies] == ["bob"] * COUNT + ["ann"] * COUNT
        await until(lambda: not any(server.node.directory.closings.closed for server in running.values()))


async def publish(client: thence.Client) -> None:
    """Publish more than there is room for, one after the other."""
    for _ in range(COUNT):
        await client.publish("news", bytes(LARGE))


@pytest.mark.parametrize("remedy", ["purge", "unsubscribe", "remove"])
@pytest.mark.parametrize("publisher", ["s1", "s2"])
async def test_a_topic_whose_reader_never_reads_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publisher: str, remedy: str
) -> None:
    """Its publishers wait, at the server of the reader and elsewhere, and others do not, until somebody does something."""
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOXES_BYTES", ROOM)
    topology = flat("s1", "s2")
    async with servers(topology, tmp_path) as running:
        far = running["s2"].node
        async with thence.connect(url(topology, "s2"), "sleeper") as sleeper:
            await sleeper.subscribe("news")
        async with thence.connect(url(topology, publisher), "publisher") as client:
            await until(lambda: "sleeper" in running[publisher].node.directory.subscriptions.followers_of("news"))
            publishing = asyncio.create_task(publish(client))
            await until_closed(running, {"sleeper"})
            await exchange(topology, 3)
            assert not publishing.done()
            if remedy == "unsubscribe":
                async with thence.connect(url(topology, "s2"), "sleeper") as sleeper:
                    await sleeper.unsubscribe("news")
            elif remedy == "remove":
                far.removal.remove("sleeper", "remove")
            async with asyncio.timeout(60.0):
                while not publishing.done():
                    if remedy == "purge":
                        far.removal.purge("sleeper", lambda _: None)
                    await asyncio.sleep(0.1)
            await publishing
