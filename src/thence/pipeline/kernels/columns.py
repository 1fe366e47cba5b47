"""Columns of a trace as plain numbers, batch by batch, without making a single Python string.

Arrow reads words as codes into a dictionary of each batch. Here the few words of the dictionaries are numbered, once, and the
many codes are left as they are: the loops over events look the numbers up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thence.pipeline.kernels.replay import NOBODY, Bytes, Ints, Longs

KINDS: Final[Mapping[str, int]] = {"send": 1, "deliver": 2, "crash": 3, "recover": 4, "join": 5, "leave": 6}
"""Every other kind is 0."""


@dataclass(frozen=True, slots=True)
class CodedBatch:
    """Some rows: codes, and what each code means. A missing word has the last code, which means ``NOBODY``."""

    process: Ints
    process_of: Ints
    index: Longs
    kind: Ints
    kind_of: Bytes
    message: Ints
    message_of: Ints

    def numbers(self) -> tuple[Longs, Longs, Bytes, Ints]:
        """Process, index, kind and message of each row."""
        return (
            self.process_of[self.process].astype(np.int64),
            self.index,
            self.kind_of[self.kind],
            self.message_of[self.message],
        )


@dataclass(frozen=True, slots=True)
class Columns:
    """A table as batches, in its order."""

    batches: list[CodedBatch]
    messages: pa.Array
    """The names of the messages, by number."""


def columns_of(table: pa.Table, names: list[str]) -> Columns:
    """Number the processes by their place in ``names``, the messages by one list for the whole table."""
    batches = table.to_batches()
    coded = [_coded(batch["message"]) for batch in batches]
    every = pa.concat_arrays([words for _, words in coded] or [pa.array([], pa.string())]).dictionary_encode()
    numbers = np.append(every.indices.to_numpy(), NOBODY).astype(np.int32)
    known = pa.array(names, pa.string())
    made, at = [], 0
    for batch, (message, words) in zip(batches, coded, strict=True):
        process, process_of = _numbered(batch["process"], known)
        kind, kind_of = _kinds(batch["kind"])
        made.append(
            CodedBatch(
                process,
                process_of,
                np.array(batch["index"], np.int64),
                kind,
                kind_of,
                message,
                np.append(numbers[at : at + len(words)], NOBODY).astype(np.int32),
            )
        )
        at += len(words)
    return Columns(made, every.dictionary)


def _numbered(column: pa.Array, known: pa.Array) -> tuple[Ints, Ints]:
    """Codes of processes, and the number that each code means; a column of numbers is its own code."""
    if pa.types.is_integer(column.type):
        return np.array(column, np.int32), np.append(np.arange(len(known)), NOBODY).astype(np.int32)
    codes, words = _coded(column)
    return codes, np.append(pc.index_in(words, known).fill_null(NOBODY).to_numpy(), NOBODY).astype(np.int32)


def _kinds(column: pa.Array) -> tuple[Ints, Bytes]:
    """The same of kinds."""
    if pa.types.is_integer(column.type):
        return np.array(column, np.int32), np.arange(len(KINDS) + 1, dtype=np.int8)
    codes, words = _coded(column)
    return codes, np.array([*(KINDS.get(word, 0) for word in words.to_pylist()), 0], np.int8)


def _coded(column: pa.Array) -> tuple[Ints, pa.Array]:
    """The codes of a column and its words. Copied, since compiled loops tell arrays that they may not write from others."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.int32), pa.array([], pa.string())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    elif len(column.dictionary) > len(column):  # a few rows of a large batch: words that none of them has would only cost
        column = column.cast(column.type.value_type).dictionary_encode()
    words = column.dictionary.cast(pa.string())
    codes = column.indices.fill_null(len(words)) if column.null_count else column.indices
    return np.array(codes, np.int32), words


def dictionary_of(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """One dictionary for all of a column."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    table = pa.table({"column": column}).unify_dictionaries()
    chunks = table["column"].combine_chunks()
    if isinstance(chunks, pa.ChunkedArray):
        chunks = chunks.chunk(0) if chunks.num_chunks else pa.array([], pa.string()).dictionary_encode()
    return chunks


@dataclass(frozen=True, slots=True)
class Destinations:
    """Who is named by some rows: places in one long list."""

    begin: Longs
    end: Longs
    absent: npt.NDArray[np.bool_]
    """Whether a row has no list at all."""
    values: Ints
    """Processes by number; from the number of names on, strangers."""
    strangers: list[str]


def destinations_of(table: pa.Table, rows: Longs, names: list[str]) -> Destinations:
    """The destinations of these rows."""
    begin, end = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    absent = np.ones(len(rows), np.bool_)
    known = pa.array(names, pa.string())
    strangers: dict[str, int] = {}
    values: list[Ints] = []
    first_row = first_value = 0
    for batch in table.to_batches():
        column = batch["to"]
        mine = np.flatnonzero((rows >= first_row) & (rows < first_row + len(column)))
        if len(mine) and column.null_count < len(column):
            at = rows[mine] - first_row
            bounds = column.offsets.to_numpy()
            absent[mine] = column.is_null().to_numpy(zero_copy_only=False)[at]
            begin[mine], end[mine] = bounds[at] + first_value, bounds[at + 1] + first_value
            codes, words = _coded(column.values)
            numbers = pc.index_in(words, known).fill_null(NOBODY).to_numpy().astype(np.int32)
            for place in np.flatnonzero(numbers == NOBODY).tolist():
                numbers[place] = strangers.setdefault(words[place].as_py(), len(names) + len(strangers))
            values.append(np.append(numbers, NOBODY).astype(np.int32)[codes])
            first_value += len(codes)
        first_row += len(column)
    end[absent] = begin[absent]
    return Destinations(begin, end, absent, np.concatenate([np.empty(0, np.int32), *values]), list(strangers))
