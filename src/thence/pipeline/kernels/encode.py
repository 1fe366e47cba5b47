"""From rows to numbers: one slice of one run, in the order that counts, each process's own.

Strings are met here for the last time. Processes become their place among the sorted names of the run, messages their
place in a list of names that the slice keeps, and everything after this works on integers.

Rules:

* Within a process events are ordered by index. A trace that repeats an index is not well-formed, but must still be judged the
  same way every time: ties are ordered by kind, message and destinations, as the judge does.
* The first send of a message in this order is its send; others are ``RESEND`` and carry nothing. A send that another slice
  outdoes is named in ``resends``, by process, index and message.
* A send or delivery without a message is ``OTHER``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thence.pipeline.kernels.compiled import compiled
from thence.pipeline.kernels.replay import DELIVER, NOBODY, OTHER, RESEND, SEND, Bytes, Ints, Longs

COLUMNS: Final = ("run", "process", "index", "kind", "message", "to", "time")
"""What is read. All but ``time`` decides; that one only helps to cut the trace where few messages cross."""

KINDS: Final[Mapping[str, int]] = {"send": 1, "deliver": 2, "crash": 3, "recover": 4, "join": 5, "leave": 6}
"""Every other kind is 0."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One slice of one run."""

    first: Longs
    """Process p's events are ``first[p] … first[p + 1] - 1``."""
    index: Longs
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
    complete: npt.NDArray[np.bool_]
    """Per event: false if it is a send that names no destinations."""
    time: Longs
    """Per event, by its process's own clock; empty where the trace has no times."""

    @property
    def processes(self) -> int:
        return len(self.first) - 1


def order_of(table: pa.Table, names: list[str]) -> Longs:
    """The rows of a whole run in the order of its events."""
    order, _ = _order(_numbers_of(table["process"], names), table["index"].to_numpy(), len(names), table)
    return order


def encode(
    table: pa.Table, names: list[str], low: Longs, high: Longs, resends: Collection[tuple[int, int, str]] = ()
) -> tuple[Encoded, pa.Array, list[str]]:
    """Encode the rows of a run whose index lies in ``low[p] … high[p] - 1`` of their process p.

    Returns the numbers, the names of the messages, and the names of destinations that are no process of the run: those are
    numbered from ``len(names)`` on.
    """
    process = _numbers_of(table["process"], names)
    index = table["index"].to_numpy().astype(np.int64, copy=False)
    inside = (index >= low[process]) & (index < high[process])
    if not inside.all():
        table = table.filter(pa.array(inside))
        process, index = process[inside], index[inside]
    messages = _dictionary(table["message"])
    ids = messages.indices.fill_null(NOBODY).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    kind = _kinds(table["kind"])
    order, first = _order(process, index, len(names), table)
    strangers: list[str] = []
    sends = (kind == KINDS["send"]) & (ids >= 0)
    to_length, to_values, to_null = _destinations(table["to"], names, strangers)
    role = np.where(ids < 0, OTHER, np.select([kind == KINDS["deliver"], sends], [DELIVER, SEND], OTHER)).astype(np.int8)
    role, ids, index_sorted, kind_sorted = role[order], ids[order], index[order], kind[order]
    for where in resends:
        _mark_resend(role, ids, first, index_sorted, messages.dictionary, where)
    mark_first_sends(role, ids, len(messages.dictionary))
    send_event = np.flatnonzero(role == SEND).astype(np.int32)
    to_first, to = _gather(order[send_event], to_length, to_values)
    return (
        Encoded(
            first,
            index_sorted,
            kind_sorted,
            role,
            ids,
            send_event,
            to_first,
            to,
            to_null[order[send_event]],
            ~(to_null[order] & (kind_sorted == KINDS["send"])),
            _times(table, order),
        ),
        messages.dictionary,
        strangers,
    )


def _times(table: pa.Table, order: Longs) -> Longs:
    if "time" not in table.column_names or table["time"].null_count:
        return np.empty(0, np.int64)
    return table["time"].to_numpy()[order]  # type: ignore[no-any-return]


