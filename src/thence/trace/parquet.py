"""Traces as Parquet: the schema, and rows to and from Arrow batches.

pyarrow is imported only when a Parquet file is touched: judging JSON lines works without it.

Rules:

* Memory is bounded: reading goes batch by batch, writing by row groups of ``ROWS_PER_GROUP``, and a part is closed
  after ``ROWS_PER_PART`` rows.
* Any width of integer and any flavour of string or list is read, as other writers choose other ones. A column of
  another type altogether is an error that names it.
* Writing is deterministic: same events, same bytes, for one version of pyarrow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from thence.errors import TraceError
from thence.trace.complaints import EXPECTED, Complaints, explain
from thence.trace.events import COLUMNS, REQUIRED, Event

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_BATCH: Final = 16_384
ROWS_PER_GROUP: Final = 65_536
ROWS_PER_PART: Final = 16 * ROWS_PER_GROUP


def schema() -> pa.Schema:
    """Return the columns of a trace as Arrow types."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("run", pa.string()),
            pa.field("process", pa.string(), nullable=False),
            pa.field("index", pa.int64(), nullable=False),
            pa.field("kind", pa.string(), nullable=False),
            pa.field("message", pa.string()),
            pa.field("to", pa.list_(pa.string())),
            pa.field("time", pa.int64()),
            pa.field("domain", pa.string()),
            pa.field("bytes", pa.int32()),
            pa.field("overhead", pa.int32()),
            pa.field("clock", pa.map_(pa.string(), pa.int64())),
            pa.field("client", pa.string()),
            pa.field("topic", pa.string()),
        ]
    )


