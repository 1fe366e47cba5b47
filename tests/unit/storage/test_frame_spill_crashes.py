"""A crash between any two file operations of a node whose peer is away, and in the middle of any write: all comes once.

As ``test_spill_crashes.py``, with frames for a peer in the place of messages for clients. What the peer has taken by
then it has taken: a node that comes back must neither lack what follows nor send it something else.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.far_side import WAY, FarSide, outgoing, send, small_files, started
from tests.support.spills import delete_too_soon, forget_to_sync
from tests.support.stores import without_waiting
from tests.unit.node.test_node import PATIENCE_S, durable
from tests.unit.storage.test_spill_crashes import lay_out
from tests.unit.storage.test_store_crashes import CrashingDisk, Image
from thence.errors import StorageError
from thence.node.offline.inspection import examine
from thence.storage import store as store_module


class Known(NamedTuple):
    """What others know: it must be so after the crash."""

    sent: int
    """How many messages were accepted."""
    taken: int
    """How many frames the peer has,"""
    messages: int
    """and how many messages are in them."""


class Watched(CrashingDisk):
    """Keeps with every point of a crash what was known then."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.far = FarSide()
        self.sent = 0
        self.moments: list[tuple[str, Known, Image]] = []

    def notice(self, what: str) -> None:
        super().notice(what)
        known = Known(self.sent, self.far.taken, self.far.messages)
        self.moments += [(when, known, image) for when, _, image in self.points]
        self.points.clear()


async def work(disk: Watched) -> None:
    """Send while the peer is away, and while it takes: files are begun, appended to, read to their end and deleted."""
    node, far = started(disk.folder), disk.far
    await far.introduce(node)

    async def sending(count: int) -> None:
        for number in range(disk.sent + 1, disk.sent + count + 1):
            assert send(node, number, 1) == 1
            await durable(node)
            disk.sent = number

    await sending(18)
    await node.driver.commits.compact()
    await sending(8)
    far.meet(node)
    await far.take(node, packets=5)
    await node.driver.commits.compact()
    await far.take(node, packets=5)
    far.part(node)
    await sending(9)
    await node.close()
    node = started(disk.folder)
    await sending(4)
    far.meet(node)
    await far.take(node)
    await node.driver.commits.compact()  # What the peer has goes.
    far.part(node)
    await sending(14)
    await node.driver.commits.compact()
    await sending(3)
    far.meet(node)
    await far.take(node, packets=3)
    await node.close()


async def check(folder: Path, known: Known, what: str) -> None:
    """Start a node where a crash left the folder, go on, and let the peer take all; then again, after it was stopped."""
    node = started(folder)
    if node.directory.home("bob") is None:
        assert known.sent == 0, what
        return await node.close()
    sent = node.directory.state.mailboxes["ann"].sent
    assert sent >= known.sent, what
    far = FarSide(known.taken, known.messages)
    for _ in range(2):
        sent += send(node, sent + 1, 6)
        far.meet(node)
        await far.take(node)
        assert far.messages == sent, what
        assert (node.member.elsewhere(WAY), outgoing(node).files()) == (None, []), what
        far.part(node)
        sent += send(node, sent + 1, 12)
        await durable(node)
        await node.close()
        assert examine(folder).damage == [], what
        node = started(folder)
    return await node.close()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """A folder of its own; files and segments are small."""
    monkeypatch.setattr(store_module, "MAX_SEGMENT_BYTES", 2_000)
    folder = tmp_path / "store"
    folder.mkdir()
    with small_files():
        yield Watched(folder)


def crash_everywhere(disk: Watched, left: Path) -> int:
    """Do the work, and check every way in which a crash could leave the folder; return how many there are."""
    with disk.watching():
        asyncio.run(asyncio.wait_for(work(disk), PATIENCE_S))
    assert disk.sent == 56
    with without_waiting():
        return asyncio.run(check_all(left, disk))


async def check_all(left: Path, disk: Watched) -> int:
    seen: set[tuple[object, ...]] = set()
    for what, known, image in disk.moments:
        same = (tuple(sorted(image.items())), known)
        if same not in seen:
            seen.add(same)
            lay_out(left, image)
            await asyncio.wait_for(check(left, known, what), PATIENCE_S)
            shutil.rmtree(left)
    return len(seen)


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
