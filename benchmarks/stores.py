"""The store against RocksDB, LMDB and SQLite: entries of 200 bytes, durable at every commit; and reading a million of them again.

Each side appends to a store of its own on the same disk, in turns, and a commit returns when the entries would survive a power
failure: a synced write batch (RocksDB), a synced transaction (LMDB), WAL with ``synchronous=FULL`` (SQLite), ``commit`` (ours).
To recover is to open a store that was closed and to have every entry in order as ``bytes``. RocksDB and LMDB come with the
``peers`` extra; what is not installed is left out.
"""

from __future__ import annotations

import gc
import shutil
import sqlite3
import struct
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, Protocol

from benchmarks.table import Row, markdown
from thence.storage.store import Store

ENTRY_BYTES = 200
GROUPS = (1, 10, 100, 1_000)
COMMITS = 10
REPEATS = 100  # many short ones: disks have slow phases, and each side must meet a quick one
RECOVERED_ENTRIES = 1_000_000
RECOVERED_GROUP = 10_000
RECOVERIES = 3
MAP_BYTES = 4 * 2**30
_KEY = struct.Struct(">Q")


class Side(Protocol):
    """A store that is open on a folder."""

    def commit(self, entries: list[bytes]) -> None:
        """Add these, durably."""

    def read(self) -> list[bytes]:
        """Every entry, in order."""

    def close(self) -> None:
        """Let go of the folder."""


class Ours:
    def __init__(self, folder: Path) -> None:
        self._store = Store.open(folder, "benchmark")

    def commit(self, entries: list[bytes]) -> None:
        for entry in entries:
            self._store.append(entry)
        self._store.commit()

    def read(self) -> list[bytes]:
        return self._store.take_recovered()[1]

    def close(self) -> None:
        self._store.close()


class RocksDB:
    def __init__(self, folder: Path) -> None:
        import rocksdict

        self._module: Any = rocksdict
        self._db: Any = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
        self._options: Any = rocksdict.WriteOptions()
        self._options.sync = True
        self._next = 1

    def commit(self, entries: list[bytes]) -> None:
        batch = self._module.WriteBatch(raw_mode=True)
        for number, entry in enumerate(entries, start=self._next):
            batch.put(_KEY.pack(number), entry)
        self._next += len(entries)
        self._db.write(batch, self._options)

    def read(self) -> list[bytes]:
        return list(self._db.values())

    def close(self) -> None:
        self._db.close()


class LMDB:
    def __init__(self, folder: Path) -> None:
        import lmdb

        self._db: Any = lmdb.open(str(folder), map_size=MAP_BYTES)
        self._next = 1

    def commit(self, entries: list[bytes]) -> None:
        with self._db.begin(write=True) as transaction:
            for number, entry in enumerate(entries, start=self._next):
                transaction.put(_KEY.pack(number), entry, append=True)
        self._next += len(entries)

    def read(self) -> list[bytes]:
        with self._db.begin() as transaction:
            return list(transaction.cursor().iternext(keys=False, values=True))

    def close(self) -> None:
        self._db.close()


class SQLite:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._db = sqlite3.connect(folder / "entries.sqlite", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE IF NOT EXISTS entries (number INTEGER PRIMARY KEY, entry BLOB NOT NULL)")

    def commit(self, entries: list[bytes]) -> None:
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO entries (entry) VALUES (?)", [(entry,) for entry in entries])
        self._db.execute("COMMIT")

    def read(self) -> list[bytes]:
        return [entry for (entry,) in self._db.execute("SELECT entry FROM entries ORDER BY number")]

    def close(self) -> None:
        self._db.close()


OURS = "ours"
SIDES: dict[str, Callable[[Path], Side]] = {OURS: Ours, "RocksDB": RocksDB, "LMDB": LMDB, "SQLite": SQLite}
MODULES = {"RocksDB": "rocksdict", "LMDB": "lmdb"}


def installed() -> dict[str, Callable[[Path], Side]]:
    """The sides that can be run here; those that cannot are named on standard error."""
    missing = [name for name, module in MODULES.items() if find_spec(module) is None]
    if missing:
        print(f"left out: {', '.join(missing)}; pip install -c constraints.txt '.[peers]'", file=sys.stderr)
    return {name: side for name, side in SIDES.items() if name not in missing}


def entries_per_s(folder: Path, group: int, entries: list[bytes]) -> dict[str, float]:
    """The best rate of each side over alternating repeats."""
    sides = {name: side(folder / f"{name}-{group}") for name, side in installed().items()}
    best_s = dict.fromkeys(sides, float("inf"))
    for _ in range(REPEATS):
        for name, side in sides.items():
            gc.collect()
            start = perf_counter()
            for _ in range(COMMITS):
                side.commit(entries[:group])
            best_s[name] = min(best_s[name], perf_counter() - start)
    for side in sides.values():
        side.close()
    return {name: group * COMMITS / seconds for name, seconds in best_s.items()}


def recovery_s(folder: Path, entries: list[bytes]) -> dict[str, float]:
    """How long each side takes to open and read what it holds; refuses to compare sides that read different things."""
    best_s = {}
    for name, side in installed().items():
        place = folder / f"{name}-recovery"
        writer = side(place)
        for _ in range(RECOVERED_ENTRIES // RECOVERED_GROUP):
            writer.commit(entries)
        writer.close()
        best_s[name] = min(_read_s(side, place, entries) for _ in range(RECOVERIES))
        shutil.rmtree(place)
    return best_s


def _read_s(side: Callable[[Path], Side], place: Path, entries: list[bytes]) -> float:
    gc.collect()
    start = perf_counter()
    store = side(place)
    read = store.read()
    seconds = perf_counter() - start
    store.close()
    if len(read) != RECOVERED_ENTRIES or read[: len(entries)] != entries or read[-len(entries) :] != entries:
        raise AssertionError("what was read is not what was written: a comparison would mean nothing")
    return seconds


def run() -> list[Row]:
    chance = Random(1)
    entries = [chance.randbytes(ENTRY_BYTES) for _ in range(RECOVERED_GROUP)]
    rows = []
    # Beside the code and not in /tmp, which is memory on many machines: nothing is durable there, and nothing waits.
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as name:
        for group in GROUPS:
            rates = entries_per_s(Path(name), group, entries)
            ours = rates.pop(OURS)
            what = f"{group:,} {'entry' if group == 1 else 'entries'} a commit"
            rows += [
                Row(what, f"{ours:,.0f} entries/s", f"{peer}: {rate:,.0f} entries/s", ours / rate) for peer, rate in rates.items()
            ]
        times = recovery_s(Path(name), entries)
        ours = times.pop(OURS)
        what = f"{RECOVERED_ENTRIES:,} entries recovered"
        rows += [Row(what, f"{ours:.2f} s", f"{peer}: {seconds:.2f} s", seconds / ours) for peer, seconds in times.items()]
    return rows


def main() -> None:
    print(markdown(run()))


if __name__ == "__main__":
    main()
