"""From rows to numbers: one slice of one run, in the order that counts, each process's own.

Strings are met here for the last time. Processes become their place among the sorted names of the run, messages their
place in a list of names that the slice keeps, and everything after this works on integers.

Rules:

* Within a process events are ordered by index. A trace that repeats an index is not well-formed, but must still be judged the
  same way every time: ties are ordered by kind, message and destinations, as the judge does.
* The first send of a message in this order is its send; others are ``RESEND`` and carry nothing. A send that another slice
  outdoes is named in ``resends``, by process, index and message.
* A send or delivery without a message is ``OTHER``.
* Processes and kinds are words, or numbers already; then the column ``other`` has the words of kinds that have no number.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thence.pipeline.kernels.columns import KINDS, Columns, columns_of, destinations_of
from thence.pipeline.kernels.compiler import compiled
from thence.pipeline.kernels.replay import DELIVER, OTHER, RESEND, SEND, Bytes, Ints, Longs

__all__ = ["COLUMNS", "KINDS", "TIMED_COLUMNS", "Encoded", "encode", "hashes", "order_of"]

COLUMNS: Final = ("run", "process", "index", "kind", "message", "to")
"""All that decides."""

TIMED_COLUMNS: Final = (*COLUMNS, "time")
"""The time only helps to cut the trace where few messages cross."""

INSERTED_DESTINATIONS: Final = 32
"""Up to so many destinations are sorted by insertion, which for a few is ten times as fast as a call that allocates."""

KIND_NAMES: Final = {code: name for name, code in KINDS.items()}

_KIND_SEND: Final = KINDS["send"]
_KIND_DELIVER: Final = KINDS["deliver"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One slice of one run."""

    first: Longs
    """Process p's events are ``first[p] … first[p + 1] - 1``."""
    least: Longs
    """The index of each process's first event, if it has one."""
    listed: Longs
    """The index of each event; empty where all indices follow from ``least``, as there are no holes."""
    kind: Bytes
    role: Bytes
    message: Ints
    """The number of each event's message, or ``NOBODY``."""
    send_event: Ints
    """The events that send, in order; resends are not among them."""
    to_first: Longs
    """Where the destinations of each of them begin in ``to``; one more at the end."""
    to: Ints
    unaddressed: npt.NDArray[np.bool_]
    """Whether each of them names no destinations at all."""
    incomplete: Ints
    """The events that are sends, or would be, and name no destinations."""
    time: Longs
    """Per event, by its process's own clock; empty where nobody asked, or the trace has no times."""

    @property
    def processes(self) -> int:
        return len(self.first) - 1

    @property
    def index(self) -> Longs:
        """The index of each event."""
        if len(self.listed) or not len(self.role):
            return self.listed
        return np.arange(len(self.role)) + np.repeat(self.least - self.first[:-1], np.diff(self.first))

    def index_of(self, event: int) -> int:
        """The index of one event."""
        if len(self.listed):
            return int(self.listed[event])
        process = self.process_of(event)
        return int(self.least[process] + event - self.first[process])

    def process_of(self, event: int) -> int:
        """The process of one event."""
        return int(np.searchsorted(self.first, event, side="right")) - 1


def order_of(table: pa.Table, names: list[str]) -> Ints | Longs:
    """The rows of a whole run in the order of its events."""
    order, *_ = _in_order(columns_of(table, names), table)
    return order


