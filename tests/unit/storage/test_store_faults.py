"""Real faults: torn and damaged files, a process killed, a disk that is full, a sync that fails."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stores import filled, found_in, last_of, only_segment, opened, snapshot_of, without_waiting
from thence.errors import StorageError, StoreFull
from thence.storage import files
from thence.storage import store as store_module
from thence.storage.recovery import list_folder, segment_path, snapshot_path
from thence.storage.segments import MARKER_BYTES, encode_batch

KILLS = 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


# --- torn and damaged --------------------------------------------------------------------------------------------------


def cuts(whole: bytes, start: int) -> Iterator[bytes]:
    for size in range(start, len(whole)):
        yield whole[:size]


def test_a_tail_torn_at_any_byte_is_cut_off_and_said(folder: Path) -> None:
    filled(folder, [b"first", b"second"])
    path = only_segment(folder)
    durable = path.read_bytes()
    mark = (folder / "durable").read_bytes()
    filled(folder, [b"third", b"x" * 40])
    whole = path.read_bytes()
    with without_waiting():
        for torn in cuts(whole, len(durable)):
            path.write_bytes(torn)
            (folder / "durable").write_bytes(mark)  # the commit was never complete
            _, entries, note = found_in(folder)
            assert entries == [b"first", b"second"]
            assert path.read_bytes() == durable
            assert ("cut off" in note) == (torn != durable)


def test_what_was_acknowledged_is_never_cut_off(folder: Path) -> None:
    filled(folder, [b"first"], [b"second"])
    path = only_segment(folder)
    whole = path.read_bytes()
    for torn in cuts(whole, 0):
        path.write_bytes(torn)
        with pytest.raises(StorageError, match=r"offset \d+: .*thence store verify"):
            opened(folder)
        assert path.read_bytes() == torn


def test_damage_with_whole_entries_behind_it_is_named(folder: Path) -> None:
    filled(folder, [b"first"], [b"second"], [b"third"])
    path = only_segment(folder)
    whole = path.read_bytes()
    offset = whole.index(b"second")
    damaged = whole[:offset] + b"S" + whole[offset + 1 :]
    path.write_bytes(damaged)
    (folder / "durable").unlink()  # also without it: what is behind shows that it was durable
    with pytest.raises(
        StorageError, match=rf"{path}, offset \d+: \d+ bytes cannot be read, and whole entries follow at offset \d+"
    ):
        opened(folder)
    assert path.read_bytes() == damaged


def test_an_entry_that_looks_like_a_batch_does_not_make_a_torn_write_look_like_damage(folder: Path) -> None:
    filled(folder, [b"first"])
    mark = (folder / "durable").read_bytes()
    filled(folder, [encode_batch(bytes(MARKER_BYTES), 3, [b"a batch of somebody else"]) + b"the end"])
    path = only_segment(folder)
    path.write_bytes(path.read_bytes()[:-1])
    (folder / "durable").write_bytes(mark)
    _, entries, note = found_in(folder)
    assert entries == [b"first"]
    assert "cut off" in note


def test_a_missing_segment_and_a_longer_one_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_SEGMENT_BYTES", 100)
    filled(folder, [b"1" * 60], [b"2" * 60], [b"3" * 60])
    for first, told in ((1, "entry 1 is missing"), (2, "entries 2 to 2 is missing"), (3, "up to 3 were acknowledged")):
        path = segment_path(folder, first)
        kept = path.read_bytes()
        path.unlink()
        with pytest.raises(StorageError, match=told):
            opened(folder)
        path.write_bytes(kept)
    with segment_path(folder, 1).open("ab") as file:
        file.write(b"more")  # only the last segment can have a torn tail
    with pytest.raises(StorageError, match=rf"{segment_path(folder, 1)}, offset \d+: 4 bytes cannot be read"):
        opened(folder)


def test_a_damaged_snapshot_is_passed_over_while_everything_older_is_there(folder: Path) -> None:
    store = opened(folder)
    for entry in (b"1:%", b"2:%"):
        store.append(entry)
    store.commit()
    store.close()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = opened(folder)
    again.compact(snapshot_of(2), 2)
    again.close()
    newer = snapshot_path(folder, 2)
    newer.write_bytes(newer.read_bytes()[:-1])
    with pytest.raises(StorageError, match=f"needed, since {newer}, offset"):
        opened(folder)
    for name, kept in before.items():
        (folder / name).write_bytes(kept)
    snapshot, entries, note = found_in(folder)
    assert (snapshot, entries) == (None, [b"1:%", b"2:%"])
    assert f"passed over a snapshot: {newer}" in note


def test_a_snapshot_that_does_not_come_back_replaces_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(folder)
    store.append(b"1")
    store.compact(b"good", 1)
    store.append(b"2")
    with monkeypatch.context() as patched:
        patched.setattr(files, "read_from_disk", lambda path: path.read_bytes()[:-1])
        with pytest.raises(StorageError, match="does not come back"):
            store.compact(b"bad", 2)
    assert store.commit() == 2
    store.close()
    assert found_in(folder) == (b"good", [b"2"], "")


# --- killed ------------------------------------------------------------------------------------------------------------

WRITER = """
    import sys
    from pathlib import Path
    from tests.support.stores import entry_of, opened, snapshot_of
    from thence.storage import store as store_module

    store_module.MAX_SEGMENT_BYTES = 20_000
    store = opened(Path(sys.argv[1]))
    for commit in range(1, 1_000_000):
        for _ in range(commit * 7 % 40 + 1):
            store.append(entry_of(store.appended + 1))
        print(store.commit(), flush=True)
        if commit % 9 == 0:
            store.append(entry_of(store.appended + 1))
            store.compact(snapshot_of(store.appended), store.appended)
    """


def test_what_was_acknowledged_survives_kills(folder: Path) -> None:
    chance = random.Random(7)
    acknowledged = 0
    for _ in range(KILLS):
        command = [sys.executable, "-c", textwrap.dedent(WRITER), str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            acknowledged = int(child.stdout.readline())
            time.sleep(chance.uniform(0, 0.2))
            child.send_signal(signal.SIGKILL)
            for line in child.stdout:
                acknowledged = int(line) if line.endswith("\n") else acknowledged
        assert last_of(found_in(folder)) >= acknowledged
    assert acknowledged > 10 * KILLS


def test_two_processes_cannot_use_one_folder(folder: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(StorageError, match=f"in use by process {child.pid}"):
            opened(folder)
        child.kill()
    opened(folder).close()


# --- full --------------------------------------------------------------------------------------------------------------

FILLER = """
    import resource, signal, sys
    from pathlib import Path
    from tests.support.stores import entry_of, only_segment, opened, snapshot_of
    from thence.errors import StoreFull

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_001, resource.RLIM_INFINITY))
    folder = Path(sys.argv[1])
    store = opened(folder)
    refused = 0
    while refused < 5:
        size = only_segment(folder).stat().st_size
        for _ in range(13):
            store.append(entry_of(store.appended + 1))
        before = store.durable
        try:
            store.commit()
        except StoreFull as full:
            assert "File too large" in str(full), full
            assert store.durable == before
            assert only_segment(folder).stat().st_size == size
            refused += 1
    try:
        store.compact(b"x" * 30_000, store.durable)
    except StoreFull:
        refused += 1
    print(refused, before, store.appended, store.durable)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert store.commit() == store.appended
    """


def test_a_full_disk_loses_nothing_and_doubles_nothing(folder: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(FILLER), str(folder)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    refused, durable, appended, still_durable = map(int, printed)
    assert refused == 6
    assert durable == still_durable < appended
    assert last_of(found_in(folder)) == appended
    assert list_folder(folder).unfinished == []


# --- a disk that fails -------------------------------------------------------------------------------------------------


def failing(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def test_a_sync_that_failed_is_never_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(folder, [b"first"])
    store = opened(folder)
    store.append(b"second")
    calls = []

    def fail(descriptor: int) -> None:
        calls.append(descriptor)
        raise failing(errno.EIO)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(StorageError, match=r"fsync failed on .*this process stores nothing more\. The disk does not work"):
            store.commit()
        for again in (store.commit, lambda: store.append(b"third"), lambda: store.compact(b"", 1)):
            with pytest.raises(StorageError, match="fsync failed"):
                again()
        store.close()
    assert len(calls) == 1
    assert found_in(folder) == (None, [b"first"], "")


@pytest.mark.parametrize(("code", "kind"), [(errno.EIO, StorageError), (errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull)])
def test_a_write_that_fails_stores_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type) -> None:
    store = opened(folder)
    store.append(b"first")
    store.commit()
    store.append(b"second")
    size = only_segment(folder).stat().st_size
    write = os.pwrite
    room = [10]

    def fail(descriptor: int, data: bytes, offset: int) -> int:
        if not room:
            raise failing(code)
        return write(descriptor, data[: room.pop()], offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail)
        with pytest.raises(StorageError) as raised:
            store.commit()
    assert raised.type is kind
    assert only_segment(folder).stat().st_size == size
    if kind is StoreFull:
        assert store.commit() == 2
    store.close()
    assert found_in(folder)[1] == ([b"first", b"second"] if kind is StoreFull else [b"first"])


def test_a_disk_that_does_not_give_a_segment_is_named_with_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(folder, [b"first"])
    path = only_segment(folder)

    def broken(_: Path) -> bytes:
        raise failing(errno.EIO)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", broken)
        with pytest.raises(StorageError) as raised:
            opened(folder)
    assert str(raised.value) == f"reading {path} failed: Input/output error. {files.BROKEN_ADVICE}"
    assert found_in(folder) == (None, [b"first"], "")
