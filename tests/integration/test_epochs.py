"""Servers on old copies of their stores, beside a copy of themselves, or on no store at all: nothing vanishes without a word.

In each case the old copy accepts more than it has forgotten before it meets its neighbour. Then all counters fit again, so
counters show nothing (``core.epochs``).
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import thence
from tests.integration.running import PATIENCE_S, flat, run, servers, started, until, url
from tests.integration.test_upgrade import NOW, programs
from thence.cli.up import free_addresses
from thence.core.topology import Topology
from thence.errors import Refusal
from thence.runtime.backup import backup, restore
from thence.runtime.client import ask_status
from thence.runtime.server import Server

FORGOTTEN = 10
ACCEPTED = 15
"""More than was forgotten."""

Copy = Callable[[Path, Path], object]


def plain_copy(source: Path, target: Path) -> None:
    """Copy a folder as people do; the server does not notice."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("lock"))


def plain_return(source: Path, target: Path) -> None:
    shutil.copytree(source, target)


OUR_OWN = (backup, restore)
PLAIN = (plain_copy, plain_return)


@asynccontextmanager
async def cut_off(topology: Topology, name: str, data: Path) -> AsyncIterator[str]:
    """Run a server where its neighbours are not; return where its clients are."""
    alone = topology.at(dict(zip(topology.processes, free_addresses(len(topology.processes)), strict=True)))
    server = await started(alone, name, data)
    try:
        yield url(alone, name)
    finally:
        await server.stop(drain_s=0)


async def talk(topology: Topology, first: int, count: int, *, only: str = "") -> None:
    """Let ann at s1 and bob at s2 write to each other; ``only``: the clients of one server alone."""
    async with thence.connect(url(topology, "s1"), "ann") as ann, thence.connect(url(topology, "s2"), "bob") as bob:
        await ann.known("bob")
        for number in range(first, first + count):
            if only != "s2":
                await ann.send("bob", number)
                await until_received(bob, number)
            if only != "s1":
                await bob.send("ann", number)
                await until_received(ann, number)


async def until_received(client: thence.Client, number: int) -> None:
    """Wait for a number; what was not acknowledged in time comes again before it."""
    while (got := (await client.receive()).value(int)) != number:
        assert got < number


async def accept_alone(topology: Topology, name: str, data: Path) -> int:
    """Let a server accept something that its neighbour cannot get; return how many messages."""
    client, other = ("ann", "bob") if name == "s1" else ("bob", "ann")
    async with cut_off(topology, name, data) as where, thence.connect(where, client) as sender:
        for number in range(ACCEPTED):
            await sender.send(other, 1000 + number)
    return ACCEPTED


def trouble(server: Server, peer: str) -> str:
    return server.node.peers.neighbours[peer].trouble


async def expect_fenced(topology: Topology, old: Server, neighbour: Server, caught: pytest.LogCaptureFixture) -> None:
    """The old copy stops as a whole and says why, and so does its neighbour: each names both, and says what to do."""
    name, other = old.node.name, neighbour.node.name
    await until(lambda: old.node.meetings.fenced and neighbour.node.peers.neighbours[name].forgot)
    for said in (old.node.meetings.fenced, trouble(neighbour, name), trouble(old, other)):
        assert repr(name) in said
        assert repr(other) in said
        assert f"--lost {name}" in said
    assert old.not_ready == old.status()["stalled"] == old.status()["fenced"] == old.node.meetings.fenced
    assert not neighbour.not_ready
    assert not any(peer.up for peer in old.node.peers.neighbours.values())
    client, to = ("ann", "bob") if name == "s1" else ("bob", "ann")
    with pytest.raises(Refusal, match="is fenced since it met"):
        async with thence.connect(url(topology, name), client) as sender:
            await sender.send(to, b"never accepted")
    status = await ask_status(url(topology, name))
    assert status["fenced"]
    assert "trouble" in status["neighbours"][0]
    loud = [record for record in caught.records if record.levelno >= logging.ERROR]
    assert any(record.levelno == logging.CRITICAL and name in record.getMessage() for record in loud)
    assert any(record.name == "thence.peers" and "something was forgotten" in record.getMessage() for record in loud)


