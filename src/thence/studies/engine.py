"""Running a function on many things at once, here or on Spark.

Rules:

* A thing is one task. Things are left in the work folder and results come back pickled: they go from our own driver to our
  own workers and back.
* Workers need thence installed, as everything that is called there is named and not shipped.
* An error in a task comes out as the error it was, if it was one of ours.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa

from thence.errors import StorageError, ThenceError
from thence.pipeline.session import Progress, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from thence.studies.work import WorkFolder

GivenT = TypeVar("GivenT")
ResultT = TypeVar("ResultT")
_RESULT: Final = "number int, result binary"
_MISSING: Final = object()


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
        results: list[Any] = [_MISSING] * len(things)

        def scaled(step: str, done: int, total: int) -> None:
            if progress:
                progress(step, len(things) * done // total, len(things))

        with watched(self.spark, step, scaled if progress else None):
            for row in self.spark.range(0, len(things), 1, len(things)).mapInArrow(call, _RESULT).collect():
                results[row["number"]] = pickle.loads(row["result"])  # noqa: S301 - our own
        for result in results:
            if isinstance(result, ThenceError):
                raise result
            if result is _MISSING:
                raise StorageError(f"{step}: Spark did not return the result of each of {len(things)} tasks")
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
