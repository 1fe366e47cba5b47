"""Every store keeps the rules of a log with snapshots: files, memory, and the simulator's disk. Broken ones do not pass.

The log has the last word on what was sent, so these rules are what "persist before send" stands on.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.stores import IDENTITY, entry_of, last_of, snapshot_of
from thence.errors import UsageError
from thence.sim.disk import Disk, DiskOptions, Tail
from thence.storage.store import MemoryStore, Store

COUNT = 40


class Tried(ABC):
    """A store that can crash and be opened again."""

    keeps = True
    """Whether anything survives a crash."""
    name = "store"

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)

    @property
    @abstractmethod
    def durable(self) -> int: ...

    @property
    @abstractmethod
    def appended(self) -> int: ...

    @abstractmethod
    def append(self, entry: bytes) -> int: ...

    @abstractmethod
    def commit(self) -> int: ...

    @abstractmethod
    def compact(self, snapshot: bytes, upto: int) -> None: ...

    @abstractmethod
    def crash(self) -> tuple[bytes | None, list[bytes]]:
        """Crash and open it again; return what is there."""

    @abstractmethod
    def close(self) -> None: ...


class Files(Tried):
    """The store of a server. A kill leaves what was written and not synced, so the tail is what the system kept."""

    name = "files"

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.store: Store | MemoryStore = self.opened()

    def opened(self) -> Store | MemoryStore:
        return Store.open(self.folder, IDENTITY)

    @property
    def durable(self) -> int:
        return self.store.durable

    @property
    def appended(self) -> int:
        return self.store.appended

    def append(self, entry: bytes) -> int:
        return self.store.append(entry)

    def commit(self) -> int:
        return self.store.commit()

    def compact(self, snapshot: bytes, upto: int) -> None:
        self.store.compact(snapshot, upto)

    def crash(self) -> tuple[bytes | None, list[bytes]]:
        self.store.close()
        self.store = self.opened()
        return self.store.take_recovered()

    def close(self) -> None:
        self.store.close()


class InMemory(Files):
    """The store of a server that may forget."""

    keeps = False
    name = "memory"

    def opened(self) -> Store | MemoryStore:
        return MemoryStore()


class Simulated(Tried):
    """The simulator's disk, which counts from 0."""

    name = "simulated, tail lost"
    tail: Tail = "lost"

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.disk = Disk(DiskOptions(tail=self.tail), self.chance)

    @property
    def durable(self) -> int:
        return self.disk.durable_upto

    @property
    def appended(self) -> int:
        return self.disk.end

    def append(self, entry: bytes) -> int:
        return self.disk.append(entry) + 1

    def commit(self) -> int:
        self.disk.sync()
        return self.disk.durable_upto

    def compact(self, snapshot: bytes, upto: int) -> None:
        self.disk.compact(snapshot, upto)

    def crash(self) -> tuple[bytes | None, list[bytes]]:
        self.disk.crash()
        return self.disk.snapshot, list(self.disk.records())

    def close(self) -> None:
        pass


class SimulatedPrefix(Simulated):
    """A disk that keeps some of what was not synced."""

    name = "simulated, tail in part"
    tail: Tail = "prefix"


class SimulatedTorn(Simulated):
    """A disk that tears a record."""

    name = "simulated, tail torn"
    tail: Tail = "torn"


STORES = (Files, InMemory, Simulated, SimulatedPrefix, SimulatedTorn)


# --- the rules ---------------------------------------------------------------------------------------------------------


def entries_are_numbered_without_holes(store: Tried) -> None:
    numbers = [store.append(entry_of(number)) for number in range(1, COUNT)]
    assert numbers == list(range(1, COUNT))
    assert store.appended == COUNT - 1
    store.commit()
    store.compact(snapshot_of(10), 10)
    assert store.append(entry_of(COUNT)) == COUNT, "a snapshot does not renumber"


def only_a_commit_makes_durable(store: Tried) -> None:
    for number in range(1, COUNT):
        before = store.durable
        store.append(entry_of(number))
        assert store.durable == before or not store.keeps
        if number % 7 == 0:
            assert store.commit() == store.durable == number


def what_is_durable_survives(store: Tried) -> None:
    for crash in range(6):
        first = store.appended + 1
        for number in range(first, first + COUNT):
            store.append(entry_of(number))
            if store.chance.random() < 0.2:
                store.commit()
        durable, appended = store.durable, store.appended
        last = last_of((*store.crash(), ""))
        if not store.keeps:
            assert (last, store.appended) == (0, 0)
            return
        assert durable <= last <= appended, f"crash {crash}"
        assert store.appended == store.durable == last, "what is found is durable, and numbers go on behind it"


