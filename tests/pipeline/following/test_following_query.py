"""What Spark calls, without Spark: blocks go into the processor and rows come out; the sink publishes a step once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester
from pyspark.sql.types import Row

from tests.pipeline.following.test_following import chunks_of
from tests.support.pipeline.followed import FOLLOWED, judged, table_of, violations, without_chains
from tests.support.traces import parse, random_trace
from thence.errors import ConfigError, StorageError, TraceError
from thence.pipeline.streaming import sink
from thence.pipeline.streaming.query import JUDGED, RunJudge, pack_events, unpack_rows
from thence.pipeline.streaming.run import MAX_CHAINS, TICK_MS, FollowLimits
from thence.pipeline.streaming.sink import FollowSink, FollowState, StepLag
from thence.pipeline.tables import arrow_schema
from thence.trace.events import Event
from thence.trace.verdict import Violation


def blocks_of(events: Sequence[Event]) -> list[Row]:
    """Events as the rows that reach the processor."""
    batches = table_of(events).to_batches(max_chunksize=20) or []
    return [Row(**row) for batch in pack_events(iter(batches)) for row in batch.to_pylist()]


def reports_of(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([row.asDict() for row in rows], arrow_schema(JUDGED))


def unpacked(rows: Sequence[Row]) -> list[Violation]:
    batches = list(unpack_rows(iter(reports_of(rows).to_batches())))
    return violations(pa.Table.from_batches(batches)) if batches else []


class Stream:
    """Batches through the processor, by run."""

    def __init__(self, hold_s: float | None = None, limits: FollowLimits | None = None) -> None:
        mode = "None" if hold_s is None else "ProcessingTime"
        self._tester = TwsTester(RunJudge(FOLLOWED, hold_s, limits or FollowLimits()), timeMode=mode)

    def batch(self, events: Sequence[Event]) -> list[Row]:
        blocks = blocks_of(events)
        keys = dict.fromkeys(block["key"] for block in blocks)
        return [row for key in keys for row in self._tester.test(key, [block for block in blocks if block["key"] == key])]

    def at(self, now_ms: int) -> list[Row]:
        return list(self._tester.setProcessingTime(now_ms))


@pytest.mark.parametrize("seed", range(8))
def test_batches_through_the_processor_give_the_judges_rows(seed: int) -> None:
    """Of several runs; what is told only at the end is missing."""
    chance = random.Random(seed)
    events = [
        msgspec.structs.replace(event, run=run)
        for run in (None, "a", "")
        for event in random_trace(chance, 4, 40, ordered=False, complete=False)
    ]
    chance.shuffle(events)
    stream = Stream(limits=FollowLimits(history=15))
    rows = [row for chunk in chunks_of(events, chance) for row in unpacked(stream.batch(chunk))]
    late = ("completeness", "agreement")
    assert without_chains(rows) == [row for row in judged(events) if row.property not in late]


def test_chains_reach_over_batches_as_far_as_history() -> None:
    events = parse("A send m1 -> C\nA send m2 -> B\nB deliver m2\nB send m3 -> C\nC deliver m3")
    for history, chain in ((9, ("m1", "m2", "m3")), (2, None)):
        stream = Stream(limits=FollowLimits(history=history))
        stream.batch([Event(process=name, index=-1, kind="note") for name in "ABC"])
        rows = [row for event in events for row in unpacked(stream.batch([event]))]
        assert [row.chain for row in rows if row.property == "causal"] == [chain]
    assert MAX_CHAINS > 1


def test_patience_runs_out_by_timers() -> None:
    stream = Stream(hold_s=15)
    stream.at(1_000)
    (row,) = stream.batch(parse("A@3 note"))
    assert (row["held"], row["found"]) == (1, 0)
    assert stream.at(1_000 + TICK_MS) == []
    (row,) = stream.at(1_000 + 2 * TICK_MS)
    assert (row["held"], row["found"]) == (0, 1)
    assert [found.detail for found in unpacked([row])] == ["A's event 3 comes where event 0 should be"]
    assert stream.at(1_000_000) == []


def test_rows_that_lack_something_are_refused() -> None:
    table = table_of(parse("A send m -> B"))
    cases: tuple[tuple[str, Any, str], ...] = (
        ("process", None, "have no process"),
        ("to", ["B", None], "names a destination that is null"),
    )
    for name, value, says in cases:
        bad = table.set_column(table.column_names.index(name), name, pa.array([value], table.schema.field(name).type))
        with pytest.raises(TraceError, match=says):
            list(pack_events(iter(bad.to_batches())))


def lag_of(step: int) -> StepLag:
    return StepLag(step, 1_000_000, step, 0, 0, None, 0.0, 0, 0, 0.5)


def published(out: Path) -> list[Violation]:
    table = pq.read_table(out / "violations")
    return without_chains(violations(table.select([name for name in table.column_names if name != "step"])))


@pytest.mark.parametrize("moment", ["violations", "lag.parquet", "follow.json"])
def test_a_step_that_is_published_twice_is_there_once(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step breaks off before one of its files, and is repeated."""
    write = sink.write_whole
    broken: set[str] = set()

    def breaking(path: Path, content: bytes) -> None:
        if moment in str(path.relative_to(tmp_path)) and str(len(broken)) in broken:
            broken.remove(str(len(broken)))
            raise OSError("the power is gone")
        write(path, content)

    events = random_trace(random.Random(5), 5, 120, ordered=False)
    stream = Stream()
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    state = FollowSink(checkpoint, out).load("trace", FOLLOWED)
    monkeypatch.setattr(sink, "write_whole", breaking)
    for step, chunk in enumerate(chunks_of(events, random.Random(1))):
        reports = reports_of(stream.batch(chunk))
        broken = {"1"}
        try:
            FollowSink(checkpoint, out).publish(state, reports, step, lambda: lag_of(step))  # noqa: B023 - called at once
        except OSError:
            state = FollowSink(checkpoint, out).load("trace", FOLLOWED)
            assert state.batch == step - 1
            FollowSink(checkpoint, out).publish(state, reports, step, lambda: lag_of(step))  # noqa: B023
    late = ("completeness", "agreement")
    assert published(out) == [row for row in judged(events) if row.property not in late]
    assert state.counts.total() == len(published(out))
    assert pq.read_table(out / "lag.parquet")["step"].to_pylist() == list(range(step + 1))


