"""The audit gives the rows that the judge gives, however the trace is cut, in whatever files and order it comes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.planted import PLANTED, Planted
from tests.support import fabrics
from tests.support.pipeline.audited import Audited, write
from tests.support.traces import parse, random_case, random_trace, text_of
from thence.errors import TraceError
from thence.pipeline.audit import local
from thence.pipeline.audit.local import findings, read_small
from thence.pipeline.result import MissingMessage
from thence.pipeline.scan.here import encoded
from thence.pipeline.scan.run import RunScan
from thence.sim.options import SimulationOptions
from thence.sim.simulation import simulate
from thence.trace.events import INT64_MAX, INT64_MIN, Event
from thence.trace.judge import DEFAULT_REQUIRED, PROPERTIES, judge
from thence.trace.parquet import to_batch

SKEW_NS = 50


def timed(events: Sequence[Event], chance: random.Random, skew_ns: int = 0) -> list[Event]:
    """The same events in an order in which they may have happened, with times; each process's clock may be wrong."""
    skew = {name: chance.randint(-skew_ns, skew_ns) for name in {event.process for event in events}}
    return [
        msgspec.structs.replace(event, time=10 * at + skew[event.process]) for at, event in enumerate(happened(events, chance))
    ]


def happened(events: Sequence[Event], chance: random.Random) -> list[Event]:
    """Some order of all events that keeps each process's own, and sends before deliveries where that can be."""
    waiting = {name: [event for event in events if event.process == name] for name in {event.process for event in events}}
    for mine in waiting.values():
        mine.sort(key=lambda event: event.index, reverse=True)
    unsent = {event.message for event in events if event.kind == "send"}
    order: list[Event] = []
    while waiting:
        free = [name for name, mine in waiting.items() if mine[-1].kind != "deliver" or mine[-1].message not in unsent]
        name = chance.choice(sorted(free or waiting))
        event = waiting[name].pop()
        order.append(event)
        if event.kind == "send":
            unsent.discard(event.message)
        if not waiting[name]:
            del waiting[name]
    return order


def assert_same(events: Sequence[Event], source: Path, slice_events: int) -> Audited:
    audited = Audited(source, slice_events)
    assert audited.rows == judge(events, PROPERTIES).violations, text_of(events)
    assert audited.found.plan.events == len(events)
    return audited


@pytest.mark.parametrize("slice_events", [1, 3, 1_000])
@pytest.mark.parametrize("case", PLANTED, ids=[f"{case.file}: {case.title}" for case in PLANTED])
def test_what_was_planted_is_found(case: Planted, slice_events: int, tmp_path: Path) -> None:
    events = parse(case.text)
    assert_same(events, write(tmp_path / "trace", events), slice_events)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9), slice_events=st.sampled_from([5, 10, 20, 1_000]))
