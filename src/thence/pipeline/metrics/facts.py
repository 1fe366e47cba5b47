"""From events to facts: one row for each message and process, with what was sent, what arrived and what was delivered.

Everything that is measured is an aggregate of facts, so the events are shuffled once, and what comes after is small.

Rules:

* Events are matched by run and message. A delivery is matched with the first send of its message (by process and
  index, should there be several), and with the first arrival at its process, if that came before it.
* First deliveries count; repeated ones are only counted.
* A time is subtracted only if both are there. What is negative stays negative: it says that clocks differ.
  A difference that 64 bits cannot hold counts as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from thence.errors import ConfigError
from thence.pipeline.tables import TRACE
from thence.trace.events import ARRIVE, DELIVER, REQUIRED, SEND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def typed(events: DataFrame) -> DataFrame:
    """Return the columns of a trace, of its types; a column that is not there is null throughout."""
    there = set(events.columns)
    return events.select(
        *((F.col(f"`{name}`") if name in there else F.lit(None)).cast(kind).alias(name) for name, kind, _ in TRACE)
    )


def prepared(events: DataFrame) -> DataFrame:
    """Return events that can be measured."""
    missing = [column for column in REQUIRED if column not in events.columns]
    if missing:
        raise ConfigError(f"these are no events: there is no column {', '.join(missing)}")
    return typed(events)


def facts(events: DataFrame, partitions: int | None = None) -> DataFrame:
    """One row for each run, message and process that sent, received or delivered it.

    ``sent`` says whether this row is the send of the message, ``delivered`` whether its process has delivered it.
    ``sender``, ``sent_at`` and what else is known of the send is the same in all rows of the message.
    """
    about_messages = prepared(events).where(F.col("message").isNotNull() & F.col("kind").isin(SEND, DELIVER, ARRIVE))
    spread = about_messages.repartition(*((partitions,) if partitions else ()), "run", "message")
    own = spread.groupBy("run", "message", "process").agg(
        _first(SEND, "index", "time", "domain", "bytes", "overhead", "client", "topic", "destinations").alias("send"),
        _first(DELIVER, "index", "time", "domain", "bytes", "overhead", "client", "topic").alias("delivery"),
        _first(ARRIVE, "index", "time").alias("arrival"),
        _count(SEND).alias("sends"),
        _count(DELIVER).alias("deliveries"),
    )
    of_message = Window.partitionBy("run", "message")
    named = F.when(F.col("send").isNotNull(), F.struct(F.col("process").alias("sender"), "send"))
    return _flat(own.withColumn("origin", F.min(named).over(of_message)))


def _first(kind: str, *fields: str) -> Column:
    """The first event of a kind, by index, as a struct of these fields."""
    values = [F.size("to").alias(field) if field == "destinations" else F.col(field) for field in fields]
    return F.min(F.when(F.col("kind") == kind, F.struct(*values)))


def _count(kind: str) -> Column:
    return F.count(F.when(F.col("kind") == kind, 1))


def _flat(matched: DataFrame) -> DataFrame:
    """The structs as columns, and what follows from two of them."""
    delivered = F.col("delivery").isNotNull()
    is_origin = F.col("send").isNotNull() & (F.col("process") == F.col("origin.sender"))
    in_time = F.col("arrival.index") < F.col("delivery.index")
    arrived_at = F.when(in_time, F.col("arrival.time"))
    return matched.select(
        "run",
        "message",
        "process",
        is_origin.alias("sent"),
        F.col("origin.sender").alias("sender"),
        F.col("origin.send.time").alias("sent_at"),
        F.col("origin.send.domain").alias("sender_domain"),
        F.col("origin.send.bytes").cast("bigint").alias("sent_bytes"),
        F.col("origin.send.overhead").cast("bigint").alias("sent_overhead"),
        *(F.coalesce(f"origin.send.{name}", f"delivery.{name}").alias(name) for name in ("client", "topic")),
        F.when(F.col("origin.send.destinations") >= 0, F.col("origin.send.destinations")).alias("destinations"),
        delivered.alias("delivered"),
        F.col("delivery.time").alias("delivered_at"),
        F.col("delivery.domain").alias("receiver_domain"),
        F.when(delivered, F.coalesce("delivery.bytes", "origin.send.bytes")).cast("bigint").alias("payload_bytes"),
        F.col("delivery.overhead").cast("bigint").alias("control_bytes"),
        F.try_subtract("delivery.time", "origin.send.time").alias("delay_ns"),
        F.try_subtract("delivery.time", arrived_at).alias("wait_ns"),
        F.greatest(F.col("deliveries") - 1, F.lit(0)).alias("repeated_deliveries"),
        (F.col("sends") - is_origin.cast("bigint")).alias("repeated_sends"),
    )
