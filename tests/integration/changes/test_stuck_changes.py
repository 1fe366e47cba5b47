"""Running servers, one of which is lost for good in the midst of a change that counts on it: the others get out of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import thence
from tests.integration.changes.test_reconfiguration import quietly
from tests.integration.changes.test_removal import applied
from tests.support.campaigns.evolving_load import following, load
from tests.support.servers.leading import asked
from tests.support.servers.running import assert_kept, flat, servers, started, until, url
from thence.core.topology.model import Topology
from thence.core.topology.toml import write
from thence.errors import UsageError
from thence.net.protocol import ViewRequest
from thence.server.apply import Access, TopologyChange
from thence.server.server import Server

NAMES = ("s1", "s2", "s3", "s4")
OLD = flat(*NAMES, ordering="matrix")
SPLIT = following(OLD, {"D": ("s1", "s2"), "E": ("s2", "s3", "s4")})
WITHOUT = following(OLD, {"D": ("s1", "s2"), "E": ("s2", "s4")})


async def prepare(new: Topology, *lost: str) -> None:
    """Lead all but the lost ones as far as a command that dies then."""
    for request in (ViewRequest("hold", 7, write(new), lost=lost), ViewRequest("prepare", 7)):
        for name in NAMES:
            if name not in lost:
                assert not (await asked(OLD, name, request)).refused


async def lose(running: dict[str, Server], name: str, folder: Path) -> None:
    await running.pop(name).stop(drain_s=0)
    shutil.rmtree(folder / name)


def phases(running: dict[str, Server]) -> set[str]:
    return {server.status.report()["change"]["phase"] for server in running.values()}


async def test_one_who_is_lost_when_all_are_prepared_is_removed(tmp_path: Path) -> None:
    async with servers(OLD, tmp_path, tmp_path / "trace") as running, load(OLD, ("s1", "s2")) as clients:
        await clients.more(5)
        await prepare(SPLIT)
        await lose(running, "s3", tmp_path)
        with pytest.raises(UsageError, match="waiting for s3 to answer"):
            await TopologyChange(OLD, SPLIT, Access(), quietly).abort(0.5)
        await applied(OLD, WITHOUT, "s3")
        assert {server.node.topology.fingerprint for server in running.values()} == {WITHOUT.fingerprint}
        await clients.more(5)
        await clients.finish()
    assert_kept(tmp_path / "trace", sends=20)


async def test_a_change_that_one_has_made_is_finished_before_another_one_is_removed(tmp_path: Path) -> None:
    after = following(SPLIT, {"D": ("s1", "s2"), "E": ("s2", "s4")})
    async with servers(OLD, tmp_path, tmp_path / "trace") as running, thence.connect(url(OLD, "s4"), "dora") as dora:
        await prepare(SPLIT)
        await lose(running, "s3", tmp_path)
        # s4 was told that s3 is lost, and then the command died; somebody else had let s1 switch by then.
        assert not (await asked(OLD, "s4", ViewRequest("bar", 7, lost=("s3",)))).refused
        assert "barred without s3" in (await asked(OLD, "s4", ViewRequest("switch", 7))).refused
        assert not (await asked(OLD, "s1", ViewRequest("switch", 7))).refused
        with pytest.raises(UsageError, match="What follows that one has version 3"):
            await applied(OLD, WITHOUT, "s3")
        await until(lambda: {server.node.topology.fingerprint for server in running.values()} == {SPLIT.fingerprint})
        await applied(SPLIT, after, "s3")
        await dora.send("dora", b"goes on")
        assert (await dora.receive()).body == b"goes on"
    assert_kept(tmp_path / "trace")


async def test_a_second_one_is_lost_while_the_first_is_removed(tmp_path: Path) -> None:
    alone = following(OLD, {"D": ("s1", "s2")})
    async with servers(OLD, tmp_path, tmp_path / "trace") as running:
        await lose(running, "s3", tmp_path)
        await prepare(WITHOUT, "s3")
        assert not (await asked(OLD, "s1", ViewRequest("flush", 7, list_id="x", last=True))).refused
        await lose(running, "s4", tmp_path)
        await applied(OLD, alone, "s3", "s4")
        assert {server.node.topology.fingerprint for server in running.values()} == {alone.fingerprint}
        assert running["s1"].status.report()["change"]["gone"] == {"s3": 2, "s4": 2}


async def test_an_abort_frees_those_who_are_prepared_with_one_who_is_lost(tmp_path: Path) -> None:
    async with servers(OLD, tmp_path) as running:
        await prepare(SPLIT)
        await lose(running, "s3", tmp_path)
        # The file may still have the server: nobody goes there.
        await TopologyChange(OLD, SPLIT, Access(), quietly, ("s3",), back=True).abort(20)
        assert phases(running) == {"normal"}


async def test_one_that_comes_back_without_its_data_is_no_member_that_counts(tmp_path: Path) -> None:
    """Its peers refuse it; a change would make it one of them again, and its messages would be numbered from 1 again."""
    without = following(OLD, {"D": ("s1", "s2"), "E": ("s2", "s4")})
    async with servers(OLD, tmp_path, tmp_path / "trace") as running:
        await until(lambda: all(not server.node.peers.peers["s3"].trouble for name, server in running.items() if name != "s3"))
        await lose(running, "s3", tmp_path)
        running["s3"] = await started(OLD, "s3", tmp_path, tmp_path / "other-trace")
        await until(
            lambda: any(server.node.peers.peers["s3"].behind == "peer" for name, server in running.items() if name != "s3")
        )
        with pytest.raises(UsageError, match=r"does not go on with 's3': .* remove it with --lost s3"):
            await applied(OLD, SPLIT)
        assert phases(running) == {"normal"}
        await running.pop("s3").stop(drain_s=0)
        await applied(OLD, without, "s3")