def encode(
    table: pa.Table, names: list[str], resends: Collection[tuple[int, int, str]] = ()
) -> tuple[Encoded, pa.Array, list[str]]:
    """Encode the rows of a run, all of processes in ``names``.

    Returns the numbers, the names of the messages, and the names of destinations that are no process of the run: those are
    numbered from ``len(names)`` on.
    """
    columns = columns_of(table, names)
    timed = "time" in table.column_names and not table["time"].null_count
    first, least = _sizes(columns, len(names))
    placed = _placed(columns, first, least, timed)
    row, listed, kind, message = placed or _in_order(columns, table)
    role = np.empty(len(kind), np.int8)
    assign_roles(kind, message, role)
    for where in resends:
        _mark_resend(role, message, first, least, listed, columns.messages, where)
    mark_first_sends(role, message, len(columns.messages))
    sends = np.flatnonzero(kind == _KIND_SEND).astype(np.int32)
    to = destinations_of(table, row[sends].astype(np.int64), names)
    carries = role[sends] == SEND
    to_first = np.zeros(int(carries.sum()) + 1, np.int64)
    values = np.empty(int((to.end - to.begin)[carries].sum()), np.int32)
    size = gather_sorted(to.begin[carries], to.end[carries], to.values, to_first, values)
    return (
        Encoded(
            first,
            least,
            listed,
            kind,
            role,
            message,
            sends[carries],
            to_first,
            values[:size],
            to.absent[carries],
            sends[to.absent],
            table["time"].to_numpy()[row] if timed else np.empty(0, np.int64),
        ),
        columns.messages,
        to.strangers,
    )


def _sizes(columns: Columns, processes: int) -> tuple[Longs, Longs]:
    """Where each process's events begin, and the least index of each."""
    count = np.zeros(processes, np.int64)
    least = np.full(processes, np.iinfo(np.int64).max)
    for batch in columns.batches:
        count_events(batch.process, batch.process_of, batch.index, count, least)
    return np.concatenate([[0], np.cumsum(count)]), least


def _placed(columns: Columns, first: Longs, least: Longs, every_row: bool) -> tuple[Ints | Longs, Longs, Bytes, Ints] | None:
    """As ``_in_order``, but no indices, and rows only of sends if not asked for all; None if indices have holes or repeat."""
    total = int(first[-1])
    row, kind, message = np.empty(total, np.int32), np.full(total, -1, np.int8), np.empty(total, np.int32)
    first_row = 0
    for batch in columns.batches:
        if not place_events(
            batch.process, batch.process_of, batch.index, batch.kind, batch.kind_of, batch.message, batch.message_of,
            first, least, first_row, every_row, row, kind, message,
        ):  # fmt: skip
            return None
        first_row += len(batch.index)
    return row, np.empty(0, np.int64), kind, message


def _in_order(columns: Columns, table: pa.Table) -> tuple[Ints | Longs, Longs, Bytes, Ints]:
    """The rows, their indices, kinds and messages, by sorting; for slices whose indices have holes or repeat."""
    if not columns.batches:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int8), np.empty(0, np.int32)
    process, index, kind, message = map(np.concatenate, zip(*(batch.numbers() for batch in columns.batches), strict=True))
    order = np.lexsort((index, process))
    same = (np.diff(process[order]) == 0) & (np.diff(index[order]) == 0)
    if same.any():
        order = _break_ties(order, same, table)
    return order, index[order], kind[order], message[order]


@compiled
def count_events(process, process_of, index, count, least):  # type: ignore[no-untyped-def]
    """Count each process's rows, and find its least index."""
    for row in range(len(process)):
        p = process_of[process[row]]
        count[p] += 1
        least[p] = min(least[p], index[row])


@compiled
def place_events(  # type: ignore[no-untyped-def]
    process, process_of, index, kind, kind_of, message, message_of, first, least, first_row, every_row, rows, kinds, messages,
):  # fmt: skip
    """Put each row where its index says; false if that is no place, or taken."""
    for row in range(len(process)):
        p = process_of[process[row]]
        place = first[p] + index[row] - least[p]
        if place < first[p] or place >= first[p + 1] or kinds[place] >= 0:
            return False
        what = kind_of[kind[row]]
        kinds[place] = what
        messages[place] = message_of[message[row]]
        if every_row or what == _KIND_SEND:
            rows[place] = first_row + row
    return True


@compiled
def assign_roles(kind, message, role):  # type: ignore[no-untyped-def]
    """What each event does, if every send is the first of its message."""
    for event in range(len(kind)):
        if message[event] >= 0 and kind[event] == _KIND_DELIVER:
            role[event] = DELIVER
        elif message[event] >= 0 and kind[event] == _KIND_SEND:
            role[event] = SEND
        else:
            role[event] = OTHER


