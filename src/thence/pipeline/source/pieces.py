"""Which bytes of a trace one task reads: whole files, row groups of large Parquet files, stretches of large files of JSON lines.

Rules:

* Pieces stay in the order of files and rows, and each row is in exactly one piece.
* A task gets pieces up to the target size, and at least one. A row group, or one line, is never cut.
* Only files larger than the target are opened to plan; the rest is known by its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from thence.errors import TraceError
from thence.trace.files import is_parquet, partition_of

TARGET_BYTES: Final = 4 * 1024 * 1024
"""What one task reads, unless told otherwise: about half a million rows as we write Parquet, some 40,000 lines of JSON."""

SMALLEST_TARGET_BYTES: Final = 1024


def packed(pieces: Iterable[Piece], most: int) -> list[list[Piece]]:
    """Put pieces together, in their order, until a task has enough bytes; a piece that is too large is alone."""
    tasks: list[list[Piece]] = []
    total = 0
    for piece in pieces:
        if not tasks or total + piece.size_bytes > most:
            tasks.append([])
            total = 0
        total += piece.size_bytes
        tasks[-1].append(piece)
    return tasks


class Piece(NamedTuple):
    """A part of one file: row groups or bytes from ``start`` up to but not including ``end``; ``end`` None: to the end of it."""

    path: str
    parquet: bool
    start: int
    end: int | None
    size_bytes: int
    partition: tuple[tuple[str, str | None], ...] = ()
    """Columns that the names of its folders give."""


def pieces(files: Iterable[Path], root: Path, target_bytes: int = TARGET_BYTES) -> Iterator[Piece]:
    """Cut files into pieces of about the target size at most."""
    for file in files:
        given = tuple(sorted(partition_of(file, root).items()))
        try:
            size = file.stat().st_size
            whole = Piece(str(file), is_parquet(file), 0, None, size, given)
            if size <= target_bytes:
                yield whole
            elif whole.parquet:
                yield from _row_groups(whole, target_bytes)
            else:
                yield from _stretches(whole, target_bytes)
        except OSError as error:
            raise TraceError(f"{file}: {error.strerror or error}") from None


def _stretches(whole: Piece, target_bytes: int) -> Iterator[Piece]:
    """Of equal size: a task that gets the short rest would be a task for nothing."""
    count = -(-whole.size_bytes // target_bytes)
    marks = [whole.size_bytes * number // count for number in range(count + 1)]
    for start, end in pairwise(marks):
        yield whole._replace(start=start, end=end, size_bytes=end - start)


def _row_groups(whole: Piece, target_bytes: int) -> Iterator[Piece]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(whole.path)
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{whole.path}: cannot be read as Parquet: {error}") from None
    sizes = [_compressed_bytes(metadata.row_group(number)) for number in range(metadata.num_row_groups)]
    start = 0
    for end in range(1, len(sizes) + 1):
        size = sum(sizes[start:end])
        if end == len(sizes) or size + sizes[end] > target_bytes:
            yield whole._replace(start=start, end=end, size_bytes=size)
            start = end


def _compressed_bytes(group: object) -> int:
    columns = range(group.num_columns)  # type: ignore[attr-defined]
    return sum(group.column(number).total_compressed_size for number in columns)  # type: ignore[attr-defined]


def plan(files: Sequence[Path], root: Path, target_bytes: int = TARGET_BYTES) -> list[list[Piece]]:
    """Return the tasks that read these files of the trace at ``root``."""
    return packed(pieces(files, root, target_bytes), target_bytes)
