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

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from thence.errors import MalformedFrame

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Entry = tuple[int, int, int, int]
"""Its place (row * members + column), its value, the number of its last change, and which member it came from."""

Near = tuple[list[tuple[int, int]], list[tuple[int, int]]]
"""What concerns a member: (column, value) of what it sent, and (row, value) of what it was sent, each ascending."""

FEWEST_DENSE = 96
"""With fewer entries a loop is as quick as arrays."""

SHARE_DENSE = 256
"""One in so many entries must be above 0: a dictionary takes about 200 bytes for each of these, arrays 5 for any."""

FEWEST_LOGGED = 65
"""Among so many members, what changed is written into a log; among fewer, going through all is as quick."""

LOGGED_SHARE = 16
"""The log reaches back over one in so many of the entries, and over twice as many at most, which is less than ``WHOLE_SHARE``.
Where more changed, going through all is as quick."""

FEW_SORTED = 200
"""So many are sorted; more are ticked off in an array of all entries."""

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

    __slots__ = ("_count", "sums", "values")

    def __init__(self, count: int, sums: Array | None, values: Array) -> None:
        """Hold the values one before these places, or all of ``count`` members."""
        self._count = count
        self.sums = sums
        """The sums of the steps."""
        self.values = values

    def value(self, place: int) -> int:
        """Return what an entry is, 0 if it is not there."""
        if self.sums is None:
            return int(self.values[place])
        at = int(self.sums.searchsorted(place + 1))
        return int(self.values[at]) if at < len(self.sums) and self.sums[at] == place + 1 else 0

    def pairs(self) -> list[tuple[int, int]]:
        """Return (place, value) of all that is above 0."""
        above = self.values.nonzero()[0]
        places = above if self.sums is None else self.sums[above] - 1
        return list(zip(places.tolist(), self.values[above].tolist(), strict=True))


class PackedReader:
    """Reads the packed stamps that come to a domain of so many members."""

    def __init__(self, count: int) -> None:
        """Read stamps among ``count`` members."""
        # Only large domains need it, and importing it takes longer than importing all of thence.
        import numpy as np

        self._read = np.frombuffer
        self._count = count
        self._all = count * count
        self._types = {width: np.dtype(f"<u{width}") for width in WIDTHS}
        self._last: tuple[PackedMatrixStamp, PackedEntries] | None = None
        """The last one that was read, since a stamp is looked at several times."""

    def read(self, stamp: PackedMatrixStamp) -> PackedEntries:
        """Return what a stamp says; refuse what cannot be."""
        if self._last is None or self._last[0] is not stamp:
            self._last = (stamp, self._entries(stamp))
        return self._last[1]

    def _entries(self, stamp: PackedMatrixStamp) -> PackedEntries:
        width, steps = stamp.width, stamp.steps
        if width not in WIDTHS:
            raise MalformedFrame(SENSELESS)
        many, odd = divmod(len(steps), width) if steps else (self._all, 0)
        size, more = divmod(len(stamp.values), max(many, 1))
        if odd or more or size not in WIDTHS:
            raise MalformedFrame(SENSELESS)
        values = self._read(stamp.values, self._types[size])
        if size == WIDTHS[-1] and values.max() > HIGHEST_VALUE:
            raise MalformedFrame(SENSELESS)
        if not steps:
            return PackedEntries(self._count, None, values)
        read = self._read(steps, self._types[width])
        # No step is longer than all places together, so their sum does not overflow.
        if many > self._all or (0 in steps if width == 1 else not read.all()) or (width > 2 and read.max() > self._all):
            raise MalformedFrame(SENSELESS)
        sums = read.cumsum(dtype="<i8")
        if sums[-1] > self._all:
            raise MalformedFrame(SENSELESS)
        return PackedEntries(self._count, sums, values)


