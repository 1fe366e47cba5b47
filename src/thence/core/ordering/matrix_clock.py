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

from thence.core.ordering.pending import HeldFrame
from thence.errors import ImpossibleFrame, MalformedFrame, StorageError, UsageError
from thence.words import counted

if TYPE_CHECKING:
    import numpy as np

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
        self._entries: dict[int, tuple[int, int, int]] = {}
        """Entry (i, j), as i * count + j, to its value, the number of its last change, and which member it came from.

        Only entries above 0, the most lately changed last: what is new is found without a search.
        """
        self._positions = [0] * self._count
        """Per member: our number of changes when we last wrote to it."""

    def value(self, row: int, column: int) -> int:
        entry = self._entries.get(row * self._count + column)
        return entry[0] if entry else 0

    def count_sent(self, columns: Sequence[int]) -> None:
        for column in columns:
            key = self._me * self._count + column
            before = self._entries.pop(key, None)
            self._changes += 1
            self._entries[key] = (before[0] + 1 if before else 1, self._changes, self._me)

    def stamp_for(self, column: int) -> MatrixStamp:
        return MatrixStamp(self.value(self._me, column), self.updates_for(column))

    def updates_for(self, column: int) -> tuple[int, ...]:
        """Return (key, value, key, value, …) that ``column`` has not had from us and that did not come from it.

        What was sent to ``column`` itself comes first: that is what it has to look at before it delivers.
        """
        position, count = self._positions[column], self._count
        own = self._me * count + column
        needed: list[int] = []
        others: list[int] = []
        for key, (value, change, source) in reversed(self._entries.items()):
            if change <= position:
                break
            if source != column and key != own:
                if key % count == column:
                    needed += (key, value)
                else:
                    others += (key, value)
        self._positions[column] = self._changes
        return (*needed, *others)

    def check(self, sender: int, stamp: Any) -> None:
        if not isinstance(stamp, MatrixStamp) or len(stamp.updates) % 2:
            raise MalformedFrame("no updates stamp")
        updates, count, mine = stamp.updates, self._count, self._me
        if not updates:
            return
        keys = updates[::2]
        reserved = sender * count + mine
        if min(keys) < 0 or max(keys) >= count * count or min(updates[1::2]) < 1 or reserved in keys:
            raise MalformedFrame("updates that make no sense")
        if len(set(keys)) != len(keys):
            raise MalformedFrame("an entry twice")
        for_us = [key % count == mine for key in keys]
        if not all(for_us[: sum(for_us)]):
            raise MalformedFrame("what was sent to me does not come first")
        for at, key in enumerate(keys):
            if mine * count <= key < (mine + 1) * count:
                self._refuse(key - mine * count, updates[2 * at + 1])

    def missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        delivered, count, mine = self.delivered, self._count, self._me
        before = held.number - 1
        if delivered[held.sender] != before:
            return held.sender, before
        updates = held.frame.stamp.updates
        for at in range(held.cursor, len(updates), 2):
            row, column = divmod(updates[at], count)
            if column != mine:
                break
            if delivered[row] < updates[at + 1] and row != mine:
                held.cursor = at
                return row, updates[at + 1]
        return None

    def release(self, held: HeldFrame[Any]) -> None:
        sender, number = held.sender, held.number
        self.delivered[sender] = number
        self.learn(held.frame.stamp.updates, sender)
        self.learn((sender * self._count + self._me, number), sender)

    def learn(self, updates: Sequence[int], source: int) -> None:
        """Take over the (key, value, …) of ``source``, where they are news; the last ones first, as it learned them."""
        entries, changes = self._entries, self._changes
        for at in range(len(updates) - 2, -1, -2):
            key, value = updates[at], updates[at + 1]
            known = entries.get(key)
            if known is not None:
                if known[0] >= value:
                    continue
                del entries[key]
            changes += 1
            entries[key] = (value, changes, source)
        self._changes = changes

    def save(self) -> MatrixState:
        entries = [(key, *entry) for key, entry in self._entries.items()]
        return MatrixState(self.delivered, (self._changes, entries, self._positions), None)

    def load(self, state: MatrixState) -> None:
        if state.updates is None:
            raise StorageError("matrix: a snapshot without the matrix that it should hold")
        self.delivered = state.delivered
        self._changes, entries, self._positions = state.updates
        self._entries = {key: (value, change, source) for key, value, change, source in entries}


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
