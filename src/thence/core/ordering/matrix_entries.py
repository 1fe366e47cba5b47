"""The entries of a matrix clock with updates: what is known, when it changed here, and who told it.

Two tables of the same contents, for ``matrix_clock.UpdatesMatrix``:

* ``SparseEntries`` holds the entries above 0 in a dictionary, the most lately changed last.
* ``DenseEntries`` holds all n² in arrays that are as narrow as their values, and goes through a stamp in one go. It writes packed
  stamps: what changed, or the whole matrix where much did.

``is_crowded`` says from when on the second is the better one. It follows from what is known alone, so a restart finds the same
table again. Each reads the stamps of the other.

Rules of packed stamps:

* Places ascend, so none comes twice, whoever looks for one finds it by bisection, and the steps from one to the next are small.
* The count of the message itself is among the entries: a stamp that contradicts its number is refused.
* Numbers stand with their little end first, as narrow as the highest of them allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from thence.errors import MalformedFrame

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Entry = tuple[int, int, int, int]
"""Its place (row * members + column), its value, the number of its last change, and which member it came from."""

FEWEST_DENSE = 96
"""With fewer entries a loop is as quick as arrays."""

SHARE_DENSE = 256
"""One in so many entries must be above 0: a dictionary takes about 200 bytes for each of these, arrays 5 for any."""

FEWEST_ROWS = 64
"""Among so many members, only rows that changed are looked through if they are few."""

FEW_ROWS = 4
"""Few are at most one in so many."""

WHOLE_SHARE = 4
"""A matrix is written as a whole where one in so many entries changed: about twice the bytes, and a fraction of the time."""

WIDTHS = (1, 2, 4, 8)
"""In so many bytes a value may be written, and a step to the next place."""

HIGHEST_VALUE = 2**62
"""No member sends more messages to another."""

SENSELESS = "updates that make no sense"

NEVER = (0, 0, 0)

TWICE = "an entry twice"
NOT_FIRST = "what was sent to me does not come first"


class PackedMatrixStamp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=19):
    """The ``number``-th message from its sender to its receiver, with the entries that changed.

    The place of an entry is row * members + column. ``steps`` say how far each is behind the one before, the first one behind -1,
    in ``width`` bytes each; ``values`` what the entries are now. Without steps, ``values`` are those of all entries, row by row.
    """

    number: int
    width: int
    steps: bytes
    values: bytes


class PackedEntries:
    """What a packed stamp says, as arrays."""

    __slots__ = ("_count", "places", "values")

    def __init__(self, count: int, places: Array | None, values: Array) -> None:
        """Hold the values at these places, or all of ``count`` members."""
        self._count = count
        self.places = places
        self.values = values

    def span(self, row: int) -> slice:
        """Return where the entries of ``row`` stand."""
        first = row * self._count
        if self.places is None:
            return slice(first, first + self._count)
        return slice(*self.places.searchsorted((first, first + self._count)).tolist())

    def value(self, place: int) -> int:
        """Return what an entry is, 0 if it is not there."""
        if self.places is None:
            return int(self.values[place])
        at = int(self.places.searchsorted(place))
        return int(self.values[at]) if at < len(self.places) and self.places[at] == place else 0

    def column(self, column: int) -> tuple[Iterable[int], list[int]]:
        """Return the rows of the entries of ``column``, ascending, and their values."""
        if self.places is None:
            return range(self._count), self.values[column :: self._count].tolist()
        found = (self.places % self._count == column).nonzero()[0]
        return (self.places[found] // self._count).tolist(), self.values[found].tolist()

    def pairs(self) -> list[tuple[int, int]]:
        """Return (place, value) of all that is above 0."""
        above = self.values.nonzero()[0]
        places = above if self.places is None else self.places[above]
        return list(zip(places.tolist(), self.values[above].tolist(), strict=True))


class PackedReader:
    """Reads the packed stamps that come to a domain of so many members."""

    def __init__(self, count: int) -> None:
        """Read stamps among ``count`` members."""
        # Only large domains need it, and importing it takes longer than importing all of thence.
        import numpy as np

        self._read = np.frombuffer
        self._count_true = np.count_nonzero
        self._count = count
        self._last: tuple[PackedMatrixStamp, PackedEntries] | None = None
        """The last one that was read, since a stamp is looked at several times."""

    def read(self, stamp: PackedMatrixStamp) -> PackedEntries:
        """Return what a stamp says; refuse what cannot be."""
        if self._last is None or self._last[0] is not stamp:
            self._last = (stamp, self._entries(stamp))
        return self._last[1]

    def _entries(self, stamp: PackedMatrixStamp) -> PackedEntries:
        if stamp.width not in WIDTHS:
            raise MalformedFrame(SENSELESS)
        many, odd = divmod(len(stamp.steps), stamp.width) if stamp.steps else (self._count**2, 0)
        size, more = divmod(len(stamp.values), max(many, 1))
        if odd or more or size not in WIDTHS:
            raise MalformedFrame(SENSELESS)
        values = self._read(stamp.values, f"<u{size}")
        if size == WIDTHS[-1] and values.max() > HIGHEST_VALUE:
            raise MalformedFrame(SENSELESS)
        if not stamp.steps:
            return PackedEntries(self._count, None, values)
        steps = self._read(stamp.steps, f"<u{stamp.width}")
        # No step is longer than all places together, so their sum does not overflow.
        if many > self._count**2 or self._count_true(steps) < many or steps.max() > self._count**2:
            raise MalformedFrame(SENSELESS)
        places = steps.cumsum(dtype="<i8")
        places -= 1
        if places[-1] >= self._count**2:
            raise MalformedFrame(SENSELESS)
        return PackedEntries(self._count, places, values)


def steps_between(places: Array) -> tuple[int, bytes]:
    """Return how the steps from each place to the next are written: in how many bytes each, and all of them."""
    steps = places + 1
    steps[1:] -= steps[:-1].copy()
    longest = int(steps.max(initial=0))
    width = next(width for width in WIDTHS if not longest >> 8 * width)
    return width, steps.astype(f"<u{width}").tobytes()


def examine(updates: Sequence[int], count: int, me: int, reserved: int) -> list[tuple[int, int]]:
    """Refuse (key, value, …) that cannot be; return (column, value) of what ``me`` sent, for a closer look."""
    keys = updates[::2]
    if min(keys) < 0 or max(keys) >= count * count or reserved in keys:
        raise MalformedFrame(SENSELESS)
    if min(updates[1::2]) < 1 or max(updates[1::2]) > HIGHEST_VALUE:
        raise MalformedFrame(SENSELESS)
    if len(set(keys)) != len(keys):
        raise MalformedFrame(TWICE)
    for_us = [key % count == me for key in keys]
    if not all(for_us[: sum(for_us)]):
        raise MalformedFrame(NOT_FIRST)
    first, end = me * count, (me + 1) * count
    return [(key - first, updates[2 * at + 1]) for at, key in enumerate(keys) if first <= key < end]


class SparseEntries:
    """The entries above 0 in a dictionary, the most lately changed last: what is new is found without a search."""

    def __init__(self, count: int, entries: Iterable[Entry] = ()) -> None:
        """Hold ``entries``, in the order of their changes, of ``count`` members."""
        self._count = count
        self._entries = {key: (value, change, source) for key, value, change, source in entries}

    @property
    def is_crowded(self) -> bool:
        """Whether so many are above 0 that arrays serve better."""
        return len(self._entries) >= max(FEWEST_DENSE, self._count**2 // SHARE_DENSE)

    def value(self, key: int) -> int:
        """Return what an entry is."""
        return self._entries.get(key, NEVER)[0]

    def put(self, key: int, value: int, change: int, source: int) -> None:
        """Change an entry."""
        self._entries.pop(key, None)
        self._entries[key] = (value, change, source)

    def learn(self, updates: Sequence[int], changes: int, source: int) -> int:
        """Take over what is news of (key, value, …), the last ones first; return the number of the last change."""
        entries = self._entries
        for key, value in zip(updates[-2::-2], updates[::-2], strict=True):
            known = entries.get(key)
            if known is not None:
                if known[0] >= value:
                    continue
                del entries[key]
            changes += 1
            entries[key] = (value, changes, source)
        return changes

    def learn_packed(self, said: PackedEntries, changes: int, source: int) -> int:
        """Take over what is news; return the number of the last change."""
        return self.learn([number for pair in said.pairs() for number in pair], changes, source)

    def claims(self, said: PackedEntries, me: int) -> list[tuple[int, int]]:
        """Return (column, value) of what a stamp says of row ``me``."""
        first, end = me * self._count, (me + 1) * self._count
        return [(place - first, value) for place, value in said.pairs() if first <= place < end]

    def since(self, position: int, column: int, own: int) -> tuple[int, ...]:
        """Return (key, value, …) of what changed after ``position``, the latest first and what is in ``column`` before the rest.

        Without the entry ``own``, and without what ``column`` itself told us.
        """
        count = self._count
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
        return (*needed, *others)

    def saved(self) -> list[Entry]:
        """Return all, in the order of their changes."""
        return [(key, *entry) for key, entry in self._entries.items()]


class DenseEntries:
    """All entries in arrays."""

    is_crowded = False
    """There is nothing better."""

    def __init__(self, count: int, entries: Iterable[Entry]) -> None:
        """Hold ``entries`` of ``count`` members."""
        # Only large domains need it, and importing it takes longer than importing all of thence.
        import numpy as np

        self._np: Any = np
        self._count = count
        held = np.array(list(entries), dtype=np.int64).reshape(-1, 4)
        places, marks = held[:, 0], held[:, 2] * count + held[:, 3]
        self._values = _fitted(np.zeros(count * count, dtype="<u1"), int(held[:, 1].max(initial=0)))
        self._marks = _fitted(np.zeros(count * count, dtype="<u4"), int(marks.max(initial=0)))
        """Per entry: the number of its last change * members + which member it came from."""
        self._rows = np.zeros(count, dtype=np.int64)
        """Per row: the number of the last change of an entry in it."""
        self._values[places], self._marks[places] = held[:, 1], marks
        np.maximum.at(self._rows, places // count, held[:, 2])

    def value(self, place: int) -> int:
        """Return what an entry is."""
        return int(self._values[place])

    def put(self, place: int, value: int, change: int, source: int) -> None:
        """Change an entry."""
        mark = change * self._count + source
        self._values, self._marks = _fitted(self._values, value), _fitted(self._marks, mark)
        self._values[place], self._marks[place] = value, mark
        self._rows[place // self._count] = change

    def learn(self, updates: Sequence[int], changes: int, source: int) -> int:
        """Take over what is news of (place, value, …); return the number of the last change."""
        if len(updates) == 2:
            if self.value(updates[0]) < updates[1]:
                changes += 1
                self.put(updates[0], updates[1], changes, source)
            return changes
        places, values = (self._np.array(updates[at::2], dtype="<u8") for at in (0, 1))
        return self.learn_packed(PackedEntries(self._count, places, values), changes, source)

    def learn_packed(self, said: PackedEntries, changes: int, source: int) -> int:
        """Take over what is news; return the number of the last change."""
        values = said.values
        if values.itemsize > self._values.itemsize:
            self._values = _fitted(self._values, int(values.max()))
            values = values.astype(self._values.dtype)
        known, change = self._values, changes + 1
        mark = change * self._count + source
        marks = self._marks = _fitted(self._marks, mark)
        if said.places is None:
            self._np.putmask(marks, values > known, mark)
            self._np.maximum(known, values, out=known)
            self._rows.fill(change)
        else:
            news = (values > known[said.places]).nonzero()[0]
            places = said.places[news]
            known[places], marks[places] = values[news], mark
            self._rows[places // self._count] = change
        return change

    def claims(self, said: PackedEntries, me: int) -> list[tuple[int, int]]:
        """Return (column, value) of what a stamp says of row ``me`` beyond what we know."""
        span = said.span(me)
        first = me * self._count
        values = said.values[span]
        places = slice(first, first + self._count) if said.places is None else said.places[span]
        above = (values > self._values[places]).nonzero()[0]
        if not len(above):
            return []
        columns = above if isinstance(places, slice) else places[above] - first
        return list(zip(columns.tolist(), values[above].tolist(), strict=True))

    def _changed(self, position: int) -> tuple[Array | None, Array]:
        """Return some rows, or None for all, and for each of their entries whether it changed after ``position``."""
        first = (position + 1) * self._count
        if self._count >= FEWEST_ROWS:
            rows = (self._rows > position).nonzero()[0]
            if FEW_ROWS * len(rows) <= self._count:
                return rows, self._marks.reshape(self._count, -1)[rows] >= first
        return None, self._marks >= first

    def _places(self, rows: Array | None, changed: Array, column: int) -> Array:
        """Return the places of what changed, ascending, without what ``column`` itself told us."""
        if rows is None:
            places = changed.nonzero()[0]
        else:
            at, columns = changed.nonzero()
            places = rows[at] * self._count + columns
        others: Array = places[self._marks[places] % self._count != column]
        return others

    def packed(self, number: int, position: int, column: int) -> PackedMatrixStamp:
        """Return a stamp with what changed after ``position``, without what ``column`` itself told us."""
        rows, changed = self._changed(position)
        if int(self._np.count_nonzero(changed)) * WHOLE_SHARE >= self._count**2:
            return PackedMatrixStamp(number, 1, b"", self._values.tobytes())
        places = self._places(rows, changed, column)
        return PackedMatrixStamp(number, *steps_between(places), self._values[places].tobytes())

    def since(self, position: int, column: int, own: int) -> tuple[int, ...]:
        """Return (place, value, …) of what changed after ``position``, what is in ``column`` before the rest.

        Without the entry ``own``, and without what ``column`` itself told us.
        """
        places = self._places(*self._changed(position), column)
        places = places[places != own]
        is_needed = places % self._count == column
        places = self._np.concatenate((places[is_needed], places[~is_needed]))
        pairs = self._np.empty(2 * len(places), dtype=self._np.int64)
        pairs[::2], pairs[1::2] = places, self._values[places]
        return tuple(pairs.tolist())

    def saved(self) -> list[Entry]:
        """Return all above 0, in the order of their changes."""
        places = self._values.nonzero()[0]
        marks = self._marks[places].astype(self._np.int64)
        order = marks.argsort(kind="stable")
        places, marks = places[order], marks[order]
        columns = (places, self._values[places], marks // self._count, marks % self._count)
        return list(zip(*(column.tolist() for column in columns), strict=True))


def _fitted(array: Array, highest: int) -> Array:
    """Return an array wide enough for ``highest``: itself, if it is."""
    width = int(array.itemsize)
    if not highest >> 8 * width:
        return array
    while highest >> 8 * width:
        width *= 2
    return array.astype(f"<u{width}")
