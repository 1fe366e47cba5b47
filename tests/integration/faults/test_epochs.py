"""Servers on old copies of their stores, beside a copy of themselves, or on no store at all: nothing vanishes without a word.

In each case the old copy accepts more than it has forgotten before it meets its peer. Then all counters fit again, so
counters show nothing (``core.epochs.epoch``).
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme

import thence
from tests.integration.servers.test_upgrade import NOW, programs
from tests.support.servers.leading import asked
from tests.support.servers.running import PATIENCE_S, flat, servers, started, until, url
from tests.support.servers.securing import EVERYTHING, Access, certificates, secure_url
from thence.cli.servers.up import free_addresses
from thence.client.client import ask_status
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse, write
from thence.errors import Refusal, StorageError, ThenceError, UsageError
from thence.net.protocol import ViewRequest
from thence.node.offline.backup import backup, restore
from thence.node.peers.peer import HEARTBEAT_S
from thence.runtime.event_loop import ignore
from thence.server import apply
from thence.server.server import Server

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


class Way(NamedTuple):
    """How servers meet each other and their clients: as they are, or with TLS and tokens."""

    tls: Mapping[str, thence.TlsFiles] = {}
    token: str | None = None
    access: Path | None = None

    def url(self, topology: Topology, server: str) -> str:
        return secure_url(topology, server) if self.tls else url(topology, server)

    @property
    def credentials(self) -> dict[str, Any]:
        return {"token": self.token, "authority": self.tls["s1"].authority} if self.tls else {}

    def connect(self, topology: Topology, server: str, name: str) -> thence.Client:
        return thence.connect(self.url(topology, server), name, **self.credentials)

    async def started(self, topology: Topology, name: str, data: Path) -> Server:
        return await started(topology, name, data, tls=self.tls.get(name), access=self.access)

    @asynccontextmanager
    async def servers(self, topology: Topology, data: Path) -> AsyncIterator[dict[str, Server]]:
        running: dict[str, Server] = {}
        try:
            for name in topology.processes:
                running[name] = await self.started(topology, name, data)
            for server in running.values():
                await server.node.peers.wait_connected()
            yield running
        finally:
            for server in running.values():
                await server.stop(drain_s=0)

    @asynccontextmanager
    async def cut_off(self, topology: Topology, name: str, data: Path) -> AsyncIterator[Topology]:
        """Run a server where its peers are not; give the topology by which its clients find it."""
        alone = topology.at(dict(zip(topology.processes, free_addresses(len(topology.processes)), strict=True)))
        server = await self.started(alone, name, data)
        try:
            yield alone
        finally:
            await server.stop(drain_s=0)


OPEN = Way()


def way(secure: bool, folder: Path) -> Way:
    """Return how to meet in a test; with TLS and tokens, their files are in a folder."""
    if not secure:
        return OPEN
    access = Access(folder / "access.toml", all=EVERYTHING)
    return Way(certificates(folder / "tls", trustme.CA(), "s1", "s2"), access.tokens["all"], access.path)


async def talk(topology: Topology, first: int, count: int, *, only: str = "", by: Way = OPEN) -> None:
    """Let ann at s1 and bob at s2 write to each other; ``only``: the clients of one server alone."""
    async with by.connect(topology, "s1", "ann") as ann, by.connect(topology, "s2", "bob") as bob:
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


async def accept_alone(topology: Topology, name: str, data: Path, by: Way = OPEN) -> int:
    """Let a server accept something that its peer cannot get; return how many messages."""
    client, other = ("ann", "bob") if name == "s1" else ("bob", "ann")
    async with by.cut_off(topology, name, data) as alone, by.connect(alone, name, client) as sender:
        for number in range(ACCEPTED):
            await sender.send(other, 1000 + number)
    return ACCEPTED


def trouble(server: Server, peer: str) -> str:
    return server.node.peers.peers[peer].trouble


async def expect_fenced(
    topology: Topology, old: Server, beside: Server, caught: pytest.LogCaptureFixture, by: Way = OPEN
) -> None:
    """The old copy stops as a whole and says why, and so does its peer: each names both, and says what to do."""
    name, other = old.node.name, beside.node.name
    await until(lambda: old.node.peers.epochs.fenced and beside.node.peers.peers[name].behind == "peer")
    for said in (old.node.peers.epochs.fenced, trouble(beside, name), trouble(old, other)):
        assert repr(name) in said
        assert repr(other) in said
        assert f"--lost {name}" in said
    assert old.status.not_ready == old.status.report()["stalled"] == old.status.report()["fenced"] == old.node.peers.epochs.fenced
    assert not beside.status.not_ready
    assert not any(peer.up for peer in old.node.peers.peers.values())
    client, to = ("ann", "bob") if name == "s1" else ("bob", "ann")
    with pytest.raises(Refusal, match="is fenced since it met"):
        async with by.connect(topology, name, client) as sender:
            await sender.send(to, b"never accepted")
    status = await ask_status(by.url(topology, name), **by.credentials)
    assert status["fenced"]
    assert "trouble" in status["neighbours"][0]
    loud = [record for record in caught.records if record.levelno >= logging.ERROR]
    assert any(record.levelno == logging.CRITICAL and name in record.getMessage() for record in loud)
    assert any(record.name == "thence.peers" and "something was forgotten" in record.getMessage() for record in loud)


@pytest.mark.parametrize("old", ["s1", "s2"], ids=["who calls", "who is called"])
@pytest.mark.parametrize(
    ("copy", "secure"), [(OUR_OWN, False), (PLAIN, False), (PLAIN, True)], ids=["our own backup", "plain copy", "TLS"]
)
@pytest.mark.parametrize("stops", [True, False], ids=["both stop", "the peer goes on"])
async def test_an_old_copy_that_accepts_as_much_as_it_forgot_is_fenced(
    old: str, copy: tuple[Copy, Copy], secure: bool, stops: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topology, by = flat("s1", "s2"), way(secure, tmp_path)
    beside = "s2" if old == "s1" else "s1"
    async with by.servers(topology, tmp_path) as running:
        await talk(topology, 0, 5, by=by)
        await asyncio.to_thread(copy[0], tmp_path / old, tmp_path / "copy")
        await talk(topology, 5, FORGOTTEN, only=old, by=by)  # So the peer has nothing acknowledged that could be missed.
        await running[old].stop(drain_s=1)
        if stops:
            await until(lambda: not running[beside].node.peers.peers[old].up)  # It has read what the other stated last.
            await running[beside].stop(drain_s=0)
        shutil.rmtree(tmp_path / old)
        await asyncio.to_thread(copy[1], tmp_path / "copy", tmp_path / old)
        assert await accept_alone(topology, old, tmp_path, by) > FORGOTTEN
        if stops:
            running[beside] = await by.started(topology, beside, tmp_path)
        running[old] = await by.started(topology, old, tmp_path)
        await expect_fenced(topology, running[old], running[beside], caplog, by)
        if copy is OUR_OWN:
            assert f"{old!r} was restored from a copy" in trouble(running[beside], old)
        # It stays so, also if it meets nobody.
        await running[old].stop(drain_s=0)
        await running[beside].stop(drain_s=0)
        running[old] = await by.started(topology, old, tmp_path)
        assert running[old].node.peers.epochs.fenced
        with pytest.raises(Refusal, match="is fenced since it met"):
            async with by.connect(topology, old, "somebody"):
                pass


async def test_a_server_that_leaves_tells_how_far_it_is_though_its_store_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = flat("s1", "s2")
    async with servers(topology, tmp_path) as running:
        store = running["s1"].node.driver.store
        commit = store.commit

        def slow_commit(*limits: Any, **options: Any) -> int:
            time.sleep(0.2)
            return commit(*limits, **options)

        monkeypatch.setattr(store, "commit", slow_commit)
        await talk(topology, 0, 3, only="s1")
        sent = running["s1"].node.member.attachment.progress("s2")["D"].sent
        statements = running["s2"].node.peers.epochs.statements
        await running.pop("s1").stop(drain_s=1)
        await until(lambda: not running["s2"].node.peers.peers["s1"].up)
        assert statements.kept["s1"].places["D"][0] == sent


@pytest.mark.parametrize("old", ["s1", "s2"], ids=["who calls", "who is called"])
@pytest.mark.parametrize("at_once", [False, True], ids=["after a heartbeat", "at once"])
def test_an_old_copy_is_found_out_after_its_peer_was_killed(old: str, at_once: bool, tmp_path: Path) -> None:
    """Real processes, killed with -9 after messages went both ways.

    If they had a heartbeat's time for a last statement, the old copy is fenced; otherwise at least the two do not go on.
    """
    topology = flat("s1", "s2")
    beside = "s2" if old == "s1" else "s1"

    async def is_stopped() -> bool:
        status = await ask_status(url(topology, old))
        refused = at_once and "shows no statement" in status["neighbours"][0].get("trouble", "")
        return bool(status["fenced"]) or refused

    async def until_fenced() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await is_stopped():  # noqa: ASYNC110  It tells nobody.
                await asyncio.sleep(0.05)
            said = f"{old!r} runs on an old copy of its store"
            while said not in (await ask_status(url(topology, beside)))["neighbours"][0]["trouble"]:  # noqa: ASYNC110
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
        if not at_once:
            time.sleep(HEARTBEAT_S)
        for process in fabric.running.values():
            process.kill()
            process.wait(PATIENCE_S)
        shutil.rmtree(tmp_path / old)
        plain_return(tmp_path / "copy", tmp_path / old)
        fabric.start(old, NOW)
        asyncio.run(accept())
        fabric.start(beside, NOW)
        asyncio.run(until_fenced())


@pytest.mark.parametrize("peer_too", [False, True], ids=["it alone", "and its peer"])
def test_an_old_copy_is_fenced_that_was_killed_right_behind_its_only_message(peer_too: bool, tmp_path: Path) -> None:
    """It was told of with the message: an old copy that goes on with others would send them effects without their causes."""
    topology = flat("s1", "s2")
    killed = ("s1", "s2") if peer_too else ("s1",)

    async def send_and_kill() -> None:
        with suppress(ThenceError):
            async with OPEN.connect(topology, "s1", "ann") as ann, OPEN.connect(topology, "s2", "bob") as bob:
                await asyncio.sleep(HEARTBEAT_S)  # What was before is told of and written.
                plain_copy(tmp_path / "s1", tmp_path / "copy")
                await ann.send("bob", 5)
                await until_received(bob, 5)
                for name in killed:
                    fabric.running[name].kill()
                raise UsageError("do not wait for them")

    async def until_fenced() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not (await ask_status(url(topology, "s1")))["fenced"]:  # noqa: ASYNC110  It tells nobody.
                await asyncio.sleep(0.05)

    with programs(topology, tmp_path) as fabric:
        asyncio.run(talk(topology, 0, 5))
        asyncio.run(send_and_kill())
        for name in killed:
            fabric.running[name].wait(PATIENCE_S)
        shutil.rmtree(tmp_path / "s1")
        plain_return(tmp_path / "copy", tmp_path / "s1")
        for name in killed:
            fabric.start(name, NOW)
        asyncio.run(until_fenced())


@pytest.mark.parametrize("both_write", [True, False], ids=["both wrote", "the copy was idle"])
@pytest.mark.parametrize("secure", [False, True], ids=["", "TLS"])
async def test_of_two_that_run_beside_each_other_one_goes_on(
    secure: bool, both_write: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topology, by = flat("s1", "s2"), way(secure, tmp_path)
    beside = topology.at(dict(zip(topology.processes, (*free_addresses(1), topology.addresses["s2"]), strict=True)))
    accepted: dict[str, list[int]] = {"original": [], "copy": []}
    came: list[int] = []

    async def write(where: Topology, who: str, first: int) -> None:
        async with by.connect(where, "s1", "ann") as ann:
            for number in range(first, first + ACCEPTED):
                await ann.send("bob", number)
                accepted[who].append(number)

    async with by.servers(topology, tmp_path) as running:
        await talk(topology, 0, 5, by=by)
        plain_copy(tmp_path / "s1", tmp_path / "beside" / "s1")
        if both_write:  # Where its peer is, it would be refused at once.
            async with by.cut_off(topology, "s1", tmp_path / "beside") as alone:
                await write(alone, "copy", 2000)
                await write(topology, "original", 1000)
        copy = await by.started(beside, "s1", tmp_path / "beside")
        try:
            # What decides is whom the peer meets next.
            await running["s2"].stop(drain_s=0)
            running["s2"] = await by.started(topology, "s2", tmp_path)
            both = {"original": running["s1"], "copy": copy}
            await until(lambda: any(one.node.peers.epochs.fenced for one in both.values()))
            await until(lambda: any(one.node.peers.peers["s2"].up for one in both.values()))
            (goes_on,) = [name for name, one in both.items() if not one.node.peers.epochs.fenced]
            await write(topology if goes_on == "original" else beside, goes_on, 3000)
            last = accepted[goes_on][-1]
            async with by.connect(topology, "s2", "bob") as bob:
                while not came or came[-1] != last:
                    came.append((await bob.receive()).value(int))
            assert set(accepted[goes_on]) <= set(came), "what the one that goes on has accepted came"
            assert any(record.levelno == logging.CRITICAL for record in caplog.records)
        finally:
            await copy.stop(drain_s=0)


@pytest.mark.parametrize("old", ["s1", "s2"], ids=["who calls", "who is called"])
@pytest.mark.parametrize("secure", [False, True], ids=["", "TLS"])
async def test_a_server_whose_disk_was_lost_is_fenced(old: str, secure: bool, tmp_path: Path) -> None:
    topology, by = flat("s1", "s2"), way(secure, tmp_path)
    beside = "s2" if old == "s1" else "s1"
    async with by.servers(topology, tmp_path) as running:
        await talk(topology, 0, 5, by=by)
        await running[old].stop(drain_s=1)
        shutil.rmtree(tmp_path / old)
        running[old] = await by.started(topology, old, tmp_path)
        await until(lambda: running[old].node.peers.epochs.fenced and running[beside].node.peers.peers[old].behind == "peer")
        assert f"{old!r} has lost its state" in trouble(running[beside], old)
        assert f"--lost {old}" in trouble(running[beside], old)
        assert f"{old!r} has lost its state, or runs on an old copy of its store" in running[old].status.not_ready
        with pytest.raises(Refusal, match="is fenced since it met"):
            async with by.connect(topology, old, "somebody"):
                pass


async def test_a_fenced_server_takes_no_part_in_a_change(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    async with OPEN.servers(topology, tmp_path) as running:
        await talk(topology, 0, 5)
        await running["s1"].stop(drain_s=1)
        shutil.rmtree(tmp_path / "s1")
        running["s1"] = await OPEN.started(topology, "s1", tmp_path)
        await until(lambda: running["s1"].node.peers.epochs.fenced and running["s2"].node.peers.peers["s1"].behind == "peer")
        answer = await asked(topology, "s1", ViewRequest("hold", 1, f"version = 2\n{write(topology)}"))
        assert "is fenced since it met" in answer.refused
        assert answer.standing.phase == "normal"
        assert not (await asked(topology, "s1", ViewRequest("ask"))).refused
        with pytest.raises(UsageError, match=r"'s2' does not go on with 's1': .* remove it with --lost s1"):
            await apply.TopologyChange(topology, parse(f"version = 2\n{write(topology)}"), apply.Access(), ignore).apply(
                timeout_s=10
            )


async def test_an_old_copy_from_before_a_change_is_fenced(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    following = parse(f"version = 2\n{write(topology)}".replace("vector", "matrix"))
    async with OPEN.servers(topology, tmp_path) as running:
        await talk(topology, 0, 5)
        plain_copy(tmp_path / "s1", tmp_path / "copy")
        await apply.TopologyChange(topology, following, apply.Access(), ignore).apply(timeout_s=PATIENCE_S)
        await talk(topology, 5, FORGOTTEN, only="s1")
        await running["s1"].stop(drain_s=1)
        await until(lambda: not running["s2"].node.peers.peers["s1"].up)
        shutil.rmtree(tmp_path / "s1")
        plain_return(tmp_path / "copy", tmp_path / "s1")
        running["s1"] = await OPEN.started(topology, "s1", tmp_path)
        await until(lambda: running["s1"].node.peers.epochs.fenced and running["s2"].node.peers.peers["s1"].behind == "peer")
        assert "--lost s1" in running["s1"].status.not_ready
        assert "'s1' runs on an old copy of its store" in trouble(running["s2"], "s1")


async def test_a_peer_that_goes_while_the_store_has_failed_leaves_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise StorageError("the disk does not work")

    topology = flat("s1", "s2")
    async with servers(topology, tmp_path) as running:
        await talk(topology, 0, 3)
        monkeypatch.setattr(running["s1"].node.driver, "write", fail)
        await running["s2"].stop(drain_s=0)
        await until(lambda: not running["s1"].node.peers.peers["s2"].up)
        monkeypatch.undo()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_two_that_only_come_and_go_are_in_a_new_epoch_each_time(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    numbers = []
    async with servers(topology, tmp_path) as running:
        for round_ in range(4):
            await talk(topology, 3 * round_, 3)
            both = [running["s1"].node.peers.epochs.claims["s2"], running["s2"].node.peers.epochs.claims["s1"]]
            assert both[0].agreed.epoch == both[1].agreed.epoch
            numbers.append(both[0].agreed.epoch.number)
            name = ("s1", "s2")[round_ % 2]
            await running[name].stop(drain_s=0)
            running[name] = await started(topology, name, tmp_path)
            await running[name].node.peers.wait_connected()
    assert numbers == sorted(set(numbers))
