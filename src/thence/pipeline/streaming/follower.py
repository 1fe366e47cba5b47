"""All runs of a trace that is followed. Pure: events and the time come in, violations and lag go out.

Rules:

* What is judged is judged once. Whatever part an event comes in, and in whatever order parts come, the rows are the judge's but
  for what docs/how-to/following.md names.
* The time is that of a clock that stands still while nobody follows, in nanoseconds: patience must not run out by a restart.
* After an error the follower is good for nothing; go on from one that was saved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thence.errors import ConfigError
from thence.pipeline.kernels.frontier import BEGIN, END
from thence.pipeline.streaming.run import HELD, FollowedRun, FollowLimits
from thence.trace.verdict import DEFAULT_REQUIRED, PROPERTIES, Violation, sort_key

FOLLOWED: Final = tuple(name for name in PROPERTIES if name != "total")
"""What can be asked of a trace that grows. Total order would need every delivery ever made."""

NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Lag:
    """How far following is behind, at the end of a step."""

    events: int
    """Judged so far."""
    violations: int
    """Found so far."""
    held: int
    """Events that cannot be judged yet."""
    oldest: str | None
    """One that has been held for longest: its run, process and index."""
    oldest_s: float
    """For how long."""
    flights: int
    """Messages that some destination lacks."""


@dataclass(slots=True)
class Follower:
    """All runs that are followed, and what was found in them. Can be pickled."""

    require: Sequence[str] = DEFAULT_REQUIRED
    hold_s: float | None = None
    limits: FollowLimits = field(default_factory=FollowLimits)
    runs: dict[str | None, FollowedRun] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for name in self.require:
            if name not in FOLLOWED:
                raise ConfigError(f"{name} cannot be followed; audit the trace when it is whole")

    @property
    def events(self) -> int:
        return sum(run.events for run in self.runs.values())

    @property
    def held(self) -> int:
        return sum(run.held.num_rows for run in self.runs.values())

    def take(self, table: pa.Table, now_ns: int) -> list[Violation]:
        """Take more events, with the columns of a trace, and judge what can be judged."""
        seen = pa.array(np.full(table.num_rows, now_ns, np.int64))
        table = table.set_column(table.column_names.index("time"), "time", seen)
        for name in table["run"].unique().to_pylist():
            mine = table["run"].is_null() if name is None else pc.equal(table["run"], name).fill_null(False)
            if name not in self.runs:
                self.limits.check("runs", "runs", len(self.runs) + 1, "the trace")
                self.runs[name] = FollowedRun.begin(name, self.require, self.limits)
            self.runs[name].take(table.filter(mine).select(HELD.names).cast(HELD), self.limits)
        return self.tick(now_ns)

    def tick(self, now_ns: int) -> list[Violation]:
        """Judge what can be judged by now: patience with something may be at its end."""
        overdue_ns = BEGIN if self.hold_s is None else now_ns - int(self.hold_s * NS)
        found = self._step(overdue_ns)
        self.limits.check("held", "events are held, waiting for others", self.held, self._oldest()[0] or "the trace")
        return found

    def finish(self) -> list[Violation]:
        """There is nothing more to come: judge what is held, and tell what never arrived."""
        found = self._step(END)
        lost = [violation for run in self.runs.values() for violation in run.lost()]
        self.counts.update(row.property for row in lost)
        return sorted([*found, *lost], key=sort_key)

    def lag(self, now_ns: int) -> Lag:
        """How far behind this is."""
        where, since_ns = self._oldest()
        return Lag(
            events=self.events,
            violations=self.counts.total(),
            held=self.held,
            oldest=where,
            oldest_s=0.0 if where is None else (now_ns - since_ns) / NS,
            flights=sum(run.flights for run in self.runs.values()),
        )

    def is_overdue(self, now_ns: int) -> bool:
        """Whether patience with something is at its end."""
        where, since_ns = self._oldest()
        return where is not None and self.hold_s is not None and since_ns <= now_ns - int(self.hold_s * NS)

    def _step(self, overdue_ns: int) -> list[Violation]:
        found = [row for run in self.runs.values() for row in run.step(overdue_ns, self.limits)]
        self.counts.update(row.property for row in found)
        return sorted(found, key=sort_key)

    def _oldest(self) -> tuple[str | None, int]:
        """Which event has been held for longest, and since when."""
        where, since_ns = None, END
        for run in self.runs.values():
            if run.held.num_rows:
                at = int(np.argmin(run.held["time"].to_numpy()))
                mine = int(run.held["time"][at].as_py())
                if mine < since_ns:
                    inside = f" of run {run.name}" if run.name is not None else ""
                    where, since_ns = f"{run.held['process'][at]}'s event {run.held['index'][at]}{inside}", mine
        return where, since_ns
