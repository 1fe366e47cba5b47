"""The tables that the pipeline reads and writes: names, columns, and the numbers that shape them. Knows no Spark.

One description serves Spark (:func:`ddl`), Arrow (:func:`arrow_schema`), the writers and the pages.

Rules:

* A table of metrics is a folder ``OUT/NAME`` of Parquet with exactly the columns below, in this order.
* Times are nanoseconds, sizes are bytes, and both say so in the name of the column.
* Null means absent, never zero: a trace without times has null percentiles and a count of what could not be measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

PERCENTILES: Final[tuple[float, ...]] = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.9)

EXACT_UP_TO: Final = 250_000
"""Percentiles are exact up to so many deliveries: Spark keeps every value in memory for that, once for each scope."""

ACCURACY: Final = 10_000
"""Beyond that the rank of a percentile is off by at most one in so many of the values."""

MAX_BUCKETS: Final = 240
"""A run is cut into at most so many equal stretches of time."""

BUSIEST_PER_BUCKET: Final = 5
"""Of each stretch of time so many processes are named, the busiest first."""

MEASURES: Final[tuple[str, ...]] = ("delay_ns", "wait_ns", "control_bytes", "payload_bytes")
SCOPES: Final[tuple[str, ...]] = ("all", "run", "domain", "topic", "pair")


def percentile_column(percentile: float) -> str:
    """Return what the column of a percentile is called.

    >>> percentile_column(50), percentile_column(99.9)
    ('p50', 'p99_9')
    """
    return f"p{percentile:g}".replace(".", "_")


class Column(NamedTuple):
    """One column: its name, its type as Spark writes it, and what it says."""

    name: str
    kind: str
    meaning: str = ""


def columns(text: str) -> tuple[Column, ...]:
    """Return columns that are written as names and types with ", " between them."""
    return tuple(Column(*one.split()) for one in text.split(", "))


def ddl(table: Iterable[Column]) -> str:
    """Return columns as Spark writes a schema."""
    return ", ".join(f"`{column.name}` {column.kind}" for column in table)


def arrow_schema(table: Iterable[Column]) -> pa.Schema:
    """Return columns as Arrow types."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "double": pa.float64(),
        "boolean": pa.bool_(), "timestamp": pa.timestamp("us", "UTC"), "array<string>": pa.list_(pa.string()),
        "map<string,bigint>": pa.map_(pa.string(), pa.int64()), "binary": pa.binary(),
        "array<bigint>": pa.list_(pa.int64()),
    }  # fmt: skip
    return pa.schema([(column.name, kinds[column.kind]) for column in table])


TRACE: Final = columns(
    "run string, process string, index bigint, kind string, message string, to array<string>, time bigint, domain string, "
    "bytes int, overhead int, clock map<string,bigint>, client string, topic string"
)
"""The columns of a trace."""

VIOLATIONS: Final = columns(
    "run string, property string, process string, index bigint, later string, earlier string, missing bigint, "
    "chain array<string>, detail string"
)
"""What an audit finds, one row for each violation."""

LAG: Final = (
    Column("step", "bigint", "its number"),
    Column("at", "timestamp", "when it ended"),
    Column("events", "bigint", "judged so far"),
    Column("violations", "bigint", "found so far"),
    Column("held", "bigint", "events that cannot be judged yet"),
    Column("oldest", "string", "one that has been held for longest"),
    Column("oldest_s", "double", "for how many seconds"),
    Column("flights", "bigint", "messages that some destination lacks"),
    Column("unread", "bigint", "about how many events are in parts, or the rest of parts, that were not read yet"),
    Column(
        "behind_s",
        "double",
        "seconds since the oldest of these parts appeared, or the newest of all if all were read; none if the step read nothing",
    ),
)
"""How far behind the trace its follower is, one row for each step."""

_RUN: Final = Column("run", "string", "which run; null where the trace names none")