@pytest.mark.parametrize("old", ["s1", "s2"], ids=["who calls", "who is called"])
@pytest.mark.parametrize("copy", [OUR_OWN, PLAIN], ids=["our own backup", "plain copy"])
@pytest.mark.parametrize("stops", [True, False], ids=["both stop", "the neighbour goes on"])
def test_an_old_copy_that_accepts_as_much_as_it_forgot_is_fenced(
    old: str, copy: tuple[Copy, Copy], stops: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topology = flat("s1", "s2")
    neighbour = "s2" if old == "s1" else "s1"

    async def main() -> None:
        async with servers(topology, tmp_path) as running:
            await talk(topology, 0, 5)
            await asyncio.to_thread(copy[0], tmp_path / old, tmp_path / "copy")
            await talk(topology, 5, FORGOTTEN, only=old)  # So the neighbour has nothing confirmed that could be missed.
            await running[old].stop(drain_s=1)
            if stops:
                await running[neighbour].stop(drain_s=0)
            shutil.rmtree(tmp_path / old)
            await asyncio.to_thread(copy[1], tmp_path / "copy", tmp_path / old)
            assert await accept_alone(topology, old, tmp_path) > FORGOTTEN
            if stops:
                running[neighbour] = await started(topology, neighbour, tmp_path)
            running[old] = await started(topology, old, tmp_path)
            await expect_fenced(topology, running[old], running[neighbour], caplog)
            if copy is OUR_OWN:
                assert f"{old!r} was restored from a copy" in trouble(running[neighbour], old)
            # It stays so, also if it meets nobody.
            await running[old].stop(drain_s=0)
            await running[neighbour].stop(drain_s=0)
            running[old] = await started(topology, old, tmp_path)
            assert running[old].node.meetings.fenced
            with pytest.raises(Refusal, match="is fenced since it met"):
                async with thence.connect(url(topology, old), "somebody"):
                    pass

    run(main)


@pytest.mark.parametrize("old", ["s1", "s2"], ids=["who calls", "who is called"])
def test_an_old_copy_is_fenced_after_its_neighbour_was_killed(old: str, tmp_path: Path) -> None:
    """Real processes, killed with -9 while messages went both ways."""
    topology = flat("s1", "s2")
    neighbour = "s2" if old == "s1" else "s1"

    async def until_fenced() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not (await ask_status(url(topology, old)))["fenced"]:  # noqa: ASYNC110  It tells nobody.
                await asyncio.sleep(0.05)
            said = f"{old!r} runs on an old copy of its store"
            while said not in (await ask_status(url(topology, neighbour)))["neighbours"][0]["trouble"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def accept() -> None:
        client, other = ("ann", "bob") if old == "s1" else ("bob", "ann")
        async with thence.connect(url(topology, old), client, connect_timeout=PATIENCE_S) as sender:
            for number in range(ACCEPTED):
                await sender.send(other, 1000 + number)

    with programs(topology, tmp_path) as fabric:
        asyncio.run(talk(topology, 0, 5))
        plain_copy(tmp_path / old, tmp_path / "copy")
        asyncio.run(talk(topology, 5, FORGOTTEN))
        for process in fabric.running.values():
            process.kill()
            process.wait(PATIENCE_S)
        shutil.rmtree(tmp_path / old)
        plain_return(tmp_path / "copy", tmp_path / old)
        fabric.start(old, NOW)
        asyncio.run(accept())
        fabric.start(neighbour, NOW)
        asyncio.run(until_fenced())


@pytest.mark.parametrize("both_write", [True, False], ids=["both wrote", "the copy was idle"])
def test_of_two_that_run_beside_each_other_one_goes_on(
    both_write: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topology = flat("s1", "s2")
    beside = topology.at(dict(zip(topology.processes, (*free_addresses(1), topology.addresses["s2"]), strict=True)))
    accepted: dict[str, list[int]] = {"original": [], "copy": []}
    came: list[int] = []

    async def main() -> None:
        async with servers(topology, tmp_path) as running:
            await talk(topology, 0, 5)
            plain_copy(tmp_path / "s1", tmp_path / "beside" / "s1")
            if both_write:  # Where its neighbour is, it would be refused at once.
                async with cut_off(topology, "s1", tmp_path / "beside") as where:
                    await write(where, "copy", 2000)
                    await write(url(topology, "s1"), "original", 1000)
            copy = await started(beside, "s1", tmp_path / "beside")
            try:
                # What decides is whom the neighbour meets next.
                await running["s2"].stop(drain_s=0)
                running["s2"] = await started(topology, "s2", tmp_path)
                both = {"original": running["s1"], "copy": copy}
                await until(lambda: any(one.node.meetings.fenced for one in both.values()))
                await until(lambda: any(one.node.peers.neighbours["s2"].up for one in both.values()))
                (goes_on,) = [name for name, one in both.items() if not one.node.meetings.fenced]
                await write(url(topology if goes_on == "original" else beside, "s1"), goes_on, 3000)
                last = accepted[goes_on][-1]
                async with thence.connect(url(topology, "s2"), "bob") as bob:
                    while not came or came[-1] != last:
                        came.append((await bob.receive()).value(int))
                assert set(accepted[goes_on]) <= set(came), "what the one that goes on has accepted came"
                assert any(record.levelno == logging.CRITICAL for record in caplog.records)
            finally:
                await copy.stop(drain_s=0)

    async def write(where: str, who: str, first: int) -> None:
        async with thence.connect(where, "ann") as ann:
            for number in range(first, first + ACCEPTED):
                await ann.send("bob", number)
                accepted[who].append(number)

    run(main)


@pytest.mark.parametrize("old", ["s1", "s2"], ids=["who calls", "who is called"])
def test_a_server_whose_disk_was_lost_is_fenced(old: str, tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    neighbour = "s2" if old == "s1" else "s1"

    async def main() -> None:
        async with servers(topology, tmp_path) as running:
            await talk(topology, 0, 5)
            await running[old].stop(drain_s=1)
            shutil.rmtree(tmp_path / old)
            running[old] = await started(topology, old, tmp_path)
            await until(lambda: running[old].node.meetings.fenced and running[neighbour].node.peers.neighbours[old].forgot)
            assert f"{old!r} has lost its state" in trouble(running[neighbour], old)
            assert f"--lost {old}" in trouble(running[neighbour], old)
            assert f"{old!r} has lost its state, or runs on an old copy of its store" in running[old].not_ready
            with pytest.raises(Refusal, match="is fenced since it met"):
                async with thence.connect(url(topology, old), "somebody"):
                    pass

    run(main)


def test_two_that_only_come_and_go_are_in_a_new_epoch_each_time(tmp_path: Path) -> None:
    topology = flat("s1", "s2")

    async def main() -> None:
        numbers = []
        async with servers(topology, tmp_path) as running:
            for round_ in range(4):
                await talk(topology, 3 * round_, 3)
                both = [running["s1"].node.meetings.claims["s2"], running["s2"].node.meetings.claims["s1"]]
                assert both[0].agreed.epoch == both[1].agreed.epoch
                numbers.append(both[0].agreed.epoch.number)
                name = ("s1", "s2")[round_ % 2]
                await running[name].stop(drain_s=0)
                running[name] = await started(topology, name, tmp_path)
                await running[name].node.peers.wait_connected()
        assert numbers == sorted(set(numbers))

    run(main)
