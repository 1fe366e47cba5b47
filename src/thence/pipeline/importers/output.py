"""The end of every import: the trace, and beside it the table of what was set aside.

Rules:

* The trace is sorted by run, process and index, in parts of about ``ROWS_PER_PART`` rows; ``DIR-bad`` is there only if
  something was set aside, and one that an earlier import left goes.
* On this machine both are written under a hidden name and renamed when they are complete. A trace that was there is replaced;
  a folder that holds anything else never is, nor is one that is being read. At a URL nothing is ever replaced.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from thence.errors import ConfigError, StorageError
from thence.pipeline.files import absolute
from thence.pipeline.importers.lines import lines_before
from thence.pipeline.importers.notes import with_caveats
from thence.pipeline.importers.sources import Source, reading
from thence.pipeline.importers.staged import BAD, BAD_COLUMNS, EVENT
from thence.trace.events import COLUMNS
from thence.trace.parquet import ROWS_PER_PART

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPARK_FILE: Final = re.compile(r"_SUCCESS|\..*\.crc|part-\d{5,}.*\.parquet")


def bad_place(out: str) -> str:
    """Return where the bad rows of a trace are."""
    return out.rstrip("/") + "-bad"


def read_bad_rows(spark: SparkSession, out: str) -> DataFrame:
    """Return what was set aside when the trace at ``out`` was imported."""
    return spark.read.parquet(absolute(bad_place(out)))


def refuse_to_replace(out: str, source: Source) -> None:
    """Refuse a place that holds anything but a trace, or what is about to be read."""
    if "://" in out:
        return
    for place in (Path(out).absolute(), Path(bad_place(out)).absolute()):
        if place.is_file() or (place.is_dir() and not all(_SPARK_FILE.fullmatch(entry.name) for entry in place.iterdir())):
            raise ConfigError(f"{place}: something that is no trace is in the way; name another place")
        if any(Path(file.path.removeprefix("file:")).is_relative_to(place) for file in source.files):
            raise ConfigError(f"{place}: is being read; name another place for the trace")


def write(staged: DataFrame, out: str, source: Source, events: int, bad: int, caveats: Iterable[str], *, blocks: bool) -> None:
    """Write what was staged: ``events`` rows of the trace and ``bad`` ones; ``blocks`` if lines are counted from blocks."""
    from pyspark.sql import functions as f

    place = [f.col(name) for name in ("run", "process", "index")]
    parts = 1 + max(0, events - 1) // ROWS_PER_PART
    trace = staged.where(f.col("what") == EVENT).select(*COLUMNS)
    trace = with_caveats(trace, caveats)
    trace = trace.repartition(1) if parts == 1 else trace.repartitionByRange(parts, *place)
    _save(trace.sortWithinPartitions(*place), out)
    if bad:
        aside = _bad_rows(staged.sparkSession, staged, source, blocks=blocks)
        _save(aside.repartition(1 + (bad - 1) // ROWS_PER_PART).sortWithinPartitions("source", "line"), bad_place(out))
    elif "://" not in out:
        shutil.rmtree(bad_place(out), ignore_errors=True)


def _bad_rows(spark: SparkSession, staged: DataFrame, source: Source, *, blocks: bool) -> DataFrame:
    """Return the table of bad rows, with line numbers from the beginning of the file."""
    from pyspark.sql import functions as f

    aside = staged.where(f.col("what") == BAD)
    if blocks:
        before = f.broadcast(lines_before(spark, source))
        aside = aside.join(before, ["source", "block"], "left")
        aside = aside.withColumn("line", f.col("line") + f.coalesce("before", f.lit(0)))
    return aside.select(*BAD_COLUMNS)


def _save(rows: DataFrame, place: str) -> None:
    with reading(place):
        if "://" in place:
            rows.write.option("compression", "zstd").mode("errorifexists").parquet(place)
            return
        final = Path(place).absolute()
        partial = final.parent / f".{final.name}.partial"
        try:
            rows.write.option("compression", "zstd").mode("overwrite").parquet(str(partial))
            if final.is_dir():
                shutil.rmtree(final)
            partial.replace(final)
        except OSError as error:
            raise StorageError(f"{place}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
