"""Letters that are too many for memory: what is written, read, kept and let go, and what is said of damage and of full disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.spills import kept_in, small_blocks
from tests.unit.runtime.stores import IDENTITY, without_waiting
from tests.unit.runtime.test_office import told
from thence.core.messages import Envelope
from thence.errors import ConfigError, StorageError
from thence.runtime import spill as spill_module
from thence.runtime.boxes import Box, Bundle, Room
from thence.runtime.office import Joined, Left, Office, write_body
from thence.runtime.spill import Reader, Spill, list_spill, spill_path, sync_files

ROOM = Room(4, 1_000)


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_blocks(), without_waiting():
        yield


class Home:
    """An office whose boxes spill behind four letters, two bundles at a time."""

    def __init__(self, folder: Path, *, limit_bytes: int | None = None, room: Room | None = ROOM, snapshot: bytes = b"") -> None:
        self.folder = folder
        self.spill = Spill(folder, IDENTITY, limit_bytes)
        self.office = Office("s1", ("s1",), spill=self.spill, spill_beyond=room)
        if snapshot:
            self.office.restore(snapshot)
        else:
            for client in ("ann", "bob"):
                told(self.office, Joined(client, "s1", temporary=False))
        self.office.here = {"ann", "bob"}
        self.spill.restore(self.office.spilled())

    def put(self, client: str, *bodies: bytes, count: int = 1) -> None:
        for body in bodies:
            self.office.deliver(Envelope("s9", 1, None, write_body(Bundle("x", 1, count, (client,), None, body))))

    def box(self, client: str = "ann") -> Box:
        return self.office.state.boxes[client]

    def kept(self, client: str = "ann") -> list[bytes]:
        return [bytes(bundle.letters) for _, bundle in kept_in(self.box(client), self.spill, client)]

    def snapshot(self) -> bytes:
        """Return a snapshot, after what the node does before one."""
        sync_files(self.spill.take_unsynced())
        return self.office.snapshot()

    def again(self, snapshot: bytes, **options: Any) -> Home:
        return Home(self.folder, snapshot=snapshot, **options)


def bodies(first: int, last: int) -> list[bytes]:
    return [b"letter %d" % number for number in range(first, last + 1)]


def test_what_is_too_much_for_memory_is_in_files_and_comes_in_order(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 21))
    box = home.box()
    assert (sorted(box.waiting), sorted(box.unwritten)) == ([1, 2, 3, 4], [21])
    assert (box.position, box.spilled_letters, len(list_spill(tmp_path))) == (21, 16, 1)
    assert home.kept() == bodies(1, 21)
    assert box.bytes == sum(map(len, bodies(1, 21)))


def test_of_what_waits_for_somebody_who_is_away_less_than_a_block_is_in_memory(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.office.here.clear()
    for number in range(1, 22):
        home.put("ann", *bodies(number, number))
        box = home.box()
        assert len(box.waiting) + len(box.unwritten) <= (4 if number <= 4 else 1)
        assert (home.kept(), box.front) == (bodies(1, number), 1)
    home.office.acknowledge("ann", 20)
    assert (home.kept(), home.box().bytes, home.spill.done) == (bodies(21, 21), len(b"letter 21"), 1)


def test_who_leaves_with_letters_in_memory_before_files_keeps_their_order(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 11))
    home.office.here.clear()
    home.put("ann", *bodies(12, 31))
    box = home.box()
    assert (sorted(box.waiting), sorted(box.unwritten), home.kept()) == ([1, 2, 3, 4], [31], bodies(1, 31))


def test_a_box_with_room_writes_no_files(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for number in range(1, 50):
        home.put("ann", *bodies(number, number))
        home.office.acknowledge("ann", number - 2)
    assert list_spill(tmp_path) == {}
    assert home.kept() == bodies(48, 49)


def test_a_box_is_in_memory_again_when_its_files_are_done_with(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 21))
    home.office.acknowledge("ann", 13)
    assert (home.box().front, home.spill.done) == (5, 0), "a file is done with as a whole"
    home.office.acknowledge("ann", 20)
    box = home.box()
    assert (box.front, list(box.waiting), box.spilling, box.bytes) == (21, [21], False, len(b"letter 21"))
    assert (home.spill.done, len(list_spill(tmp_path))) == (1, 1), "the last snapshot may still need it"
    home.spill.delete_done(home.spill.done)
    assert (list_spill(tmp_path), home.spill.bytes) == ({}, 0)
    home.put("ann", *bodies(22, 23))
    assert home.kept() == bodies(21, 23)


def test_who_has_read_the_files_is_served_from_memory_though_letters_keep_coming(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 20))
    written = home.spill.bytes
    for number in range(21, 61):  # Two behind the end, as somebody is who is there.
        home.put("ann", *bodies(number, number))
        home.office.acknowledge("ann", number - 2)
    assert home.spill.bytes == written, "nothing more was written"
    assert not home.box().spilling


def test_bundles_of_several_letters_are_not_cut(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 9), count=3)
    box = home.box()
    assert [at for at, _ in kept_in(box, home.spill, "ann")] == list(range(1, 28, 3))
    reader = Reader(home.spill, "ann")
    assert reader.behind(box, 14)[0] == 13
    assert reader.behind(box, 15)[0] == 16
    assert Reader(home.spill, "ann").at(box, box.front, done=18)[0] <= 19, "no letter behind what is done with is left out"


def test_a_receiver_that_has_done_with_much_does_not_read_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 200))
    home.office.acknowledge("ann", 150)
    read: list[int] = []
    real = spill_module.read_block

    def noting(descriptor: int, file: Any, offset: int, *others: Any) -> Any:
        read.append(offset)
        return real(descriptor, file, offset, *others)

    monkeypatch.setattr(spill_module, "read_block", noting)
    first, bundle = Reader(home.spill, "ann").behind(home.box(), 150)
    assert (first, bytes(bundle.letters)) == (151, b"letter 151")
    assert len(read) == 1


def test_a_snapshot_names_files_and_has_no_letters_of_them(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 21))
    small = len(home.snapshot())
    home.put("ann", *bodies(22, 2_001))
    snapshot = home.snapshot()
    assert len(snapshot) < small + 50
    again = home.again(snapshot)
    assert again.kept() == bodies(1, 2_001)
    again.put("ann", *bodies(2_002, 2_020))
    assert again.kept() == bodies(1, 2_020)
    assert len(list_spill(tmp_path)) == 2, "a file is only appended to by the process that began it"
    assert again.spill.bytes == sum(path.stat().st_size for path in list_spill(tmp_path).values())


def test_what_was_written_behind_a_snapshot_is_written_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 11))
    snapshot = home.snapshot()
    home.put("ann", *bodies(12, 40))
    home.put("bob", *bodies(1, 40))
    again = home.again(snapshot)
    assert (again.kept(), again.kept("bob")) == (bodies(1, 11), [])
    assert [path.stat().st_size for path in list_spill(tmp_path).values()] == [again.box().spilled[0].end]
    again.put("ann", *bodies(12, 40))
    assert again.kept() == bodies(1, 40)


def test_what_waited_for_somebody_who_is_gone_is_let_go(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 21))
    told(home.office, Left("ann", "s1"))
    assert (home.spill.done, home.office.spilled()) == (1, [])


def test_files_are_of_a_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill_module, "SPILL_FILE_BYTES", 500)
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 300))
    assert len(list_spill(tmp_path)) > 5
    assert max(path.stat().st_size for path in list_spill(tmp_path).values()) < 700
    assert home.kept() == bodies(1, 300)
    home.office.acknowledge("ann", 150)
    assert 0 < home.spill.done < len(list_spill(tmp_path))
    assert home.kept()[-1:] == bodies(300, 300)


# --- limits ------------------------------------------------------------------------------------------------------------


def test_a_limit_stops_deliveries_and_names_whose_box_it_is(tmp_path: Path) -> None:
    home = Home(tmp_path, limit_bytes=2_000)
    number = 0
    while not home.office.full:
        number += 1
        home.put("ann", *bodies(number, number))
    assert home.office.full == "ann"
    assert "the box of 'ann' is full: " in home.office.why_full
    assert f"bytes are spilled in {tmp_path}; the limit is 2000" in home.office.why_full
    assert home.spill.bytes < 2_300
    assert home.kept() == bodies(1, number)
    home.office.acknowledge("ann", number // 2)
    assert home.spill.release_due, "a snapshot makes room"
    home.spill.delete_done(home.spill.done)
    home.office.look_for_room()
    assert (home.office.full, home.office.why_full) == ("", "")


def test_a_full_disk_loses_nothing_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 11))
    real = os.pwrite

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    home.put("ann", *bodies(12, 21))
    assert "No space left on device" in home.office.why_full
    home.office.look_for_room()
    assert (home.office.full, home.kept()) == ("ann", bodies(1, 21))
    monkeypatch.setattr(os, "pwrite", real)
    home.office.look_for_room()
    assert (home.office.full, home.kept(), sorted(home.box().unwritten)) == ("", bodies(1, 21), [21])


def test_without_spilling_files_of_before_are_read_to_their_end(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 21))
    again = home.again(home.snapshot(), room=None)
    again.put("ann", *bodies(22, 60))
    assert again.spill.bytes == home.spill.bytes
    assert again.kept() == bodies(1, 60)
    again.office.acknowledge("ann", 20)
    assert (again.spill.done, again.box().spilling, again.kept()) == (1, False, bodies(21, 60))


# --- damage ------------------------------------------------------------------------------------------------------------


def damaged(tmp_path: Path) -> tuple[Home, Path, bytes]:
    """Return a home with 40 letters for ann, the file they are in, and a snapshot."""
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 40))
    snapshot = home.snapshot()
    (path,) = list_spill(tmp_path).values()
    return home, path, snapshot


def test_a_block_that_is_damaged_is_named_when_somebody_gets_to_it(tmp_path: Path) -> None:
    home, path, snapshot = damaged(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    again = home.again(snapshot)
    seen: list[bytes] = []
    with pytest.raises(StorageError, match=rf"{path}, offset \d+: .*`thence store verify`"):
        seen.extend(bytes(bundle.letters) for _, bundle in kept_in(again.box(), again.spill, "ann"))
    assert seen == bodies(1, len(seen)), "what is before the damage is handed over"
    assert 4 < len(seen) < 38


@pytest.mark.parametrize("size", [0, 20, 200])
def test_a_file_that_is_cut_short_is_noticed_at_the_start(tmp_path: Path, size: int) -> None:
    home, path, snapshot = damaged(tmp_path)
    os.truncate(path, size)
    with pytest.raises(StorageError, match=rf"{path}, offset {size if size > 100 else 0}: "):
        home.again(snapshot)


def test_a_file_that_is_missing_is_noticed_at_the_start(tmp_path: Path) -> None:
    home, path, snapshot = damaged(tmp_path)
    path.unlink()
    with pytest.raises(StorageError, match=f"{path}, offset 0: No such file or directory"):
        home.again(snapshot)


def test_a_file_of_another_store_or_box_is_noticed(tmp_path: Path) -> None:
    home, path, snapshot = damaged(tmp_path)
    other = Home(tmp_path)
    other.put("bob", *bodies(1, 40))
    (theirs,) = list_spill(tmp_path).values()
    theirs.rename(path)
    with pytest.raises(StorageError, match="this is another file than the one that the snapshot names"):
        home.again(snapshot)
    home.spill.identity = "village/s1"
    home.put("bob", *bodies(1, 40))
    number = home.box("bob").spilled[0].number
    with pytest.raises(ConfigError, match="the store of 'village/s1', not of 'city/s1'"):
        spill_module.check_file(tmp_path, home.box("bob").spilled[0], IDENTITY)
    box = home.box("bob")
    with pytest.raises(StorageError, match="letter 5 for 'ann' should be here, and letter 5 for 'bob' is"):
        Reader(home.spill, "ann").at(box, 5)
    assert spill_path(tmp_path, number).exists()


def test_letters_in_files_of_a_store_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    home, _, _ = damaged(tmp_path)
    with pytest.raises(StorageError, match="in file 1 of a store that is not there"):
        Reader(None, "ann").at(home.box(), 5)


def test_a_disk_that_does_not_give_a_block_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    home.put("ann", *bodies(1, 21))
    (path,) = list_spill(tmp_path).values()

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", broken)
        with pytest.raises(
            StorageError, match=rf"at offset \d+ of {path} failed: Input/output error\. The disk does not work: look"
        ):
            home.kept()
    assert home.kept() == bodies(1, 21)


def test_what_is_set_aside_again_stays_in_its_order(tmp_path: Path) -> None:
    """What was set aside and not written is older than what has come since; written the other way round, it could not be read."""
    home = Home(tmp_path, room=None)
    home.put("ann", *bodies(1, 2))
    box = home.box()
    box.set_aside()
    home.put("ann", *bodies(3, 4))
    box.set_aside()
    assert list(box.unwritten) == [1, 2, 3, 4]
