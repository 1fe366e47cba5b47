"""Running a study: rounds of independent runs, until every interval is narrow enough.

Rules:

* Round by round: first ``least`` repetitions of every point, then more of those points whose intervals are too wide, at
  most twice as many as before. What a round does follows from the runs that it counts and from nothing else, so a study that
  was killed goes on and comes to the same runs and the same numbers.
* A task is about ``TASK_S`` of work, by what earlier runs of the same points took, and the longest begin first.
* What is told of the time left is what the runs that are known to come will take, by what runs of their points took. While
  the first run of each point is under way, it is by the pace so far. Until the first statistics are there, nobody knows how
  many runs will come: then it is "at least".
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from thence.studies.engine import Engine, Here, OnSpark
from thence.studies.models import model_named
from thence.studies.results import Failure, Folder, Means, means_of
from thence.studies.runs import RESULTS, RunRow, RunTask, Traces, run_task
from thence.studies.statistics import repetitions_needed
from thence.studies.study import Study, canonical
from thence.studies.work import WorkFolder

TASK_S: Final = 1.0
TASKS_PER_CORE: Final = 4
"""At least so many tasks for each core, while there are so many runs: the last ones then end at about the same time."""
MOST_OVERHEAD: Final = 3.0
"""What is measured beside the runs themselves is believed up to this factor: a session that starts is not the rule."""

Key = tuple[str, int]


class StudyProgress(NamedTuple):
    """How far a study is."""

    round: str
    done: int
    total: int
    left_s: float
    at_least: bool
    """Whether more rounds may follow that are not counted in the time left."""


Tell = Callable[[StudyProgress], None]


class Crew(Protocol):
    """Who does the work, and on how many cores."""

    cores: int

    def engine(self, folder: Folder) -> Engine:
        """Return where tasks run."""


class Alone:
    """In this process, without Spark."""

    cores = 1

    def engine(self, folder: Folder) -> Engine:
        return Here()


class WithSpark:
    """On Spark. The folder must be one that all workers reach."""

    def __init__(self, master: str | None = None) -> None:
        from thence.pipeline.session import spark_session

        self._spark = spark_session(master)
        context = getattr(self._spark, "_sc", None)
        self.cores = context.defaultParallelism if context is not None else TASKS_PER_CORE

    def engine(self, folder: Folder) -> Engine:
        return OnSpark(self._spark, WorkFolder(str(folder.path / ".work")))


class Outcome(NamedTuple):
    """What a study gave."""

    means: Means
    runs: int
    failures: tuple[Failure, ...]


def run_study(study: Study, folder: Folder, crew: Crew, traces: Traces = "none", tell: Tell | None = None) -> Outcome:
    """Run what is not there yet, and write the tables."""
    model_named(study.model)
    with _work(folder):
        campaign = _Campaign(study, folder, crew, traces, tell)
        campaign.round("first runs", [key for key in campaign.missing() if key[1] == 0])
        number, means = 0, campaign.next_round("round 1")
        while campaign.extend(means):
            number += 1
            means = campaign.next_round(f"round {number + 1}")
    counted = campaign.counted()
    failures = tuple(
        Failure(row.point, row.repetition, row.error)
        for row in campaign.rows.values()
        if row.error is not None and row.repetition < campaign.wanted.get(row.point, 0)
    )
    folder.finish(study, counted, means, failures)
    return Outcome(means, len(counted), failures)


@contextmanager
def _work(folder: Folder) -> Iterator[None]:
    """Make the folder through which tasks get their orders, and remove it."""
    place = folder.path / ".work"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (folder.path / RESULTS).mkdir(exist_ok=True)
    try:
        yield
    finally:
        shutil.rmtree(place, ignore_errors=True)


class _Campaign:
    """What was run, and how many repetitions of each point are wanted."""

    def __init__(self, study: Study, folder: Folder, crew: Crew, traces: Traces, tell: Tell | None) -> None:
        self._study, self._folder, self._traces, self._tell = study, folder, traces, tell
        self._engine = crew.engine(folder)
        self._points = [canonical(point) for point in study.points()]
        self.wanted = dict.fromkeys(self._points, study.repetitions.least)
        self._projected = dict(self.wanted)
        self._is_projected = study.repetitions.most == study.repetitions.least
        self.rows: dict[Key, RunRow] = {key: row for key, row in folder.rows().items() if row.error is None}
        self._clock = RunClock(crew.cores)
        for row in self.rows.values():
            self._clock.ran(row)

    def missing(self) -> list[Key]:
        """Return what is wanted and was not run."""
        return [
            (point, repetition)
            for point in self._points
            for repetition in range(self.wanted[point])
            if (point, repetition) not in self.rows
        ]

    def next_round(self, name: str) -> Means:
        """Run what is missing; return the statistics."""
        self.round(name, self.missing())
        return means_of(self.counted())

    def counted(self) -> list[RunRow]:
        """Return the runs that succeeded, of each point as many as are wanted."""
        return [row for row in self.rows.values() if row.error is None and row.repetition < self.wanted.get(row.point, 0)]

    def extend(self, means: Means) -> bool:
        """Want more of the points whose intervals are too wide; return whether there are any."""
        rule, more = self._study.repetitions, False
        for point in self._points:
            summaries = means.get(point, {})
            needed = max((repetitions_needed(summaries[name], rule.share) for name in rule.of if name in summaries), default=0)
            have = self.wanted[point]
            self._projected[point] = max(have, min(needed, rule.most))
            self.wanted[point] = max(have, min(needed, rule.most, 2 * have))
            more = more or self.wanted[point] > have
        self._is_projected = True
        return more

    def round(self, name: str, keys: Sequence[Key]) -> None:
        """Do these runs."""
        batches = self._clock.batches(keys)
        tasks = [RunTask(self._study, str(self._folder.path), self._traces, tuple(batch)) for batch in batches]
        ends = [0]
        for batch in batches:
            ends.append(ends[-1] + len(batch))
        begun = time.monotonic()

        def progress(_: str, done: int, __: int) -> None:
            if self._tell:
                rest = [*(key for batch in batches[done:] for key in batch), *self._later(keys)]
                left_s = self._clock.wall_s(rest, time.monotonic() - begun, ends[done])
                self._tell(StudyProgress(name, ends[done], ends[-1], left_s, not self._is_projected))

        if tasks:
            results = self._engine.each(f"{self._study.name}: {name}", run_task, tasks, progress)
            for row in (row for rows in results for row in rows):
                self.rows[row.key] = row
                self._clock.ran(row)
            self._clock.took(time.monotonic() - begun, [row for rows in results for row in rows])

    def _later(self, now: Sequence[Key]) -> Iterator[Key]:
        """Give the runs that are to be expected after these."""
        these = set(now)
        for point, count in self._projected.items():
            for repetition in range(count):
                if (point, repetition) not in these and (point, repetition) not in self.rows:
                    yield point, repetition


class RunClock:
    """Knows what runs of each point took, and so what others will take."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._seconds: dict[str, tuple[int, float]] = {}
        self._overhead = 1.0

    def ran(self, row: RunRow) -> None:
        """A run is over."""
        count, seconds = self._seconds.get(row.point, (0, 0.0))
        self._seconds[row.point] = count + 1, seconds + row.seconds

    def took(self, wall_s: float, rows: Sequence[RunRow]) -> None:
        """A round is over: what it took on all cores, against what its runs took."""
        seconds = sum(row.seconds for row in rows)
        if seconds > TASK_S:
            self._overhead = min(MOST_OVERHEAD, max(1.0, wall_s * self._cores / seconds))

    def expected_s(self, point: str) -> float:
        """Return what a run of a point will take; of a point that was never run, what the others took."""
        count, seconds = self._seconds.get(point) or (
            sum(count for count, _ in self._seconds.values()),
            sum(seconds for _, seconds in self._seconds.values()),
        )
        return seconds / count if count else TASK_S

    def wall_s(self, keys: Sequence[Key], elapsed_s: float, done: int) -> float:
        """Return how long these runs take on all cores, no less than the longest of them; ``nan`` before anything is known.

        Where nothing was measured yet, by the pace of those that are ``done``.
        """
        if not self._seconds:
            return len(keys) * elapsed_s / done if done else math.nan
        each = [self.expected_s(point) for point, _ in keys]
        return self._overhead * max(sum(each) / self._cores, max(each, default=0.0))

    def batches(self, keys: Sequence[Key]) -> list[list[Key]]:
        """Tasks of about a second each, the longest first; of points that were never run, one run each."""
        costs = {point: self.expected_s(point) for point, _ in keys}
        total = sum(costs[point] for point, _ in keys)
        aim = min(TASK_S, total / (TASKS_PER_CORE * self._cores))
        batches: list[list[Key]] = []
        room = 0.0
        for key in sorted(keys, key=lambda key: (-costs[key[0]], key)):
            if not batches or room < costs[key[0]] or key[0] not in self._seconds:
                batches.append([])
                room = aim
            batches[-1].append(key)
            room -= costs[key[0]]
        return batches
