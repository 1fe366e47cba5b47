"""Matrix clocks: who has sent how many messages to whom, as far as one member knows.

Entry (i, j) counts the messages from member i to member j. A message carries its sender's knowledge, itself
included; the receiver waits until everything that was sent to it is there. ``ordering.matrix`` and ``ordering.resilient``
each own a clock.

Two ways to carry the same knowledge:

* ``FullMatrix`` writes all n² entries [Raynal, Schiper, Toueg 1991].
* ``UpdatesMatrix`` writes what changed since the last message to the same member, and what that member did not
  itself tell us (domains App. A). As printed, App. A selects nothing, since it moves ``Node[j].state`` before it
  compares with it, and echoes entries back, since a received entry does not record its source. Here every change
  gets a number of its own, the position of a member moves after the selection, and the source is recorded. Numbers
  start at 1 and positions at 0, so that what is learned before the first send is sent too, which the authors' own
  program omitted.

What must survive a restart: everything in here, the positions included. A position that ran ahead of what was
really handed to the channel would lose entries for good; so positions and outgoing frames are stored together
(``core.member.member``: both follow from the same logged input).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from thence.core.ordering.matrix_entries import (
    HIGHEST_VALUE,
    SENSELESS,
    DenseEntries,
    PackedMatrixStamp,
    PackedReader,
    SparseEntries,
    examine,
)
from thence.core.ordering.pending import HeldFrame
from thence.errors import ImpossibleFrame, MalformedFrame, StorageError, UsageError
from thence.words import counted

if TYPE_CHECKING:
    import numpy as np

    from thence.core.ordering.matrix_entries import PackedEntries

FULL_MATRIX_LIMIT = 2**32 - 1
"""The highest count that a full matrix can carry: its entries are written in four bytes."""


class MatrixStamp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """The ``number``-th message from its sender to its receiver, with (row * members + column, value), … flattened."""

    number: int
    updates: tuple[int, ...]


class FullMatrixStamp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """The same with all entries, row by row, four bytes each."""

    number: int
    matrix: bytes


class MatrixState(msgspec.Struct):
    """What was delivered from each member, and the matrix: one of the two is there."""

    delivered: list[int]
    updates: tuple[int, list[tuple[int, int, int, int]], list[int]] | None
    full: bytes | None


class MatrixClock(ABC):
    """What one member knows of who sent how much to whom, and what it has delivered from each."""

    def __init__(self, members: Sequence[str], me: int) -> None:
        """Start the clock of member number ``me``."""
        self._members = members
        self._count = len(members)
        self._me = me
        self.delivered = [0] * self._count

    @abstractmethod
    def value(self, row: int, column: int) -> int:
        """Return how many messages from ``row`` to ``column`` we know of."""

    @abstractmethod
    def count_sent(self, columns: Sequence[int]) -> None:
        """Count one more message from us to each of ``columns``."""

    @abstractmethod
    def stamp_for(self, column: int) -> Any:
        """Return the stamp of the message to ``column`` that was counted last."""

    @abstractmethod
    def check(self, sender: int, stamp: Any) -> None:
        """Refuse a stamp of ``sender`` that cannot be."""

    @abstractmethod
    def missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        """Return (member, number) of a message that comes before ``held`` and is missing, or None."""

    @abstractmethod
    def release(self, held: HeldFrame[Any]) -> None:
        """Count ``held`` as delivered, and take over what its sender knew."""

    def deliver_next(self, sender: int, stamp: Any) -> bool:
        """Count a frame as delivered if its stamp tells in one look that it may be; return whether it was."""
        return False

    @abstractmethod
    def save(self) -> MatrixState:
        """Return everything, for a snapshot."""

    @abstractmethod
    def load(self, state: MatrixState) -> None:
        """Become what ``save`` returned."""

    def _refuse(self, column: int, value: int) -> None:
        """Refuse a stamp that says that we sent ``value`` messages to ``column``, if we did not."""
        sent = self.value(self._me, column)
        if value > sent:
            name = self._members[column]
            raise ImpossibleFrame(f"it says that I sent {counted(value, 'message')} to {name!r}, but I sent {sent}")


class UpdatesMatrix(MatrixClock):
    """A matrix clock that writes what each other member has not had from it."""

    def __init__(self, members: Sequence[str], me: int) -> None:
        """Start the clock of member number ``me``."""
        super().__init__(members, me)
        self._changes = 0
        self._entries: SparseEntries | DenseEntries = SparseEntries(self._count)
        self._positions = [0] * self._count
        """Per member: our number of changes when we last wrote to it."""
        self._reader: PackedReader | None = None
        row = range(me * self._count, (me + 1) * self._count)
        self._near = frozenset(row) | frozenset(range(me, self._count**2, self._count))
        """The entries about what we sent or were sent."""

    def value(self, row: int, column: int) -> int:
        return self._entries.value(row * self._count + column)

    def count_sent(self, columns: Sequence[int]) -> None:
        first = self._me * self._count
        for column in columns:
            self._changes += 1
            self._entries.count(first + column, self._changes, self._me)
        self._settle()

    def _settle(self) -> None:
        """Go over to arrays where so much is known that they serve better."""
        if self._entries.is_crowded:
            self._entries = DenseEntries(self._count, self._me, self._changes, self._entries.saved())

    def stamp_for(self, column: int) -> MatrixStamp | PackedMatrixStamp:
        number = self.value(self._me, column)
        if isinstance(self._entries, SparseEntries):
            return MatrixStamp(number, self.updates_for(column))
        stamp = self._entries.packed(number, self._positions[column], column)
        self._positions[column] = self._changes
        return stamp

    def updates_for(self, column: int) -> tuple[int, ...]:
        """Return (key, value, key, value, …) that ``column`` has not had from us and that did not come from it.

        What was sent to ``column`` itself comes first: that is what it has to look at before it delivers.
        """
        found = self._entries.since(self._positions[column], column, self._me * self._count + column)
        self._positions[column] = self._changes
        return found

    def updates_for_all(self, columns: Sequence[int]) -> tuple[int, ...]:
        """Return what any of ``columns`` has not had from us, as (key, value, …)."""
        found: dict[int, int] = {}
        for column in columns:
            lacking = self._entries.since(self._positions[column], column, -1)
            found.update(zip(lacking[::2], lacking[1::2], strict=True))
            self._positions[column] = self._changes
        return tuple([number for entry in found.items() for number in entry])

    def check_for_all(self, updates: Sequence[int]) -> None:
        """Refuse updates for several members that cannot be."""
        keys, values = updates[::2], updates[1::2]
        if len(updates) % 2 or len(set(keys)) != len(keys):
            raise MalformedFrame("no updates stamp")
        for key, value in zip(keys, values, strict=True):
            if not 0 <= key < self._count**2 or not 1 <= value <= HIGHEST_VALUE:
                raise MalformedFrame(SENSELESS)
            if key // self._count == self._me:
                self._refuse(key % self._count, value)

    def missing_for_all(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        """Return as ``missing`` does what is missing before a frame whose updates are for several members."""
        delivered, count, mine = self.delivered, self._count, self._me
        before = held.number - 1
        if delivered[held.stream] != before:
            return held.stream, before
        updates = held.frame.stamp.updates
        for at in range(held.cursor, len(updates), 2):
            row, column = divmod(updates[at], count)
            if column == mine and row not in {mine, held.stream} and delivered[row] < updates[at + 1]:
                held.cursor = at
                return row, updates[at + 1]
        return None

    def _read(self, stamp: PackedMatrixStamp) -> PackedEntries:
        """Return what a packed stamp says."""
        if self._reader is None:
            self._reader = PackedReader(self._count)
        return self._reader.read(stamp)

    def check(self, sender: int, stamp: Any) -> None:
        mine = sender * self._count + self._me
        claims: list[tuple[int, int]] = []
        if isinstance(stamp, PackedMatrixStamp):
            said = self._read(stamp)
            claims, needs = self._entries.near(said, self._me)
            if (sender, stamp.number) not in needs and said.value(mine) != stamp.number:
                raise MalformedFrame("its number contradicts its entries")
        elif not isinstance(stamp, MatrixStamp) or len(stamp.updates) % 2:
            raise MalformedFrame("no updates stamp")
        elif stamp.updates:
            claims = examine(stamp.updates, self._count, self._me, mine)
        for column, value in claims:
            self._refuse(column, value)

    def missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        delivered, mine, stamp = self.delivered, self._me, held.frame.stamp
        before = held.number - 1
        if delivered[held.sender] != before:
            return held.sender, before
        if isinstance(stamp, PackedMatrixStamp):
            # What was sent to us and is no news has been delivered: these entries are taken over on delivery only.
            for row, value in self._entries.near(self._read(stamp), mine)[1]:
                if delivered[row] < value and row != held.sender:
                    return row, value
            return None
        updates = stamp.updates
        for at in range(held.cursor, len(updates), 2):
            row, column = divmod(updates[at], self._count)
            if column != mine:
                break
            if delivered[row] < updates[at + 1] and row != mine:
                held.cursor = at
                return row, updates[at + 1]
        return None

    def release(self, held: HeldFrame[Any]) -> None:
        sender, number, stamp = held.sender, held.number, held.frame.stamp
        self.delivered[sender] = number
        if isinstance(stamp, PackedMatrixStamp):
            self._changes = self._entries.learn_packed(self._read(stamp), self._changes, sender)
        else:
            if stamp.updates:
                self.learn(stamp.updates, sender)
            self.learn((sender * self._count + self._me, number), sender)
        self._settle()

    def deliver_next(self, sender: int, stamp: Any) -> bool:
        number, entries, changes = stamp.number, self._entries, self._changes
        if self.delivered[sender] != number - 1:
            return False
        place = sender * self._count + self._me
        if type(stamp) is PackedMatrixStamp and isinstance(entries, DenseEntries):
            said = self._read(stamp)
            if not entries.is_all_that_is_near(said, place, number):
                return False
            changes = entries.learn_packed(said, changes, sender)
        elif type(stamp) is MatrixStamp and isinstance(entries, SparseEntries):
            learned = entries.learn_next(stamp.updates, self._near, changes, sender) if stamp.updates else changes
            if learned is None:
                return False
            changes = entries.learn((place, number), learned, sender)
        else:
            return False
        self._changes = changes
        self.delivered[sender] = number
        self._settle()
        return True

    def learn(self, updates: Sequence[int], source: int) -> None:
        """Take over the (key, value, …) of ``source``, where they are news; the last ones first, as it learned them."""
        self._changes = self._entries.learn(updates, self._changes, source)

    def save(self) -> MatrixState:
        return MatrixState(self.delivered, (self._changes, self._entries.saved(), self._positions), None)

    def load(self, state: MatrixState) -> None:
        if state.updates is None:
            raise StorageError("matrix: a snapshot without the matrix that it should hold")
        self.delivered = state.delivered
        self._changes, entries, self._positions = state.updates
        self._entries = SparseEntries(self._count, entries)
        self._settle()


class FullMatrix(MatrixClock):
    """A matrix clock that writes all of itself each time."""

    def __init__(self, members: Sequence[str], me: int) -> None:
        """Start the clock of member number ``me``."""
        # Only this clock needs it, and importing it takes longer than importing all of thence.
        import numpy as np

        super().__init__(members, me)
        self._matrix: np.ndarray[Any, Any] = np.zeros((self._count, self._count), dtype="<u4")
        self._written = b""
        """All of it as of the last message: row by row, four bytes an entry, little end first."""
        self._maximum = np.maximum
        self._read = np.frombuffer

    def value(self, row: int, column: int) -> int:
        return int(self._matrix[row, column])

    def count_sent(self, columns: Sequence[int]) -> None:
        if any(self._matrix[self._me, column] == FULL_MATRIX_LIMIT for column in columns):
            raise UsageError("matrix: stamps = 'full' counts to 2^32 - 1; use stamps = 'updates'")
        for column in columns:
            self._matrix[self._me, column] += 1
        self._written = self._matrix.tobytes()

    def stamp_for(self, column: int) -> FullMatrixStamp:
        return FullMatrixStamp(self.value(self._me, column), self._written)

    def read(self, written: bytes) -> np.ndarray[Any, Any]:
        """Return the matrix that somebody wrote."""
        return self._read(written, dtype="<u4").reshape(self._count, self._count)

    def check(self, sender: int, stamp: Any) -> None:
        if not isinstance(stamp, FullMatrixStamp) or len(stamp.matrix) != 4 * self._count**2:
            raise MalformedFrame(f"no full matrix of {self._count} members")
        matrix = self.read(stamp.matrix)
        if int(matrix[sender, self._me]) != stamp.number:
            raise MalformedFrame("its number contradicts its matrix")
        row = matrix[self._me]
        for column in (row > self._matrix[self._me]).nonzero()[0]:
            self._refuse(int(column), int(row[column]))

    def missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        before = held.number - 1
        if self.delivered[held.sender] != before:
            return held.sender, before
        column = self.read(held.frame.stamp.matrix)[held.cursor :, self._me].tolist()
        for row, value in enumerate(column, held.cursor):
            if self.delivered[row] < value and row not in (held.sender, self._me):
                held.cursor = row
                return row, value
        return None

    def release(self, held: HeldFrame[Any]) -> None:
        self.delivered[held.sender] = held.number
        self._maximum(self._matrix, self.read(held.frame.stamp.matrix), out=self._matrix)

    def save(self) -> MatrixState:
        return MatrixState(self.delivered, None, self._matrix.tobytes())

    def load(self, state: MatrixState) -> None:
        if state.full is None or len(state.full) != 4 * self._count**2:
            raise StorageError("matrix: a snapshot without the matrix that it should hold")
        self.delivered = state.delivered
        self._matrix = self.read(state.full).copy()
