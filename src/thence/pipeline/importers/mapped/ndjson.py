"""JSON by a mapping, in any amount: records decoded by the mapping, then indexes, message ids and destinations.

Rules:

* The index of a process's rows is their place in the declared order; rows that are equal in it stand as they do in the files,
  and files in the order of their paths.
* What may be a send or a delivery (``maybe``) is one if its message was sent by a single process, the other end is at another
  one, and it is the first at its own, where one that surely is comes before. If a send only may be one, no delivery at the sender
  itself is one: causes inside a process need no message.
* All of this is Spark's work. Only matching by clock needs a run whole, in one task, and a document is read whole.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from thence.errors import TraceError
from thence.pipeline.importers.lines import accounted, read_lines
from thence.pipeline.importers.mapped.fields import Fields, decode_json
from thence.pipeline.importers.mapped.mapping import CLOCK, Mapping
from thence.pipeline.importers.matches import ChannelEvent, match_by_clock
from thence.pipeline.importers.sources import MAX_FILE_BYTES, Source, partition_of, refuse_large_files
from thence.pipeline.importers.staged import (
    BAD,
    BESIDE_LINES,
    EVENT,
    IGNORED,
    MAYBE,
    NTH,
    ONCE,
    ORDER,
    STAGED,
    STAGED_LINES,
    Row,
    applied,
    batch,
    cut,
    parted,
)
from thence.pipeline.tables import ddl
from thence.trace.events import DELIVER, SEND

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

_PLACE: Final = ("source", "block", "line", NTH)
"""Where a row stands in the files."""

_GZIP: Final = b"\x1f\x8b"
_AT_BYTE: Final = re.compile(r" \(byte (\d+)\)$")


def read_mapped(spark: SparkSession, source: Source, mapping: Mapping) -> DataFrame:
    """Return the staged rows of a source by its mapping."""
    fields = Fields(mapping)
    rows = _read_documents(spark, source, fields) if mapping.documents else read_lines(spark, source, fields.decode)
    if mapping.once is not None or "index" not in mapping.columns:
        # What is no event has no process; it shares a task with its like, and takes no place from others.
        rows = rows.repartition(source.tasks, "run", "process")
    if mapping.once is not None:
        rows = _without_repetitions(rows)
    if "index" not in mapping.columns:
        rows = _indexed(rows, ORDER, *_PLACE)
    match = mapping.column("message").match
    doubtful = any(event.maybe for event in mapping.rules)
    if match == CLOCK:
        rows = _matched_by_clock(rows, source.tasks)
    elif match is not None:
        rows = _matched_by_order(rows, source.tasks)
    if doubtful:
        rows = _indexed(_without_the_doubtful(rows, source.tasks).repartition(source.tasks, "run", "process"), "index")
    found = mapping.column("to").found
    rows = rows.drop(*(column.name for column in BESIDE_LINES))
    return rows if found is None else _with_destinations(rows, found, source.tasks)


# --- documents -----------------------------------------------------------------------------------------------------------


def _read_documents(spark: SparkSession, source: Source, fields: Fields) -> DataFrame:
    """Return the staged rows of files that are one JSON document each, or one on each line."""
    refuse_large_files(source)

    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for given in batches:
            for path, content in zip(*(column.to_pylist() for column in given.columns), strict=True):
                yield batch(document_rows(path, content, fields), STAGED_LINES)

    files = source.reader(spark).format("binaryFile").load(source.place).select("path", "content")
    return files.mapInArrow(parse, ddl(STAGED_LINES))


def document_rows(path: str, content: bytes, fields: Fields) -> Iterator[Row]:
    """Yield the rows of a file. Each record accounts for one."""
    place = {"source": path, "block": 0}
    try:
        if content.startswith(_GZIP):
            content = _unpacked(content)
        documents = [(1, content)] if _is_json(content) else _lines(content)
    except TraceError as error:
        documents = []
        yield {**place, "what": BAD, "line": 1, "lines": 1, "reason": str(error)}
    nth = 0
    for line, text in documents:
        for found in _records(text, fields, path, line):
            for row in accounted(found):
                yield {"line": line, **row, **place, NTH: nth}
                nth += 1


def _records(text: bytes, fields: Fields, path: str, line: int) -> Iterator[list[Row]]:
    try:
        yield from fields.records(decode_json(text), partition_of(path))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        reason, at = str(error), _AT_BYTE.search(str(error))
        if at is not None and b"\n" in text:
            line += text[: int(at[1])].count(b"\n")
        yield [
            {
                "what": BAD,
                "line": line,
                "raw": cut(text.decode("utf-8", "backslashreplace")),
                "reason": f"expected JSON: {reason}",
            }
        ]
    except TraceError as error:
        yield [{"what": BAD, "raw": cut(text.decode("utf-8", "backslashreplace")), "reason": str(error)}]


def _unpacked(content: bytes) -> bytes:
    unpack = zlib.decompressobj(wbits=31)
    try:
        found = unpack.decompress(content, MAX_FILE_BYTES)
    except zlib.error as error:
        raise TraceError(f"expected JSON packed by gzip: {error}") from None
    if not unpack.eof:
        raise TraceError(f"expected at most {MAX_FILE_BYTES} bytes of JSON packed by gzip")
    return found


def _is_json(content: bytes) -> bool:
    try:
        decode_json(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _lines(content: bytes) -> list[tuple[int, bytes]]:
    """Return the lines of a file and their numbers if its first one is JSON; otherwise it is one document that is not whole."""
    lines = [(number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
    return lines if lines and _is_json(lines[0][1]) else [(1, content)]


# --- indexes and ids -----------------------------------------------------------------------------------------------------


def _indexed(rows: DataFrame, *order: str) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    own = Window.partitionBy("run", "process").orderBy(*order)
    place = f.row_number().over(own).cast("bigint") - 1
    return rows.withColumn("index", f.when(f.col("what") == EVENT, place))


def _without_repetitions(rows: DataFrame) -> DataFrame:
    """Ignore the records that were there before."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    same = Window.partitionBy("run", "process", ONCE).orderBy(*_PLACE)
    again = f.col(ONCE).isNotNull() & (f.row_number().over(same) > 1)
    return _ignored_where(rows.withColumn("again", again), f.col("again")).drop("again")


