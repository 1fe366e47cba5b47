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

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from thence.pipeline.tables import TRACE, Column, arrow_schema, columns

if TYPE_CHECKING:
    import pyarrow as pa

MAX_RAW_CHARACTERS: Final = 1_000

Row = dict[str, Any]
"""A staged row: a value for each column that it has."""

EVENT: Final = "event"
BAD: Final = "bad"
IGNORED: Final = "ignored"

BESIDE: Final = columns("what string, source string, line bigint, lines bigint, block bigint, raw string, reason string")
BAD_COLUMNS: Final = ("source", "line", "raw", "reason")
"""The columns of the table of bad rows."""

ORDER: Final = "order"
NTH: Final = "nth"
MAYBE: Final = "maybe"
ONCE: Final = "once"

STAGED: Final = (*TRACE, *BESIDE)
BESIDE_LINES: Final = columns("order bigint, nth bigint, maybe boolean, once string")
"""Beside the staged columns of lines: by what the rows of a process are ordered where they have no index, which row of its line
it is, whether it is one only if another process has the other end of its message, and what tells it from its repetitions."""
STAGED_LINES: Final = (*STAGED, *BESIDE_LINES)

Partition = Mapping[str, str | None]
"""The columns that names of folders give."""


def batch(rows: Iterable[Mapping[str, Any]], table: Iterable[Column] = STAGED) -> pa.RecordBatch:
    """Return rows as one Arrow batch; what a row does not name is null. Clocks are given as dicts."""
    import pyarrow as pa

    given = list(rows)
    arrays = []
    schema = arrow_schema(table)
    for field in schema:
        values = [row.get(field.name) for row in given]
        if pa.types.is_map(field.type):
            values = [None if value is None else sorted(value.items()) for value in values]
        arrays.append(pa.array(values, field.type))
    return pa.record_batch(arrays, schema=schema)


def applied(rows_of: Callable[[Iterable[Row]], Iterator[Row]]) -> Callable[[pa.Table], pa.Table]:
    """Return a function of staged rows as one of tables, which Spark calls with all rows of a run."""

    def kernel(table: pa.Table) -> pa.Table:
        import pyarrow as pa

        return pa.Table.from_batches([batch(rows_of(table.to_pylist(maps_as_pydicts="strict")))])

    return kernel


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