def _dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """One dictionary for all of a column."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    table = pa.table({"column": column}).unify_dictionaries()
    chunks = table["column"].combine_chunks()
    if isinstance(chunks, pa.ChunkedArray):
        chunks = chunks.chunk(0) if chunks.num_chunks else pa.array([], pa.string()).dictionary_encode()
    return chunks


def _numbers_of(column: pa.ChunkedArray, names: list[str]) -> Longs:
    encoded = _dictionary(column)
    numbers = pc.index_in(encoded.dictionary.cast(pa.string()), pa.array(names, pa.string())).fill_null(NOBODY).to_numpy()
    return numbers.astype(np.int64)[encoded.indices.to_numpy()]  # type: ignore[no-any-return]


def _kinds(column: pa.ChunkedArray) -> Bytes:
    encoded = _dictionary(column)
    codes = np.array([KINDS.get(kind, 0) for kind in encoded.dictionary.to_pylist()], np.int8)
    return codes[encoded.indices.to_numpy()]  # type: ignore[no-any-return]


def _order(process: Longs, index: Longs, count: int, table: pa.Table) -> tuple[Longs, Longs]:
    """The rows in order of process and index, and where each process begins."""
    first = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(process, minlength=count), out=first[1:])
    order = np.empty(len(process), np.int64)
    if place_directly(process, index, first, order):
        return order, first
    order = np.lexsort((index, process))
    same = (np.diff(process[order]) == 0) & (np.diff(index[order]) == 0)
    if same.any():
        order = _break_ties(order, same, table)
    return order, first


@compiled
def place_directly(process, index, first, order):  # type: ignore[no-untyped-def]
    """Fill in the order of a slice without holes or repetitions; false if it has some."""
    count = len(first) - 1
    least = np.full(count, np.iinfo(np.int64).max, np.int64)
    for row in range(len(process)):
        least[process[row]] = min(least[process[row]], index[row])
    order[:] = -1
    for row in range(len(process)):
        p = process[row]
        place = first[p] + index[row] - least[p]
        if place >= first[p + 1] or order[place] >= 0:
            return False
        order[place] = row
    return True


def _break_ties(order: Longs, same: npt.NDArray[np.bool_], table: pa.Table) -> Longs:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    for begin, end in edges.reshape(-1, 2).tolist():
        rows = table.take(pa.array(order[begin : end + 1])).select(["kind", "message", "to"]).to_pylist()
        keys = [
            (row["kind"], row["message"] is not None, row["message"] or "", row["to"] is not None, tuple(row["to"] or ()))
            for row in rows
        ]
        order[begin : end + 1] = order[begin : end + 1][sorted(range(len(keys)), key=keys.__getitem__)]
    return order


def _destinations(column: pa.ChunkedArray, names: list[str], strangers: list[str]) -> tuple[Longs, Ints, npt.NDArray[np.bool_]]:
    """Per row how many destinations, all of them in row order, and whether there is no list. Nobody is named twice in a row."""
    lengths = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    nulls = column.is_null().to_numpy().astype(np.bool_)
    flat = pa.chunked_array([chunk.flatten() for chunk in column.chunks]) if column.num_chunks else pa.chunked_array([[]])
    if not len(flat):
        return lengths, np.empty(0, np.int32), nulls
    encoded = _dictionary(flat)
    values = encoded.dictionary.cast(pa.string())
    numbers = pc.index_in(values, pa.array(names, pa.string())).fill_null(NOBODY).to_numpy().astype(np.int32)
    for place in np.flatnonzero(numbers == NOBODY).tolist():
        numbers[place] = len(names) + len(strangers)
        strangers.append(values[place].as_py())
    return lengths, numbers[encoded.indices.to_numpy()], nulls


def _gather(rows: Longs, lengths: Longs, values: Ints) -> tuple[Longs, Ints]:
    """The destinations of these rows, one after the other, each row's sorted and without repetitions."""
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    first = np.zeros(len(rows) + 1, np.int64)
    to = np.empty(int(lengths[rows].sum()), np.int32)
    size = gather_sorted(rows, starts, lengths, values, first, to)
    return first, to[:size]


@compiled
def gather_sorted(rows, starts, lengths, values, first, to):  # type: ignore[no-untyped-def]
    """Fill in ``first`` and ``to``; return how much of ``to`` was needed."""
    size = 0
    for k in range(len(rows)):
        begin = size
        row = rows[k]
        ordered = True
        for j in range(starts[row], starts[row] + lengths[row]):
            if size > begin and values[j] <= to[size - 1]:
                ordered = False
            to[size] = values[j]
            size += 1
        if not ordered:
            some = np.unique(to[begin:size])
            size = begin + len(some)
            to[begin:size] = some
        first[k + 1] = size
    return size


def _mark_resend(role: Bytes, message: Ints, first: Longs, index: Longs, names: pa.Array, where: tuple[int, int, str]) -> None:
    """Another slice has the send of this message: by process, index and name."""
    process, wanted, name = where
    begin, end = first[process], first[process + 1]
    at = begin + np.searchsorted(index[begin:end], wanted)
    while at < end and index[at] == wanted:
        if role[at] == SEND and names[int(message[at])].as_py() == name:
            role[at] = RESEND
        at += 1


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
