"""Traces on disk: which files a trace consists of, reading them as one, and writing one that is whole or absent.

Rules:

* A name ending in ``.jsonl`` or ``.ndjson`` is written as JSON lines, any other name as a folder of Parquet parts.
* Reading takes a file or a folder. A folder is read with all that is below it, in the order of the paths; names
  that begin with ``.`` or ``_`` are skipped, as are files that end otherwise. Folder names such as ``run=7`` give
  the column ``run`` to rows that have none.
* A trace is written under a temporary name that begins with ``.`` and renamed when it is complete, so a
  half-written one is never mistaken for a whole one. A writer that fails leaves nothing behind.
* Where a trace was, a new one takes its place. A folder that holds anything else is never replaced.
"""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePath
from types import TracebackType
from typing import Final, Self
from urllib.parse import unquote

from thence.errors import ConfigError, StorageError, TraceError
from thence.trace.complaints import Complaints
from thence.trace.events import Event
from thence.trace.jsonl import JsonlSink, read_jsonl
from thence.trace.parquet import ParquetSink, read_parquet

JSONL_ENDINGS: Final = (".jsonl", ".ndjson")
PARQUET_ENDING: Final = ".parquet"
PARQUET_MAGIC: Final = b"PAR1"
PARTITION_COLUMNS: Final = ("run", "process", "kind", "domain")
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"

_PART: Final = re.compile(r"part-\d{5,}\.parquet")

Progress = Callable[[int], None]


def trace_files(path: str | Path) -> list[Path]:
    """Return the files that make up the trace at ``path``, sorted."""
    root = Path(path)
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise TraceError(f"{root}: no such file or folder")
    found = [
        file
        for file in sorted(root.rglob("*"))
        if file.name.endswith((*JSONL_ENDINGS, PARQUET_ENDING))
        and file.is_file()
        and not any(part.startswith((".", "_")) for part in file.relative_to(root).parts)
    ]
    if not found:
        raise TraceError(f"{root}: no file in this folder ends in .jsonl, .ndjson or .parquet")
    return found


def trace_size_bytes(path: str | Path) -> int:
    """Return how large the trace is on disk; the sum of what ``progress`` hears in :func:`scan_trace`, or nearly."""
    return sum(file.stat().st_size for file in trace_files(path))


def scan_trace(path: str | Path, progress: Progress | None = None) -> Iterator[Event]:
    """Give the events of a trace one by one, in no particular order, with memory for a batch of them.

    Raises :class:`TraceError` after the last good row if any row was bad; it names the first bad ones.
    """
    complaints = Complaints()
    for file in trace_files(path):
        partition = partition_of(file, Path(path))
        read = read_parquet if is_parquet(file) else read_jsonl
        try:
            yield from read(file, complaints, partition, progress)
        except OSError as error:
            raise TraceError(f"{file}: {error.strerror or error}") from None
    complaints.raise_if_any()


def read_trace(path: str | Path, progress: Progress | None = None) -> list[Event]:
    """Return all events of a trace."""
    return list(scan_trace(path, progress))


def write_trace(path: str | Path, events: Iterable[Event]) -> int:
    """Write a whole trace and say how many events it has."""
    with TraceWriter(path) as writer:
        for event in events:
            writer.write(event)
    return writer.count


class Written(ABC):
    """Something that is written in a block: complete when the block ends well, given up otherwise."""

    @abstractmethod
    def close(self) -> None:
        """Complete it."""

    @abstractmethod
    def abandon(self) -> None:
        """Give it up."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class TraceWriter(Written):
    """Writes a trace event by event, with memory for one row group.

    Use it as a context manager: the trace appears under its name when the block ends well, and not at all otherwise.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.count = 0
        self._open = True
        self._partial = self.path.parent / f".{self.path.name}.partial"
        _refuse_to_replace(self.path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _remove(self._partial)
            self._sink = self._make_sink()
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror or error}") from error

    def _make_sink(self) -> JsonlSink | ParquetSink:
        if self.path.name.endswith(JSONL_ENDINGS):
            return JsonlSink(self._partial.open("wb"))
        self._partial.mkdir()
        return ParquetSink(self._partial)

    def write(self, event: Event) -> None:
        """Add one event."""
        self._sink.write(event)
        self.count += 1

    def close(self) -> None:
        """Complete the trace and give it its name."""
        if not self._open:
            return
        try:
            self._sink.close()
        except BaseException:
            self.abandon()
            raise
        self._open = False
        if self.path.is_dir():
            shutil.rmtree(self.path)
        self._partial.replace(self.path)

    def abandon(self) -> None:
        """Give up: leave nothing behind, and what was there before as it was."""
        if not self._open:
            return
        self._open = False
        try:
            self._sink.discard()
        finally:
            _remove(self._partial)


def is_parquet(file: Path) -> bool:
    """Return whether a file is read as Parquet, by its name or else by how it begins."""
    if file.name.endswith(JSONL_ENDINGS):
        return False
    if file.name.endswith(PARQUET_ENDING):
        return True
    with file.open("rb") as opened:
        return opened.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC


def partition_of(file: PurePath, root: PurePath) -> dict[str, str | None]:
    """Return the columns that the names of the folders between ``root`` and the file give."""
    if file == root:
        return {}
    columns: dict[str, str | None] = {}
    for folder in file.relative_to(root).parts[:-1]:
        column, equals, value = folder.partition("=")
        if equals and column in PARTITION_COLUMNS:
            columns[column] = None if value == NULL_PARTITION else unquote(value)
    return columns


def _refuse_to_replace(path: Path) -> None:
    wants_file = path.name.endswith(JSONL_ENDINGS)
    if path.is_dir() and (wants_file or not all(_PART.fullmatch(entry.name) for entry in path.iterdir())):
        raise ConfigError(f"{path}: a folder that is no trace is in the way; name another place")
    if path.is_file() and not wants_file:
        raise ConfigError(f"{path}: a file is in the way of the Parquet folder; name another place")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
