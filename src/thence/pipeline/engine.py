"""Running a function on many things at once: the only place where a Spark job is made.

Rules:

* A thing is one task. Things are left in the work folder and results come back pickled: they go from our own driver to our
  own workers and back.
* Workers need thence installed, as everything that is called there is named and not shipped.
* An error in a task comes out as the error it was, if it was one of ours.
"""

from __future__ import annotations

import gc
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa

from thence.errors import ThenceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from thence.pipeline.work import WorkFolder

GivenT = TypeVar("GivenT")
ResultT = TypeVar("ResultT")
Progress = Callable[[str, int, int], None]
"""Hears of a step how many of its tasks are done, and how many there are."""

POLL_S: Final = 0.5
_RESULT: Final = "number int, result binary"


def packed(
    things: Iterable[GivenT], size_of: Callable[[GivenT], int], most: int, most_things: int = sys.maxsize
) -> list[list[GivenT]]:
    """Put things together, in their order, until a task has enough; a thing that is too large is alone."""
    tasks: list[list[GivenT]] = []
    total = 0
    for thing in things:
        size = size_of(thing)
        if not tasks or total + size > most or len(tasks[-1]) == most_things:
            tasks.append([])
            total = 0
        total += size
        tasks[-1].append(thing)
    return tasks


class Many:
    """A function of one thing, for several at once; a class, so that it pickles by name."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, things: Sequence[Any]) -> list[Any]:
        return [self.function(thing) for thing in things]


class Engine(Protocol):
    """Where tasks run."""

    def each(
        self, step: str, function: Callable[[GivenT], ResultT], things: Sequence[GivenT], progress: Progress | None = None
    ) -> list[ResultT]:
        """Call ``function`` on each thing; return the results in the order of the things."""


class Here:
    """In this process, one after the other: for small traces and for tests, without Spark."""

    def each(
        self, step: str, function: Callable[[GivenT], ResultT], things: Sequence[GivenT], progress: Progress | None = None
    ) -> list[ResultT]:
        """Call ``function`` on each thing; return the results in the order of the things."""
        results = []
        for thing in things:
            results.append(function(thing))
            if progress:
                progress(step, len(results), len(things))
        return results


class OnSpark:
    """On Spark, a task for each thing."""

    def __init__(self, spark: SparkSession, work: WorkFolder) -> None:
        self.spark, self.work = spark, work
        self._steps = 0

    def each(
        self, step: str, function: Callable[[GivenT], ResultT], things: Sequence[GivenT], progress: Progress | None = None
    ) -> list[ResultT]:
        """Call ``function`` on each thing; return the results in the order of the things."""
        if not things:
            return []
        self._steps += 1
        name = f"step-{self._steps}"
        call = _Call(function, self.work, name, self.work.put_each(name, things))
        results: list[Any] = [None] * len(things)
        with _Watched(self.spark, step, len(things), progress):
            for row in self.spark.range(0, len(things), 1, len(things)).mapInArrow(call, _RESULT).collect():
                results[row["number"]] = pickle.loads(row["result"])  # noqa: S301 - our own
        for result in results:
            if isinstance(result, ThenceError):
                raise result
        return results


class _Call:
    """Applies a function in a worker; a class, so that it pickles by name."""

    def __init__(self, function: Callable[[Any], Any], work: WorkFolder, name: str, places: list[tuple[int, int]]) -> None:
        self.function, self.work, self.name, self.places = function, work, name, places

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                try:
                    result = self.function(self.work.get_one(self.name, self.places[number]))
                except ThenceError as error:
                    result = error
                _freeze(self.function)
                content = pa.array([pickle.dumps(result, protocol=5)], pa.binary())
                yield pa.record_batch([pa.array([number], pa.int32()), content], names=["number", "result"])


_frozen: Final = set[str]()


def _freeze(function: Callable[[Any], Any]) -> None:
    """Keep the garbage collector from looking at what stays for good: modules, compiled loops.

    Spark's workers collect garbage after every task. With numba loaded, that took longer than the task.
    """
    name = repr(getattr(function, "function", function))
    if name not in _frozen:
        _frozen.add(name)
        gc.collect()
        gc.freeze()


class _Watched:
    """Tells of the tasks that are done, while a job runs. Over Spark Connect nobody can be asked, and only the end is told."""

    def __init__(self, spark: SparkSession, step: str, total: int, progress: Progress | None) -> None:
        self._step, self._total, self._progress = step, total, progress
        self._context = getattr(spark, "_sc", None)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        if self._progress:
            self._progress(self._step, 0, self._total)
            if self._context is not None:
                self._group = f"thence-{id(self)}"
                self._context.setJobGroup(self._group, self._step)
                self._thread = threading.Thread(target=self._watch, daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        tracker = self._context.statusTracker()  # type: ignore[union-attr]
        while not self._over.wait(POLL_S):
            done = 0
            for job in tracker.getJobIdsForGroup(self._group):
                info = tracker.getJobInfo(job)
                stages = [tracker.getStageInfo(stage) for stage in (info.stageIds if info else ())]
                done += sum(stage.numCompletedTasks for stage in stages if stage and stage.numTasks == self._total)
            if self._progress:
                self._progress(self._step, min(done, self._total), self._total)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()
        if self._progress:
            self._progress(self._step, self._total, self._total)