def a_snapshot_stands_for_what_it_replaces(store: Tried) -> None:
    for number in range(1, COUNT + 1):
        store.append(entry_of(number))
    store.commit()
    for upto in (10, 25, COUNT):
        store.compact(snapshot_of(upto), upto)
        assert store.durable == COUNT
        snapshot, entries = store.crash()
        if not store.keeps:
            assert (snapshot, entries) == (None, [])
            return
        assert (snapshot, len(entries)) == (snapshot_of(upto), COUNT - upto)
        assert last_of((snapshot, entries, "")) == COUNT


def a_snapshot_covers_what_was_not_committed(store: Tried) -> None:
    for number in range(1, COUNT + 1):
        store.append(entry_of(number))
    store.compact(snapshot_of(COUNT), COUNT)
    assert store.durable == COUNT
    assert last_of((*store.crash(), "")) == (COUNT if store.keeps else 0)


def a_snapshot_of_what_is_not_there_is_refused(store: Tried) -> None:
    if store.keeps:
        store.append(entry_of(1))
        store.commit()
        with pytest.raises(UsageError, match="cannot compact up to 2"):
            store.compact(snapshot_of(2), 2)
        assert last_of((*store.crash(), "")) == 1


Rule = Callable[[Tried], None]
RULES: tuple[Rule, ...] = (
    entries_are_numbered_without_holes,
    only_a_commit_makes_durable,
    what_is_durable_survives,
    a_snapshot_stands_for_what_it_replaces,
    a_snapshot_covers_what_was_not_committed,
    a_snapshot_of_what_is_not_there_is_refused,
)


def keep(rule: Rule, kind: type[Tried], folder: Path, seed: int) -> None:
    store = kind(folder, seed)
    try:
        rule(store)
    finally:
        store.close()


@pytest.mark.parametrize("kind", STORES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_store(rule: Rule, kind: type[Tried], tmp_path: Path) -> None:
    for seed in range(3):
        keep(rule, kind, tmp_path / str(seed), seed)


# --- planted -----------------------------------------------------------------------------------------------------------


class SaysItIs(Simulated):
    """Says that it has made durable what it has not."""

    def commit(self) -> int:
        return self.disk.end

    @property
    def durable(self) -> int:
        return self.disk.end


class EagerlyDurable(Simulated):
    """Calls durable what nobody has committed."""

    def append(self, entry: bytes) -> int:
        number = super().append(entry)
        self.disk.sync()
        return number


class Renumbers(Simulated):
    """Counts from the snapshot."""

    def append(self, entry: bytes) -> int:
        return super().append(entry) - self.disk.first


class LosesSnapshots(Simulated):
    """Comes back without its snapshot."""

    def crash(self) -> tuple[bytes | None, list[bytes]]:
        return None, super().crash()[1]


class KeepsLess(Simulated):
    """Cuts off one entry more than the snapshot stands for."""

    def compact(self, snapshot: bytes, upto: int) -> None:
        super().compact(snapshot, min(upto + 1, self.disk.end))


class Swaps(Simulated):
    """Comes back with two entries in the other order."""

    def crash(self) -> tuple[bytes | None, list[bytes]]:
        snapshot, entries = super().crash()
        return snapshot, [*entries[1:2], *entries[:1], *entries[2:]]


class WaitsForMore(Simulated):
    """A snapshot of what was not committed is lost with it."""

    def compact(self, snapshot: bytes, upto: int) -> None:
        if upto <= self.disk.durable_upto:
            super().compact(snapshot, upto)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (SaysItIs, what_is_durable_survives),
        (EagerlyDurable, only_a_commit_makes_durable),
        (Renumbers, entries_are_numbered_without_holes),
        (LosesSnapshots, a_snapshot_stands_for_what_it_replaces),
        (KeepsLess, a_snapshot_stands_for_what_it_replaces),
        (KeepsLess, a_snapshot_of_what_is_not_there_is_refused),
        (Swaps, what_is_durable_survives),
        (WaitsForMore, a_snapshot_covers_what_was_not_committed),
    ],
)
def test_a_broken_store_is_noticed(kind: type[Tried], rule: Rule, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        keep(rule, kind, tmp_path, 1)
