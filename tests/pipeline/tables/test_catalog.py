"""Tables of a catalog in and out, of formats whose packages are missing, and of schemas that have changed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.audit.test_audit import timed
from tests.support.traces import random_trace
from tests.unit.cli import run
from thence.errors import ConfigError, TraceError
from thence.pipeline.audit import audit_trace
from thence.pipeline.catalog import write_table
from thence.pipeline.session import settings
from thence.trace.events import Event
from thence.trace.judge import judge
from thence.trace.parquet import to_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def made(seed: int, *runs: str | None) -> list[Event]:
    """Events of runs, each with violations."""
    found = []
    for at, name in enumerate(runs):
        events = timed(random_trace(random.Random(seed + at), 4, 60, ordered=False), random.Random(seed))
        found += [msgspec.structs.replace(event, run=name) for event in events]
    return found


def frame(spark: SparkSession, events: list[Event]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches([to_batch(events)]))


@pytest.fixture
def schema(spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    """A schema whose tables lie in a folder of the test."""
    spark.sql(f"CREATE SCHEMA shop LOCATION '{(tmp_path / 'shop').as_uri()}'")
    yield
    spark.sql("DROP SCHEMA shop CASCADE")


def partitions(spark: SparkSession, table: str) -> list[str]:
    return [column.name for column in spark.catalog.listColumns(table) if column.isPartition]


@pytest.mark.usefixtures("schema")
def test_tables_in_and_tables_out(spark: SparkSession) -> None:
    events = made(1, "a", "b")
    bad = frame(spark, events[:1]).selectExpr("run", "process", "index", "cast(null as string) as kind")
    frame(spark, events).unionByName(bad, allowMissingColumns=True).write.saveAsTable("shop.events")
    verdict = judge(events, ["causal"])
    assert verdict.violations

    found = audit_trace(spark, "table:shop.events", require=["causal"], out="table:shop.found")

    assert (found.violations, found.bad_rows, found.cones) == (verdict.violations, 1, [])
    rows = spark.table("shop.found_violations").select("run", "process", "later", "earlier", "chain").collect()
    assert {(*row[:4], tuple(row["chain"])) for row in rows} == {
        (row.run, row.process, row.later, row.earlier, row.chain) for row in verdict.violations
    }
    assert partitions(spark, "shop.found_violations") == ["run"]
    assert spark.table("shop.found_findings").count() == found.findings
    assert [row["reason"] for row in spark.table("shop.found_bad").collect()] == ["has no kind"]

    sends = [event for event in events if event.run == "a" and event.kind == "send"]
    frame(spark, sends).write.saveAsTable("shop.sends")
    assert audit_trace(spark, "table:shop.sends", require=["causal"], out="table:shop.found").verdict == "kept"
    assert spark.table("shop.found_violations").count() == 0
    assert partitions(spark, "shop.found_violations") == []
    assert not spark.catalog.tableExists("shop.found_bad"), "of the audit before"


@pytest.mark.usefixtures("schema")
def test_runs_that_folders_cannot_tell_apart_stay_apart(spark: SparkSession) -> None:
    events = made(2, "", None)
    frame(spark, events).write.saveAsTable("shop.events")
    found = audit_trace(spark, "table:shop.events", require=["causal"], out="table:shop.found")
    assert {row["run"] for row in spark.table("shop.found_violations").collect()} == {row.run for row in found.violations}
    assert {row.run for row in found.violations} == {"", None}


@pytest.mark.usefixtures("schema")
def test_a_format_whose_package_is_missing_is_named(spark: SparkSession, tmp_path: Path) -> None:
    delta = r"Spark has no package for delta; give it with --packages .*: io\.delta:delta-spark, the version for Spark \d"
    iceberg = r"Spark has no package for iceberg; .*: org\.apache\.iceberg:iceberg-spark-runtime, "
    with pytest.raises(ConfigError, match=rf"^table:delta\.`/there`: cannot be read: {delta}"):
        audit_trace(spark, "table:delta.`/there`")
    with settings(spark, {"spark.sql.sources.default": "delta"}), pytest.raises(ConfigError, match=f"cannot be written: {delta}"):
        write_table(spark.range(1).toDF("run"), "table:shop.found")
    with (
        settings(spark, {"spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog"}),
        pytest.raises(ConfigError, match=f"cannot be read: {iceberg}"),
    ):
        audit_trace(spark, "table:ice.shop.events")
    frame(spark, made(3, None)).write.parquet(str(tmp_path / "trace"))
    assert audit_trace(spark, f"table:parquet.`{tmp_path}/trace`").events == len(made(3, None))  # formats that are there pass


def test_what_cannot_be_a_table_is_said_in_a_line(spark: SparkSession) -> None:
    with pytest.raises(
        TraceError, match=r"^table:nothing: cannot be read: \[TABLE_OR_VIEW_NOT_FOUND\] .*`nothing` cannot be found"
    ):
        audit_trace(spark, "table:nothing")
    with pytest.raises(TraceError, match=r"^table:no\.found: cannot be written: \[SCHEMA_NOT_FOUND\]"):
        write_table(spark.range(1), "table:no.found")
    with pytest.raises(ConfigError, match="a report is written into a folder"):
        audit_trace(spark, "table:nothing", out="table:found", report=True)


@pytest.mark.usefixtures("spark")
def test_a_catalog_that_ends_with_the_command_is_refused() -> None:
    ran = run("audit", "table:events", "--out", "table:found")
    assert ran.code == 2
    assert "the catalog of this session ends with the command" in ran.err
    ran = run("audit", "events", "--follow", "--out", "table:found")
    assert ran.code == 2
    assert "--follow keeps its tables in a folder" in ran.err


def test_parts_with_other_columns_are_one_trace(spark: SparkSession, tmp_path: Path) -> None:
    """The oldest parts know neither runs nor destinations, the newest have columns of their own."""
    events = made(4, None, "b")
    parts = [
        [event for event in events if event.run is None and event.kind == "deliver"],
        [event for event in events if event.run is None and event.kind == "send"],
        [event for event in events if event.run == "b"],
    ]
    least = ["process", "index", "kind", "message"]
    columns = (least, [*least, "to"], [*least, "to", "run", "time", "room"])
    for at, (part, names) in enumerate(zip(parts, columns, strict=True)):
        table = pa.Table.from_batches([to_batch(part)])
        if at == 2:
            table = table.append_column("room", pa.array(["Hall"] * len(part)))
        folder = tmp_path / f"day={at}"
        folder.mkdir()
        pq.write_table(table.select(names), folder / "part.parquet")
    verdict = judge(events, ["causal", "creation"])
    assert {row.run for row in verdict.violations} == {None, "b"}

    found = audit_trace(spark, str(tmp_path), require=["causal", "creation"])

    assert found.violations == verdict.violations
    (tmp_path / "day=3").mkdir()
    pq.write_table(pa.table({"process": ["A"], "index": ["one"], "kind": ["send"]}), tmp_path / "day=3" / "part.parquet")
    with pytest.raises(TraceError, match=r"cannot be read as a Parquet trace: .*CANNOT_MERGE"):
        audit_trace(spark, str(tmp_path))
