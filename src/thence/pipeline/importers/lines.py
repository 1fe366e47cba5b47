"""Files of lines, read by Spark in blocks of many lines, decoded by Python a batch at a time.

Rules:

* The kernel (:func:`decode_batches`) knows no Spark: Arrow batches of (source, block, value) come in, staged batches go out.
* A decoder returns rows, none for a line that is to be ignored, or raises :class:`~thence.errors.TraceError` with the reason.
* Of several rows of a line the first one accounts for it; one that may turn out to be no event only where all may.
* Lines are numbered within their block, in the order in which Spark gives them, which is that of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from thence.errors import TraceError
from thence.pipeline.importers.sources import Source, file_path, partition_of
from thence.pipeline.importers.staged import BAD, EVENT, IGNORED, MAYBE, NTH, STAGED_LINES, Partition, Row, batch, cut
from thence.pipeline.tables import ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

Decoder = Callable[[bytes, Partition], list[Row]]


def read_lines(spark: SparkSession, source: Source, decode: Decoder) -> DataFrame:
    """Return the staged rows of a source of lines."""

    def kernel(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return decode_batches(batches, decode)

    return _lines(spark, source).mapInArrow(kernel, ddl(STAGED_LINES))


def lines_before(spark: SparkSession, source: Source) -> DataFrame:
    """Return how many lines of a file come before each of its blocks: source, block, before."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    counts = _lines(spark, source).groupBy("source", "block").count()
    earlier = Window.partitionBy("source").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    return counts.select("source", "block", f.coalesce(f.sum("count").over(earlier), f.lit(0)).alias("before"))


def _lines(spark: SparkSession, source: Source) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        source.reader(spark)
        .text(source.place)
        .select(
            file_path().alias("source"),
            f.col("_metadata.file_block_start").alias("block"),
            f.col("value").cast("binary").alias("value"),
        )
    )


def decode_batches(batches: Iterable[pa.RecordBatch], decode: Decoder) -> Iterator[pa.RecordBatch]:
    """Decode lines. Every line that is not blank is in exactly one row that comes out."""
    place: tuple[str, int] | None = None
    number = 0
    partition: Partition = {}
    for given in batches:
        rows = []
        for source, block, line in zip(*(column.to_pylist() for column in given.columns), strict=True):
            if (source, block) != place:
                place, number, partition = (source, block), 0, partition_of(source)
            number += 1
            found = _rows(line.removeprefix(_BYTE_ORDER_MARK), partition, decode)
            rows += [{**row, "source": source, "block": block, "line": number} for row in found]
        yield batch(rows, STAGED_LINES)


def _rows(line: bytes, partition: Partition, decode: Decoder) -> list[Row]:
    if not line.strip():
        return []
    try:
        return accounted(decode(line, partition))
    except TraceError as error:
        return accounted([{"what": BAD, "raw": cut(line.decode("utf-8", errors="backslashreplace")), "reason": str(error)}])


def accounted(rows: list[Row]) -> list[Row]:
    """Return rows that account for one line together, numbered; a row that says that it was ignored, where there are none."""
    if not rows:
        return [{"what": IGNORED, "lines": 1}]
    first = next((place for place, row in enumerate(rows) if not row.get(MAYBE)), 0)
    return [{"what": EVENT, **row, "lines": int(place == first), NTH: place} for place, row in enumerate(rows)]
