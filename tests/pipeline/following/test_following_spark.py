"""Following in real Spark: parts that come late, restarts after kill -9, the command line."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.pipeline.followed import FOLLOWED, judged, violations, without_chains
from tests.support.traces import random_trace
from tests.test_docs import ROOT, execute
from thence.errors import ConfigError, StorageError, TraceError
from thence.pipeline.source import ThenceSource
from thence.pipeline.streaming import FollowLimits, audit_stream, end_of_stream, stream
from thence.pipeline.streaming.sink import FollowState, StepLag
from thence.pipeline.streaming.stream import Options, follow
from thence.trace import Event, LiveTraceWriter
from thence.trace.verdict import Violation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVENTS = random_trace(random.Random(11), 5, 200, ordered=False, complete=False)
PATIENCE_S = 200
IDLE_S = 1.0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A trace of several parts."""
    folder = tmp_path / "live"
    with LiveTraceWriter(folder, rows_per_part=30) as writer:
        for event in EVENTS:
            writer.write(event)
    assert len(list(folder.glob("*.parquet"))) >= 6
    return folder


def published(out: Path) -> list[Violation]:
    """All rows of the table, in the order of the judge; one that is there twice shows."""
    table = pq.read_table(out / "violations")
    return without_chains(violations(table.select([name for name in table.column_names if name != "step"])))


def ignore(told: StepLag, found: pa.Table) -> None:
    """Nobody listens."""


class GivenUp:
    """A query that Spark gave up before it began, since Python took too long to start."""

    isActive = False  # noqa: N815 - Spark calls it so

    def exception(self) -> str:
        return stream.SLOW_START

    def stop(self) -> None:
        """There is nothing to stop."""