def test_random_traces_are_judged_alike(seed: int, slice_events: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Spoiled in every way; in the order in which they happened, by right clocks, by wrong ones, and shuffled without any."""
    chance = random.Random(seed)
    events = random_case(seed)
    folder = tmp_path_factory.mktemp("audit")
    for name, given_events in {
        "untimed": events,
        "timed": timed(events, chance),
        "skewed": timed(events, chance, SKEW_NS),
        "shuffled": chance.sample(events, len(events)),
    }.items():
        assert_same(events, write(folder / name, given_events), slice_events)


def test_slices_are_really_many(tmp_path: Path) -> None:
    """Otherwise the tests above would show nothing."""
    events = timed(random_trace(random.Random(5), 4, 120, ordered=True), random.Random(6))
    audited = assert_same(events, write(tmp_path / "trace", events), 12)
    assert audited.slices >= 8


def test_whoever_gets_a_message_of_a_later_slice_waits_for_it(tmp_path: Path) -> None:
    """Wrong clocks, or none: cuts that messages cross backwards stay, and nothing is merged."""
    events = random_trace(random.Random(0), 6, 400, ordered=False)
    for name, some in {"skewed": timed(events, random.Random(0), skew_ns=400), "untimed": events}.items():
        audited = assert_same(some, write(tmp_path / name, some), 12)
        assert audited.slices >= len(events) // 12 - 1
        assert audited.found.backward > 3
        assert audited.found.most_held > 3


@pytest.mark.parametrize("seed", range(30))
def test_simulated_runs_are_judged_alike(seed: int, tmp_path: Path) -> None:
    """Real protocols, with faults; unordered and fifo ones break causal order, the others do not."""
    ordering = ("unordered", "fifo", "vector", "matrix", "sequenced", "flood")[seed % 6]
    options = SimulationOptions(
        ordering=ordering,
        processes=5,
        messages=40,
        pattern=("unicast", "multicast", "broadcast")[seed // 6 % 3],
        seed=seed,
        loss=0.05,
        crashes=seed % 2,
    )
    _, events = simulate(options)
    assert_same(events, write(tmp_path / "trace", events, 40), (15, 40, 10_000)[seed % 3])


@pytest.mark.parametrize("seed", range(10))
def test_simulated_fabrics_are_judged_alike(seed: int, tmp_path: Path) -> None:
    _, events = simulate(fabrics.options_for(seed), fabrics.fabric_for(seed))
    assert_same(events, write(tmp_path / "trace", events, 100), 60)


def test_several_runs_at_once(tmp_path: Path) -> None:
    chance = random.Random(3)
    events = [
        msgspec.structs.replace(event, run=run)
        for run in (None, "a", "b", "c")
        for event in timed(random_case(chance.randrange(10**6)), chance)
    ]
    chance.shuffle(events)
    audited = assert_same(events, write(tmp_path / "trace", events), 20)
    assert len(audited.found.plan.runs) == 4


def test_one_loss_is_one_finding_with_all_that_it_caused() -> None:
    sends = ["A send m0 -> B C", "C deliver m0", *(f"A send m{at} -> B" for at in range(1, 6))]
    events = parse("\n".join([*sends, *(f"B deliver m{at}" for at in range(1, 6))]))
    assert findings(judge(events).violations) == [MissingMessage(None, "m0", "B", lost=True, fifo=5, causal=5)]
    events = [*events[:-1], *parse("B@4 deliver m0\nB@5 deliver m5")]
    assert findings(judge(events).violations) == [MissingMessage(None, "m0", "B", lost=False, fifo=4, causal=4)]


def test_a_small_trace_is_judged_alike_by_the_judge_and_by_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = timed(random_trace(random.Random(4), 5, 300, ordered=False), random.Random(5))
    source = str(write(tmp_path / "trace", events))
    table = local.read_small(source)
    assert table is not None
    judged = local.audit_small(table, DEFAULT_REQUIRED, explain=50, source=source)
    monkeypatch.setattr(local, "JUDGED_EVENTS", 0)
    audited = local.audit_small(table, DEFAULT_REQUIRED, explain=50, source=source)
    assert judged.violations == judge(events).violations
    assert [row.detail for row in audited.violations] == [row.detail for row in judged.violations]
    assert {row.detail: story for row, story in audited.stories.items()} == {
        row.detail: story for row, story in judged.stories.items()
    }
    for name in ("properties", "findings", "worst", "events", "runs", "processes"):
        assert getattr(judged, name) == getattr(audited, name), name
    assert len(judged.worst) == local.WORST < judged.findings


EXTREMES = f"""
A@{INT64_MIN} send m -> B
A send n -> A B
B deliver m
B@{INT64_MAX} deliver n
B@{INT64_MAX} deliver n
A@{INT64_MAX} deliver n
"""


@pytest.mark.parametrize("slice_events", [1, 1_000])
def test_every_index_that_fits_is_judged(slice_events: int, tmp_path: Path) -> None:
    events = parse(EXTREMES)
    assert_same(events, write(tmp_path / "trace", events), slice_events)


def test_a_list_with_a_null_in_it_is_left_to_spark_which_says_what_is_wrong(tmp_path: Path) -> None:
    events = parse("A send m -> B\nB deliver m")
    table = read_small(str(write(tmp_path / "trace", events)))
    assert table is not None
    pq.write_table(
        table.set_column(table.column_names.index("to"), "to", pa.array([["B", None], None])), tmp_path / "odd.parquet"
    )
    assert read_small(str(tmp_path / "odd.parquet")) is None


def test_who_sends_more_than_clocks_can_count_is_told() -> None:
    table = pa.Table.from_batches([to_batch(parse("A send m -> B\nA send n -> B"))])
    scan = RunScan(None, ["A", "B"], np.array([2, 0]), PROPERTIES)
    scan.base[0] = 2**31 - 3
    with pytest.raises(TraceError, match=r"A has sent 2,147,483,647 messages; the limit is 2,147,483,646"):
        list(scan.take(encoded(table, ["A", "B"]), 0))
