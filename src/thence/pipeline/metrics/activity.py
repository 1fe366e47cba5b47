"""What happened when: one row per run, and for each run stretches of time with what was sent, delivered and on its way.

Rules:

* Time begins for each run at the earliest time of any of its sends and first deliveries. All stretches have one width.
* Clocks of different processes are taken as they are. A clock that is far off makes the run look long.
* A copy is in flight from its send to its delivery. One that is never delivered stays in flight; a delivery without a
  time counts as made at the time of the send; of what was sent without a time, or to nobody knows whom, nothing is
  known, and it is never in flight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from thence.pipeline.metrics.facts import prepared
from thence.pipeline.tables import BUSIEST_PER_BUCKET, TABLES
from thence.trace.events import DELIVER, SEND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def runs(events: DataFrame, facts: DataFrame) -> DataFrame:
    """The table ``runs``. Reads the events a second time, but of each only its run, its kind and whether it has a message."""
    nameless = F.col("message").isNull() & F.col("kind").isin(SEND, DELIVER)
    all_events = (
        prepared(events).groupBy("run").agg(F.count(F.lit(1)).alias("events"), F.count_if(nameless).alias("without_message"))
    )
    counted = facts.groupBy("run").agg(*(value.alias(name) for name, value in _counts().items()))
    joined = all_events.join(counted.withColumnRenamed("run", "of"), F.col("run").eqNullSafe(F.col("of")), "left")
    times = ("first_time_ns", "last_time_ns")
    return joined.select(
        *(
            F.col(column.name) if column.name in {"run", *times} else F.coalesce(column.name, F.lit(0)).alias(column.name)
            for column in TABLES["runs"]
        )
    )


def _counts() -> dict[str, Column]:
    sent, delivered = F.col("sent"), F.col("delivered")
    sent_at, delivered_at = F.when(sent, F.col("sent_at")), F.col("delivered_at")
    return {
        "messages": F.count_if(sent),
        "repeated_sends": F.sum("repeated_sends"),
        "copies": F.sum(F.when(sent, F.col("destinations"))),
        "deliveries": F.count_if(delivered),
        "repeated_deliveries": F.sum("repeated_deliveries"),
        "unsent_deliveries": F.count_if(delivered & F.col("sender").isNull()),
        "untimed_sends": F.count_if(sent & F.col("sent_at").isNull()),
        "untimed_deliveries": F.count_if(delivered & delivered_at.isNull()),
        "delays": F.count("delay_ns"),
        "negative_delays": F.count_if(F.col("delay_ns") < 0),
        "waits": F.count("wait_ns"),
        "negative_waits": F.count_if(F.col("wait_ns") < 0),
        "waited": F.count_if(F.col("wait_ns") > 0),
        "first_time_ns": F.least(F.min(sent_at), F.min(delivered_at)),
        "last_time_ns": F.greatest(F.max(sent_at), F.max(delivered_at)),
    }


def deeds(facts: DataFrame, runs: DataFrame, width_ns: int) -> DataFrame:
    """Sends and first deliveries by run, stretch of time and process: what ``activity`` and ``busiest`` are made from."""
    beginnings = runs.where(F.col("first_time_ns").isNotNull()).select(F.col("run").alias("of"), "first_time_ns")
    timed = facts.join(F.broadcast(beginnings), F.col("run").eqNullSafe(F.col("of")))
    tracked = F.col("sent_at").isNotNull() & F.col("destinations").isNotNull()
    entering = F.when(tracked, F.col("destinations")).otherwise(0)
    leaving = F.when(tracked, 1).otherwise(0)
    send = F.when(F.col("sent"), _deed(F.col("sent_at"), sends=1, payload="sent_bytes", flight=entering))
    delivery_at = F.coalesce("delivered_at", F.when(tracked, F.col("sent_at")))
    delivery = F.when(F.col("delivered"), _deed(delivery_at, sends=0, payload="payload_bytes", flight=-leaving))
    each = timed.select("run", "process", "first_time_ns", F.explode(F.array_compact(F.array(send, delivery))).alias("deed"))
    since = F.try_subtract("deed.at", "first_time_ns")
    counted = ("sends", "copies", "deliveries", "sent_bytes", "delivered_bytes", "flight")
    return (
        each.withColumn("bucket", F.call_function("div", since, F.lit(width_ns)).cast("int"))
        .where(F.col("bucket").isNotNull())
        .groupBy("run", "bucket", "process")
        .agg(*(F.sum(f"deed.{name}").alias(name) for name in counted))
    )


def _deed(at: Column, *, sends: int, payload: str, flight: Column) -> Column:
    """A send or a delivery: how many, how many bytes, and by how much it changes what is in flight."""
    size, none = F.coalesce(payload, F.lit(0)), F.lit(0).cast("bigint")
    timed = F.lit(1) if sends else F.col("delivered_at").isNotNull().cast("int")
    return F.struct(
        at.alias("at"),
        F.lit(sends).alias("sends"),
        (F.coalesce("destinations", F.lit(0)) if sends else F.lit(0)).alias("copies"),
        (F.lit(0) if sends else timed).alias("deliveries"),
        (size if sends else none).alias("sent_bytes"),
        (none if sends else size * timed).alias("delivered_bytes"),
        flight.alias("flight"),
    )


def activity(deeds: DataFrame, width_ns: int) -> DataFrame:
    """The table ``activity``, with a row also for a stretch of time in which nothing happened."""
    names = ("sends", "copies", "deliveries", "sent_bytes", "delivered_bytes", "flight")
    counted = deeds.groupBy("run", "bucket").agg(*(F.sum(name).alias(name) for name in names))
    whole = counted.groupBy(F.col("run").alias("of")).agg(F.max("bucket").alias("last"))
    every = whole.select("of", F.explode(F.sequence(F.lit(0), F.col("last"))).alias("at"))
    same = F.col("run").eqNullSafe(F.col("of")) & (F.col("bucket") == F.col("at"))
    filled = every.join(counted, same, "left").select(
        F.col("of").alias("run"), F.col("at").alias("bucket"), *(F.coalesce(name, F.lit(0)).alias(name) for name in names)
    )
    so_far = Window.partitionBy("run").orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return filled.select(
        "run",
        "bucket",
        (F.col("bucket").cast("bigint") * F.lit(width_ns)).alias("start_ns"),
        F.lit(width_ns).alias("width_ns"),
        *names[:-1],
        (F.col("deliveries") / F.lit(width_ns / 1e9)).alias("deliveries_per_s"),
        F.sum("flight").over(so_far).alias("in_flight"),
    )


def busiest(deeds: DataFrame) -> DataFrame:
    """The table ``busiest``."""
    counted = deeds.select("run", "bucket", "process", (F.col("sends") + F.col("deliveries")).alias("handled"))
    stretch = Window.partitionBy("run", "bucket")
    return (
        counted.where("handled > 0")
        .withColumn("place", F.row_number().over(stretch.orderBy(F.col("handled").desc(), "process")))
        .withColumn("share", F.col("handled") / F.sum("handled").over(stretch))
        .where(F.col("place") <= BUSIEST_PER_BUCKET)
        .select("run", "bucket", "place", "process", "handled", "share")
    )