def _break_ties(order: Longs, same: npt.NDArray[np.bool_], table: pa.Table) -> Longs:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    for begin, end in edges.reshape(-1, 2).tolist():
        chosen = [name for name in ("kind", "other", "message", "to") if name in table.column_names]
        rows = table.take(pa.array(order[begin : end + 1])).select(chosen).to_pylist()
        keys = [
            (
                row.get("other") or KIND_NAMES.get(row["kind"]) or row["kind"],
                row["message"] is not None,
                row["message"] or "",
                row["to"] is not None,
                tuple(row["to"] or ()),
            )
            for row in rows
        ]
        order[begin : end + 1] = order[begin : end + 1][sorted(range(len(keys)), key=keys.__getitem__)]
    return order


@compiled
def gather_sorted(begin, end, values, first, to):  # type: ignore[no-untyped-def]
    """Fill in ``first`` and ``to``, each row's sorted and without repetitions; return how much of ``to`` was needed."""
    size = 0
    for k in range(len(begin)):
        start = size
        if end[k] - begin[k] > INSERTED_DESTINATIONS and not is_ascending(values[begin[k] : end[k]]):
            some = np.unique(values[begin[k] : end[k]])
            size = start + len(some)
            to[start:size] = some
        else:
            for j in range(begin[k], end[k]):
                size = insert(to, start, size, values[j])
        first[k + 1] = size
    return size


@compiled
def is_ascending(values):  # type: ignore[no-untyped-def]
    """Whether each value is larger than the one before."""
    ascending = True
    for k in range(1, len(values)):
        ascending &= values[k - 1] < values[k]
    return ascending


@compiled
def insert(to, start, size, value):  # type: ignore[no-untyped-def]
    """Insert a value into ``to[start:size]``, which ascends, if it is not there; return the new size."""
    at = size
    while at > start and to[at - 1] > value:
        at -= 1
    if at > start and to[at - 1] == value:
        return size
    for k in range(size, at, -1):
        to[k] = to[k - 1]
    to[at] = value
    return size + 1


def _mark_resend(
    role: Bytes, message: Ints, first: Longs, least: Longs, listed: Longs, names: pa.Array, where: tuple[int, int, str]
) -> None:
    """Another slice has the send of this message: by process, index and name."""
    process, wanted, name = where
    begin, end = int(first[process]), int(first[process + 1])
    if len(listed):
        at = begin + int(np.searchsorted(listed[begin:end], wanted))
        last = begin + int(np.searchsorted(listed[begin:end], wanted, side="right"))
    else:
        at = begin + wanted - int(least[process])
        last = at + 1 if begin <= at < end else at
    for event in range(at, last):
        if role[event] == SEND and names[int(message[event])].as_py() == name:
            role[event] = RESEND


@compiled
def mark_first_sends(role, message, count):  # type: ignore[no-untyped-def]
    """Make every send of a message but the first a resend."""
    sent = np.zeros(count, np.bool_)
    for event in range(len(role)):
        if role[event] == SEND:
            if sent[message[event]]:
                role[event] = RESEND
            sent[message[event]] = True


def hashes(names: pa.Array) -> npt.NDArray[np.uint64]:
    """A 64-bit number for each name, the same in every slice: to find names that occur in several."""
    data = names.cast(pa.large_binary())
    _, offsets, content = data.buffers()
    bounds = np.frombuffer(offsets, np.int64)[data.offset : data.offset + len(data) + 1]
    return hash_bytes(bounds, np.frombuffer(content or b"", np.uint8))  # type: ignore[no-any-return]


@compiled
def hash_bytes(bounds, content):  # type: ignore[no-untyped-def]
    """FNV-1a with a final mixing."""
    result = np.empty(len(bounds) - 1, np.uint64)
    for k in range(len(result)):
        value = np.uint64(0xCBF29CE484222325)
        for at in range(bounds[k], bounds[k + 1]):
            value = (value ^ np.uint64(content[at])) * np.uint64(0x100000001B3)
        value ^= value >> np.uint64(32)
        value *= np.uint64(0x9E3779B97F4A7C15)
        result[k] = value ^ (value >> np.uint64(29))
    return result