def read_parquet(
    path: Path,
    complaints: Complaints,
    partition: Mapping[str, str | None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Event]:
    """Give the events of one file, in file order. Bad rows go to ``complaints``; ``progress`` hears of bytes read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            present = columns_of(file.schema_arrow, path, partition or {})
            bytes_per_row = path.stat().st_size / max(1, file.metadata.num_rows)
            row = 0
            for batch in file.iter_batches(ROWS_PER_BATCH, columns=present):
                yield from events_of(batch, path, row, complaints, partition or {})
                row += batch.num_rows
                if progress:
                    progress(int(batch.num_rows * bytes_per_row))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read as Parquet: {error}") from None


def columns_of(found: pa.Schema, path: Path, partition: Mapping[str, str | None]) -> list[str]:
    """Return the known columns of the file, after checking that their types will do."""
    wrong = []
    for column in COLUMNS:
        words = EXPECTED[column][0]
        fields = found.get_all_field_indices(column)
        if len(fields) > 1:
            wrong.append(f"column '{column}': expected one such column, found {len(fields)}")
        elif fields and not _fits(column, found.field(fields[0]).type):
            wrong.append(f"column '{column}': expected {words}, found the type {found.field(fields[0]).type}")
        elif not fields and column in REQUIRED and column not in partition:
            wrong.append(f"column '{column}': expected {words}, found no such column")
    if wrong:
        raise TraceError("\n".join(f"{path}: {problem}" for problem in wrong))
    return [column for column in COLUMNS if found.get_all_field_indices(column)]


def _fits(column: str, found: pa.DataType) -> bool:
    import pyarrow as pa

    wanted = schema().field(column).type
    if pa.types.is_null(found):
        return True
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(found))
    if pa.types.is_string(wanted):
        return _is_text(found)
    if pa.types.is_map(wanted):
        return pa.types.is_map(found) and _is_text(found.key_type) and pa.types.is_integer(found.item_type)
    is_list = pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)
    return is_list and (_is_text(found.value_type) or pa.types.is_null(found.value_type))


def _is_text(found: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(found):
        found = found.value_type
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))


def events_of(
    batch: pa.RecordBatch, path: Path, first_row: int, complaints: Complaints, partition: Mapping[str, str | None]
) -> Iterator[Event]:
    """Give the events of one batch, whose first row is ``first_row`` of its file, from 0. Bad rows go to ``complaints``."""
    columns: dict[str, list[Any]] = {}
    for column in COLUMNS:
        given = partition.get(column)
        if column not in batch.schema.names:
            columns[column] = [given] * batch.num_rows
        elif given is None:
            columns[column] = batch.column(column).to_pylist()
        else:
            columns[column] = [given if value is None else value for value in batch.column(column).to_pylist()]
    columns["to"] = [None if to is None else tuple(to) for to in columns["to"]]
    columns["clock"] = [None if clock is None else dict(clock) for clock in columns["clock"]]
    careful = not surely_good(batch, partition)
    for number, values in enumerate(zip(*columns.values(), strict=True), first_row + 1):
        if careful:
            problems = explain(dict(zip(COLUMNS, values, strict=True)))
            if problems:
                complaints.add(f"{path}: row {number}", "; ".join(problems))
                continue
        run, process, index, kind, message, to, time, domain, size, overhead, clock, client, topic = values
        yield Event(
            run=run,
            process=process,
            index=index,
            kind=kind,
            message=message,
            to=to,
            time=time,
            domain=domain,
            bytes=size,
            overhead=overhead,
            clock=clock,
            client=client,
            topic=topic,
        )


def surely_good(batch: pa.RecordBatch, partition: Mapping[str, str | None]) -> bool:
    """Return whether types and null counts alone show that every row of the batch can be read."""
    known = schema()
    if any(column not in batch.schema.names and partition.get(column) is None for column in REQUIRED):
        return False
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name in REQUIRED and column.null_count:
            return False
        if field.type != known.field(field.name).type:
            return False
        if field.name == "to" and column.flatten().null_count:
            return False
        if field.name == "clock" and column.items.null_count:
            return False
    return True


class ParquetSink:
    """Writes events into parts ``part-00000.parquet``, ``part-00001.parquet``, … of a folder.

    With ``live`` a part has a name that begins with ``.`` until it is whole and on disk, so that others may read the
    folder meanwhile. Without, the whole folder is not to be read before the sink is closed.
    """

    def __init__(
        self,
        folder: Path,
        rows_per_group: int = ROWS_PER_GROUP,
        rows_per_part: int = ROWS_PER_PART,
        *,
        live: bool = False,
    ) -> None:
        self._folder = folder
        self._live = live
        self._rows_per_group = rows_per_group
        self._groups_per_part = max(1, rows_per_part // rows_per_group)
        self._rows: list[Event] = []
        self._groups = 0
        self._rows_in_part = 0
        self._parts = 0
        self._file: Any = None
        self.whole = 0
        """How many rows are in whole parts, also after a failure."""
        self._schema = schema()

    def write(self, event: Event) -> None:
        self._rows.append(event)
        if len(self._rows) >= self._rows_per_group:
            self._flush()

    def add(self, events: Sequence[Event]) -> bool:
        """Add events that neither begin nor end a group, in memory only; return whether that is so."""
        rows = self._rows
        if not rows or len(rows) + len(events) >= self._rows_per_group:
            return False
        rows += events
        return True

    @property
    def pending(self) -> int:
        """How many of the rows written are in no whole part yet."""
        return len(self._rows) + self._rows_in_part

    @property
    def parts(self) -> int:
        """How many parts were begun."""
        return self._parts

    def end_part(self) -> None:
        """Make a whole part of what was written so far, if anything was."""
        if self._rows:
            self._flush()
        self._end_part()

    def close(self) -> None:
        """Write what is left. A trace of no events still has one part, so that it can be read back."""
        if self._rows or not self._parts:
            self._flush()
        self._end_part()

    def discard(self) -> None:
        """Let go of what is open; what was written is of no use any more."""
        self._rows.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
            if self._live:
                self._path(self._parts - 1, whole=False).unlink()

    def _path(self, part: int, *, whole: bool) -> Path:
        name = f"part-{part:05d}.parquet"
        return self._folder / (name if whole else f".{name}")

    def _flush(self) -> None:
        import pyarrow.parquet as pq

        if self._file is None:
            self._file = pq.ParquetWriter(self._path(self._parts, whole=not self._live), self._schema, compression="zstd")
            self._parts += 1
        self._file.write_batch(to_batch(self._rows))
        self._rows_in_part += len(self._rows)
        self._rows.clear()
        self._groups += 1
        if self._groups >= self._groups_per_part:
            self._end_part()

    def _end_part(self) -> None:
        if self._file is None:
            return
        self._file.close()
        self._file = None
        rows, self._groups, self._rows_in_part = self._rows_in_part, 0, 0
        if self._live:
            hidden = self._path(self._parts - 1, whole=False)
            _sync(hidden)
            hidden.rename(self._path(self._parts - 1, whole=True))
        self.whole += rows


def _sync(path: Path) -> None:
    """See to it that the bytes are on disk before the name is: a part that has its name is whole, also after a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def to_batch(rows: list[Event]) -> pa.RecordBatch:
    """Return events as one Arrow batch."""
    import pyarrow as pa

    known = schema()
    return pa.record_batch([pa.array(_column(rows, field.name), field.type) for field in known], schema=known)


def _column(rows: list[Event], name: str) -> list[object]:
    values = list(map(attrgetter(name), rows))
    if name == "clock":
        return [None if clock is None else sorted(clock.items()) for clock in values]
    return values