def test_what_does_not_go_with_a_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    empty, whole = pa.Table.from_pylist([], arrow_schema(JUDGED)), FollowSink(checkpoint, out)
    state: FollowState = whole.load("trace", FOLLOWED)
    whole.publish(state, empty, 0, lambda: lag_of(0))
    with pytest.raises(ConfigError, match="follows trace, not other; choose another checkpoint"):
        whole.load("other", FOLLOWED)
    with pytest.raises(ConfigError, match="began with --require"):
        whole.load("trace", ("causal",))
    with pytest.raises(ConfigError, match="tables of another following"):
        FollowSink(tmp_path / "second", out).load("trace", FOLLOWED)
    monkeypatch.setattr(sink, "FORMAT", 2)
    with pytest.raises(StorageError, match="another version of thence; begin with a new checkpoint"):
        whole.load("trace", FOLLOWED)
    (checkpoint / "follow.json").write_bytes(b"{")
    with pytest.raises(StorageError, match="cannot be read"):
        whole.load("trace", FOLLOWED)
    (tmp_path / "old" / "state").mkdir(parents=True)
    with pytest.raises(StorageError, match="another version of thence; begin with a new checkpoint"):
        FollowSink(tmp_path / "old", None).load("trace", FOLLOWED)


def test_the_table_of_lag_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "MAX_LAG_ROWS", 3)
    whole, empty = FollowSink(tmp_path / "checkpoint", tmp_path / "out"), pa.Table.from_pylist([], arrow_schema(JUDGED))
    state = whole.load("trace", FOLLOWED)
    for step in range(5):
        whole.publish(state, empty, step, lambda: lag_of(step))  # noqa: B023 - called at once
    assert pq.read_table(tmp_path / "out" / "lag.parquet")["step"].to_pylist() == [2, 3, 4]
    assert not (tmp_path / "out" / "violations").exists()
