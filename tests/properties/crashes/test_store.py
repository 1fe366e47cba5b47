"""Whatever is damaged in a store, nothing that was acknowledged is missing or wrong without a word."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.stores import entry_of, found_in, last_of, opened, snapshot_of, without_waiting
from thence.errors import StorageError
from thence.node.offline.inspection import examine
from thence.storage import store as store_module

SEGMENT_BYTES = 500


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, bool]]:
    """Some commits: how many entries, and whether a snapshot follows."""
    return draw(st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=8))


@contextmanager
def written(history: list[tuple[int, bool]]) -> Iterator[tuple[Path, int, int]]:
    """A store with this history, the last entry in it, and the first entry of its last batch."""
    folder = Path(tempfile.mkdtemp())
    try:
        with patch.object(store_module, "MAX_SEGMENT_BYTES", SEGMENT_BYTES), without_waiting():
            store = opened(folder)
            first = 1
            for count, compact in history:
                first = store.appended + 1
                for _ in range(count):
                    store.append(entry_of(store.appended + 1))
                store.commit()
                if compact:
                    store.compact(snapshot_of(store.durable), store.durable)
            store.close()
            yield folder, store.durable, first
    finally:
        shutil.rmtree(folder)


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def some_file(folder: Path, data: st.DataObject) -> Path:
    return data.draw(st.sampled_from(sorted(folder.iterdir())))


def tried(folder: Path) -> tuple[bytes | None, list[bytes], str] | str:
    """What opening the store gives, or what the error says."""
    try:
        return found_in(folder)
    except StorageError as error:
        return str(error)


def contents(folder: Path) -> dict[str, bytes]:
    """What is in the files, but for the lock: it names the process that opened it last."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}


@given(histories(), st.data())
def test_a_flipped_bit_is_harmless_or_named(history: list[tuple[int, bool]], data: st.DataObject) -> None:
    with written(history) as (folder, last, _):
        path = some_file(folder, data)
        flip(path, data.draw(st.integers(0, path.stat().st_size * 8 - 1)))
        before = contents(folder)
        damage = examine(folder).damage
        found = tried(folder)
        if isinstance(found, str):
            assert str(path) in found
            assert any(str(path) in place for place in damage)
            assert contents(folder) == before
        else:
            assert last_of(found) == last
            assert not damage


@given(histories(), st.data())
def test_without_the_mark_only_the_last_commit_can_be_taken_for_torn(
    history: list[tuple[int, bool]], data: st.DataObject
) -> None:
    with written(history) as (folder, last, first_of_last_batch):
        (folder / "durable").unlink()
        path = some_file(folder, data)
        flip(path, data.draw(st.integers(0, path.stat().st_size * 8 - 1)))
        found = tried(folder)
        if isinstance(found, str):
            assert str(path) in found
            return
        assert last_of(found) in {last, first_of_last_batch - 1}
        assert last_of(found) == last or "cut off" in found[2]


@given(histories(), st.data())
def test_a_file_cut_short_or_gone_is_harmless_or_named(history: list[tuple[int, bool]], data: st.DataObject) -> None:
    with written(history) as (folder, last, _):
        path = some_file(folder, data)
        if data.draw(st.booleans()):
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: data.draw(st.integers(0, path.stat().st_size - 1))])
        damaged = bool(examine(folder).damage) if any(folder.glob("s*-*")) else True
        found = tried(folder)
        if isinstance(found, str):
            assert str(folder) in found
            assert damaged
        else:
            assert last_of(found) == last
            assert not damaged


@given(st.binary(max_size=300), st.sampled_from(["segment-00000000000000000001.log", "snapshot-00000000000000000007.bin"]))
def test_whatever_the_bytes_are_a_store_is_refused_by_name(content: bytes, name: str) -> None:
    with written([(1, False)]) as (folder, _, _):
        (folder / name).write_bytes(content)
        with pytest.raises(StorageError, match=name):
            opened(folder)
