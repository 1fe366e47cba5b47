"""Traces as a Spark data source: ``spark.read.format("thence")``, and ``spark.readStream.format("thence")`` for one that grows.

    spark.dataSource.register(ThenceSource)
    events = spark.read.format("thence").load("trace")

Rules:

* What is read is what ``thence.trace.read_trace`` reads, with the same rules for files, folders and names; a bad row is an
  error that names it. Rows come as Arrow batches.
* A stream sees a part when it has its name. Parts must appear by renaming, whole, as ``LiveTraceWriter`` does it, and must
  not change or go. Then each part is read exactly once over restarts, if the sink of the query keeps Spark's promises.
* Options: ``path``; ``targetBytes``, what one task reads; ``maxPartsPerTrigger`` and ``maxBytesPerTrigger``, how many new parts
  and bytes one step of a stream takes. A part that is larger is taken piece by piece.
* Only files that every worker sees under the same path.

The writer is in ``thence.bridges.spark``, since it needs a client of a fabric.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from thence.errors import ConfigError, TraceError
from thence.pipeline.source.batches import batches
from thence.pipeline.source.offsets import Offset, begun_in, names_of, to_offset
from thence.pipeline.source.pieces import SMALLEST_TARGET_BYTES, TARGET_BYTES, Piece, packed, pieces, plan
from thence.trace.files import trace_files
from thence.trace.parquet import schema

if TYPE_CHECKING:
    import pyarrow as pa

NAME: Final = "thence"
MAX_BYTES_PER_TRIGGER: Final = 1 << 40
"""So many bytes of new parts are taken in one step of a stream, and one piece at least, unless told otherwise."""
MAX_PARTS_PER_TRIGGER: Final = 1_000
"""So many new parts are taken in one step of a stream, unless told otherwise."""


def house_schema() -> StructType:
    """The columns of a trace as Spark types."""
    return from_arrow_schema(schema())


class ReadTask(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(None)
        self.pieces = pieces


class ThenceSource(DataSource):
    """The data source that Spark registers."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return house_schema()

    def reader(self, schema: StructType) -> TraceReader:
        return TraceReader(self.options, schema)

    def streamReader(self, schema: StructType) -> TraceStreamReader:  # noqa: N802 - Spark's name
        return TraceStreamReader(self.options, schema)


class _Options:
    """The options of a reader, checked."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        if not given.get("path"):
            raise ConfigError("a trace has a path: load(path)")
        path = given["path"]
        self.root = Path(unquote(path.removeprefix("file:")) if path.startswith("file:") else path)
        self.target_bytes = _number(given, "targetBytes", TARGET_BYTES, SMALLEST_TARGET_BYTES)
        self.max_parts = _number(given, "maxPartsPerTrigger", MAX_PARTS_PER_TRIGGER, 1)
        self.max_bytes = _number(given, "maxBytesPerTrigger", MAX_BYTES_PER_TRIGGER, 1)
        self.schema = schema
        known = {field.name: field.dataType for field in house_schema()}
        for field in schema:
            if known.get(field.name) != field.dataType:
                has = house_schema().simpleString()
                raise ConfigError(f"a trace has no column {field.name} of type {field.dataType.simpleString()}; it is {has}")


def _number(given: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise ConfigError(f"option {name} is {text!r}: expected a whole number from {least}")
    return int(text)


def _read(task: InputPartition, options: _Options) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in the schema that was asked for, to the last detail of Arrow."""
    import pyarrow as pa

    if not isinstance(task, ReadTask):
        raise TypeError(f"{task!r} is no task of ours")
    wanted = to_arrow_schema(options.schema, timezone="UTC")
    for piece in task.pieces:
        for batch in batches(piece, wanted.names):
            arrays = [batch.column(field.name).cast(field.type) for field in wanted]
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


class TraceReader(DataSourceReader):
    """Reads a trace as it is now."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = _Options(given, schema)

    def partitions(self) -> Sequence[ReadTask]:
        root = self._options.root
        return [ReadTask(pieces) for pieces in plan(trace_files(root), root, self._options.target_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)


class TraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a folder. The offset is the set of parts that have been read, so it says all that a restart needs."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = _Options(given, schema)
        self._only: frozenset[str] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        done, begun = set(names_of(start)), begun_in(start)
        fresh = sorted((name for name in self._there() if name not in done), key=lambda name: (name not in begun, name))
        room = sys.maxsize
        if isinstance(limit, ReadMaxFiles):
            room = self._options.max_bytes
            fresh = sorted(fresh, key=lambda name: (name not in begun, self._age(name), name))[: limit.max_files]
        for name in fresh:
            for piece in self._pieces(name, begun.pop(name, 0), None):
                if room <= 0:
                    begun[name] = piece.start
                    break
                room -= piece.size_bytes
            else:
                done.add(name)
            if room <= 0:
                break
        return dict(to_offset(done, begun))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxFiles(self._options.max_parts)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._only = frozenset(self._there())

    def partitions(self, start: Offset, end: Offset) -> Sequence[ReadTask]:
        done, before, begun = set(names_of(start)), begun_in(start), begun_in(end)
        fresh: list[Piece] = []
        for name in sorted({*names_of(end), *begun} - done):
            file = self._options.root / name
            if not file.is_file():
                raise TraceError(f"{file}: this part was there and is gone; parts of a trace that is followed must stay")
            fresh += self._pieces(name, before.get(name, 0), begun.get(name))
        return [ReadTask(some) for some in packed(fresh, self._options.target_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)

    def _pieces(self, name: str, begin: int, end: int | None) -> list[Piece]:
        """The pieces of a part that begin from one place on and before another."""
        every = pieces([self._options.root / name], self._options.root, self._options.target_bytes)
        return [piece for piece in every if piece.start >= begin and (end is None or piece.start < end)]

    def _age(self, name: str) -> int:
        """For the order in which parts appeared: of several writers none must be left far behind."""
        return (self._options.root / name).stat().st_mtime_ns

    def _there(self) -> list[str]:
        """The parts that have their name by now; none while there is no folder yet."""
        root = self._options.root
        if root.is_file():
            raise ConfigError(f"{root}: a stream follows a folder, not a file")
        try:
            names = [file.relative_to(root).as_posix() for file in trace_files(root)]
        except TraceError:
            return []
        return names if self._only is None else [name for name in names if name in self._only]
