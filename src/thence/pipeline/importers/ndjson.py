"""Any NDJSON log by a mapping: rows are decoded by the mapping, then get their index, their message ids and their destinations.

Rules:

* The index of a process's rows is their place in the declared order; rows that are equal in it stand as they do in the files,
  and files in the order of their paths.
* Matching by order and finding destinations are Spark's work, in any amount. Matching by clock needs a run whole, in one
  task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from thence.pipeline.importers.lines import read_lines
from thence.pipeline.importers.mapping import CLOCK, Fields, Mapping
from thence.pipeline.importers.matches import ChannelEvent, match_by_clock
from thence.pipeline.importers.sources import Source
from thence.pipeline.importers.staged import EVENT, ORDER, STAGED, Row, applied, parted
from thence.pipeline.tables import ddl
from thence.trace.events import DELIVER, SEND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_ndjson(spark: SparkSession, source: Source, mapping: Mapping) -> DataFrame:
    """Return the staged rows of a log by its mapping."""
    rows = read_lines(spark, source, Fields(mapping).decode)
    if "index" not in mapping.columns:
        rows = _indexed(rows, source.tasks)
    rows = rows.drop(ORDER)
    match = mapping.column("message").match
    if match == CLOCK:
        rows = rows.repartition(source.tasks, "run").groupBy("run").applyInArrow(applied(matched_rows), ddl(STAGED))
    elif match is not None:
        rows = _matched_by_order(rows, source.tasks)
    found = mapping.column("to").found
    return rows if found is None else _with_destinations(rows, found, source.tasks)


def _indexed(rows: DataFrame, tasks: int) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    own = Window.partitionBy("run", "process").orderBy(ORDER, "source", "block", "line")
    place = f.row_number().over(own).cast("bigint") - 1
    is_event = f.col("what") == EVENT
    # What is no event has no process; it shares a window with its like, and takes no place from others.
    return rows.repartition(tasks, "run", "process").withColumn("index", f.when(is_event, place))


def _matched_by_order(rows: DataFrame, tasks: int) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    receiver = f.when(f.col("kind") == DELIVER, f.col("process"))
    numbered = Window.partitionBy("run", "message", "kind", receiver).orderBy("process", "index")
    number = f.row_number().over(numbered)
    named = f.concat_ws("#", "message", number)
    has_id = f.col("kind").isin(SEND, DELIVER) & f.col("message").isNotNull()
    rows = rows.repartition(tasks, "run", "message")
    return rows.withColumn("message", f.when(has_id, named).otherwise(f.col("message")))


def matched_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Give the events of one run the ids that their clocks tell. What is no event goes through as it is."""
    events, others = parted(rows)
    yield from others
    events.sort(key=lambda row: (row["process"], row["index"]))
    ids = match_by_clock([ChannelEvent(row["process"], row["kind"], row["message"], row["clock"] or {}) for row in events])
    for row, message in zip(events, ids, strict=True):
        yield {**row, "message": message}


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
