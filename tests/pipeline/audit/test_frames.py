"""DataFrames in and out: the steps of an audit one by one, in any layout, and what is said when something is missing."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from tests.pipeline.audit.test_audit import timed
from tests.support.traces import random_trace
from thence.errors import StorageError, TraceError
from thence.pipeline.audit import audit, normalise, survey, transforms
from thence.pipeline.kernels.plan import plan_of, routes_of, slices_of
from thence.trace.events import Event
from thence.trace.judge import PROPERTIES, judge
from thence.trace.parquet import to_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

LAYOUTS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "in time order": lambda frame: frame.orderBy("time"),
    "sorted by process": lambda frame: frame.orderBy("process", "index"),
    "shuffled": lambda frame: frame.orderBy("message", "kind"),
    "hash-partitioned": lambda frame: frame.repartition(8, "process"),
    "without times": lambda frame: frame.drop("time"),
    "wandering clocks": lambda frame: frame.withColumn("time", _wandering()),
}


def _wandering() -> Any:
    from pyspark.sql import functions as f

    return f.col("time") + (f.pmod(f.xxhash64("process", f.col("index") % 7), f.lit(200)) - 100)


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return timed(random_trace(random.Random(11), 6, 500, ordered=False), random.Random(12))


@pytest.fixture(scope="module")
def frame(spark: SparkSession, events: list[Event]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches([to_batch(events)]))


def rows_of(found: DataFrame) -> list[tuple[Any, ...]]:
    names = ("property", "process", "index", "later", "earlier", "missing", "detail")
    return sorted((tuple(row[name] for name in names) for row in found.collect()), key=str)


def is_kept(table: DataFrame) -> bool:
    return bool(table.storageLevel.useDisk)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_rows_of_the_judge(layout: str, frame: DataFrame, events: list[Event]) -> None:
    verdict = judge(events, PROPERTIES)
    expected = [(v.property, v.process, v.index, v.later, v.earlier, v.missing, v.detail) for v in verdict.violations]
    with audit(LAYOUTS[layout](frame), require=PROPERTIES, slice_events=60) as found:
        assert found.plan.slices >= 8
        assert rows_of(found.violations) == sorted(expected, key=str)
        counts = {row["property"]: row["violations"] for row in found.verdict.collect()}
        assert counts == verdict.properties
        assert not found.is_kept


def test_one_loss_is_one_finding(spark: SparkSession) -> None:
    """m0 is lost to B. What A sends afterwards offends at B, each time."""
    lines: list[tuple[str, int, str, str, list[str] | None]] = [
        ("A", 0, "send", "m0", ["B", "C"]),
        ("C", 0, "deliver", "m0", None),
    ]
    lines += [("A", at, "send", f"m{at}", ["B"]) for at in range(1, 6)]
    lines += [("B", at - 1, "deliver", f"m{at}", None) for at in range(1, 6)]
    frame = spark.createDataFrame(lines, "process string, index int, kind string, message string, to array<string>")
    with audit(frame) as found:
        (only,) = found.findings.collect()
        (measured,) = found.metrics["runs"].collect()
        assert (measured["messages"], measured["deliveries"]) == (6, 6)
        assert {"traffic", "distributions", "load"} <= found.metrics.keys()
        expected = {"run": None, "message": "m0", "process": "B", "lost": True, "fifo": 5, "causal": 5}
        assert only.asDict() == {**expected, "first_index": 0, "first_later": "m1"}


def test_slices_are_those_of_the_plan(frame: DataFrame) -> None:
    """The join on stretches finds the slice that the cuts say."""
    for shift in (0, 3):
        surveyed = survey(normalise(frame), shift).toArrow()
        plan = plan_of(surveyed, shift, 40)
        (run,) = plan.runs
        routes = frame.sparkSession.createDataFrame(routes_of(plan, surveyed))
        rows = transforms.assign_slices(normalise(frame), routes, shift).select("process", "index", "slice").toArrow()
        process = pa.compute.index_in(rows["process"], pa.array(run.processes)).to_numpy()
        assert rows["slice"].to_numpy().tolist() == slices_of(run, process, rows["index"].to_numpy()).tolist()
        assert len(set(rows["slice"].to_pylist())) == run.slices > 8


@pytest.mark.parametrize(("step", "what"), [("summarise", "slice"), ("judge", "run")])
def test_what_does_not_arrive_is_no_verdict(step: str, what: str, frame: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    original = getattr(transforms, step)
    lossy = {
        "summarise": lambda *given: original(*given).where("slice != 2"),
        "judge": lambda *given: original(*given).where("events is null"),
    }
    monkeypatch.setattr(transforms, step, lossy[step])
    with pytest.raises(StorageError, match=rf"Spark returned \d+ {what}s? of \d+: the audit is not whole"):
        audit(frame, slice_events=60)


def test_nothing_is_kept_after_an_audit(frame: DataFrame) -> None:
    with audit(frame, slice_events=60) as found:
        assert is_kept(found.prepared.slices)
    assert not is_kept(found.prepared.slices)
    assert not is_kept(found.rows)
    with pytest.raises(TraceError):
        audit(frame.withColumnRenamed("kind", "sort"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop("kind"), "the trace has no column kind; its columns are run, process"),
        (lambda frame: frame.withColumn("index", frame["message"]), "column 'index': expected bigint, found the type string"),
        (lambda frame: frame.withColumn("to", frame["message"]), "column 'to': expected array<string>, found the type string"),
    ],
)
def test_columns_that_do_not_fit_are_named(change: Callable[[DataFrame], DataFrame], message: str, frame: DataFrame) -> None:
    with pytest.raises(TraceError) as caught:
        audit(change(frame))
    assert str(caught.value).startswith(message)


def test_a_table_of_the_catalog_is_audited(spark: SparkSession, frame: DataFrame, events: list[Event], tmp_path: Path) -> None:
    from thence.pipeline.audit import audit_trace

    frame.write.mode("overwrite").option("path", str(tmp_path / "events")).saveAsTable("events")
    try:
        found = audit_trace(spark, "table:events", require=["causal"], explain=0)
        assert found.properties == judge(events, ["causal"]).properties
    finally:
        spark.sql("DROP TABLE events")


def test_an_index_that_is_repeated_is_judged_alike_in_any_order(spark: SparkSession) -> None:
    """A delivers m1 and m2 at one place, B delivers m2 first: by their names, A delivered m1 first."""
    lines: list[tuple[str, int, str, str, list[str] | None]] = [
        ("C", 0, "send", "m1", ["A", "B"]),
        ("D", 0, "send", "m2", ["A", "B"]),
    ]
    lines += [("A", 0, "deliver", "m1", None), ("A", 0, "deliver", "m2", None)]
    lines += [("B", 0, "deliver", "m2", None), ("B", 1, "deliver", "m1", None)]
    for order in (lines, lines[::-1]):
        frame = spark.createDataFrame(order, "process string, index int, kind string, message string, to array<string>")
        with audit(frame.coalesce(1), require=["total"]) as found:
            (row,) = found.violations.collect()
            assert (row["process"], row["earlier"], row["later"]) == ("A,B", "m1", "m2")


def test_who_was_lost_in_one_run_was_not_in_another(spark: SparkSession) -> None:
    """Whatever runs and processes are called, and whatever rows that cannot be read say."""
    from pyspark.sql import functions as f

    odd = "p\nq"
    run = [
        Event(process="A", index=0, kind="send", message="A:1", to=("B", "C", odd)),
        Event(process="B", index=0, kind="deliver", message="A:1"),
        Event(process="C", index=0, kind="deliver", message=f"{odd}:7"),
        Event(process="A", index=1, kind="view", to=(odd,)),
    ]
    other = [
        Event(run="", process=odd, index=0, kind="send", message="m", to=("A", "B")),
        Event(run="", process="A", index=0, kind="view", to=("B",)),
        Event(run="", process="B", index=0, kind="deliver", message="n"),
    ]
    verdict = judge([*run, *other], PROPERTIES)
    frame = spark.createDataFrame(pa.Table.from_batches([to_batch([*run, *other])]))
    unreadable = (
        frame.where("run is null and kind = 'view'").withColumn("process", f.lit(None)).withColumn("to", f.array(f.lit("C")))
    )
    with audit(frame.union(unreadable), require=PROPERTIES) as found:
        expected = [(v.property, v.process, v.index, v.later, v.earlier, v.missing, v.detail) for v in verdict.violations]
        assert rows_of(found.violations) == sorted(expected, key=str)
        assert {row["run"] for row in found.violations.collect()} == {row.run for row in verdict.violations}
        assert (found.bad_rows, found.plan.events) == (1, 9)


def test_indices_that_are_times_are_surveyed_in_longer_stretches(
    frame: DataFrame, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thence.pipeline.audit.auditor.MOST_SURVEYED", 100)
    monkeypatch.setattr("thence.pipeline.audit.transforms.MOST_STRETCHES", 300)
    far = {(event.process, event.index): event.index * 10**15 for event in events}
    verdict = judge([msgspec.structs.replace(event, index=far[event.process, event.index]) for event in events], PROPERTIES)
    with audit(frame.withColumn("index", frame["index"] * 10**15), require=PROPERTIES, slice_events=60) as found:
        assert found.plan.shift > 40
        assert found.plan.slices >= 8
        assert found.properties == verdict.properties
        sizes = [row["events"] for row in found.prepared.slices.select("events").collect()]
        assert max(sizes) < 240, sizes
