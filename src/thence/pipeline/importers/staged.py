"""What every reader hands on: the rows of the trace, and beside them everything that did not become one.

One table for both, so that a source is read once and no line of it can get lost between two readers.

Rules:

* ``what`` is ``event`` (a row of the trace), ``bad`` (set aside, with its ``reason``) or ``ignored`` (no event, and not meant
  to be).
* ``lines`` is how many lines of the source, or rows of a Parquet source, this row accounts for. Blank lines are not counted.
  Summed up, it is the number of lines: a row that was derived from others accounts for none, nor does a note that one is
  missing.
* ``line`` counts from 1. Where Spark reads one file in several blocks, it counts from the beginning of ``block``; what is
  written in the end counts from the beginning of the file.
* ``raw`` is kept for bad rows only, and cut at ``MAX_RAW_CHARACTERS``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from thence.trace.events import COLUMNS
from thence.trace.parquet import schema

if TYPE_CHECKING:
    import pyarrow as pa

MAX_RAW_CHARACTERS: Final = 1_000

Row = dict[str, Any]
"""A staged row: a value for each column that it has."""

EVENT: Final = "event"
BAD: Final = "bad"
IGNORED: Final = "ignored"

TRACE_TYPES: Final[Mapping[str, str]] = {
    "run": "string",
    "process": "string",
    "index": "bigint",
    "kind": "string",
    "message": "string",
    "to": "array<string>",
    "time": "bigint",
    "domain": "string",
    "bytes": "int",
    "overhead": "int",
    "clock": "map<string,bigint>",
}
BESIDE_TYPES: Final[Mapping[str, str]] = {
    "what": "string",
    "source": "string",
    "line": "bigint",
    "lines": "bigint",
    "block": "bigint",
    "raw": "string",
    "reason": "string",
}
BAD_COLUMNS: Final = ("source", "line", "raw", "reason")
"""The columns of the table of bad rows."""


def ddl(types: Mapping[str, str]) -> str:
    """Return column types as Spark reads them."""
    return ", ".join(f"`{name}` {kind}" for name, kind in types.items())


STAGED: Final = ddl({**TRACE_TYPES, **BESIDE_TYPES})


def staged_schema(**more: pa.DataType) -> pa.Schema:
    """Return the columns as Arrow types; ``more`` columns come last."""
    import pyarrow as pa

    trace = [pa.field(name, schema().field(name).type) for name in COLUMNS]
    kinds = {"string": pa.string(), "bigint": pa.int64()}
    beside = [pa.field(name, kinds[kind]) for name, kind in BESIDE_TYPES.items()]
    return pa.schema([*trace, *beside, *(pa.field(name, kind) for name, kind in more.items())])


def batch(rows: Iterable[Mapping[str, Any]], columns: pa.Schema) -> pa.RecordBatch:
    """Return rows as one Arrow batch; what a row does not name is null. Clocks are given as dicts."""
    import pyarrow as pa

    given = list(rows)
    arrays = []
    for field in columns:
        values = [row.get(field.name) for row in given]
        if pa.types.is_map(field.type):
            values = [None if value is None else sorted(value.items()) for value in values]
        arrays.append(pa.array(values, field.type))
    return pa.record_batch(arrays, schema=columns)


def parted(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Staged rows by what they are: events, and all others."""
    events: list[Row] = []
    others: list[Row] = []
    for row in rows:
        (events if row["what"] == EVENT else others).append(row)
    return events, others


def cut(raw: str) -> str:
    """Return the text as it is kept beside a reason."""
    return raw if len(raw) <= MAX_RAW_CHARACTERS else raw[:MAX_RAW_CHARACTERS] + "…"
