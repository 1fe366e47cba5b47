"""One client takes as much as it can: large messages, mailboxes, connections. Others have their part all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

import thence
from tests.support.campaigns.attacks import EVIL_HOST
from tests.support.servers.running import flat, fleet, servers, started, until, url
from tests.support.servers.securing import EVERYTHING, Access, Speaker, prove
from thence.net.protocol import PROTOCOL, ClientHello, Refused
from thence.net.security.tokens import parse_token
from thence.node import listener
from thence.server.server import Server
from thence.storage import mailbox as mailbox_module

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
