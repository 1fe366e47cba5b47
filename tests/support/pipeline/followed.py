"""Following without Spark, for tests: events in chunks, as parts of a trace would bring them."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from thence.pipeline.streaming.query import events_of
from thence.pipeline.streaming.run import FollowedRun, FollowLimits, Shelf
from thence.pipeline.streaming.state import from_bytes, to_bytes
from thence.trace.events import Event
from thence.trace.judge import judge
from thence.trace.parquet import schema
from thence.trace.verdict import PROPERTIES, Violation, sort_key

FOLLOWED = tuple(name for name in PROPERTIES if name != "total")
"""What gives the very rows of the judge; of total order the witnesses may be others."""


def table_of(events: Sequence[Event]) -> pa.Table:
    """Events as Arrow, with the columns of a trace."""
    return pa.Table.from_pylist([msgspec.structs.asdict(event) for event in events], schema())


@dataclass
class Follower:
    """All runs of a trace; what each is between two steps is bytes, as in Spark's state store."""

    require: Sequence[str] = FOLLOWED
    hold_s: float | None = None
    limits: FollowLimits = field(default_factory=FollowLimits)
    restarts: bool = True
    states: MutableMapping[str | None, FollowedRun | bytes] = field(default_factory=dict)
    shelves: MutableMapping[str | None, Shelf] = field(default_factory=dict)

    def run(self, name: str | None = None) -> FollowedRun:
        """Return a run as it is now."""
        state = self.states.get(name)
        if state is None:
            self.shelves[name] = {}
            return FollowedRun.begin(name, self.require, self.limits)
        return from_bytes(state) if isinstance(state, bytes) else state

    def take(self, table: pa.Table, now_ms: int) -> list[Violation]:
        """Take more events and judge what can be judged."""
        rows = []
        for name in table["run"].unique().to_pylist():
            mine = table["run"].is_null() if name is None else pc.equal(table["run"], name).fill_null(False)
            run = self.run(name)
            run.take([events_of(table.filter(mine))], now_ms, self.limits)
            rows += self._step(name, run, now_ms)
        return sorted(rows, key=sort_key)

    def tick(self, now_ms: int) -> list[Violation]:
        """Judge what can be judged by now."""
        return sorted((row for name in [*self.states] for row in self._step(name, self.run(name), now_ms)), key=sort_key)

    def finish(self) -> list[Violation]:
        """There is nothing more to come."""
        rows = []
        for name in [*self.states]:
            run = self.run(name)
            rows += violations(run.finish(self.limits, self.shelves[name]))
            self.states[name] = run
        return sorted(rows, key=sort_key)

    def _step(self, name: str | None, run: FollowedRun, now_ms: int) -> list[Violation]:
        rows = violations(run.step(now_ms, self.hold_s, self.limits, self.shelves[name]))
        self.states[name] = to_bytes(run) if self.restarts else run
        return rows


def violations(rows: pa.Table) -> list[Violation]:
    """Rows as violations; a chain that is not told is None."""
    return [Violation(**{**row, "chain": row["chain"] and tuple(row["chain"])}) for row in rows.to_pylist()]


def follow(follower: Follower, chunks: Sequence[Sequence[Event]]) -> list[Violation]:
    """All rows of a trace that comes in chunks and then ends, without chains."""
    rows = [row for now, chunk in enumerate(chunks) for row in follower.take(table_of(chunk), now)]
    return without_chains([*rows, *follower.finish()])


def without_chains(rows: Sequence[Violation]) -> list[Violation]:
    """The rows in the judge's order, without chains."""
    return sorted((msgspec.structs.replace(row, chain=()) for row in rows), key=sort_key)


def judged(events: Sequence[Event], require: Sequence[str] = FOLLOWED) -> list[Violation]:
    """The judge's rows, without chains."""
    return [msgspec.structs.replace(row, chain=()) for row in judge(events, require).violations]