@pytest.mark.parametrize("slow", [1, stream.START_ATTEMPTS])
def test_a_slow_start_is_tried_again(
    slow: int, spark: SparkSession, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = stream.Following._start
    starts: list[object] = []

    def start_slowly(following: stream.Following, **trigger: Any) -> object:
        starts.append(GivenUp() if len(starts) < slow else start(following, **trigger))
        return starts[-1]

    monkeypatch.setattr(stream.Following, "_start", start_slowly)
    options = Options(str(source), None, str(tmp_path / "out"), FOLLOWED, until_idle_s=IDLE_S)
    if slow == stream.START_ATTEMPTS:
        with pytest.raises(StorageError, match=stream.SLOW_START):
            follow(spark, options, ignore)
        assert len(starts) == stream.START_ATTEMPTS
    else:
        assert follow(spark, options, ignore).over
        assert published(tmp_path / "out") == judged(EVENTS)
        assert len(starts) == 2, "once in vain, once until idle"


def test_parts_that_come_late_are_judged_too(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """The first half of the parts is there; the others come when something has been heard of those."""
    parts = sorted(source.glob("*.parquet"))
    late = [part.rename(tmp_path / part.name) for part in parts[::2]]
    steps: list[tuple[StepLag, pa.Table]] = []

    def hear(told: StepLag, found: pa.Table) -> None:
        steps.append((told, found))
        if late:
            part = late.pop()
            part.rename(source / part.name)

    state = follow(spark, Options(str(source), None, str(tmp_path / "out"), FOLLOWED, until_idle_s=4.0), hear)
    assert state.over
    assert published(tmp_path / "out") == judged(EVENTS)
    assert len(steps) >= 3, "late parts came in steps of their own"
    assert steps[0][0].held > 0
    assert sum(len(found) for _, found in steps) == len(judged(EVENTS))
    lag = pq.read_table(tmp_path / "out" / "lag.parquet")
    assert lag["step"].to_pylist() == [told.step for told, _ in steps]
    assert (lag["held"].to_pylist()[-1], lag["unread"].to_pylist()[-1]) == (0, 0)
    assert lag["events"].to_pylist()[-1] == len(EVENTS)


def crash(source: Path, folder: Path, moment: str, step: int) -> None:
    """Follow in another process until it kills itself."""
    words = [str(source), str(folder / "checkpoint"), str(folder / "out"), moment, str(step)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.pipeline.crashing", *words],
        cwd=ROOT,
        timeout=PATIENCE_S,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@pytest.mark.campaign
def test_killed_and_started_again_every_row_is_there_once(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    crash(source, tmp_path, "unsaved", 1)
    crash(source, tmp_path, "saved", 2)
    crash(source, tmp_path, "published", 3)
    before = published(tmp_path / "out")
    assert before, "something was found before the last crash"
    assert before != judged(EVENTS), "and something after it"
    options = Options(str(source), str(tmp_path / "checkpoint"), str(tmp_path / "out"), FOLLOWED, until_idle_s=IDLE_S)
    state = follow(spark, options, ignore)
    assert published(tmp_path / "out") == judged(EVENTS)
    assert (state.runs[""].events, state.counts.total()) == (len(EVENTS), len(judged(EVENTS)))
    again = follow(spark, options, ignore)
    assert (again.over, again.batch) == (True, state.batch), "what is over is not followed again"
    with pytest.raises(ConfigError, match="began with --require"):
        follow(spark, Options(str(source), options.checkpoint, options.out), ignore)
    with pytest.raises(ConfigError, match="choose another checkpoint"):
        follow(spark, Options(str(tmp_path), options.checkpoint, options.out, FOLLOWED), ignore)


def test_a_limit_ends_it_with_its_name(spark: SparkSession, source: Path) -> None:
    with pytest.raises(TraceError, match=r"^the trace: 5 processes; the limit is 4\. thence audit has no such limit$"):
        follow(spark, Options(str(source), until_idle_s=IDLE_S, limits=FollowLimits(processes=4)), ignore)


def test_a_checkpoint_of_before_is_refused(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "state").mkdir(parents=True)
    with pytest.raises(StorageError, match="was written by another version of thence; begin with a new checkpoint"):
        follow(spark, Options(str(source), str(tmp_path / "checkpoint")), ignore)


def test_a_stream_goes_anywhere_and_on_after_a_stop(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """A query of one's own: the first half of the parts, then a new query with the same checkpoint, then the end."""
    parts = sorted(source.glob("*.parquet"))
    late = [part.rename(tmp_path / part.name) for part in parts[len(parts) // 2 :]]
    spark.dataSource.register(ThenceSource)
    progress: list[Any] = []
    for more in ([], late):
        for part in more:
            part.rename(source / part.name)
        found = audit_stream(spark.readStream.format("thence").load(str(source)), require=FOLLOWED, hold_s=None)
        writer = found.writeStream.format("parquet").option("path", str(tmp_path / "found"))
        query = writer.option("checkpointLocation", str(tmp_path / "own")).trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE_S)
        progress.append(query.lastProgress)
    assert progress[-1]["observedMetrics"]["thence"]["events"] == len(EVENTS)
    ended = end_of_stream(spark, str(tmp_path / "own"))
    rows = spark.read.parquet(str(tmp_path / "found")).unionByName(ended).toArrow()
    assert without_chains(violations(rows)) == judged(EVENTS)
    assert any(row.chain for row in violations(rows))


def test_a_part_that_cannot_be_read_is_named(spark: SparkSession, source: Path) -> None:
    (source / "bad.jsonl").write_text("7\n", encoding="utf-8")
    with pytest.raises(Exception, match=r"bad\.jsonl: the line at byte 0: expected a JSON object"):
        follow(spark, Options(str(source), until_idle_s=IDLE_S), ignore)


def test_patience_runs_out_between_two_parts(spark: SparkSession, tmp_path: Path) -> None:
    with LiveTraceWriter(tmp_path / "live") as writer:
        writer.write(Event(process="A", index=3, kind="note"))
    heard: list[list[str]] = []
    options = Options(str(tmp_path / "live"), until_idle_s=6.0, hold_s=1.0)
    follow(spark, options, lambda _, found: heard.append(found["detail"].to_pylist()))
    assert heard == [[], ["A's event 3 comes where event 0 should be"], []]


def test_interrupted_it_says_what_was_found_and_goes_on_later(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    options = Options(str(source), str(tmp_path / "checkpoint"), None, FOLLOWED)
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    state: FollowState = follow(spark, options, lambda _told, _found: timer.start())
    assert not state.over
    assert state.runs[""].events > 0
    state = follow(spark, Options(str(source), options.checkpoint, None, FOLLOWED, IDLE_S), ignore)
    assert state.over
    assert state.counts.total() == len(judged(EVENTS))


@pytest.mark.usefixtures("spark")
def test_the_command_prints_violations_and_the_verdict(source: Path, tmp_path: Path) -> None:
    code, printed = execute(f"thence audit --follow {source} --until-idle 1 --out {tmp_path / 'out'} --require causal")
    causal = judged(EVENTS, ["causal"])
    assert code == 1
    told = [line for line in printed.splitlines() if line.startswith("causal: ")]
    assert sorted(told) == sorted(f"causal: {row.detail}" for row in causal)
    assert f"violated: {len(EVENTS)} events, {len(causal)} violations" in printed
    assert execute(f"thence audit --follow {source} --json")[0] == 2
    assert execute(f"thence audit {source} --until-idle 1")[0] == 2
