"""Writing all tables, with few passes: two over the events, the rest over facts that are kept for the while.

Rules:

* Each table is a folder of Parquet below ``out``, replaced if it was there. A table that Spark did not finish has no
  ``_SUCCESS`` in it.
* Small tables are one file. What grows with pairs of processes, or with clients and topics, is as many files as there are
  partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from thence.pipeline.files import absolute
from thence.pipeline.metrics.activity import activity, busiest, deeds, runs
from thence.pipeline.metrics.distributions import distributions
from thence.pipeline.metrics.facts import facts
from thence.pipeline.metrics.traffic import clients, load, sent, sizes, traffic
from thence.pipeline.session import settings
from thence.pipeline.tables import EXACT_UP_TO, TABLES, bucket_width_ns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LARGE: Final = ("distributions", "traffic", "clients")
_SHUFFLE: Final = "spark.sql.shuffle.partitions"
TASKS_PER_CORE: Final = 2

Keep = Callable[["DataFrame"], "DataFrame"]
"""Lets Spark keep a table."""


def write_metrics(
    spark: SparkSession,
    events: DataFrame,
    out: str | Path,
    *,
    partitions: int | None = None,
    exact_up_to: int = EXACT_UP_TO,
) -> None:
    """Measure events of any number of runs and write every table below ``out``.

    Runs are measured together; to see one alone, give only its events. ``partitions`` is into how many pieces the work
    is cut: by default as many as the events have, and at least two for each core.
    """
    pieces = partitions or _pieces(spark, events)
    with settings(spark, {_SHUFFLE: str(pieces)}) if pieces else nullcontext(), _keeping() as keep:
        for name, table in measured(events, keep, pieces, exact_up_to):
            parts = table if name in _LARGE else table.repartition(1)
            parts.write.mode("overwrite").parquet(f"{absolute(str(out))}/{name}")


def measured(
    events: DataFrame, keep: Keep, pieces: int | None = None, exact_up_to: int = EXACT_UP_TO
) -> Iterator[tuple[str, DataFrame]]:
    """Give every table with its name. Two are counted at once, since others depend on how much there is."""
    for name, table in _measured(events, keep, pieces, exact_up_to):
        yield name, table.select(*(F.col(column.name).cast(column.kind).alias(column.name) for column in TABLES[name]))


def _measured(events: DataFrame, keep: Keep, pieces: int | None, exact_up_to: int) -> Iterator[tuple[str, DataFrame]]:
    known = keep(facts(events, pieces))
    by_run = keep(runs(events, known))
    yield "runs", by_run
    total = by_run.agg(F.sum("deliveries"), F.max(F.try_subtract("last_time_ns", "first_time_ns"))).collect()[0]
    yield "distributions", distributions(known, exact=(total[0] or 0) <= exact_up_to)
    between = keep(traffic(known))
    yield "traffic", between
    yield "sizes", sizes(between, sent(known))
    yield "clients", clients(known)
    yield "load", load(known)
    width_ns = bucket_width_ns(total[1] or 0)
    done = keep(deeds(known, by_run, width_ns))
    yield "activity", activity(done, width_ns)
    yield "busiest", busiest(done)


@contextmanager
def _keeping() -> Iterator[Keep]:
    """Keep data frames until the block ends."""
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    try:
        yield keep
    finally:
        for frame in kept:
            frame.unpersist()


def _pieces(spark: SparkSession, events: DataFrame) -> int | None:
    """How many pieces suit the machine and the events; None where the session does not say (Spark Connect)."""
    try:
        cores = spark.sparkContext.defaultParallelism
        return max(TASKS_PER_CORE * cores, events.rdd.getNumPartitions())
    except PySparkException:
        return None