TABLES: Final[dict[str, tuple[Column, ...]]] = {
    "runs": (
        _RUN,
        Column("events", "bigint", "all events, of any kind"),
        Column("without_message", "bigint", "sends and deliveries that name no message; they are counted nowhere else"),
        Column("messages", "bigint", "messages sent"),
        Column("repeated_sends", "bigint", "sends of a message after the first"),
        Column("copies", "bigint", "destinations of all messages"),
        Column("deliveries", "bigint", "first deliveries of a message at a process"),
        Column("repeated_deliveries", "bigint", "further deliveries of it there"),
        Column("unsent_deliveries", "bigint", "first deliveries of messages of which there is no send"),
        Column("untimed_sends", "bigint", "messages whose send has no time"),
        Column("untimed_deliveries", "bigint", "first deliveries that have no time"),
        Column("delays", "bigint", "first deliveries whose delay is known"),
        Column("negative_delays", "bigint", "of these, the delays below zero: the clocks differ"),
        Column("waits", "bigint", "first deliveries whose waiting time is known"),
        Column("negative_waits", "bigint", "of these, those below zero: the clock was set back"),
        Column("waited", "bigint", "of these, those above zero: the message had to wait"),
        Column("first_time_ns", "bigint", "the earliest time of a send or a first delivery"),
        Column("last_time_ns", "bigint", "the latest one"),
    ),
    "distributions": (
        Column("measure", "string", "`delay_ns`, `wait_ns`, `control_bytes` or `payload_bytes`, each per first delivery"),
        Column("scope", "string", "`all`, `run`, `domain` (where delivered), `topic` or `pair` (sender and receiver)"),
        _RUN,
        Column("domain", "string", "for the scope `domain`; null where the trace names none"),
        Column("topic", "string", "for the scope `topic`, which has times only; null for all that was sent to none"),
        Column("sender", "string", "for the scope `pair`; null if the message was never sent"),
        Column("receiver", "string", "for the scope `pair`"),
        Column("deliveries", "bigint", "first deliveries"),
        Column("measured", "bigint", "those of which the measure is known; the others lack what it takes"),
        Column("negative", "bigint", "values below zero; they count in all that follows"),
        Column("smallest", "bigint", "the smallest value"),
        Column("largest", "bigint", "the largest value"),
        Column("mean", "double", "their average"),
        *(Column(percentile_column(p), "double", f"{p:g} % of the values are at most this") for p in PERCENTILES),
        Column("accuracy", "int", "null: exact; n: the rank of a percentile is off by at most one nth of the values"),
    ),
    "traffic": (
        Column("sender", "string", "null if the message was never sent"),
        Column("receiver", "string", "who delivered"),
        Column("sender_domain", "string", "the domain that the send names"),
        Column("receiver_domain", "string", "the domain that the delivery names"),
        Column("deliveries", "bigint", "first deliveries"),
        Column("repeated_deliveries", "bigint", "further ones"),
        Column("payload_bytes", "bigint", "payload of the first deliveries; null if no size is known"),
        Column("control_bytes", "bigint", "control bytes of the first deliveries; null if none is known"),
    ),
    "clients": (
        Column("client", "string", "on whose behalf; null where the trace names nobody"),
        Column("topic", "string", "the topic; null for what was sent to none"),
        Column("messages", "bigint", "messages sent"),
        Column("sent_payload_bytes", "bigint", "their payload, once per message; null if no size is known"),
        Column("deliveries", "bigint", "first deliveries of these messages, at all processes"),
        Column("payload_bytes", "bigint", "payload of the first deliveries; null if no size is known"),
        Column("control_bytes", "bigint", "control bytes of the first deliveries; null if none is known"),
        Column("waits", "bigint", "first deliveries whose waiting time is known"),
        Column("waited_ns", "bigint", "how long they waited, all together; null if nothing is known"),
    ),
    "sizes": (
        Column("domain", "string", "null where the trace names none"),
        Column("messages", "bigint", "messages sent from this domain"),
        Column("sent_payload_bytes", "bigint", "their payload, once per message"),
        Column("sent_control_bytes", "bigint", "control bytes that their sends name"),
        Column("caused_control_bytes", "bigint", "control bytes of their deliveries, in any domain"),
        Column("control_bytes_per_message", "double", "both of them together, per message"),
        Column("payload_bytes_per_message", "double", "payload per message"),
        Column("deliveries", "bigint", "first deliveries in this domain, from any"),
        Column("delivered_payload_bytes", "bigint", "their payload"),
        Column("delivered_control_bytes", "bigint", "their control bytes"),
        Column("control_bytes_per_delivery", "double", "control bytes per delivery of which they are known"),
        Column("payload_bytes_per_delivery", "double", "payload per delivery of which it is known"),
    ),
    "load": (
        Column("domain", "string", "where the process sent and delivered"),
        Column("process", "string", "who"),
        Column("sends", "bigint", "messages sent"),
        Column("deliveries", "bigint", "first deliveries"),
        Column("bytes", "bigint", "payload and control bytes sent and delivered, where known"),
        Column("share_of_sends", "double", "of all in the domain"),
        Column("share_of_deliveries", "double", "of all in the domain"),
        Column("share_of_bytes", "double", "of all in the domain"),
        Column("place", "int", "1 for the one that handles most in the domain: sends and deliveries together"),
    ),
    "busiest": (
        _RUN,
        Column("bucket", "int", "which stretch of time, from 0"),
        Column("place", "int", f"1 for the busiest, up to {BUSIEST_PER_BUCKET}"),
        Column("process", "string", "who"),
        Column("handled", "bigint", "sends and first deliveries in this stretch"),
        Column("share", "double", "of all in this stretch of this run"),
    ),
    "activity": (
        _RUN,
        Column("bucket", "int", "which stretch of time, from 0, without holes"),
        Column("start_ns", "bigint", "its beginning, since the run's first time"),
        Column("width_ns", "bigint", "its length, the same for all"),
        Column("sends", "bigint", "messages sent"),
        Column("copies", "bigint", "their destinations"),
        Column("deliveries", "bigint", "first deliveries"),
        Column("sent_bytes", "bigint", "payload sent, where known"),
        Column("delivered_bytes", "bigint", "payload delivered, where known"),
        Column("deliveries_per_s", "double", "first deliveries per second"),
        Column("in_flight", "bigint", "copies sent and not delivered at the end of it; below zero only if clocks differ"),
    ),
}


def bucket_width_ns(span_ns: int, most: int = MAX_BUCKETS) -> int:
    """Return the smallest round length (1, 2 or 5 times a power of ten) that cuts a span into at most so many stretches.

    >>> bucket_width_ns(1_000_000_000)
    5000000
    >>> bucket_width_ns(0)
    1
    """
    if span_ns < most:
        return 1
    power: int = 10 ** max(0, int(math.log10(span_ns // most)) - 1)
    while True:
        for factor in (1, 2, 5):
            if span_ns // (factor * power) < most:
                return factor * power
        power *= 10
