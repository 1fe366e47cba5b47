"""Copies of stores that are in use: whole, checked, and worth exactly what the page says."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

import thence
from tests.support.servers.running import flat, run, servers, started, until, url
from tests.support.servers.scraping import Prometheus
from tests.support.stores import filled
from tests.unit.cli import refusal
from tests.unit.cli import run as run_cli
from thence.errors import ConfigError, StateLost, StorageError
from thence.node.driver import commits
from thence.node.offline import backup as backup_module
from thence.node.offline.backup import backup, read_restored, restore
from thence.node.offline.inspection import examine
from thence.server.server import Server
from thence.storage import mailbox as mailbox_module
from thence.storage.recovery import Segment, read_segment
from thence.storage.store import Store


def trouble(server: Server, peer: str) -> str:
    return server.node.peers.peers[peer].trouble


# --- copies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spill_after_bytes", [None, 5_000], ids=["in memory", "spilled"])
def test_copies_made_under_load_are_whole_and_start(
    spill_after_bytes: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "COMPACT_BYTES", 20_000)
    monkeypatch.setattr(mailbox_module, "BLOCK_BYTES", 2_000)
    topology = flat("s1")
    copies = [tmp_path / f"copy-{number}" for number in range(8)]
    accepted: list[int] = []

    async def main() -> None:
        async with servers(topology, tmp_path / "data", spill_after_bytes=spill_after_bytes) as running:
            async with thence.connect(url(topology, "s1"), "bob") as bob:
                await bob.send("bob", b"here")

            async def write() -> None:
                async with thence.connect(url(topology, "s1"), "ann") as ann:
                    for number in range(100_000):
                        await ann.send("bob", b"%d " % number + b"x" * 200)

            writing = asyncio.create_task(write())
            for copy in copies:
                await asyncio.sleep(0.1)
                accepted.append(running["s1"].node.intake.accepted_of("ann"))
                copied = await asyncio.to_thread(backup, tmp_path / "data" / "s1", copy)
                assert copied.identity == "flat/s1"
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        assert accepted[-1] > accepted[0] > 0
        assert any(copies[-1].glob("spill-*")) == (spill_after_bytes is not None)

    run(main)
    for number, (copy, known) in enumerate(zip(copies, accepted, strict=True)):
        assert run_cli("store", "verify", copy).code == 0
        data = tmp_path / f"again-{number}"
        restore(copy, data / "s1")

        async def look(data: Path = data, known: int = known) -> None:
            """Everything that was accepted when the copy was begun is in it, in order."""
            async with (
                servers(topology, data, spill_after_bytes=spill_after_bytes),
                thence.connect(url(topology, "s1"), "bob") as bob,
            ):
                assert (await bob.receive()).body == b"here"
                for item in range(known):
                    assert (await bob.receive()).body.startswith(b"%d " % item)

        run(look)


def test_a_compaction_meanwhile_only_costs_another_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "store", [b"first", b"second"], [b"third"])
    store = Store.open(tmp_path / "store", "city/s1")
    before: list[Path] = []

    def compacting(path: Path, first: int) -> Segment:
        if not before:
            before.append(path)
            store.compact(b"all", 3)
        return read_segment(path, first)

    monkeypatch.setattr(backup_module, "read_segment", compacting)
    copied = backup(tmp_path / "store", tmp_path / "copy")
    store.close()
    assert before
    assert not before[0].exists()
    assert copied.last == 3
    again = Store.open(tmp_path / "copy", "city/s1")
    assert again.take_recovered() == (b"all", [])
    again.close()


def test_a_copy_that_never_succeeds_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "store", [b"first"])

    def gone(*_: object) -> None:
        raise FileNotFoundError("a segment")

    monkeypatch.setattr(backup_module, "read_segment", gone)
    with pytest.raises(StorageError, match="could not be copied whole in 10 attempts: a segment"):
        backup(tmp_path / "store", tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_commit_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    filled(tmp_path / "store", [b"first"], [b"second"])
    (segment,) = (tmp_path / "store").glob("segment-*")
    with segment.open("ab") as file:
        file.write(b"half of a commit")
    assert backup(tmp_path / "store", tmp_path / "copy").last == 2
    assert not examine(tmp_path / "copy").notes


def test_a_folder_that_the_system_keeps_at_the_root_of_a_disk_is_left_out(tmp_path: Path) -> None:
    filled(tmp_path / "store", [b"first"], [b"second"])
    (tmp_path / "store" / "lost+found").mkdir()
    assert backup(tmp_path / "store", tmp_path / "copy").last == 2
    assert not (tmp_path / "copy" / "lost+found").exists()


def test_nothing_is_written_over_and_nothing_damaged_is_copied(tmp_path: Path) -> None:
    filled(tmp_path / "store", [b"first"], [b"second"])
    backup(tmp_path / "store", tmp_path / "copy")
    with pytest.raises(ConfigError, match="is there already; nothing is written over"):
        backup(tmp_path / "store", tmp_path / "copy")
    with pytest.raises(ConfigError, match="is there already"):
        restore(tmp_path / "copy", tmp_path / "store")
    (tmp_path / "empty").mkdir()
    restore(tmp_path / "copy", tmp_path / "empty")
    held = Store.open(tmp_path / "empty", "city/s1")
    with pytest.raises(StorageError, match="is in use by process"):
        restore(tmp_path / "empty", tmp_path / "other")
    held.close()
    for folder in ("store", "copy"):
        (segment,) = (tmp_path / folder).glob("segment-*")
        segment.write_bytes(segment.read_bytes().replace(b"first", b"F1rst"))
    with pytest.raises(StorageError, match="is damaged, so there is nothing to copy"):
        backup(tmp_path / "store", tmp_path / "second")
    with pytest.raises(StorageError, match=r"the copy in .* is damaged"):
        restore(tmp_path / "copy", tmp_path / "third")


def test_the_commands(tmp_path: Path) -> None:
    filled(tmp_path / "store", [b"first"], [b"second"])
    ended = run_cli("store", "backup", tmp_path / "store", tmp_path / "copy")
    assert (ended.code, ended.out.startswith("city/s1: everything up to entry 2, ")) == (0, True)
    assert run_cli("store", "restore", tmp_path / "copy", tmp_path / "new").code == 0
    assert read_restored(tmp_path / "new") > 0 == read_restored(tmp_path / "store")
    assert "nothing is written over" in refusal("store", "restore", tmp_path / "copy", tmp_path / "new")
    (tmp_path / "new" / "restored").write_text("what?", encoding="ascii")
    with pytest.raises(StorageError, match="restored cannot be read"):
        read_restored(tmp_path / "new")


# --- what they are worth -----------------------------------------------------------------------------------------------


async def test_a_copy_since_which_nothing_happened_is_as_good_as_the_store(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    async with servers(topology, tmp_path) as running:
        async with thence.connect(url(topology, "s1"), "ann") as ann, thence.connect(url(topology, "s2"), "bob") as bob:
            await bob.known("ann")
            await bob.send("ann", b"here")
            assert (await ann.receive()).body == b"here"
        await until(lambda: not any(running["s2"].node.member.attachment.queued().values()))
        await running["s2"].stop(drain_s=1)
        backup(tmp_path / "s2", tmp_path / "copy")
        shutil.rmtree(tmp_path / "s2")
        restore(tmp_path / "copy", tmp_path / "s2")
        running["s2"] = await started(topology, "s2", tmp_path)
        await running["s2"].node.peers.wait_connected()
        async with thence.connect(url(topology, "s1"), "ann") as ann, thence.connect(url(topology, "s2"), "bob") as bob:
            await ann.send("bob", b"still there?")
            assert (await bob.receive()).body == b"still there?"


@pytest.mark.parametrize("writer", ["s1", "s2"])
async def test_a_server_on_an_old_copy_is_refused_and_both_say_why(writer: str, tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    reader = "s2" if writer == "s1" else "s1"
    async with servers(topology, tmp_path) as running:
        async with (
            thence.connect(url(topology, reader), "bob") as bob,
            thence.connect(url(topology, writer), "ann") as ann,
        ):
            await bob.known("ann")
            await bob.send("ann", b"here")
            assert (await ann.receive()).body == b"here"
            await asyncio.to_thread(backup, tmp_path / "s2", tmp_path / "copy")
            await ann.send("bob", b"after the copy was made")
            assert (await bob.receive()).body == b"after the copy was made"
            await until(lambda: not any(running[writer].node.member.attachment.queued().values()))
        await running["s2"].stop(drain_s=1)
        shutil.rmtree(tmp_path / "s2")
        restore(tmp_path / "copy", tmp_path / "s2")
        running["s2"] = await started(topology, "s2", tmp_path)
        prometheus = Prometheus()
        await prometheus.until_fired(running["s1"], "ThenceNeighbourForgot")
        prometheus.close()
        assert "something was forgotten: " in trouble(running["s1"], "s2")
        assert "('s2' was restored from a copy). Start 's2' on its newest data" in trouble(running["s1"], "s2")
        await until(lambda: "something was forgotten: " in trouble(running["s2"], "s1"))
        assert not running["s1"].node.peers.peers["s2"].up


async def test_a_program_that_was_connected_before_is_told(tmp_path: Path) -> None:
    topology = flat("s1")
    async with servers(topology, tmp_path) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        await ann.send("ann", b"one")
        await asyncio.to_thread(backup, tmp_path / "s1", tmp_path / "copy")
        await ann.send("ann", b"two")
        await running["s1"].stop(drain_s=0)
        shutil.rmtree(tmp_path / "s1")
        restore(tmp_path / "copy", tmp_path / "s1")
        running["s1"] = await started(topology, "s1", tmp_path)
        with pytest.raises(StateLost, match="'s1' runs on an old copy of its store"):
            await ann.send("ann", b"three")
        async with thence.connect(url(topology, "s1"), "ann") as again:
            assert (await again.receive()).body == b"one"
            await again.send("ann", b"two, again")
            assert (await again.receive()).body == b"two, again"
