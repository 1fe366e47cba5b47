"""A crash between any two file operations, and in the middle of any write: everything acknowledged is found again.

The operations are the real ones, on real files; before each of them, the folder is copied as a crash could leave it:

* a process that dies leaves everything that it has written;
* a power failure leaves of each file what it held when it was last synced, under the names of the last sync of the folder,
* or, since names may reach the disk sooner than one asks for, under the names of this moment.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.stores import IDENTITY, entry_of, filled, found_in, last_of, opened, snapshot_of, without_waiting
from thence.storage import store as store_module
from thence.storage.segments import MARK_BYTES
from thence.storage.store import Store

Image = dict[str, bytes]


class CrashingDisk:
    """Stands between the store and its folder, and keeps an image of every way in which a crash could leave it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.acknowledged = 0
        self.points: list[tuple[str, int, Image]] = []
        self._contents: dict[int, bytes] = {}  # by inode, as of the last sync
        self._names: dict[str, int] = {}  # as of the last sync of the folder

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name in ("rename", "unlink", "ftruncate"):
                stack.enter_context(patch.object(os, name, self._noticing(name, getattr(os, name))))
            stack.enter_context(patch.object(os, "pwrite", self._in_two_halves(os.pwrite)))
            for name in ("fsync", "fdatasync"):
                stack.enter_context(patch.object(os, name, self._sync))
            yield

    def notice(self, what: str) -> None:
        files = {path.name: path for path in self.folder.iterdir()}
        now = {name: path.stat().st_ino for name, path in files.items()}
        images = {
            "killed": {name: path.read_bytes() for name, path in files.items()},
            "power, names at once": {name: self._contents.get(inode, b"") for name, inode in now.items()},
            "power": {name: self._contents.get(inode, b"") for name, inode in self._names.items()},
        }
        self.points += [(f"{how}, before {what}", self.acknowledged, image) for how, image in images.items()]

    def forget(self) -> None:
        """What is in the folder is on the disk, and nothing else ever was."""
        self.points.clear()
        self._contents = {path.stat().st_ino: path.read_bytes() for path in self.folder.iterdir()}
        self._names = {path.name: path.stat().st_ino for path in self.folder.iterdir()}

    def _noticing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            self.notice(f"{name} {arguments}")
            return real(*arguments, **options)

        return operation

    def _in_two_halves(self, real: Callable[..., int]) -> Callable[..., int]:
        def write(descriptor: int, data: bytes, offset: int) -> int:
            self.notice(f"write of {len(data)} bytes")
            half = real(descriptor, data[: len(data) // 2], offset)
            if len(data) != MARK_BYTES:  # a mark is far smaller than a sector
                self.notice(f"second half of a write of {len(data)} bytes")
            return half + real(descriptor, data[half:], offset + half)

        return write

    def _sync(self, descriptor: int) -> None:
        self.notice("sync")
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            self._names = {path.name: path.stat().st_ino for path in self.folder.iterdir()}
        else:
            self._contents[found.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()


def work(disk: CrashingDisk) -> None:
    """Commit, compact and open again, in all the combinations that matter."""

    def commit(store: Store, count: int) -> None:
        for _ in range(count):
            store.append(entry_of(store.appended + 1))
        disk.acknowledged = store.commit()

    for _ in range(2):
        store = opened(disk.folder)
        for count in (3, 1, 2, 5):
            commit(store, count)
        store.compact(snapshot_of(store.durable - 2), store.durable - 2)  # entries are behind it
        commit(store, 2)
        store.compact(snapshot_of(store.durable), store.durable)  # nothing is behind it
        store.append(entry_of(store.appended + 1))
        store.append(entry_of(store.appended + 1))
        store.compact(snapshot_of(store.appended - 1), store.appended - 1)  # what it stands for was not committed
        disk.acknowledged = store.durable
        commit(store, 2)
        store.close()


def test_a_crash_at_any_point_loses_nothing_that_was_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_SEGMENT_BYTES", 600)
    folder = tmp_path / "store"
    folder.mkdir()
    disk = CrashingDisk(folder)
    with disk.watching():
        work(disk)
    assert len(disk.points) > 300
    assert disk.acknowledged == 34
    with without_waiting():
        for number, (what, acknowledged, image) in enumerate(disk.points):
            left = tmp_path / f"crash-{number}"
            left.mkdir()
            for name, content in image.items():
                (left / name).write_bytes(content)
            last = last_of(found_in(left))
            assert acknowledged <= last, what
            goes_on(left, last)


def test_what_was_recovered_survives_the_next_crash(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    disk = CrashingDisk(folder)
    with without_waiting():
        filled(folder, [entry_of(1)])
    with disk.watching():  # which knows of no sync so far, as if nothing had reached the disk
        assert last_of(found_in(folder)) == 1
        disk.notice("the end")
    for what, _, image in disk.points[-3:]:
        left = tmp_path / what
        left.mkdir()
        for name, content in image.items():
            (left / name).write_bytes(content)
        assert last_of(found_in(left)) == 1


def goes_on(folder: Path, last: int) -> None:
    """What was recovered can be written to, and be found once more."""
    store = Store.open(folder, IDENTITY)
    assert store.append(entry_of(last + 1)) == last + 1
    store.commit()
    store.close()
    assert last_of(found_in(folder)) == last + 1
