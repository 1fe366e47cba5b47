"""Following in real Spark: parts that come late, restarts after kill -9, the command line."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.support.pipeline.followed import judged
from tests.support.traces import random_trace
from tests.test_docs import ROOT, execute
from thence.errors import ConfigError, StorageError, TraceError
from thence.pipeline.streaming import stream
from thence.pipeline.streaming.follower import FOLLOWED
from thence.pipeline.streaming.run import FollowLimits
from thence.pipeline.streaming.store import FollowState, StepLag
from thence.pipeline.streaming.stream import Options, follow
from thence.trace import Event, LiveTraceWriter
from thence.trace.verdict import Violation, sort_key

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
    names = [name for name in table.column_names if name != "step"]
    rows = [Violation(**row) for row in table.select(names).to_pylist()]
    return sorted(rows, key=sort_key)


def ignore(told: StepLag, found: Sequence[Violation]) -> None:
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
        assert len(starts) == 3, "once in vain, once until idle, once to the end"


def test_parts_that_come_late_are_judged_too(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """The first half of the parts is there; the others come when something has been heard of those."""
    parts = sorted(source.glob("*.parquet"))
    late = [part.rename(tmp_path / part.name) for part in parts[::2]]
    steps: list[tuple[StepLag, Sequence[Violation]]] = []

    def hear(told: StepLag, found: Sequence[Violation]) -> None:
        steps.append((told, found))
        if late:
            part = late.pop()
            part.rename(source / part.name)

    state = follow(spark, Options(str(source), None, str(tmp_path / "out"), FOLLOWED, until_idle_s=4.0), hear)
    assert state.over
    assert published(tmp_path / "out") == judged(EVENTS)
    assert len(steps) >= 3, "late parts came in steps of their own"
    assert steps[0][0].lag.held > 0
    assert sum(len(found) for _, found in steps) == len(judged(EVENTS))
    lag = pq.read_table(tmp_path / "out" / "lag.parquet")
    assert lag["step"].to_pylist() == list(range(len(steps)))
    assert lag["held"].to_pylist()[-1] == 0


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
def test_killed_and_started_again_every_row_is_there_once(
    spark: SparkSession, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash(source, tmp_path, "unsaved", 1)
    crash(source, tmp_path, "saved", 2)
    crash(source, tmp_path, "published", 3)
    before = published(tmp_path / "out")
    assert before, "something was found before the last crash"
    assert before != judged(EVENTS), "and something after it"
    monkeypatch.setattr(stream, "PARTS_PER_BATCH", 1)
    options = Options(str(source), str(tmp_path / "checkpoint"), str(tmp_path / "out"), FOLLOWED, until_idle_s=IDLE_S)
    state = follow(spark, options, ignore)
    assert published(tmp_path / "out") == judged(EVENTS)
    assert (state.follower.events, state.follower.counts.total()) == (len(EVENTS), len(judged(EVENTS)))
    again = follow(spark, options, ignore)
    assert (again.over, again.step) == (True, state.step), "what is over is not followed again"
    with pytest.raises(ConfigError, match="began with --require"):
        follow(spark, Options(str(source), options.checkpoint, options.out), ignore)
    with pytest.raises(ConfigError, match="choose another checkpoint"):
        follow(spark, Options(str(tmp_path), options.checkpoint, options.out, FOLLOWED), ignore)


def test_a_limit_ends_it_with_its_name(spark: SparkSession, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FollowLimits.__init__, "__defaults__", (1_000, 4, 1_000, 1_000, 1_000))
    with pytest.raises(TraceError, match="the trace: 5 processes; the limit is 4"):
        follow(spark, Options(str(source), until_idle_s=IDLE_S), ignore)


def test_a_part_that_cannot_be_read_is_named(spark: SparkSession, source: Path) -> None:
    (source / "bad.jsonl").write_text("7\n", encoding="utf-8")
    with pytest.raises(Exception, match=r"bad\.jsonl: the line at byte 0: expected a JSON object"):
        follow(spark, Options(str(source), until_idle_s=IDLE_S), ignore)


def test_patience_runs_out_between_two_parts(spark: SparkSession, tmp_path: Path) -> None:
    with LiveTraceWriter(tmp_path / "live") as writer:
        writer.write(Event(process="A", index=3, kind="note"))
    heard: list[Sequence[Violation]] = []
    options = Options(str(tmp_path / "live"), until_idle_s=6.0, hold_s=1.0)
    follow(spark, options, lambda _, found: heard.append(found))
    assert [[row.detail for row in found] for found in heard] == [[], ["A's event 3 comes where event 0 should be"], []]


def test_interrupted_it_says_what_was_found_and_goes_on_later(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    options = Options(str(source), str(tmp_path / "checkpoint"), None, FOLLOWED)
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    state: FollowState = follow(spark, options, lambda _told, _found: timer.start())
    assert not state.over
    assert state.follower.events > 0
    state = follow(spark, Options(str(source), options.checkpoint, None, FOLLOWED, IDLE_S), ignore)
    assert state.over
    assert state.follower.counts.total() == len(judged(EVENTS))


@pytest.mark.usefixtures("spark")
def test_the_command_prints_violations_and_the_verdict(source: Path, tmp_path: Path) -> None:
    code, printed = execute(f"thence audit --follow {source} --until-idle 1 --out {tmp_path / 'out'} --require causal")
    causal = judged(EVENTS, ["causal"])
    assert code == 1
    assert [line for line in printed.splitlines() if line.startswith("causal: ")] == [f"causal: {row.detail}" for row in causal]
    assert f"violated: {len(EVENTS)} events, {len(causal)} violations" in printed
    assert execute(f"thence audit --follow {source} --json")[0] == 2
    assert execute(f"thence audit {source} --until-idle 1")[0] == 2
    assert execute(f"thence audit --follow {source} --require total")[0] == 2
