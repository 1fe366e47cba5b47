"""The pieces of a Parquet trace, and reading one: always the columns that the audit needs, with the types of the house.

A fragment is a row group of a file. It is what a worker reads at a time, straight into Arrow, so no row passes through Java.

Rules:

* Folder names such as ``run=7`` give the column to rows that have none.
* Rows that lack a process, an index or a kind cannot be read: they are bad, and never silently dropped.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from thence.errors import TraceError
from thence.pipeline.files import FileListing, absolute, filesystem, listing
from thence.pipeline.kernels.encoder import COLUMNS
from thence.trace.events import REQUIRED, VIEW
from thence.trace.files import PARQUET_ENDING, partition_of
from thence.trace.parquet import schema

CACHED_FRAGMENTS: Final = 16
"""How many fragments a worker keeps, for slices that share some."""

CODED: Final = ["run", "process", "kind", "message", "to.list.element"]
"""Columns of few different words, which Arrow gives as numbers at once."""


class Fragment(NamedTuple):
    """A row group; ``root`` is where the trace begins, for the names of folders below it."""

    root: str
    path: str
    group: int
    rows: int
    clocked: bool
    """Whether any row logs a clock."""
    viewed: bool = True
    """Whether any row may be a view (``audit.lost``)."""


class Bad(NamedTuple):
    """A row that cannot be read."""

    file: str
    row: int
    reason: str


def fragments_of(source: str) -> list[Fragment]:
    """Return all fragments of the trace at a path, glob or URL, in the order of the paths."""
    there = listing(source, PARQUET_ENDING)
    found = [fragment for path in there.paths for fragment in _groups(there, path)]
    if not found:
        raise TraceError(f"{absolute(source)}: no file there ends in {PARQUET_ENDING}")
    return found


def is_parquet(source: str) -> bool:
    """Return whether anything there ends as Parquet files do; something else may be a trace of another kind."""
    return any(path.endswith(PARQUET_ENDING) for path in listing(source, PARQUET_ENDING).paths)


def _groups(there: FileListing, path: str) -> list[Fragment]:
    try:
        with there.files.open_input_file(path) as opened:
            metadata = pq.read_metadata(opened)
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path}: cannot be read as Parquet: {error}") from None
    root, name = there.prefix + there.root, there.prefix + path
    return [
        Fragment(root, name, at, group.num_rows, _has_clocks(group), _may_have_views(group))
        for at, group in enumerate(map(metadata.row_group, range(metadata.num_row_groups)))
    ]


def _columns(group: pq.RowGroupMetaData) -> dict[str, pq.ColumnChunkMetaData]:
    return {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}


def _has_clocks(group: pq.RowGroupMetaData) -> bool:
    for name, column in _columns(group).items():
        if name.startswith("clock."):
            known = column.statistics
            return known is None or not known.has_null_count or known.null_count < column.num_values
    return False


def _may_have_views(group: pq.RowGroupMetaData) -> bool:
    kind = _columns(group).get("kind")
    known = kind.statistics if kind is not None else None
    return known is None or not known.has_min_max or known.min <= VIEW <= known.max


@lru_cache(maxsize=CACHED_FRAGMENTS)
def read_fragment(fragment: Fragment, columns: tuple[str, ...] = COLUMNS) -> tuple[pa.Table, tuple[Bad, ...]]:
    """The good rows of a fragment, and the bad ones."""
    files, path = filesystem(fragment.path)
    with files.open_input_file(path) as opened:
        metadata = pq.read_metadata(opened)
        there = {metadata.schema.column(at).path for at in range(len(metadata.schema))}
        file = pq.ParquetFile(opened, metadata=metadata, read_dictionary=sorted(there.intersection(CODED)))
        empty = _empty_columns(metadata.row_group(fragment.group))
        present = [column for column in columns if column in file.schema_arrow.names and column not in empty]
        table = file.read_row_group(fragment.group, columns=present, use_threads=False)
    given = partition_of(PurePosixPath(fragment.path), PurePosixPath(fragment.root))
    table = pa.table({column: _column(table, column, given.get(column), path) for column in columns})
    return _set_aside(table, path, fragment.group)


def _empty_columns(group: pq.RowGroupMetaData) -> set[str]:
    """Return the plain columns of which the file says that all rows lack them: they need not be read."""
    known = {name: column.statistics for name, column in _columns(group).items()}
    return {name for name, of in known.items() if of is not None and of.has_null_count and of.null_count == group.num_rows}


def _column(table: pa.Table, name: str, given: str | None, path: str) -> pa.ChunkedArray:
    wanted = schema().field(name).type
    if name not in table.column_names:
        missing = pa.nulls(table.num_rows, wanted) if given is None else pa.repeat(pa.scalar(given, wanted), table.num_rows)
        return pa.chunked_array([missing])
    column = table[name]
    try:
        if name in ("index", "time"):
            column = column.cast(wanted)
        elif name == "clock":
            column = column if pa.types.is_map(column.type) else column.cast(wanted)
        elif name == "to":
            column = column if pa.types.is_list(column.type) else column.cast(wanted)
        elif not pa.types.is_dictionary(column.type):
            column = column.cast(wanted)
    except pa.ArrowException:
        raise TraceError(f"{path}: column '{name}': expected {wanted}, found the type {column.type}") from None
    if given is not None and column.null_count:
        column = column.cast(wanted).fill_null(given)
    return column


def _set_aside(table: pa.Table, path: str, group: int) -> tuple[pa.Table, tuple[Bad, ...]]:
    present = [name for name in REQUIRED if name in table.column_names]
    if not any(table[name].null_count for name in present):
        return table, ()
    bad: dict[int, list[str]] = {}
    for name in present:
        for row in pc.indices_nonzero(table[name].is_null()).to_pylist():
            bad.setdefault(row, []).append(name)
    good = pa.array([row not in bad for row in range(table.num_rows)])
    reasons = tuple(
        Bad(f"{path}, row group {group}", row + 1, f"has no {' and no '.join(names)}") for row, names in sorted(bad.items())
    )
    return table.filter(good), reasons
