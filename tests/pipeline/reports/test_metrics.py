"""The tables of metrics hold what a straightforward computation in memory gives, for runs of many kinds at once."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.support.pipeline.measured import Delivered, Measured, distribution
from tests.support.traces import random_trace
from thence.core.topology import toml
from thence.errors import ConfigError
from thence.pipeline.tables import ACCURACY, BUSIEST_PER_BUCKET, MAX_BUCKETS, MEASURES, PERCENTILES, TABLES
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.trace.events import Event
from thence.trace.files import write_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FABRIC = Path(__file__).parents[3] / "examples" / "two-sites.toml"
MINUTE_NS = 60 * 10**9
Rows = list[dict[str, Any]]


def simulated(run: str | None, **options: Any) -> list[Event]:
    events: list[Event] = []
    given = SimulationOptions(messages=80, arrivals=True, **options)
    where = toml.parse(FABRIC.read_text(encoding="utf-8")) if options.get("topology") else None
    Simulation(given, events.append, where=where).run()
    return [msgspec.structs.replace(event, run=run) for event in events]


def spoiled(events: list[Event], chance: random.Random) -> list[Event]:
    """Clocks that differ, times and sizes that are missing, deliveries twice, sends lost, and events without messages."""
    skew = {process: chance.randrange(-MINUTE_NS, MINUTE_NS) for process in sorted({event.process for event in events})}
    following: Counter[str] = Counter()
    result: list[Event] = []

    def add(event: Event) -> None:
        result.append(msgspec.structs.replace(event, index=following[event.process]))
        following[event.process] += 1

    for event in events:
        at = None if event.time is None or chance.random() < 0.1 else event.time + skew[event.process]
        size = None if chance.random() < 0.2 else event.bytes
        changed = msgspec.structs.replace(event, time=at, bytes=size)
        if event.kind == "send" and chance.random() < 0.05:
            continue
        add(changed)
        if chance.random() < 0.1:
            add(changed)
        if chance.random() < 0.05:
            add(msgspec.structs.replace(changed, message=None))
    return result


def served(events: list[Event]) -> list[Event]:
    """The same, as servers would tell it: each message is of some client and goes to a topic, or to none."""
    of = {event.message: number for number, event in enumerate(events)}
    return [
        event
        if event.kind == "arrive"
        else msgspec.structs.replace(
            event, client=f"client {of[event.message] % 3}", topic=(None, "news", "chat")[of[event.message] % 7 % 3]
        )
        for event in events
    ]


def all_runs() -> list[Event]:
    chance = random.Random(17)
    return [
        *simulated("plain", seed=1),
        *simulated("faults", seed=2, ordering="matrix", pattern="mixed", loss=0.1, crashes=2),
        *served(simulated("fabric", seed=3, topology=str(FABRIC))),
        *spoiled(simulated("spoiled", seed=4, pattern="multicast", duplication=0.2), chance),
        *spoiled(simulated(None, seed=5, topology=str(FABRIC)), chance),
        *(msgspec.structs.replace(event, run="untimed") for event in random_trace(chance, 4, 60, ordered=False)),
        Event(run="nothing", process="<b>`", index=0, kind="crash", time=5),
    ]


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return all_runs()


@pytest.fixture(scope="module")
def measured(events: list[Event]) -> Measured:
    return Measured(events)


@pytest.fixture(scope="module")
def trace(events: list[Event], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "trace"
    write_trace(path, random.Random(1).sample(events, len(events)))
    return path


@pytest.fixture(scope="module")
def written(spark: SparkSession, trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from thence.pipeline.metrics import write_metrics

    out = tmp_path_factory.mktemp("metrics")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    write_metrics(spark, spark.read.parquet(str(trace)), out)
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    return out


def rows(out: Path, table: str) -> Rows:
    found = pq.read_table(out / table).to_pylist()
    assert isinstance(found, list)
    return found


def keyed(found: Rows, *keys: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    result = {tuple(row[key] for key in keys): row for row in found}
    assert len(result) == len(found), "two rows of one key"
    return result


def test_the_tables_have_the_columns_that_they_should(written: Path) -> None:
    assert {path.name for path in written.iterdir()} == set(TABLES)
    for table, columns in TABLES.items():
        assert pq.read_table(written / table).schema.names == [column.name for column in columns]


def test_the_runs(written: Path, events: list[Event], measured: Measured) -> None:
    found = keyed(rows(written, "runs"), "run")
    assert set(found) == {(event.run,) for event in events}
    for (run,), row in found.items():
        own = [event for event in events if event.run == run]
        sends = [send for send in measured.sends.values() if send.run == run]
        deliveries = [delivery for delivery in measured.deliveries if delivery.event.run == run]
        delays = [delivery.delay_ns for delivery in deliveries if delivery.delay_ns is not None]
        waits = [delivery.wait_ns for delivery in deliveries if delivery.wait_ns is not None]
        times = measured.times(run)
        assert row == {
            "run": run,
            "events": len(own),
            "without_message": sum(event.message is None and event.kind in {"send", "deliver"} for event in own),
            "messages": len(sends),
            "repeated_sends": sum(count - 1 for (of, _), count in measured.sends_of.items() if of == run),
            "copies": sum(len(send.to or ()) for send in sends),
            "deliveries": len(deliveries),
            "repeated_deliveries": sum(delivery.repeats for delivery in deliveries),
            "unsent_deliveries": sum(delivery.send is None for delivery in deliveries),
            "untimed_sends": sum(send.time is None for send in sends),
            "untimed_deliveries": sum(delivery.event.time is None for delivery in deliveries),
            "delays": len(delays),
            "negative_delays": sum(delay < 0 for delay in delays),
            "waits": len(waits),
            "negative_waits": sum(wait < 0 for wait in waits),
            "waited": sum(wait > 0 for wait in waits),
            "first_time_ns": min(times, default=None),
            "last_time_ns": max(times, default=None),
        }
    assert found["spoiled",]["negative_delays"] > 0
    assert found[None,]["untimed_deliveries"] > 0
    assert found["plain",]["waits"] > 0 == found["untimed",]["delays"]


def groups(measured: Measured) -> Iterator[tuple[tuple[Any, ...], list[Delivered]]]:
    """The deliveries of each scope, run, domain, topic, sender and receiver."""
    result: dict[tuple[Any, ...], list[Delivered]] = defaultdict(list)
    for delivery in measured.deliveries:
        event, sender = delivery.event, None if delivery.send is None else delivery.send.process
        result["all", None, None, None, None, None].append(delivery)
        result["run", event.run, None, None, None, None].append(delivery)
        result["domain", None, event.domain, None, None, None].append(delivery)
        result["topic", None, None, delivery.topic, None, None].append(delivery)
        result["pair", None, None, None, sender, event.process].append(delivery)
    yield from result.items()


def test_delays_waits_and_sizes_are_distributed_as_numpy_says(written: Path, measured: Measured) -> None:
    found = keyed(rows(written, "distributions"), "measure", "scope", "run", "domain", "topic", "sender", "receiver")
    for key, deliveries in groups(measured):
        for measure in MEASURES if key[0] not in {"topic", "pair"} else MEASURES[:2]:
            row = found.pop((measure, *key))
            expected = distribution(deliveries, measure, PERCENTILES)
            known = {name: value for name, value in expected.items() if value is not None}
            assert {name: row[name] for name in known} == pytest.approx(known, rel=1e-9), (measure, key)
            assert [name for name in expected if row[name] is None] == [name for name in expected if name not in known]
            assert row["accuracy"] is None
    assert found == {}


def test_the_traffic(written: Path, measured: Measured) -> None:
    found = keyed(rows(written, "traffic"), "sender", "receiver", "sender_domain", "receiver_domain")
    expected: dict[tuple[Any, ...], list[Delivered]] = defaultdict(list)
    for delivery in measured.deliveries:
        send, event = delivery.send, delivery.event
        expected[
            None if send is None else send.process, event.process, None if send is None else send.domain, event.domain
        ].append(delivery)
    assert set(found) == set(expected)
    for key, deliveries in expected.items():
        row = found[key]
        assert row["deliveries"] == len(deliveries)
        assert row["repeated_deliveries"] == sum(delivery.repeats for delivery in deliveries)
        assert row["payload_bytes"] == total(delivery.payload_bytes for delivery in deliveries)
        assert row["control_bytes"] == total(delivery.control_bytes for delivery in deliveries)


def test_the_clients(written: Path, measured: Measured) -> None:
    found = keyed(rows(written, "clients"), "client", "topic")
    deliveries: dict[tuple[Any, ...], list[Delivered]] = defaultdict(list)
    sends: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
    for delivery in measured.deliveries:
        deliveries[delivery.client, delivery.topic].append(delivery)
    for send in measured.sends.values():
        sends[send.client, send.topic].append(send)
    assert set(found) == set(deliveries) | set(sends)
    assert len(found) > 5
    for key, row in found.items():
        waits = [delivery.wait_ns for delivery in deliveries[key] if delivery.wait_ns is not None]
        assert row == {
            "client": key[0],
            "topic": key[1],
            "messages": len(sends[key]),
            "sent_payload_bytes": total(send.bytes for send in sends[key]),
            "deliveries": len(deliveries[key]),
            "payload_bytes": total(delivery.payload_bytes for delivery in deliveries[key]),
            "control_bytes": total(delivery.control_bytes for delivery in deliveries[key]),
            "waits": len(waits),
            "waited_ns": sum(waits) if waits else None,
        }


def total(values: Iterator[int | None] | Any) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def per(part: int | None, whole: int) -> object:
    return None if part is None or not whole else pytest.approx(part / whole)


def test_the_sizes(written: Path, measured: Measured) -> None:
    found = keyed(rows(written, "sizes"), "domain")
    sends = list(measured.sends.values())
    domains = {send.domain for send in sends} | {delivery.event.domain for delivery in measured.deliveries}
    assert {domain for (domain,) in found} == domains
    for (domain,), row in found.items():
        sent = [send for send in sends if send.domain == domain]
        there = [delivery for delivery in measured.deliveries if delivery.event.domain == domain]
        caused = [d for d in measured.deliveries if d.send is not None and d.send.domain == domain]
        control, payload = [d.control_bytes for d in there], [d.payload_bytes for d in there]
        known_sizes = [send.bytes for send in sent if send.bytes is not None]
        assert row == {
            "domain": domain,
            "messages": len(sent),
            "sent_payload_bytes": total(send.bytes for send in sent),
            "sent_control_bytes": None,
            "caused_control_bytes": total(d.control_bytes for d in caused),
            "control_bytes_per_message": per(total(d.control_bytes for d in caused), len(sent)),
            "payload_bytes_per_message": per(total(known_sizes), len(known_sizes)),
            "deliveries": len(there),
            "delivered_payload_bytes": total(payload),
            "delivered_control_bytes": total(control),
            "control_bytes_per_delivery": per(total(control), len([c for c in control if c is not None])),
            "payload_bytes_per_delivery": per(total(payload), len([p for p in payload if p is not None])),
        }


def test_the_load(written: Path, measured: Measured) -> None:
    found = keyed(rows(written, "load"), "domain", "process")
    sends: Counter[tuple[Any, ...]] = Counter()
    deliveries: Counter[tuple[Any, ...]] = Counter()
    sizes: Counter[tuple[Any, ...]] = Counter()
    for send in measured.sends.values():
        sends[send.domain, send.process] += 1
        sizes[send.domain, send.process] += (send.bytes or 0) + (send.overhead or 0)
    for delivery in measured.deliveries:
        key = delivery.event.domain, delivery.event.process
        deliveries[key] += 1
        sizes[key] += (delivery.payload_bytes or 0) + (delivery.control_bytes or 0)
    assert set(found) == set(sends) | set(deliveries)
    for key, row in found.items():
        assert (row["sends"], row["deliveries"], row["bytes"]) == (sends[key], deliveries[key], sizes[key])
    for domain in {domain for domain, _ in found}:
        own = sorted((row for row in found.values() if row["domain"] == domain), key=lambda row: int(row["place"]))
        assert [row["place"] for row in own] == list(range(1, len(own) + 1))
        handled = [row["sends"] + row["deliveries"] for row in own]
        assert handled == sorted(handled, reverse=True)
        for name in ("sends", "deliveries", "bytes"):
            shares = [row[f"share_of_{name}"] for row in own]
            amounts = np.array([row[name] for row in own])
            assert shares == pytest.approx(list(amounts / amounts.sum())) if amounts.sum() else shares == [None] * len(own)


def test_the_activity(written: Path, measured: Measured) -> None:
    found = rows(written, "activity")
    (width,) = {row["width_ns"] for row in found}
    for run in {event.run for event in measured.events}:
        own = sorted((row for row in found if row["run"] == run), key=lambda row: int(row["bucket"]))
        start, times = measured.start(run), measured.times(run)
        if start is None:
            assert own == []
            continue
        assert [row["bucket"] for row in own] == list(range((max(times) - start) // width + 1))
        assert len(own) <= MAX_BUCKETS
        sent = Counter(
            (send.time - start) // width for send in measured.sends.values() if send.run == run and send.time is not None
        )
        delivered = [d for d in measured.deliveries if d.event.run == run and d.event.time is not None]
        arrived = Counter(((d.event.time or 0) - start) // width for d in delivered)
        for row in own:
            bucket = row["bucket"]
            assert row["start_ns"] == bucket * width
            assert (row["sends"], row["deliveries"]) == (sent[bucket], arrived[bucket])
            assert row["deliveries_per_s"] == pytest.approx(arrived[bucket] * 1e9 / width)
            assert row["in_flight"] == measured.in_flight(run, start + (bucket + 1) * width), (run, bucket)
        assert sum(row["delivered_bytes"] for row in own) == sum(d.payload_bytes or 0 for d in delivered)
        timed_sends = [send for send in measured.sends.values() if send.run == run and send.time is not None]
        assert sum(row["sent_bytes"] for row in own) == sum(send.bytes or 0 for send in timed_sends)
        assert sum(row["copies"] for row in own) == sum(len(send.to or ()) for send in timed_sends)
        assert run != "plain" or own[-1]["in_flight"] == 0


def test_the_busiest(written: Path, measured: Measured) -> None:
    width = rows(written, "activity")[0]["width_ns"]
    handled: dict[tuple[Any, int], Counter[str]] = defaultdict(Counter)
    for event in [*measured.sends.values(), *(delivery.event for delivery in measured.deliveries)]:
        start = measured.start(event.run)
        if start is not None and event.time is not None:
            handled[event.run, (event.time - start) // width][event.process] += 1
    found: dict[tuple[Any, int], Rows] = defaultdict(list)
    for row in rows(written, "busiest"):
        found[row["run"], row["bucket"]].append(row)
    assert set(found) == set(handled)
    for key, counts in handled.items():
        best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:BUSIEST_PER_BUCKET]
        given = sorted(found[key], key=lambda row: int(row["place"]))
        assert [(row["process"], row["handled"]) for row in given] == best
        assert [row["share"] for row in given] == pytest.approx([count / counts.total() for _, count in best])


def test_what_is_many_is_measured_nearly(spark: SparkSession, trace: Path, measured: Measured) -> None:
    from thence.pipeline.metrics import distributions, facts

    found = distributions(facts(spark.read.parquet(str(trace)), 3), exact=False).where("scope = 'all' and measure = 'delay_ns'")
    (row,) = found.collect()
    values = sorted(d.delay_ns for d in measured.deliveries if d.delay_ns is not None)
    assert (row["accuracy"], row["measured"]) == (ACCURACY, len(values))
    for percentile in PERCENTILES:
        value, wanted = row[f"p{percentile:g}".replace(".", "_")], percentile / 100 * len(values)
        assert value in values
        slack = 1 + len(values) / ACCURACY
        assert bisect_left(values, value) - slack <= wanted <= bisect_right(values, value) + slack


def test_columns_may_be_missing_and_numbers_may_be_extreme(spark: SparkSession) -> None:
    from thence.pipeline.metrics import facts

    columns = "process string, index int, kind string, message string"
    bare = spark.createDataFrame([("A", 0, "send", "m"), ("B", 0, "deliver", "m")], columns)
    assert sorted((row["process"], row["sender"], row["delay_ns"], row["destinations"]) for row in facts(bare).collect()) == [
        ("A", "A", None, None),
        ("B", "A", None, None),
    ]
    far = spark.createDataFrame(
        [("A", 0, "send", "m", -(2**63)), ("B", 0, "deliver", "m", 2**63 - 1)],
        f"{columns}, time bigint",
    )
    assert [row["delay_ns"] for row in facts(far).where("delivered").collect()] == [None]
    with pytest.raises(ConfigError, match="these are no events: there is no column process, kind"):
        facts(spark.range(1).withColumnRenamed("id", "index"))