def _ignored_where(rows: DataFrame, gone: Column) -> DataFrame:
    """Drop rows; of those that account for lines, that stays, and nothing else."""
    from pyspark.sql import functions as f

    kept = {"what", "lines", "source", "block", "line"}
    rows = rows.where(~gone | (f.col("lines") > 0))
    emptied = [
        f.when(~gone, f.col(name)).alias(name) if name not in kept else f.col(name) for name in rows.columns if name != "what"
    ]
    return rows.select(f.when(gone, IGNORED).otherwise(f.col("what")).alias("what"), *emptied)


def _has_id() -> Column:
    from pyspark.sql import functions as f

    return f.col("kind").isin(SEND, DELIVER) & f.col("message").isNotNull()


def _matched_by_order(rows: DataFrame, tasks: int) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    receiver = f.when(f.col("kind") == DELIVER, f.col("process"))
    numbered = Window.partitionBy("run", "message", "kind", receiver).orderBy("process", "index")
    named = f.concat_ws("#", "message", f.row_number().over(numbered))
    rows = rows.repartition(tasks, "run", "message")
    return rows.withColumn("message", f.when(_has_id(), named).otherwise(f.col("message")))


def _matched_by_clock(rows: DataFrame, tasks: int) -> DataFrame:
    beside = [column.name for column in BESIDE_LINES]
    return rows.drop(*beside).repartition(tasks, "run").groupBy("run").applyInArrow(applied(matched_rows), ddl(STAGED))


def matched_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Give the events of one run the ids that their clocks tell. What is no event goes through as it is."""
    events, others = parted(rows)
    yield from others
    events.sort(key=lambda row: (row["process"], row["index"]))
    ids = match_by_clock([ChannelEvent(row["process"], row["kind"], row["message"], row["clock"] or {}) for row in events])
    for row, message in zip(events, ids, strict=True):
        yield {**row, "message": message}


def _without_the_doubtful(rows: DataFrame, tasks: int) -> DataFrame:
    """Drop what may be a send or a delivery and is none."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    # What has no message is nobody's other end. It is spread, since one group of all of it would be one task.
    group = f.when(_has_id(), f.col("message")).otherwise(f.concat_ws(":", *_PLACE))
    rows = rows.withColumn("its_group", f.struct(_has_id(), group)).repartition(tasks, "run", "its_group")
    all_of, here = Window.partitionBy("run", "its_group"), f.col("process")
    sent, delivered = f.col("kind") == SEND, f.col("kind") == DELIVER
    ends = {
        "sender": f.when(
            f.min(f.when(sent, here)).over(all_of) == f.max(f.when(sent, here)).over(all_of),
            f.max(f.when(sent, here)).over(all_of),
        ),
        "to_others": (f.min(f.when(delivered, here)).over(all_of) != here)
        | (f.max(f.when(delivered, here)).over(all_of) != here),
        "sent_maybe": f.min(f.when(sent, f.col(MAYBE))).over(all_of),
        "nth_here": f.row_number().over(Window.partitionBy("run", "its_group", "process", "kind").orderBy(MAYBE, "index")),
    }
    rows = rows.withColumns(ends)
    other_end = f.when(sent, f.col("sender").isNotNull() & f.col("to_others")).otherwise(f.col("sender") != here)
    not_one = f.col(MAYBE) & (~f.coalesce(other_end, f.lit(False)) | (f.col("nth_here") > 1))
    from_itself = delivered & f.col("sent_maybe") & (f.col("sender") == here)
    gone = f.coalesce(_has_id() & (not_one | f.coalesce(from_itself, f.lit(False))), f.lit(False))
    return _ignored_where(rows.withColumn("gone", gone), f.col("gone")).drop(*ends, "its_group", "gone")


def _with_destinations(rows: DataFrame, found: str, tasks: int) -> DataFrame:
    """Fill in ``to`` of the sends: who delivered the message, or every process of the run."""
    from pyspark.sql import functions as f

    events = rows.where(f.col("what") == EVENT)
    if found == "deliveries":
        keys, events = ["run", "message"], events.where(f.col("kind") == DELIVER)
    else:
        keys = ["run"]
    there = events.repartition(tasks, *keys).groupBy(*keys).agg(f.array_sort(f.collect_set("process")).alias("there"))
    there = there.select(*(f.col(key).alias(f"its_{key}") for key in keys), "there")
    same = [f.col(key).eqNullSafe(f.col(f"its_{key}")) for key in keys]
    condition = f.col("kind") == SEND
    for part in same:
        condition &= part
    joined = rows.join(there, condition, "left")
    nobody = f.array().cast("array<string>")
    to = f.when(f.col("kind") == SEND, f.coalesce("there", nobody)).otherwise(f.col("to"))
    return joined.withColumn("to", to).select(rows.columns)
