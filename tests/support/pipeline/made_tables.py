"""Tables of metrics made by hand, so that the report can be tested without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from thence.pipeline.report.figures import Tables
from thence.pipeline.tables import MEASURES, PERCENTILES, TABLES, percentile_column

ARROW = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "double": pa.float64()}
Row = dict[str, Any]


def blank(table: str, **values: Any) -> Row:
    """A row: what is not given is null, or 0 if it is a count."""
    row: Row = {column.name: 0 if column.kind in {"bigint", "int"} else None for column in TABLES[table]}
    assert set(values) <= set(row), "no such column"
    return {**row, **values}


def spread(measure: str, scope: str, count: int, step: int, **keys: Any) -> Row:
    """A distribution over 0, step, 2 step, … 100 step."""
    percentiles = {percentile_column(percent): percent * step for percent in PERCENTILES}
    row = blank("distributions", measure=measure, scope=scope, deliveries=count, measured=count, **keys)
    return {**row, "smallest": 0, "largest": 100 * step, "mean": 50.0 * step, "accuracy": None, **percentiles}


def made(names: list[str], domains: list[str], *, messages: int = 10, runs: int = 1) -> Tables:
    """Everybody sends each other one delivery more than the one before; two stretches of time of 1 ms."""
    count = len(names)
    pairs = [(sender, receiver) for sender in names for receiver in names]
    home = {name: domains[place % len(domains)] for place, name in enumerate(names)}
    total = sum(range(1, len(pairs) + 1))
    return Tables(
        runs=[
            blank("runs", run=f"r{run}", events=total + messages, messages=messages, copies=total, deliveries=total, delays=total)
            for run in range(runs)
        ],
        distributions=[spread(measure, "all", total, 1_000_000 if "ns" in measure else 1) for measure in MEASURES]
        + [spread("delay_ns", "domain", total, 2_000_000, domain=domain) for domain in domains]
        + [spread("wait_ns", "topic", total, 3_000_000, topic=topic) for topic in (None, *names)],
        traffic=[
            blank(
                "traffic",
                sender=sender,
                receiver=receiver,
                sender_domain=home[sender],
                receiver_domain=home[receiver],
                deliveries=n,
            )
            for n, (sender, receiver) in enumerate(pairs, 1)
        ],
        clients=[
            blank("clients", client=name, topic=topic, messages=1, deliveries=place + 1, waits=1, waited_ns=7_000_000)
            for place, name in enumerate(names)
            for topic in (None, *names)
        ],
        sizes=[
            blank("sizes", domain=domain, messages=messages, deliveries=total, control_bytes_per_delivery=8.0 * (place + 1))
            for place, domain in enumerate(domains)
        ],
        load=[
            blank("load", domain=home[name], process=name, sends=place + 1, deliveries=count, bytes=1000, place=1)
            for place, name in enumerate(names)
        ],
        busiest=[blank("busiest", run="r0", place=1, process=names[0], handled=3, share=0.5)],
        activity=[
            blank("activity", run=f"r{run}", bucket=bucket, start_ns=bucket * 10**6, width_ns=10**6, sends=2 - bucket, copies=4)
            | {"deliveries": 3, "deliveries_per_s": 3000.0, "in_flight": 5 - 4 * bucket}
            for run in range(runs)
            for bucket in range(2 if run == 0 else 1)
        ],
    )


def empty() -> Tables:
    return Tables([], [], [], [], [], [], [], [])


def store(tables: Tables, folder: Path) -> Path:
    """Write tables as ``write_metrics`` does."""
    for name, columns in TABLES.items():
        (folder / name).mkdir(parents=True)
        schema = pa.schema([(column.name, ARROW[column.kind]) for column in columns])
        pq.write_table(pa.Table.from_pylist(list(getattr(tables, name)), schema=schema), folder / name / "part-0.parquet")
    return folder
