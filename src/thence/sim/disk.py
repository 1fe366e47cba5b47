"""A simulated disk: the log of one process, and what is left of it after a crash.

It exists so that "persist before send" can be tested: what was not synced can be lost here, and is.

Rules:

* A record is volatile until a sync that began after it was appended is complete. Reading sees it all the same, as a
  reader of a real file sees what the system still holds in memory.
* A position counts records from the first ever appended; compaction does not renumber.
* A crash ends the syncs that are under way: their tokens are worth nothing afterwards.
* What is readable after a crash is on the disk, and survives the next crash too.
* The disk knows no time: the caller asks for ``sync_delay_ns`` and completes the sync when that has passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, get_args

from thence.errors import ConfigError, StorageError, UsageError
from thence.sim.laws import Constant, Law
from thence.words import counted

Tail = Literal["lost", "prefix", "torn"]
"""What a crash leaves of the records that were not synced: nothing; some of the first ones; or some of the first ones, of
which the last may be torn, which is noticed when it is read, and dropped."""

MAX_RECORDS = 1_000_000
"""What a disk holds unless told otherwise; a snapshot counts as one record."""


@dataclass(frozen=True, slots=True)
class DiskOptions:
    sync_delay: Law = field(default_factory=lambda: Constant(1_000_000))
    tail: Tail = "lost"
    full_at_records: int = MAX_RECORDS

    def __post_init__(self) -> None:
        if self.tail not in get_args(Tail):
            raise ConfigError(f"tail must be one of {', '.join(get_args(Tail))}, not {self.tail!r}")
        if not 1 <= self.full_at_records <= MAX_RECORDS:
            raise ConfigError(f"full_at_records must be between 1 and {MAX_RECORDS}, not {self.full_at_records}")


@dataclass(slots=True)
class DiskCounters:
    appended: int = 0
    refused: int = 0  # the disk was full
    synced: int = 0  # records made durable by a sync
    syncs: int = 0
    compactions: int = 0
    crashes: int = 0
    lost: int = 0  # records that a crash took, torn ones included
    torn: int = 0


class Disk:
    """A snapshot, and the records after it. Both are whatever the caller says they are."""

    def __init__(self, options: DiskOptions, rng: Random) -> None:
        self.options = options
        self.counters = DiskCounters()
        self._rng = rng
        self._snapshot: Any = None
        self._first = 0  # the position of the first record after the snapshot
        self._records: list[Any] = []
        self._durable_upto = 0
        self._tokens = 0
        self._syncing: dict[int, int] = {}  # by token: every record before this position becomes durable

    @property
    def snapshot(self) -> Any:
        """The latest snapshot, or None."""
        return self._snapshot

    @property
    def first(self) -> int:
        """The position of the first record that ``records`` gives."""
        return self._first

    @property
    def end(self) -> int:
        """The position that the next record will get."""
        return self._first + len(self._records)

    @property
    def durable_upto(self) -> int:
        """Every record before this position survives a crash, as itself or in the snapshot."""
        return self._durable_upto

    def records(self) -> Sequence[Any]:
        """The records after the snapshot: after a crash, those that survived it."""
        return tuple(self._records)

    def append(self, record: Any) -> int:
        """Write a record, volatile as yet, and return its position."""
        used = len(self._records) + (self._snapshot is not None)
        if used >= self.options.full_at_records:
            self.counters.refused += 1
            raise StorageError(f"the disk is full: it holds {counted(used, 'record')} (full_at_records); nothing was written")
        self._records.append(record)
        self.counters.appended += 1
        return self.end - 1

    def sync_delay_ns(self) -> int:
        """How long the next sync takes."""
        return self.options.sync_delay.draw_ns(self._rng)

    def begin_sync(self) -> int:
        """Start to make durable what has been appended so far, and return a token to complete it with.

        What is appended from now on is not covered, and needs another sync.
        """
        self._tokens += 1
        self._syncing[self._tokens] = self.end
        return self._tokens

    def complete_sync(self, token: int) -> bool:
        """Finish a sync; false if a crash came between or it was finished before, and then nothing happens."""
        upto = self._syncing.pop(token, None)
        if upto is None:
            return False
        self.counters.syncs += 1
        self.counters.synced += max(0, upto - self._durable_upto)
        self._durable_upto = max(self._durable_upto, upto)
        return True

    def sync(self) -> None:
        """Make durable, at once, what has been appended so far."""
        self.complete_sync(self.begin_sync())

    def compact(self, snapshot: Any, upto: int | None = None) -> None:
        """Put a snapshot in the place of every record before ``upto`` (None: of all), wholly or not at all.

        The snapshot is durable at once. It may cover records that are not: it says what they say.
        """
        upto = self.end if upto is None else upto
        if not self._first <= upto <= self.end:
            raise UsageError(f"cannot compact up to {upto}: the log holds {self._first} up to {self.end}")
        del self._records[: upto - self._first]
        self._snapshot = snapshot
        self._first = upto
        self._durable_upto = max(self._durable_upto, upto)
        self.counters.compactions += 1

    def crash(self) -> int:
        """Lose what was not synced, as ``options.tail`` says, and return how many records that took."""
        self._syncing.clear()
        self.counters.crashes += 1
        kept = self._surviving(self.end - self._durable_upto)
        keep_upto = self._durable_upto + kept
        lost = self.end - keep_upto
        del self._records[keep_upto - self._first :]
        self._durable_upto = keep_upto
        self.counters.lost += lost
        return lost

    def copy(self, rng: Random | None = None) -> Disk:
        """Return another disk with what a copy of this one, made now, is sure to hold."""
        made = Disk(self.options, rng or self._rng)
        made._snapshot, made._first, made._durable_upto = self._snapshot, self._first, self._durable_upto
        made._records = self._records[: self._durable_upto - self._first]
        return made

    def _surviving(self, volatile: int) -> int:
        """How many of the volatile records reached the disk whole."""
        if self.options.tail == "lost" or volatile == 0:
            return 0
        written = self._rng.randint(0, volatile)
        if self.options.tail == "torn" and written and self._rng.random() < 0.5:
            self.counters.torn += 1
            return written - 1
        return written
