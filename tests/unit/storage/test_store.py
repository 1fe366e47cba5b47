"""The store on real files: what was committed is found again, in order, and what is in the way is named."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.stores import filled, found_in, opened
from thence.errors import Busy, ConfigError, StorageError, StoreFull, UsageError
from thence.storage import store as store_module
from thence.storage.recovery import list_folder
from thence.storage.store import MemoryStore, Store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


# --- what was committed is found again ---------------------------------------------------------------------------------


def test_what_was_committed_is_found_again(folder: Path) -> None:
    store = opened(folder)
    assert (store.snapshot, store.entries, store.recovered_note) == (None, [], "")
    assert [store.append(b"a"), store.append(b"")] == [1, 2]
    assert store.commit() == 2
    assert store.append(b"c" * 1000) == 3
    assert store.commit() == 3
    assert store.commit() == 3
    store.append(b"never committed")
    store.close()
    again = opened(folder)
    assert again.take_recovered() == (None, [b"a", b"", b"c" * 1000])
    assert again.take_recovered() == (None, [])
    assert again.recovered_note == ""
    assert again.append(b"d") == 4
    again.commit()
    again.close()
    assert found_in(folder) == (None, [b"a", b"", b"c" * 1000, b"d"], "")


def test_a_commit_takes_no_more_than_it_is_asked_to(folder: Path) -> None:
    store = opened(folder)
    for entry in (b"a" * 60, b"b" * 60, b"c" * 60, b"d"):
        store.append(entry)
    assert [store.commit(100), store.buffered_bytes] == [2, 61]
    assert [store.commit(1), store.buffered_bytes] == [3, 1]
    assert [store.commit(), store.buffered_bytes] == [4, 0]
    store.close()
    assert found_in(folder)[1] == [b"a" * 60, b"b" * 60, b"c" * 60, b"d"]


def test_a_snapshot_stands_for_the_entries_before_it(folder: Path) -> None:
    store = opened(folder)
    for entry in (b"1", b"2", b"3"):
        store.append(entry)
    store.commit()
    before = store.bytes_since_snapshot
    store.compact(b"one and two", 2)
    assert store.bytes_since_snapshot == 0 < before
    store.append(b"4")
    store.commit()
    store.close()
    assert found_in(folder) == (b"one and two", [b"3", b"4"], "")
    again = opened(folder)
    again.compact(b"all", 4)
    again.close()
    assert found_in(folder) == (b"all", [], "")
    assert len(list_folder(folder).segments) == len(list_folder(folder).snapshots) == 1


def test_a_snapshot_may_stand_for_entries_that_were_not_committed(folder: Path) -> None:
    store = opened(folder)
    store.append(b"1")
    store.commit()
    store.append(b"2")
    store.append(b"3")
    store.compact(b"one and two", 2)
    assert store.durable == 2
    assert store.commit() == 3
    store.close()
    assert found_in(folder) == (b"one and two", [b"3"], "")


def test_entries_may_be_appended_while_others_are_committed(folder: Path) -> None:
    store = opened(folder)
    with ThreadPoolExecutor(1) as worker:
        for number in range(20_000):
            store.append(b"%d" % number)
            if number % 50 == 0:
                worker.submit(store.commit)
    assert store.commit() == 20_000
    store.close()
    assert found_in(folder) == (None, [b"%d" % number for number in range(20_000)], "")


def test_segments_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_SEGMENT_BYTES", 1000)
    entries = [bytes([number]) * 300 for number in range(20)]
    filled(folder, *([entry] for entry in entries), [b"x" * 5000])
    sizes = [path.stat().st_size for path in list_folder(folder).segments.values()]
    assert len(sizes) > 5
    assert max(sizes[:-1]) <= 1000 + 100
    assert found_in(folder) == (None, [*entries, b"x" * 5000], "")
    store = opened(folder)
    store.compact(b"first ten", 10)
    store.close()
    assert found_in(folder) == (b"first ten", [*entries[10:], b"x" * 5000], "")
    assert len(list_folder(folder).segments) < len(sizes)


# --- one process, one identity, bounded --------------------------------------------------------------------------------


def test_two_at_once_are_refused_and_the_holder_is_named(folder: Path) -> None:
    store = opened(folder)
    with pytest.raises(StorageError, match=f"in use by process {os.getpid()}"):
        opened(folder)
    store.close()
    opened(folder).close()


def test_the_store_of_another_is_refused_and_both_are_named(folder: Path) -> None:
    filled(folder, [b"a"])
    with pytest.raises(ConfigError, match=r"the store of 'city/s1', not of 'city/s2'"):
        Store.open(folder, "city/s2")
    assert found_in(folder)[1] == [b"a"]


def test_limits_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_ENTRY_BYTES", 10)
    monkeypatch.setattr(store_module, "MAX_BUFFERED_BYTES", 25)
    store = opened(folder)
    with pytest.raises(UsageError, match="MAX_ENTRY_BYTES"):
        store.append(b"x" * 11)
    store.append(b"x" * 10)
    store.append(b"x" * 10)
    with pytest.raises(Busy, match="MAX_BUFFERED_BYTES"):
        store.append(b"x" * 10)
    assert store.commit() == 2
    assert store.append(b"x" * 10) == 3
    store.close()
    with pytest.raises(StorageError, match="closed"):
        store.append(b"x")
    with pytest.raises(ConfigError, match="MAX_IDENTITY_BYTES"):
        Store.open(folder, "x" * 2000)


def test_a_limit_of_bytes_is_a_full_disk_and_a_snapshot_makes_room(folder: Path) -> None:
    store = opened(folder, limit_bytes=1000)
    store.append(b"a" * 600)
    store.commit()
    store.append(b"b" * 600)
    for _ in range(2):
        with pytest.raises(StoreFull, match="limit of 1000"):
            store.commit()
    assert store.append(b"c") == 3
    store.compact(b"a", 1)
    assert store.commit() == 3
    store.close()
    assert found_in(folder) == (b"a", [b"b" * 600, b"c"], "")


def test_a_store_in_memory_keeps_nothing() -> None:
    store = MemoryStore()
    assert store.take_recovered() == (None, [])
    assert [store.append(b"a"), store.append(b"b")] == [1, 2]
    assert store.commit() == store.durable == store.appended == 2
    store.compact(b"snapshot", 2)
    assert store.bytes_since_snapshot == 0
    assert store.take_recovered() == (None, [])
    store.close()
