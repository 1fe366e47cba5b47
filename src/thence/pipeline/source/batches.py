"""A piece of a trace as Arrow batches of the house's schema.

What is written as we write it goes through as it is, without becoming Python objects. What others write otherwise (other widths
of integers, other strings) is cast; what cannot be cast, or has a null where none may be, goes through the reader of
``thence.trace`` row by row, which either understands it or says which row of which file is bad. So a batch holds what
``read_trace`` gives, or the same error comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from thence.errors import TraceError
from thence.pipeline.source.pieces import Piece
from thence.trace.complaints import Complaints
from thence.trace.events import REQUIRED, Event
from thence.trace.jsonl import decode_line
from thence.trace.parquet import ROWS_PER_BATCH, columns_of, events_of, schema, surely_good, to_batch

if TYPE_CHECKING:
    import pyarrow as pa

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""A line of JSON that is longer than this is no event."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

Given = Mapping[str, str | None]


def batches(piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, with these columns of the house's schema."""
    try:
        for batch in _of_parquet(piece, columns) if piece.parquet else _of_lines(piece):
            yield batch.select(list(columns))
    except OSError as error:
        raise TraceError(f"{piece.path}: {error.strerror or error}") from None


# --- Parquet -----------------------------------------------------------------------------------------------------------


def _of_parquet(piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, given = Path(piece.path), dict(piece.partition)
    try:
        with pq.ParquetFile(path) as file:
            # What is required is read in any case: a row without it is bad, whether somebody looks at it or not.
            wanted = [name for name in columns_of(file.schema_arrow, path, given) if name in columns or name in REQUIRED]
            groups = range(piece.start, file.num_row_groups if piece.end is None else piece.end)
            row = sum(file.metadata.row_group(number).num_rows for number in range(piece.start))
            for batch in file.iter_batches(ROWS_PER_BATCH, row_groups=list(groups), columns=wanted):
                yield _checked(batch, path, row, given)
                row += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read as Parquet: {error}") from None


def _checked(batch: pa.RecordBatch, path: Path, row: int, given: Given) -> pa.RecordBatch:
    """The batch in the house's schema, or an error that names the bad rows."""
    cast = _cast(batch, given)
    if cast is not None and surely_good(cast, given):
        return cast
    complaints = Complaints()
    events = list(events_of(batch, path, row, complaints, given))
    complaints.raise_if_any()
    return to_batch(events)


def _cast(batch: pa.RecordBatch, given: Given) -> pa.RecordBatch | None:
    """The batch in the house's schema, missing columns filled in; None if a value does not fit."""
    import pyarrow as pa

    known, arrays = schema(), []
    for field in known:
        value = given.get(field.name)
        if field.name not in batch.schema.names:
            rows = batch.num_rows
            arrays.append(pa.nulls(rows, field.type) if value is None else pa.repeat(pa.scalar(value, field.type), rows))
            continue
        try:
            array = batch.column(field.name).cast(field.type)
        except pa.ArrowException:
            return None
        arrays.append(array if value is None else array.fill_null(value))
    return pa.RecordBatch.from_arrays(arrays, names=known.names)


# --- JSON lines --------------------------------------------------------------------------------------------------------


def _of_lines(piece: Piece) -> Iterator[pa.RecordBatch]:
    given, complaints = dict(piece.partition), Complaints()
    events: list[Event] = []
    with Path(piece.path).open("rb") as file:
        for at, line in lines_of(file, piece):
            try:
                events.append(decode_line(line, given))
            except TraceError as error:
                complaints.add(f"{piece.path}: the line at byte {at}", str(error))
            if len(events) >= ROWS_PER_BATCH:
                yield to_batch(events)
                events = []
    complaints.raise_if_any()
    if events:
        yield to_batch(events)


def lines_of(file: BinaryIO, piece: Piece) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in this stretch of the file, with where they begin."""
    at = piece.start
    if at:
        # A line belongs to whom its first byte belongs to: begin behind the first end of a line from just before the start.
        file.seek(at - 1)
        at += len(_line(file, piece)) - 1
    elif file.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK:
        at = len(_BYTE_ORDER_MARK)
    else:
        file.seek(0)
    while piece.end is None or at < piece.end:
        line = _line(file, piece)
        if not line:
            return
        if not line.isspace():
            yield at, line
        at += len(line)


def _line(file: BinaryIO, piece: Piece) -> bytes:
    line = file.readline(MAX_LINE_BYTES)
    if len(line) == MAX_LINE_BYTES:
        raise TraceError(f"{piece.path}: a line is longer than {MAX_LINE_BYTES} bytes")
    return line
