"""The three published logs, by the kernels alone: computed clocks are the logged ones, event by event."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipeline.replay import replay
from thence.pipeline.importers.logtext import Grammar, guess
from thence.pipeline.importers.mapped.fields import Fields
from thence.pipeline.importers.mapped.mapping import read_mapping
from thence.pipeline.importers.mapped.ndjson import matched_rows
from thence.pipeline.importers.shiviz import LOGGED, derived_rows, parsed_rows
from thence.trace.events import COLUMNS, Event
from thence.trace.judge import judge

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(__file__).parents[1] / "data"


def shiviz(name: str) -> list[dict[str, Any]]:
    content = (DATA / name).read_bytes()
    guessed = guess(content.decode())
    assert guessed is not None
    return list(derived_rows(list(parsed_rows(name, content, Grammar(guessed[1])))))


def ewd998() -> list[dict[str, Any]]:
    """What Spark does, done by hand: decode, sort each process's rows by its own entry, number them, match."""
    decode = Fields(read_mapping(ROOT / "examples" / "mappings" / "ewd998.toml")).decode
    decoded = [row for line in (DATA / "ewd998-chan.ndjson").read_bytes().splitlines() for row in decode(line, {})]
    events = sorted(decoded, key=lambda row: (row["process"], row["order"]))
    index: Counter[str] = Counter()
    for row in events:
        row.update(what="event", index=index[row["process"]])
        index[row["process"]] += 1
    return list(matched_rows(events))


def trace_of(rows: list[dict[str, Any]]) -> list[Event]:
    return [Event(**{name: row[name] for name in COLUMNS if row.get(name) is not None}) for row in rows if row["what"] == "event"]


@pytest.mark.parametrize(
    ("name", "events", "messages", "lines"),
    [("shiviz-chord.log", 1235, 535, {"event": 2470}), ("shiviz-reliable-broadcast.log", 116, 48, {"event": 116, "ignored": 1})],
)
def test_clocks_of_shiviz_logs_come_out_again(name: str, events: int, messages: int, lines: dict[str, int]) -> None:
    rows = shiviz(name)
    counted: Counter[str] = Counter()
    for row in rows:
        counted[row["what"]] += row["lines"]
    assert counted == lines
    trace = [row for row in rows if row["what"] == "event"]
    assert Counter(row["kind"] for row in trace)[LOGGED] == events
    assert sum(row["kind"] == "send" for row in trace) == messages
    clocks = replay(trace, {LOGGED})
    for row in trace:
        if row["kind"] == LOGGED:
            assert clocks[row["process"], row["index"]] == row["clock"], row


def test_times_of_the_broadcast_are_read() -> None:
    times = [row["time"] for row in shiviz("shiviz-reliable-broadcast.log") if row["what"] == "event"]
    assert min(times) == 1413174200_113_000_000


@pytest.mark.parametrize("name", ["shiviz-chord.log", "shiviz-reliable-broadcast.log"])
def test_what_is_derived_from_clocks_is_well_formed_and_keeps_order(name: str) -> None:
    assert judge(trace_of(shiviz(name))).violations == []


def test_computed_clocks_of_the_termination_detector_are_the_logged_ones() -> None:
    """There every row ticks: a send counts itself, a receipt counts itself and joins the sender's clock."""
    rows = ewd998()
    assert Counter(row["kind"] for row in rows) == {"deliver": 356, "send": 228, "deactivate": 70}
    clocks = replay(rows, {"send", "deliver", "deactivate"})
    for row in rows:
        assert clocks[row["process"], row["index"]] == row["clock"], row


def test_the_detector_reads_its_token_again_and_again() -> None:
    """A node that is active puts the token back into its inbox and logs it as received each time; the first was never sent."""
    verdict = judge(trace_of(ewd998()))
    assert {name: count for name, count in verdict.properties.items() if count} == {"creation": 1, "duplication": 127}
    assert all(" tok#" in (row.later or "") for row in verdict.violations)
