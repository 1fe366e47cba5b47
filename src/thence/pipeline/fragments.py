"""The pieces of a Parquet trace, and reading one: always the columns that the audit needs, with the types of the house.

A fragment is a row group of a file. It is what a worker reads at a time, straight into Arrow, so no row passes through Java.

Rules:

* A folder is read with all that is below it; names that begin with ``.`` or ``_`` are skipped. A name may be a glob or a URL.
* Folder names such as ``run=7`` give the column to rows that have none.
* Rows that lack a process, an index or a kind cannot be read: they are bad, and never silently dropped.
"""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from thence.errors import TraceError
from thence.pipeline.kernels.encode import COLUMNS
from thence.pipeline.work import absolute, filesystem
from thence.trace.events import VIEW
from thence.trace.files import NULL_PARTITION, PARQUET_ENDING, PARTITION_COLUMNS
from thence.trace.parquet import schema

CACHED_FRAGMENTS: Final = 16
"""How many fragments a worker keeps, for slices that share some."""

CODED: Final = ["run", "process", "kind", "message", "to.list.element"]
"""Columns of few different words, which Arrow gives as numbers at once."""

GLOB: Final = re.compile(r"[*?\[]")

REQUIRED: Final = ("process", "index", "kind")


class Fragment(NamedTuple):
    """A row group; ``root`` is where the trace begins, for the names of folders below it."""

    root: str
    path: str
    group: int
    rows: int
    clocked: bool
    """Whether any row logs a clock."""
    viewed: bool = True
    """Whether any row may be a view (``pipeline.lost``)."""


class Bad(NamedTuple):
    """A row that cannot be read."""

    file: str
    row: int
    reason: str


def fragments_of(source: str) -> list[Fragment]:
    """All fragments of the trace at a path, glob or URL, in the order of the paths."""
    source = absolute(source)
    files, path = filesystem(source)
    root = _root(path)
    found = [fragment for file in _files(files, path, root) for fragment in _groups(files, source, root, file)]
    if not found:
        raise TraceError(f"{source}: no file there ends in {PARQUET_ENDING}")
    return found


def is_parquet(source: str) -> bool:
    """Whether there is anything there that ends as Parquet files do; something else may be a trace of another kind."""
    files, path = filesystem(absolute(source))
    if not GLOB.search(path) and files.get_file_info(path).type == pafs.FileType.NotFound:
        raise TraceError(f"{path}: no such file or folder")
    return any(name.endswith(PARQUET_ENDING) for name in _files(files, path, _root(path)))


def _root(path: str) -> str:
    """The folder that a path names, or below which all lies that a glob names."""
    glob = GLOB.search(path)
    return path[: glob.start()].rpartition("/")[0] if glob else path


def _files(files: pafs.FileSystem, path: str, root: str) -> list[str]:
    glob = GLOB.search(path)
    if not glob:
        info = files.get_file_info(path)
        if info.type == pafs.FileType.NotFound:
            raise TraceError(f"{path}: no such file or folder")
        if info.type == pafs.FileType.File:
            return [path]
    listed = files.get_file_info(pafs.FileSelector(root, recursive=True))
    wanted = [info.path for info in listed if info.type == pafs.FileType.File and info.path.endswith(PARQUET_ENDING)]
    visible = [name for name in wanted if not any(part[0] in "._" for part in PurePosixPath(name).relative_to(root).parts)]
    return sorted(name for name in visible if not glob or _matches(name, path))


def _matches(name: str, pattern: str) -> bool:
    """A glob names files, or folders that hold them, part by part, as Spark takes it: a star stops at the next slash."""
    parts, wanted = name.split("/"), pattern.rstrip("/").split("/")
    return len(parts) >= len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _groups(files: pafs.FileSystem, source: str, root: str, path: str) -> list[Fragment]:
    try:
        with files.open_input_file(path) as opened:
            metadata = pq.read_metadata(opened)
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path}: cannot be read as Parquet: {error}") from None
    prefix = _prefix(source)
    return [
        Fragment(prefix + root, prefix + path, at, group.num_rows, _has_clocks(group), _may_have_views(group))
        for at, group in enumerate(map(metadata.row_group, range(metadata.num_row_groups)))
    ]


def _prefix(source: str) -> str:
    """What stands before paths of the file system of a source, so that they become URLs."""
    if "://" not in source:
        return ""
    _, path = filesystem(source)
    return source[: source.index(path)] if path and path in source else source.partition("://")[0] + "://"


def _has_clocks(group: pq.RowGroupMetaData) -> bool:
    for at in range(group.num_columns):
        column = group.column(at)
        if column.path_in_schema.startswith("clock."):
            known = column.statistics
            return known is None or not known.has_null_count or known.null_count < column.num_values
    return False


def _may_have_views(group: pq.RowGroupMetaData) -> bool:
    for at in range(group.num_columns):
        column = group.column(at)
        if column.path_in_schema == "kind":
            known = column.statistics
            return known is None or not known.has_min_max or known.min <= VIEW <= known.max
    return True


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
    given = _partition(fragment)
    table = pa.table({column: _column(table, column, given.get(column), path) for column in columns})
    return _set_aside(table, path, fragment.group)


def _empty_columns(group: pq.RowGroupMetaData) -> set[str]:
    """The plain columns of which the file says that all rows lack them: they need not be read."""
    columns = [group.column(at) for at in range(group.num_columns)]
    known = [column for column in columns if column.statistics is not None and column.statistics.has_null_count]
    return {column.path_in_schema for column in known if column.statistics.null_count == group.num_rows}


def _partition(fragment: Fragment) -> dict[str, str | None]:
    if fragment.path == fragment.root:
        return {}
    columns: dict[str, str | None] = {}
    for folder in PurePosixPath(fragment.path).relative_to(fragment.root).parts[:-1]:
        column, equals, value = folder.partition("=")
        if equals and column in PARTITION_COLUMNS:
            columns[column] = None if value == NULL_PARTITION else unquote(value)
    return columns


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
