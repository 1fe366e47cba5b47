"""A server that goes back to an old copy of its store, or to none, while its clients stay: they are told."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import thence
from tests.integration.clients.test_fencing import heard_by
from tests.integration.faults.test_faults import proxied
from tests.support.servers.running import flat, fleet, started, until, url, wait_for_server
from thence.core.topology.model import Topology
from thence.errors import StateLost
from thence.net.proxy import Mode
from thence.node.offline.backup import backup, restore
from thence.server.server import Server


@asynccontextmanager
async def bystander(client: thence.Client) -> AsyncIterator[thence.Client]:
    """Use a client that may be told as well, at the latest when it leaves."""
    await client.__aenter__()
    yield client
    with suppress(StateLost):
        await client.__aexit__(None, None, None)


async def rolled_back(topology: Topology, server: Server, data: Path, copy: Path) -> Server:
    """Start a server again on a copy of its store."""
    await server.stop(drain_s=0)
    shutil.rmtree(data / "s1")
    shutil.copytree(copy, data / "s1")
    return await started(topology, "s1", data)


@pytest.mark.parametrize("way", ["sent", "received", "both"])
@pytest.mark.parametrize("fresh", [0, 15], ids=["", "others go on"])
async def test_a_client_that_stays_while_its_server_goes_back_is_told(way: str, fresh: int, tmp_path: Path) -> None:
    """The old copy has sent as much again as it forgot, so counters alone would fit."""
    topology = flat("s1")
    server = await started(topology, "s1", tmp_path)
    proxy = await proxied(topology, "s1")
    async with (
        thence.connect(f"thence://{proxy.address}", "ann") as ann,
        bystander(thence.connect(url(topology, "s1"), "bob")) as bob,
    ):
        await ann.send("bob", b"before")
        await bob.send("ann", b"before")
        assert (await ann.receive(10)).body == b"before"
        await asyncio.to_thread(backup, tmp_path / "s1", tmp_path / "copy")
        if way in ("sent", "both"):
            for number in range(10):
                await ann.send("bob", b"%d" % number)
        if way in ("received", "both"):
            for number in range(10):
                await bob.send("ann", b"%d" % number)
                await ann.receive(10)
        ann.done()
        proxy.set_mode(Mode.CUT)
        server = await rolled_back(topology, server, tmp_path, tmp_path / "copy")
        if fresh:
            async with thence.connect(url(topology, "s1"), "cleo") as cleo:
                for number in range(fresh):
                    await cleo.send(["ann", "bob"], b"%d" % number)
        proxy.set_mode(Mode.WELL)
        with pytest.raises(StateLost, match=r"'s1' has lost what it had of 'ann'.*old copy of its store.*may be lost"):
            await ann.receive(20)
        with pytest.raises(StateLost):
            await ann.send("bob", b"?")
    async with thence.connect(url(topology, "s1"), "ann") as again:
        await again.send("ann", b"a program that starts goes on with what there is")
    await proxy.close()
    await server.stop(drain_s=0)


async def test_a_client_that_exchanged_nothing_since_goes_on(tmp_path: Path) -> None:
    topology = flat("s1")
    server = await started(topology, "s1", tmp_path)
    async with thence.connect(url(topology, "s1"), "ann") as ann:
        await ann.send("ann", b"before")
        assert (await ann.receive(10)).body == b"before"
        await server.stop(drain_s=0)
        backup(tmp_path / "s1", tmp_path / "copy")
        shutil.rmtree(tmp_path / "s1")
        restore(tmp_path / "copy", tmp_path / "s1")
        server = await started(topology, "s1", tmp_path)
        await ann.send("ann", b"behind")
        assert (await ann.receive(10)).body == b"behind"
    await server.stop(drain_s=0)


async def test_a_client_whose_server_lost_its_disk_is_told_at_once(tmp_path: Path) -> None:
    topology = flat("s1")
    server = await started(topology, "s1", tmp_path)
    async with thence.connect(url(topology, "s1"), "ann") as ann:
        await ann.send("ann", b"before")
        await ann.receive(10)
        await server.stop(drain_s=0)
        ann.post("ann", b"queued")
        heard = heard_by(ann)
        sending = asyncio.create_task(ann.send("ann", b"waited for"))
        await asyncio.sleep(0)
        server = await started(topology, "s1", tmp_path / "elsewhere")
        with pytest.raises(StateLost, match=r"'s1' has no mailbox of 'ann'.*up to number 1 are accepted.*knows of 0"):
            await sending
        assert len(heard) == 1
    assert not server.node.directory.state.mailboxes, "nobody came in"
    await server.stop(drain_s=0)


async def test_a_server_that_goes_back_in_the_middle_of_an_epoch_and_catches_up_is_noticed(tmp_path: Path) -> None:
    """The copy knows the epoch. What others send to the mailbox meanwhile makes its counters fit again."""
    topology = flat("s1")
    server = await started(topology, "s1", tmp_path)
    async with (
        thence.connect(url(topology, "s1"), "ann") as ann,
        bystander(thence.connect(url(topology, "s1"), "bob")) as bob,
    ):
        await asyncio.to_thread(backup, tmp_path / "s1", tmp_path / "copy")
        for number in range(3):
            await bob.send("ann", b"%d" % number)
            await ann.receive(10)
        server = await rolled_back(topology, server, tmp_path, tmp_path / "copy")
        with pytest.raises(StateLost, match="'ann' has taken number 3 of 'home' from 's1', which knew of 0"):
            await ann.receive(20)
    await server.stop(drain_s=0)


def test_a_server_killed_again_and_again_raises_no_alarm(tmp_path: Path) -> None:
    topology = flat("s1")
    got: list[bytes] = []

    async def work() -> None:
        async with thence.connect(url(running.topology, "s1"), "ann", connect_timeout=30) as ann:
            ann.on_message(lambda message: got.append(message.body))
            for number in range(60):
                ann.post("ann", b"%d" % number)
                ann.post_topic("nobody follows it", b"")
                if number % 20 == 10:
                    await asyncio.to_thread(running.kill, "s1")
                    await asyncio.to_thread(running.start_one, "s1")
                await asyncio.sleep(0.002)
            await ann.flush()
            await until(lambda: len(got) == 60)

    with fleet(topology, tmp_path) as running:
        wait_for_server(running.topology, "s1")
        asyncio.run(work())
    assert got == [b"%d" % number for number in range(60)]
