"""The means of repeated runs, computed on Spark: for each point and measure the count, mean, deviation and interval.

Rules:

* A row is one run: ``point``, ``repetition`` and a map of ``measures``. A run that failed has an ``error`` and no measures.
* The values of a group are collected and sorted before anything is computed of them, so that neither the number of machines
  nor the order in which they finish changes a bit.
* How values are summed up is the caller's business: a function that workers can import by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from thence.pipeline.files import absolute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS: Final = (
    "study string, point string, repetition int, seed long, measures map<string,double>, "
    "seconds double, events long, error string"
)
"""A run, as the workers write it."""

MEANS: Final = "point string, measure string, count int, mean double, deviation double, half_width double"

Summed = tuple[int, float, float, float]
"""Count, mean, deviation, half width."""


def means(rows: DataFrame, summed: Callable[[Sequence[float]], Summed]) -> DataFrame:
    """Sum up each measure at each point. A run that is there twice, since it was done again after a crash, counts once."""
    values = rows.select("point", "repetition", F.explode("measures").alias("measure", "value"))
    runs = F.array_sort(F.collect_set(F.struct("repetition", "value")))
    groups = values.groupBy("point", "measure").agg(F.transform(runs, lambda run: run["value"]).alias("values"))
    return groups.mapInArrow(_SumUp(summed), MEANS)


def first_runs(rows: DataFrame, wanted: DataFrame) -> DataFrame:
    """Of each point as many repetitions as ``wanted`` says (``point``, ``repetitions``), without those that failed."""
    counted = F.col("error").isNull() & (F.col("repetition") < F.col("repetitions"))
    return rows.join(F.broadcast(wanted), "point").where(counted)


def means_in(
    spark: SparkSession, folder: str, wanted: Mapping[str, int], summed: Callable[[Sequence[float]], Summed]
) -> list[dict[str, Any]]:
    """The means of the rows in a folder, sorted, with ``wanted`` repetitions of each point."""
    rows = spark.read.schema(ROWS).parquet(absolute(folder))
    counts = spark.createDataFrame(sorted(wanted.items()), "point string, repetitions int")
    found: list[dict[str, Any]] = means(first_runs(rows, counts), summed).toArrow().to_pylist()
    return sorted(found, key=lambda row: (row["point"], row["measure"]))


class _SumUp:
    """Sums up groups in a worker; a class, so that it pickles by name."""

    def __init__(self, summed: Callable[[Sequence[float]], Summed]) -> None:
        self.summed = summed

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            summed = [self.summed(values) for values in batch["values"].to_pylist()]
            columns = list(zip(*summed, strict=True)) or [(), (), (), ()]
            yield pa.record_batch(
                [
                    batch["point"],
                    batch["measure"],
                    pa.array(columns[0], pa.int32()),
                    *(pa.array(column, pa.float64()) for column in columns[1:]),
                ],
                names=["point", "measure", "count", "mean", "deviation", "half_width"],
            )
