"""A crash between any two file operations of a node that spills, and in the middle of any write: no message is lost or doubled.

The operations are the real ones, on real files, and so is the node; ``test_store_crashes.py`` says how a crash can leave them.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.spills import delete_too_soon, forget_to_sync, kept_in, small_blocks
from tests.support.stores import without_waiting
from tests.unit.node.test_node import PATIENCE_S, alone, durable, joined
from tests.unit.storage.test_store_crashes import CrashingDisk, Image
from thence.errors import StorageError
from thence.node.node import Node
from thence.node.offline.inspection import examine
from thence.node.options import NodeOptions
from thence.storage import spill as spill_module
from thence.storage import store as store_module
from thence.storage.mailbox import Batch

CLIENTS = ("ann", "bob")


class Known(NamedTuple):
    """What somebody outside knows of a mailbox: it must be so after the crash."""

    put: int
    acknowledged: int


class Watched(CrashingDisk):
    """Keeps with every point of a crash what was known of the mailboxes then."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.known = dict.fromkeys(CLIENTS, Known(0, 0))
        self.moments: list[tuple[str, dict[str, Known], Image]] = []

    def notice(self, what: str) -> None:
        super().notice(what)
        self.moments += [(when, dict(self.known), image) for when, _, image in self.points]
        self.points.clear()


def started(folder: Path) -> Node:
    return Node(alone(), "s1", NodeOptions(data=folder, spill_after_bytes=1_000_000))


def item(client: str, number: int) -> bytes:
    return f"{client} {number}".encode() + bytes(number % 40)


async def work(disk: Watched) -> None:
    """Send, acknowledge, make snapshots and start again, so that files are begun, appended to, read to their end and deleted."""
    node = started(disk.folder)
    for name in CLIENTS:
        await joined(node, name)

    async def send(client: str, count: int) -> None:
        for _ in range(count):
            number = disk.known[client].put + 1
            node.intake.submit(
                Batch("ann", node.directory.state.mailboxes["ann"].sent + 1, 1, (client,), None, item(client, number))
            )
            await durable(node)
            disk.known[client] = disk.known[client]._replace(put=number)

    async def acknowledge(client: str, upto: int) -> None:
        node.acknowledgements.acknowledge(client, upto)
        await durable(node)
        disk.known[client] = disk.known[client]._replace(acknowledged=upto)

    await send("bob", 14)
    await node.driver.commits.compact()
    await send("bob", 6)
    await send("ann", 9)
    await acknowledge("bob", 12)
    await node.driver.commits.compact()
    await acknowledge("bob", 20)
    await send("ann", 3)
    await node.driver.commits.compact()  # What bob is done with goes.
    await send("bob", 10)
    await node.close()
    node = started(disk.folder)
    await send("bob", 9)
    await acknowledge("ann", 11)
    await acknowledge("bob", 33)
    await node.driver.commits.compact()
    await send("bob", 4)
    await node.close()


async def check(folder: Path, known: dict[str, Known], what: str) -> None:
    """Start a node where a crash left the folder, look into its mailboxes, go on, stop, and look again."""
    node = started(folder)
    put: dict[str, int] = {}
    for client in CLIENTS:
        mailbox = node.directory.state.mailboxes.get(client)
        if mailbox is None:
            assert known[client].put == 0, what
            return await node.close()
        assert mailbox.position >= known[client].put, what
        assert mailbox.acknowledged >= known[client].acknowledged, what
        put[client] = mailbox.position
    for client in CLIENTS:
        for _ in range(6):
            put[client] += 1
            sent = node.directory.state.mailboxes["ann"].sent
            node.intake.submit(Batch("ann", sent + 1, 1, (client,), None, item(client, put[client])))
    await durable(node)
    for again in range(2):
        for client in CLIENTS:
            mailbox = node.directory.state.mailboxes[client]
            kept = [(at, bytes(batch.messages)) for at, batch in kept_in(mailbox, node.backlog.spill, client)]
            assert mailbox.front <= mailbox.acknowledged + 1, what
            assert kept == [(at, item(client, at)) for at in range(mailbox.front, put[client] + 1)], what
        await node.close()
        assert examine(folder).damage == [], what
        if not again:
            node = started(folder)
    return None


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """A folder of its own; files and segments are small, and mailboxes spill soon."""
    monkeypatch.setattr(spill_module, "SPILL_FILE_BYTES", 400)
    monkeypatch.setattr(store_module, "MAX_SEGMENT_BYTES", 2_000)
    folder = tmp_path / "store"
    folder.mkdir()
    with small_blocks():
        yield Watched(folder)


def crash_everywhere(disk: Watched, left: Path) -> int:
    """Do the work, and check every way in which a crash could leave the folder; return how many there are."""
    with disk.watching():
        asyncio.run(asyncio.wait_for(work(disk), PATIENCE_S))
    assert disk.known == {"ann": Known(12, 11), "bob": Known(43, 33)}
    with without_waiting():
        return asyncio.run(check_all(left, disk))


def test_a_crash_at_any_point_loses_doubles_and_moves_nothing(disk: Watched, tmp_path: Path) -> None:
    assert crash_everywhere(disk, tmp_path / "left") > 300
    spilling = {what.split(", before")[0] for what, _, image in disk.moments if any("spill" in name for name in image)}
    assert spilling == {"killed", "power", "power, names at once"}


def test_a_file_that_is_not_synced_before_the_snapshot_is_found(
    disk: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_to_sync(monkeypatch)
    with pytest.raises(StorageError, match=r"spill-\d+\.log, offset 0"):
        crash_everywhere(disk, tmp_path / "left")


def test_a_file_that_is_deleted_before_the_snapshot_is_found(
    disk: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_too_soon(monkeypatch)
    with pytest.raises(StorageError, match=r"spill-\d+\.log, offset 0: No such file"):
        crash_everywhere(disk, tmp_path / "left")


def lay_out(folder: Path, image: Image) -> None:
    folder.mkdir()
    for name, content in image.items():
        (folder / name).write_bytes(content)


async def check_all(left: Path, disk: Watched) -> int:
    """Check every way in which a crash could leave the folder; return how many there are."""
    seen: set[tuple[object, ...]] = set()
    for what, known, image in disk.moments:
        same = (tuple(sorted(image.items())), tuple(known.values()))
        if same not in seen:
            seen.add(same)
            lay_out(left, image)
            await asyncio.wait_for(check(left, known, what), PATIENCE_S)
            shutil.rmtree(left)
    return len(seen)
