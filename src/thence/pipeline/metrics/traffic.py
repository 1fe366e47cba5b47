"""Who sends how much to whom and on whose behalf, what order costs in each domain, and which processes carry the load.

``sizes`` is made from ``traffic`` and ``load`` is made from facts: none of them looks at the events again.

A process that belongs to several domains is in ``load`` once for each. The trace says what applications sent and
delivered, so a relay is hot here by what it sends and delivers itself, not by what it only passes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from thence.pipeline.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def traffic(facts: DataFrame) -> DataFrame:
    """The table ``traffic``, with two columns more: of how many deliveries each size is known."""
    return (
        facts.where("delivered")
        .withColumnRenamed("process", "receiver")
        .groupBy("sender", "receiver", "sender_domain", "receiver_domain")
        .agg(
            F.count(F.lit(1)).alias("deliveries"),
            F.sum("repeated_deliveries").alias("repeated_deliveries"),
            F.sum("payload_bytes").alias("payload_bytes"),
            F.sum("control_bytes").alias("control_bytes"),
            F.count("payload_bytes").alias("payload_known"),
            F.count("control_bytes").alias("control_known"),
        )
    )


def clients(facts: DataFrame) -> DataFrame:
    """Return the table ``clients``."""
    sent, delivered = F.col("sent"), F.col("delivered")
    return facts.groupBy("client", "topic").agg(
        F.count_if(sent).alias("messages"),
        F.sum(F.when(sent, F.col("sent_bytes"))).alias("sent_payload_bytes"),
        F.count_if(delivered).alias("deliveries"),
        F.sum("payload_bytes").alias("payload_bytes"),
        F.sum("control_bytes").alias("control_bytes"),
        F.count("wait_ns").alias("waits"),
        F.try_sum("wait_ns").alias("waited_ns"),
    )


def sent(facts: DataFrame) -> DataFrame:
    """What was sent from each domain."""
    return (
        facts.where("sent")
        .groupBy(F.col("sender_domain").alias("domain"))
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.sum("sent_bytes").alias("sent_payload_bytes"),
            F.count("sent_bytes").alias("sent_payload_known"),
            F.sum("sent_overhead").alias("sent_control_bytes"),
        )
    )


def sizes(traffic: DataFrame, sent: DataFrame) -> DataFrame:
    """The table ``sizes``, from the other two."""
    # A message that was never sent has no domain to be charged to.
    caused = traffic.where(F.col("sender").isNotNull()).groupBy(F.col("sender_domain").alias("domain"))
    there = traffic.groupBy(F.col("receiver_domain").alias("domain")).agg(
        F.sum("deliveries").alias("deliveries"),
        F.sum("payload_bytes").alias("delivered_payload_bytes"),
        F.sum("control_bytes").alias("delivered_control_bytes"),
        F.sum("payload_known").alias("payload_known"),
        F.sum("control_known").alias("control_known"),
    )
    joined = _join(_join(sent, caused.agg(F.sum("control_bytes").alias("caused_control_bytes"))), there)
    both = F.coalesce("sent_control_bytes", F.lit(0)) + F.coalesce("caused_control_bytes", F.lit(0))
    known = F.coalesce("sent_control_bytes", "caused_control_bytes").isNotNull()
    return joined.select(
        "domain",
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("messages", "deliveries")),
        "sent_payload_bytes",
        "sent_control_bytes",
        "caused_control_bytes",
        "delivered_payload_bytes",
        "delivered_control_bytes",
        F.when(known, F.try_divide(both, F.col("messages"))).alias("control_bytes_per_message"),
        F.try_divide(F.col("sent_payload_bytes"), F.col("sent_payload_known")).alias("payload_bytes_per_message"),
        F.try_divide(F.col("delivered_control_bytes"), F.col("control_known")).alias("control_bytes_per_delivery"),
        F.try_divide(F.col("delivered_payload_bytes"), F.col("payload_known")).alias("payload_bytes_per_delivery"),
    ).select(*(column.name for column in TABLES["sizes"]))


def _join(left: DataFrame, right: DataFrame) -> DataFrame:
    """All domains of both; a domain that is null meets the one that is null."""
    on = left["domain"].eqNullSafe(right["domain"])
    others = [name for name in (*left.columns, *right.columns) if name != "domain"]
    return left.join(right, on, "full").select(F.coalesce(left["domain"], right["domain"]).alias("domain"), *others)


def load(facts: DataFrame) -> DataFrame:
    """Return the table ``load``."""
    counts = ("sends", "deliveries", "bytes")
    deliveries = F.when(
        F.col("delivered"), _deed("receiver_domain", sends=0, deliveries=1, sizes=("payload_bytes", "control_bytes"))
    )
    sends = F.when(F.col("sent"), _deed("sender_domain", sends=1, deliveries=0, sizes=("sent_bytes", "sent_overhead")))
    deeds = facts.select("process", F.explode(F.array_compact(F.array(deliveries, sends))).alias("deed"))
    counted = deeds.groupBy(F.col("deed.domain").alias("domain"), "process").agg(
        *(F.sum(f"deed.{name}").alias(name) for name in counts)
    )
    domain = Window.partitionBy("domain")
    busiest_first = domain.orderBy((F.col("sends") + F.col("deliveries")).desc(), "process")
    return counted.select(
        "domain",
        "process",
        *counts,
        *(F.try_divide(F.col(name), F.sum(name).over(domain)).alias(f"share_of_{name}") for name in counts),
        F.row_number().over(busiest_first).alias("place"),
    )


def _deed(domain: str, *, sends: int, deliveries: int, sizes: tuple[str, str]) -> Column:
    return F.struct(
        F.col(domain).alias("domain"),
        F.lit(sends).alias("sends"),
        F.lit(deliveries).alias("deliveries"),
        (F.coalesce(sizes[0], F.lit(0)) + F.coalesce(sizes[1], F.lit(0))).alias("bytes"),
    )