def steps_of(sums: Array) -> tuple[int, bytes]:
    """Return how the steps whose ``sums`` these are are written: in how many bytes each, and all of them."""
    steps = sums.copy()
    steps[1:] -= sums[:-1]
    # The longest step is searched for only where it could be too long for one byte.
    longest = 0 if not len(sums) or sums.item(-1) < 1 << 8 else steps.item(steps.argmax())
    if not longest >> 8:
        return 1, steps.astype("u1").tobytes()
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

    def count(self, key: int, change: int, source: int) -> None:
        """Add one to an entry."""
        value, _, _ = self._entries.pop(key, NEVER)
        self._entries[key] = (value + 1, change, source)

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

    def learn_next(self, updates: Sequence[int], near: Collection[int], changes: int, source: int) -> int | None:
        """Learn as ``learn`` does; None, having changed nothing, if something cannot be or is news of an entry in ``near``."""
        keys, values = updates[-2::-2], updates[::-2]
        if len(updates) % 2 or len(set(keys)) != len(keys) or min(keys) < 0 or max(keys) >= self._count**2:
            return None
        if min(values) < 1 or max(values) > HIGHEST_VALUE:
            return None
        entries = self._entries
        get = entries.get
        news = [(key, value) for key, value in zip(keys, values, strict=True) if get(key, NEVER)[0] < value]
        for key, _ in news:
            if key in near:
                return None
        for key, value in news:
            if key in entries:
                del entries[key]
            changes += 1
            entries[key] = (value, changes, source)
        return changes

    def learn_packed(self, said: PackedEntries, changes: int, source: int) -> int:
        """Take over what is news; return the number of the last change."""
        return self.learn([number for pair in said.pairs() for number in pair], changes, source)

    def near(self, said: PackedEntries, me: int) -> Near:
        """Return what is news of what ``me`` sent and was sent."""
        news = [(*divmod(place, self._count), value) for place, value in said.pairs() if value > self.value(place)]
        claims = [(column, value) for row, column, value in news if row == me]
        return claims, [(row, value) for row, column, value in news if column == me and row != me]

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


class ChangeLog:
    """Where the entries are that changed lately, the latest last: what is new is found without a search."""

    def __init__(self, np: Any, entries: int, changes: int, spots: Array, numbers: Array) -> None:
        """Begin after so many ``changes`` to so many ``entries``, with ``numbers`` of those to ``spots``, ascending."""
        self._keep = entries // LOGGED_SHARE
        self._first = max(0, changes - self._keep, int(numbers[-1 - self._keep]) if len(numbers) > self._keep else 0)
        """The number of the change before the log begins."""
        late = spots[numbers > self._first]
        ends = numbers.searchsorted(np.arange(self._first, changes + 1), side="right") - (len(spots) - len(late))
        self._ends: list[int] = ends.tolist()
        """Where each change ends, from the one before the log on."""
        self._spots = np.empty(2 * self._keep, dtype=np.int64)
        self._spots[: len(late)] = late

    def add(self, spots: Any, many: int) -> None:
        """Add the next change: an array of so many spots, or one of them."""
        end = self._ends[-1]
        if end + many > len(self._spots):
            if many > self._keep:
                self._first += len(self._ends)
                self._ends = [0]
                return
            end = self._make_room()
        self._spots[end : end + many] = spots
        self._ends.append(end + many)

    def _make_room(self) -> int:
        """Drop about half of it, the oldest; return where it ends."""
        ends = self._ends
        at = bisect_left(ends, ends[-1] - self._keep)
        cut, end = ends[at], ends[-1]
        self._spots[: end - cut] = self._spots[cut:end].copy()
        self._ends = [end - cut for end in ends[at:]]
        self._first += at
        return end - cut

    def since(self, position: int) -> Array | None:
        """Return what changed after ``position``, some of it several times; None: the log does not reach back so far."""
        at = position - self._first
        return self._spots[self._ends[at] : self._ends[-1]] if at >= 0 else None


