"""Stores for tests: entries that say their own number, filled folders, and real files without the waiting for a disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from thence.node.driver import commits
from thence.storage.recovery import list_folder
from thence.storage.store import Store

IDENTITY = "city/s1"


def opened(folder: Path, **options: int) -> Store:
    return Store.open(folder, IDENTITY, **options)


def filled(folder: Path, *batches: list[bytes]) -> None:
    store = opened(folder)
    for batch in batches:
        for entry in batch:
            store.append(entry)
        store.commit()
    store.close()


def found_in(folder: Path) -> tuple[bytes | None, list[bytes], str]:
    store = opened(folder)
    try:
        return store.snapshot, store.entries, store.recovered_note
    finally:
        store.close()


def only_segment(folder: Path) -> Path:
    (path,) = list_folder(folder).segments.values()
    return path


def entry_of(sequence: int) -> bytes:
    """The entry with this number: it says so, and its length varies."""
    return f"{sequence}:".encode() + bytes([sequence % 251]) * (sequence * 37 % 150)


def snapshot_of(upto: int) -> bytes:
    """A snapshot of the entries up to this number."""
    return f"all up to {upto}".encode()


def last_of(found: tuple[bytes | None, list[bytes], str]) -> int:
    """The last entry that is there, after checking that it is an unbroken sequence of the right ones."""
    snapshot, entries, _ = found
    upto = 0 if snapshot is None else int(snapshot.split()[-1])
    assert snapshot in {None, snapshot_of(upto)}
    assert entries == [entry_of(upto + 1 + position) for position in range(len(entries))]
    return upto + len(entries)


class Inline(Executor):
    """Does everything at once, in the thread of the caller."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  It goes to whoever waits.
            done.set_exception(error)
        return done


@contextmanager
def without_waiting() -> Iterator[None]:
    """Files as they are, but no sync: for tests of what is in them."""
    with patch.object(os, "fsync", lambda _: None), patch.object(os, "fdatasync", lambda _: None):
        yield


@contextmanager
def in_one_thread() -> Iterator[None]:
    """Let nodes do what concerns their store at once: a thread for each takes longer than what it does."""
    with patch.object(commits, "ThreadPoolExecutor", lambda *_: Inline()):
        yield
