"""Clocks that a trace logs are compared with the computed ones: right ones agree, a wrong entry is named."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest

from tests.support.traces import random_trace
from thence.pipeline.audit import audit_trace
from thence.pipeline.audit.clocks import compared_in
from thence.pipeline.kernels.logged_clocks import Compared
from thence.trace.events import Event
from thence.trace.parquet import to_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Path(__file__).parents[1] / "data"
MAPPING = Path(__file__).parents[3] / "examples" / "mappings" / "ewd998.toml"


def with_clocks(events: Sequence[Event], step: int) -> list[Event]:
    """The same events, each with a vector clock that counts events in steps; events must be in an order that happened."""
    known: dict[str, dict[str, int]] = {}
    of_message: dict[str, dict[str, int]] = {}
    logged = []
    for event in events:
        mine = known.setdefault(event.process, {})
        if event.kind == "deliver":
            for name, count in of_message[str(event.message)].items():
                mine[name] = max(mine.get(name, 0), count)
        mine[event.process] = mine.get(event.process, 0) + step
        if event.kind == "send":
            of_message[str(event.message)] = dict(mine)
        logged.append(msgspec.structs.replace(event, clock=dict(mine)))
    return logged


def compared(events: Sequence[Event]) -> Compared:
    table = pa.Table.from_batches([to_batch(list(events))])
    return compared_in(table, sorted({event.process for event in events}))


@pytest.mark.parametrize("step", [1, 3])
def test_right_clocks_agree_whatever_they_count(step: int) -> None:
    events = with_clocks(random_trace(random.Random(3), 5, 120, ordered=False), step)
    assert compared(events) == Compared(len(events), 0, [])


@pytest.mark.parametrize("seed", range(5))
def test_a_wrong_entry_is_named(seed: int) -> None:
    events = with_clocks(random_trace(random.Random(3), 5, 120, ordered=False), 1)
    chance = random.Random(seed)
    at = chance.choice([place for place, event in enumerate(events) if len(event.clock or {}) > 2])
    clock = dict(events[at].clock or {})
    other = chance.choice([name for name in clock if name != events[at].process])
    clock[other] += 1
    events[at] = msgspec.structs.replace(events[at], clock=clock)
    result = compared(events)
    assert result.differ == 1
    assert result.examples[0].startswith(f"{events[at].process}'s event {events[at].index} logs {other} at {clock[other]} where")


def test_a_trace_without_clocks_has_none_to_compare() -> None:
    assert compared(random_trace(random.Random(3), 4, 40, ordered=True)) == Compared(0, 0, [])


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sample", "importing", "clocks", "found"),
    [
        # The log says again and again that the token was received, and never who sent it first.
        ("ewd998-chan.ndjson", {"mapping": str(MAPPING)}, 654, {"creation": 1, "duplication": 127}),
        ("shiviz-chord.log", {}, 1_235, {}),
        ("shiviz-reliable-broadcast.log", {}, 116, {}),
    ],
)
def test_the_samples_are_imported_and_audited(
    spark: SparkSession, sample: str, importing: dict[str, str], clocks: int, found: dict[str, int]
) -> None:
    result = audit_trace(spark, str(DATA / sample), importing=importing)
    assert result.clocks == {"compared": clocks, "differ": 0}
    assert {name: count for name, count in result.properties.items() if count} == found
    assert result.bad_rows == 0