class DenseEntries:
    """All entries in arrays, and where there are many of them a log of what changed.

    Each entry stands one behind its place, where the sums of the steps in a stamp say that it is.
    """

    is_crowded = False
    """There is nothing better."""

    def __init__(self, count: int, me: int, changes: int, entries: Iterable[Entry]) -> None:
        """Hold ``entries`` of ``count`` members, after so many ``changes``, as member number ``me``."""
        # Only large domains need it, and importing it takes longer than importing all of thence.
        import numpy as np

        self._np: Any = np
        self._count = count
        self._all = count * count
        self._me = me
        held = np.array(list(entries), dtype=np.int64).reshape(-1, 4)
        held = held[held[:, 2].argsort(kind="stable")]
        spots = held[:, 0] + 1
        self._values = _fitted(np.zeros(self._all + 1, dtype="<u1"), int(held[:, 1].max(initial=0)))
        self._changes = _fitted(np.zeros(self._all + 1, dtype="<u4"), changes)
        """Per entry: the number of its last change."""
        self._sources = _fitted(np.zeros(self._all + 1, dtype="<u1"), count)
        """Per entry: which member its last change came from."""
        self._values[spots], self._changes[spots], self._sources[spots] = held[:, 1], held[:, 2], held[:, 3]
        self._members = list(np.arange(count, dtype=self._sources.dtype).reshape(count, 1))
        """The number of each, of the type that is compared the quickest."""
        self._near = np.zeros(self._all + 1, dtype=bool)
        """Per entry: whether it is about what ``me`` sent or was sent."""
        self._near[1 + me * count : 1 + (me + 1) * count] = self._near[1 + me :: count] = True
        self._ticks = np.zeros(self._all + 1, dtype=bool)
        """All of them are False but while something is ticked off."""
        self._once = np.ones(FEW_SORTED, dtype=bool)
        self._log = ChangeLog(np, self._all, changes, spots, held[:, 2]) if count >= FEWEST_LOGGED else None
        self._forget()

    def _forget(self) -> None:
        """Forget what was found out before something changed."""
        self._news: tuple[PackedEntries, Array, Array] | None = None
        """What was said last, and where and what the news in it is."""
        self._found: tuple[int, Array | None] | None = None
        """The position that was asked for last, and what ``_changed`` said."""
        self._written = b""
        """All values, if they were asked for."""

    def value(self, place: int) -> int:
        """Return what an entry is."""
        return int(self._values.item(place + 1))

    def count(self, place: int, change: int, source: int) -> None:
        """Add one to an entry."""
        value = self._values.item(place + 1) + 1
        self._take(place + 1, 1, value, value, change, source)

    def _take(self, spots: Any, many: int, values: Any, highest: int, change: int, source: int) -> None:
        """Take over the values of one change."""
        if highest >> 8 * self._values.itemsize:
            self._values = _fitted(self._values, highest)
        if change >> 32:
            self._changes = _fitted(self._changes, change)
        self._values[spots] = values
        self._changes[spots] = change
        self._sources[spots] = source
        if self._log is not None:
            self._log.add(spots, many)
        self._news, self._found, self._written = None, None, b""

    def learn(self, updates: Sequence[int], changes: int, source: int) -> int:
        """Take over what is news of (place, value, …); return the number of the last change."""
        if len(updates) == 2:
            if self.value(updates[0]) < updates[1]:
                changes += 1
                self._take(updates[0] + 1, 1, updates[1], updates[1], changes, source)
            return changes
        sums, values = (self._np.array(updates[at::2], dtype="<u8") for at in (0, 1))
        sums = sums.astype("<i8")
        sums += 1
        return self.learn_packed(PackedEntries(self._count, sums, values), changes, source)

    def learn_packed(self, said: PackedEntries, changes: int, source: int) -> int:
        """Take over what is news; return the number of the last change."""
        spots, values = self._news_in(said)
        if not len(spots):
            return changes
        changes += 1
        highest = int(values.max()) if values.itemsize > self._values.itemsize else 0
        self._take(spots, len(spots), values, highest, changes, source)
        return changes

    def _news_in(self, said: PackedEntries) -> tuple[Array, Array]:
        """Return where and what the news is."""
        if self._news is not None and self._news[0] is said:
            return self._news[1:]
        if said.sums is None:
            at = (said.values > self._values[1:]).nonzero()[0]
            spots, values = at + 1, said.values[at]
        else:
            at = (said.values > self._values[said.sums]).nonzero()[0]
            spots, values = said.sums[at], said.values[at]
        self._news = (said, spots, values)
        return spots, values

    def is_all_that_is_near(self, said: PackedEntries, place: int, value: int) -> bool:
        """Return whether this value of this entry is the only news of what ``me`` sent and was sent."""
        spots, values = self._news_in(said)
        near = self._near[spots].nonzero()[0]
        if len(near) != 1:
            return False
        at = near.item()
        return bool(spots.item(at) == place + 1 and values.item(at) == value)

    def near(self, said: PackedEntries, me: int) -> Near:
        """Return what is news of what ``me`` sent and was sent."""
        spots, values = self._news_in(said)
        claims: list[tuple[int, int]] = []
        needs: list[tuple[int, int]] = []
        for at in self._near[spots].nonzero()[0].tolist():
            row, column = divmod(spots.item(at) - 1, self._count)
            if row == me:
                claims.append((column, values.item(at)))
            else:
                needs.append((row, values.item(at)))
        return claims, needs

    def _changed(self, position: int) -> Array | None:
        """Return where the entries are that changed after ``position``, ascending; None: one in ``WHOLE_SHARE`` did, or more."""
        logged = None if self._log is None else self._log.since(position)
        if logged is None:
            changed = self._changes > self._np.asarray(position, self._changes.dtype)
            if int(self._np.count_nonzero(changed)) * WHOLE_SHARE >= self._all:
                return None
            found: Array = changed.nonzero()[0]
            return found
        if len(logged) <= FEW_SORTED:
            ordered = logged.copy()
            ordered.sort()
            once = self._once[: len(ordered)].copy()
            self._np.not_equal(ordered[1:], ordered[:-1], out=once[1:])
            return ordered[once]
        ticks = self._ticks
        ticks[logged] = True
        found = ticks.nonzero()[0]
        ticks[found] = False
        return found

    def packed(self, number: int, position: int, column: int) -> PackedMatrixStamp:
        """Return a stamp with what changed after ``position``, without what ``column`` itself told us."""
        if self._found is None or self._found[0] != position:
            self._found = (position, self._changed(position))
        changed = self._found[1]
        if changed is None:
            self._written = self._written or self._values[1:].tobytes()
            return PackedMatrixStamp(number, 1, b"", self._written)
        spots = changed[self._sources[changed] != self._members[column]]
        return PackedMatrixStamp(number, *steps_of(spots), self._values[spots].tobytes())

    def since(self, position: int, column: int, own: int) -> tuple[int, ...]:
        """Return (place, value, …) of what changed after ``position``, what is in ``column`` before the rest.

        Without the entry ``own``, and without what ``column`` itself told us.
        """
        spots = (self._changes > position).nonzero()[0]
        spots = spots[self._sources[spots] != column]
        spots = spots[spots != own + 1]
        is_needed = (spots - 1) % self._count == column
        spots = self._np.concatenate((spots[is_needed], spots[~is_needed]))
        pairs = self._np.empty(2 * len(spots), dtype=self._np.int64)
        pairs[::2], pairs[1::2] = spots - 1, self._values[spots]
        return tuple(pairs.tolist())

    def saved(self) -> list[Entry]:
        """Return all above 0, in the order of their changes."""
        spots = self._values.nonzero()[0]
        spots = spots[self._changes[spots].argsort(kind="stable")]
        columns = (spots - 1, self._values[spots], self._changes[spots], self._sources[spots])
        return list(zip(*(column.tolist() for column in columns), strict=True))


def _fitted(array: Array, highest: int) -> Array:
    """Return an array wide enough for ``highest``: itself, if it is."""
    width = int(array.itemsize)
    if not highest >> 8 * width:
        return array
    while highest >> 8 * width:
        width *= 2
    return array.astype(f"<u{width}")
