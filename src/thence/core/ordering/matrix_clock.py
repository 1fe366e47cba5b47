"""Matrix clocks: who has sent how many messages to whom, as far as one member knows.

Entry (i, j) counts the messages from member i to member j. A message carries its sender's knowledge, itself
included; the receiver waits until everything that was sent to it is there (see ``ordering.matrix``).

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

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

FULL_MATRIX_LIMIT = 2**32 - 1
"""The highest count that a full matrix can carry: its entries are written in four bytes."""


class UpdatesMatrix:
    """A matrix clock that knows what each other member has been told already."""

    def __init__(self, count: int, me: int) -> None:
        """Start the clock of member number ``me`` of ``count``."""
        self._count = count
        self._me = me
        self._changes = 0
        self._entries: dict[int, tuple[int, int, int]] = {}
        """Entry (i, j), as i * count + j, to its value, the number of its last change, and which member told us.

        Only entries above 0, the most lately changed last: what is new is found without a search.
        """
        self._told = [0] * count
        """Per member: our number of changes when we last wrote to it."""

    def value(self, row: int, column: int) -> int:
        """Return how many messages from ``row`` to ``column`` we know of."""
        entry = self._entries.get(row * self._count + column)
        return entry[0] if entry else 0

    def count_sent(self, columns: Sequence[int]) -> None:
        """Count one more message from us to each of ``columns``."""
        for column in columns:
            key = self._me * self._count + column
            before = self._entries.pop(key, None)
            self._changes += 1
            self._entries[key] = (before[0] + 1 if before else 1, self._changes, self._me)

    def updates_for(self, column: int) -> tuple[int, ...]:
        """Return (key, value, key, value, …) that ``column`` has not had from us and did not tell us.

        What was sent to ``column`` itself comes first: that is what it has to look at before it delivers.
        """
        told, count = self._told[column], self._count
        own = self._me * count + column
        needed: list[int] = []
        others: list[int] = []
        for key, (value, change, source) in reversed(self._entries.items()):
            if change <= told:
                break
            if source != column and key != own:
                if key % count == column:
                    needed += (key, value)
                else:
                    others += (key, value)
        self._told[column] = self._changes
        return (*needed, *others)

    def learn(self, updates: Sequence[int], source: int) -> None:
        """Take over the (key, value, …) that ``source`` told us, where they are news; the last ones first, as it learned them."""
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

    def save(self) -> tuple[int, list[tuple[int, int, int, int]], list[int]]:
        """Return everything, for a snapshot."""
        return self._changes, [(key, *entry) for key, entry in self._entries.items()], self._told

    def load(self, changes: int, entries: list[tuple[int, int, int, int]], told: list[int]) -> None:
        """Become what ``save`` returned."""
        self._changes = changes
        self._entries = {key: (value, change, source) for key, value, change, source in entries}
        self._told = told


class FullMatrix:
    """A matrix clock that writes all of itself each time."""

    def __init__(self, count: int, me: int) -> None:
        """Start the clock of member number ``me`` of ``count``."""
        # Only this clock needs it, and importing it takes longer than importing all of thence.
        import numpy as np

        self._count = count
        self._me = me
        self._matrix: np.ndarray[Any, Any] = np.zeros((count, count), dtype="<u4")
        self._maximum = np.maximum
        self._read = np.frombuffer

    def value(self, row: int, column: int) -> int:
        """Return how many messages from ``row`` to ``column`` we know of."""
        return int(self._matrix[row, column])

    def count_sent(self, columns: Sequence[int]) -> None:
        """Count one more message from us to each of ``columns``."""
        for column in columns:
            self._matrix[self._me, column] += 1

    def written(self) -> bytes:
        """Return the whole matrix, row by row, four bytes an entry, little end first."""
        return self._matrix.tobytes()

    def read(self, written: bytes) -> np.ndarray[Any, Any]:
        """Return the matrix that somebody wrote."""
        return self._read(written, dtype="<u4").reshape(self._count, self._count)

    def learn(self, written: bytes) -> None:
        """Take over all that is news."""
        self._maximum(self._matrix, self.read(written), out=self._matrix)

    def claims_about_us(self, written: bytes) -> Iterator[tuple[int, int]]:
        """Give (column, value) where the matrix says that we sent more than we did."""
        row = self.read(written)[self._me]
        for column in (row > self._matrix[self._me]).nonzero()[0]:
            yield int(column), int(row[column])

    def load(self, written: bytes) -> None:
        """Become what ``written`` returned."""
        self._matrix = self.read(written).copy()
