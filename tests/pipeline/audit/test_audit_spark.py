"""The audit on Spark, in this process and on a cluster of three: the judge's rows, tables, cones, exit codes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.pipeline.audit.test_audit import timed
from tests.planted import PLANTED
from tests.support.pipeline.audited import write
from tests.support.pipeline.cluster import Cluster
from tests.support.traces import parse, random_case, random_trace
from thence.pipeline.audit import audit_trace
from thence.trace.events import Event
from thence.trace.files import read_trace
from thence.trace.judge import PROPERTIES, judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def as_runs(traces: Sequence[Sequence[Event]]) -> list[Event]:
    """Many traces as the runs of one."""
    return [
        msgspec.structs.replace(event, run=f"{number:04d} {event.run}") for number, trace in enumerate(traces) for event in trace
    ]


@pytest.mark.parametrize(("slice_events", "random_runs"), [(15, 30), (10_000, 200)])
def test_all_that_was_planted_and_hundreds_of_random_traces(
    spark: SparkSession, tmp_path: Path, slice_events: int, random_runs: int
) -> None:
    chance = random.Random(slice_events)
    spoiled = [timed(random_case(seed), chance, skew_ns=chance.choice([0, 50])) for seed in range(random_runs)]
    events = as_runs([*(parse(case.text) for case in PLANTED), *spoiled])
    verdict = judge(events, PROPERTIES)
    found = audit_trace(
        spark, str(write(tmp_path / "trace", events, 3_000)), require=PROPERTIES, slice_events=slice_events, explain=10**6
    )
    assert found.violations == verdict.violations[: len(found.violations)]
    assert len(found.violations) == len(verdict.violations) > 250
    assert (found.verdict, found.events, found.properties) == ("violated", len(events), verdict.properties)
    assert found.slices > len(spoiled) if slice_events == 15 else found.slices == found.runs


def test_processes_that_were_lost_are_judged_alike(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(7)
    traces = []
    for seed in range(120):
        events = list(timed(random_case(seed), chance))
        last = {event.process: event.index for event in events}
        lost = tuple(sorted(last)[: seed % 3])
        # Whoever goes on tells of those who are lost; the trace of one of them may be gone, wholly or at its end.
        told = [event for event in events if event.process not in lost[:1] or event.index < last[event.process] - seed % 5]
        views = [process for process in last if process not in lost]
        traces.append(
            [
                *told,
                *(Event(process=name, index=last[name] + 1, kind="view", to=lost or None, time=2**40) for name in views),
            ]
        )
    events = [msgspec.structs.replace(event, run=f"{at:03d}") for at, trace in enumerate(traces) for event in trace]
    verdict = judge(events, PROPERTIES)
    found = audit_trace(spark, str(write(tmp_path / "trace", events, 3_000)), require=PROPERTIES, explain=10**6)
    assert (found.events, found.properties) == (len(events), verdict.properties)
    assert found.violations == verdict.violations
    assert len(verdict.violations) > 50


def test_servers_of_a_fabric_that_changed_have_folders_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("s1", "s2"):
        sent = Event(process=name, index=0, kind="send", message=f"{name}:1", to=(name,), time=1)
        came = Event(process=name, index=1, kind="deliver", message=f"{name}:1", time=2)
        write(tmp_path / "trace" / f"{name}.0000", [sent, came, Event(process=name, index=2, kind="view", time=3)], 10)
    found = audit_trace(spark, str(tmp_path / "trace"), out=str(tmp_path / "out"), report=True)
    assert (found.events, found.violations) == (6, [])
    assert (tmp_path / "out" / "metrics").is_dir()


def test_tables_and_cones_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    events = timed(random_trace(random.Random(4), 5, 300, ordered=False), random.Random(5))
    source, out = write(tmp_path / "trace", events), tmp_path / "out"
    found = audit_trace(spark, str(source), slice_events=60, out=str(out), cones=5)
    table = spark.read.parquet(str(out / "violations"))
    assert table.count() == sum(found.properties.values()) == len(judge(events).violations) > 10
    assert not (out / "bad").exists()
    assert len(found.cones) == 5
    explained = [violation for violation in found.violations if violation.chain]
    for violation, cone in zip(explained, found.cones, strict=False):
        rows = judge(read_trace(cone), [violation.property]).violations
        (row,) = [row for row in rows if (row.process, row.later) == (violation.process, violation.later)]
        assert (row.earlier, row.chain) == (violation.earlier, violation.chain)
        assert judge(read_trace(cone), ["well-formed", "creation", "duplication"]).kept


def test_rows_that_cannot_be_read_are_told(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = {
        "process": ["A", None, "B"],
        "index": [0, 1, 0],
        "kind": ["send", "send", None],
        "message": ["m", "x", "m"],
        "to": [["B"], ["B"], None],
    }
    (tmp_path / "trace").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "trace" / "part.parquet")
    found = audit_trace(spark, str(tmp_path / "trace"), require=["creation"], out=str(tmp_path / "out"))
    assert (found.verdict, found.events, found.bad_rows) == ("kept", 1, 2)
    assert [bad["reason"] for bad in spark.read.parquet(str(tmp_path / "out" / "bad")).collect()] == [
        "has no process",
        "has no kind",
    ]


# --- as its users run it -----------------------------------------------------------------------------------------------


def thence(*arguments: object, timeout_s: int = 240) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("thence")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=os.environ)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), workers=2) as started:
        yield started


@pytest.mark.campaign
def test_on_a_real_cluster(cluster: Cluster, tmp_path: Path) -> None:
    """One master and two workers, each a process of its own, as on three machines."""
    events = timed(random_trace(random.Random(1), 6, 1_600, ordered=False), random.Random(2))
    source = write(tmp_path / "trace", events, 500)
    result = thence(
        "audit",
        source,
        "--master",
        cluster.url,
        "--slice-events",
        1_000,
        "--explain",
        10**6,
        "--json",
    )
    assert result.returncode == 1, result.stderr
    found = json.loads(result.stdout)
    verdict = json.loads(judge(events).to_json())
    assert {name: found[name] for name in verdict} == verdict
    assert found["slices"] >= 3
    assert cluster.executors >= 2


def test_a_kept_trace_and_a_missing_one(tmp_path: Path) -> None:
    events = timed(random_trace(random.Random(1), 4, 60, ordered=True), random.Random(2))
    result = thence("audit", write(tmp_path / "trace", events))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"kept: {len(events)} events, 0 violations")
    assert "without Spark" in result.stdout
    missing = thence("audit", tmp_path / "nothing")
    assert missing.returncode == 2
    assert "no such file or folder" in missing.stderr
