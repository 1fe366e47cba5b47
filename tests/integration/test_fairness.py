"""One client sends as much as it can, in large messages; another one's small messages do not wait for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import thence
from tests.support.servers.running import flat, servers, until, url
from thence.server.server import Server
from thence.storage import mailbox as mailbox_module

LARGE_BYTES = 3 * 1024 * 1024
SMALL = 3
"""How many small messages are sent, one after the other."""
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
