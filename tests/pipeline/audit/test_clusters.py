"""The audit on a cluster of separate processes that share no folder, while one of them is killed, and over Spark Connect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.generated import Planted, Shape, generate
from tests.support.pipeline.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.campaign]

START_S = 120


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with Cluster(folder, workers=2) as started:
        yield started


def audit(trace: Path, *options: object) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("thence")), "audit", str(trace), "--json", "--require", "causal"]
    return subprocess.Popen([*command, *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def assert_found(output: str, planted: Sequence[Planted]) -> None:
    found = json.loads(output)
    assert sorted((row["process"], row["later"], row["earlier"]) for row in found["violations"]) == sorted(planted)


def test_an_executor_is_killed_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    """What it kept is made again by the other one, and by the one that takes its place."""
    planted = generate(Shape(events=2_000_000, processes=16, copies=5, planted=20, seed=3), tmp_path / "trace")
    running = audit(tmp_path / "trace", "--master", cluster.url, "--slice-events", 50_000)
    try:
        end = time.monotonic() + START_S
        while len(cluster.running) < 2 and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(5)
        killed = cluster.running[0]
        assert running.poll() is None
        os.kill(killed, signal.SIGKILL)
        output, error = running.communicate(timeout=500)
    finally:
        running.kill()
    assert running.returncode == 1, error
    assert_found(output, planted)
    assert cluster.executors >= 3, "nobody took the place of the executor that was killed, so it was killed too late"
    left = [entry for entry in Path(tmp_path).rglob("*.parquet") if "trace" not in entry.parts]
    assert left == []


CONNECTED = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
from thence.pipeline.audit import audit
with audit(spark.read.parquet(sys.argv[1]), require=["causal"], slice_events=20_000) as found:
    rows = found.violations.select("process", "later", "earlier").collect()
    verdict = found.verdict.first().asDict()
    print(json.dumps({"violations": [row.asDict() for row in rows], "verdict": verdict, "slices": found.plan.slices}))
"""


def test_over_spark_connect(tmp_path: Path) -> None:
    """The client has no JVM of its own: DataFrames go to a server and come back."""
    planted = generate(Shape(events=100_000, processes=12, copies=5, planted=10, seed=4), tmp_path / "trace")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", CONNECTED, str(tmp_path / "trace")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, env=environment)
    assert result.returncode == 0, result.stderr[-2_000:]
    found = json.loads(result.stdout.splitlines()[-1])
    assert_found(result.stdout.splitlines()[-1], planted)
    assert found["verdict"] == {"property": "causal", "violations": len(planted), "kept": False}
    assert found["slices"] == 5
