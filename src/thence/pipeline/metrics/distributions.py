"""How delays, waits and sizes are distributed: counts and percentiles, overall, by run, by domain, by topic and by pair.

One pass over the facts gives all of them, by grouping sets. Percentiles are exact (interpolated between two values, as
numpy does) or, of many deliveries, those of Spark's ``percentile_approx`` with the accuracy that the row names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from thence.pipeline.tables import ACCURACY, MEASURES, PERCENTILES, SCOPES, TABLES, percentile_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEYS: Final = ("run", "domain", "topic", "sender", "receiver")
_SETS: Final = {"all": (), "run": ("run",), "domain": ("domain",), "topic": ("topic",), "pair": ("sender", "receiver")}
_TIMES: Final = ("delay_ns", "wait_ns")
_MANY: Final = ("topic", "pair")
"""Of these only times are told; sizes hardly depend on them, and they are many."""


def distributions(facts: DataFrame, *, exact: bool) -> DataFrame:
    """The table ``distributions``."""
    delivered = facts.where("delivered").withColumnsRenamed({"process": "receiver", "receiver_domain": "domain"})
    grouped = delivered.groupingSets([list(_SETS[scope]) for scope in SCOPES], *_KEYS)
    wide = grouped.agg(
        F.grouping_id(*_KEYS).alias("grouped"),
        F.count(F.lit(1)).alias("deliveries"),
        *(_statistics(measure, exact=exact).alias(measure) for measure in MEASURES),
    )
    rows = F.array(*(F.struct(F.lit(measure).alias("measure"), F.col(measure).alias("of")) for measure in MEASURES))
    long = wide.withColumn("row", F.explode(rows)).withColumn("scope", _scope())
    wanted = ~F.col("scope").isin(*_MANY) | F.col("row.measure").isin(*_TIMES)
    return long.where(wanted).select(*(_value(column.name) for column in TABLES["distributions"]))


def _statistics(measure: str, *, exact: bool) -> Column:
    shares = F.array(*(F.lit(percentile / 100) for percentile in PERCENTILES))
    value = F.col(measure)
    percentiles = F.percentile(value, shares) if exact else F.percentile_approx(value, shares, ACCURACY)
    return F.struct(
        F.count(value).alias("measured"),
        F.count_if(value < 0).alias("negative"),
        F.min(value).alias("smallest"),
        F.max(value).alias("largest"),
        F.avg(value).alias("mean"),
        percentiles.alias("percentiles"),
        F.lit(None if exact else ACCURACY).cast("int").alias("accuracy"),
    )


def _scope() -> Column:
    """Which grouping set a row comes from: a null key alone would not say."""
    return F.coalesce(*(F.when(F.col("grouped") == _bits(kept), scope) for scope, kept in _SETS.items()))


def _bits(kept: tuple[str, ...]) -> int:
    """Spark's number of a grouping set: a bit for each key, the last one lowest, set where the key is not kept."""
    return sum(1 << place for place, key in enumerate(reversed(_KEYS)) if key not in kept)


def _value(column: str) -> Column:
    if column in {"scope", "deliveries", *_KEYS}:
        return F.col(column)
    if column == "measure":
        return F.col("row.measure").alias(column)
    for place, percentile in enumerate(PERCENTILES):
        if column == percentile_column(percentile):
            return F.get(F.col("row.of.percentiles"), F.lit(place)).alias(column)
    return F.col(f"row.of.{column}").alias(column)
