"""What ``trace.lost`` does to a run, as a transform of a table: processes that people declared dead, and what is then expected.

Rules: as in ``trace.lost``, run by run. Whoever audits asks first whether anybody was lost: most traces have no views, and
Parquet says so without being read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thence.trace.events import ARRIVE, CRASH, DELIVER, SEND, VIEW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def _of_run() -> Column:
    """Return a name of a run to join tables by: never null, and another one for the run "" than for the run without a name."""
    from pyspark.sql import functions as sql

    return sql.coalesce(sql.concat(sql.lit("="), "run"), sql.lit("")).alias("of_run")


def lost_in(events: DataFrame) -> DataFrame:
    """Return run and name of every process that was lost, and who has told so."""
    from pyspark.sql import functions as sql

    views = events.where((sql.col("kind") == VIEW) & (sql.size("to") > 0))
    named = views.select(_of_run(), "process", sql.explode("to").alias("name"))
    return named.groupBy("of_run", "name").agg(sql.collect_set("process").alias("tellers"))


def without_the_lost(events: DataFrame) -> DataFrame:
    """Return the table to audit instead of this one."""
    from pyspark.sql import functions as sql

    columns = events.columns
    tellers = lost_in(events).groupBy("of_run")
    lost = tellers.agg(sql.map_from_entries(sql.collect_list(sql.struct("name", "tellers"))).alias("lost"))
    seen = events.withColumn("of_run", _of_run()).join(sql.broadcast(lost), "of_run", "left")
    sent = seen.where((sql.col("kind") == SEND) & sql.col("lost").isNotNull())
    sent = sent.groupBy("of_run", "message").agg(sql.min("process").alias("sender"))
    seen = seen.join(sent, ["of_run", "message"], "left")
    went_on = sql.expr("lost[process] IS NULL OR coalesce(array_contains(lost[sender], process), false)")
    known = seen.where((sql.col("kind") == DELIVER) & sql.col("sender").isNotNull() & went_on)
    known = known.select("of_run", "message", sql.lit(True).alias("known")).distinct()
    seen = seen.join(known, ["of_run", "message"], "left")
    given_up = (sql.col("kind") == SEND) & sql.expr("lost[process] IS NOT NULL AND known IS NULL AND to IS NOT NULL")
    to_lost = sql.expr("filter(to, name -> lost[name] IS NOT NULL AND NOT array_contains(lost[process], name))")
    named = sql.regexp_extract("message", "(?s)^(.*):[^:]*$", 1)
    unsent = (sql.col("kind") == DELIVER) & sql.col("sender").isNull() & sql.array_contains(sql.map_keys("lost"), named)
    kept = seen.withColumn("to", sql.when(given_up, to_lost).otherwise(sql.col("to")))
    kept = kept.withColumn("kind", sql.when(unsent, sql.lit(ARRIVE)).otherwise(sql.col("kind"))).select(columns)
    return kept.unionByName(_crashes(events), allowMissingColumns=True)


def _crashes(events: DataFrame) -> DataFrame:
    """Return an event for each process that was lost, behind all its own: it crashed."""
    from pyspark.sql import functions as sql

    last = events.groupBy(_of_run(), sql.col("process").alias("name")).agg(sql.max("index").alias("last"))
    return (
        lost_in(events)
        .join(last, ["of_run", "name"], "left")
        .select(
            sql.expr("if(of_run = '', null, substring(of_run, 2))").alias("run"),
            sql.col("name").alias("process"),
            (sql.coalesce("last", sql.lit(-1)) + 1).cast("bigint").alias("index"),
            sql.lit(CRASH).alias("kind"),
        )
    )
