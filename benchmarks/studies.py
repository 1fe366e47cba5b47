"""Studies: simulated events per second and core inside Spark, against the same runs outside, and the same model on SimPy.

Inside is a task of a study on ``local[n]``, its rows written as Parquet; outside are n plain processes that call the model with
the same points and seeds, and write nothing. Session, workers and processes are there, and have done a run, before the clock
runs. On SimPy the same simulation runs, members, network and traffic included, with SimPy's environment as its kernel: what is
told is what our kernel gains where everything else is the same. ``benchmarks/simulator.py`` measures the kernel alone.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import simpy

from benchmarks.table import Row, markdown
from thence.pipeline.session import spark_session
from thence.sim import simulation
from thence.sim.kernel import MAX_EVENTS, Kernel, Timer
from thence.studies.engine import OnSpark
from thence.studies.runs import RunTask, run_once, run_task
from thence.studies.study import Study, canonical, study_named
from thence.studies.work import WorkFolder
from thence.trace.recorder import nowhere

STUDY = "daisy-load"
CORES = (1, 2)
RUNS_PER_CORE = 8
TASKS_PER_CORE = 2
ROUNDS = 3


class SimPyKernel:
    """SimPy behind the listener of our kernel."""

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        self._env = simpy.Environment()
        self._timers = 0
        self._armed: set[int] = set()
        self.events = 0

    @property
    def now(self) -> int:
        return int(self._env.now)

    def post(self, delay_ns: int, fn: Callable[[Any], object], arg: Any) -> None:
        self._env.timeout(delay_ns, (fn, arg)).callbacks.append(self._run_one)

    def schedule(self, delay_ns: int, fn: Callable[..., object], *args: Any) -> None:
        self.post(delay_ns, _call, (fn, args))

    def at(self, time_ns: int, fn: Callable[..., object], *args: Any) -> None:
        self.schedule(time_ns - self.now, fn, *args)

    def timer(self, delay_ns: int, fn: Callable[..., object], *args: Any) -> Timer:
        self._timers += 1
        self._armed.add(self._timers)
        self.post(delay_ns, self._fire, (self._timers, fn, args))
        return Timer(self._timers)

    def cancel(self, timer: Timer) -> bool:
        was_armed = timer in self._armed
        self._armed.discard(timer)
        return was_armed

    def run(self) -> int:
        self._env.run()
        return self.events

    def _fire(self, call: tuple[int, Callable[..., object], tuple[Any, ...]]) -> None:
        timer, fn, args = call
        if timer in self._armed:
            self._armed.remove(timer)
            fn(*args)
        else:
            self.events -= 1  # Cancelled: in our kernel it would be gone.

    def _run_one(self, event: Any) -> None:
        fn, arg = event.value
        self.events += 1
        fn(arg)


def _call(call: tuple[Callable[..., object], tuple[Any, ...]]) -> None:
    fn, args = call
    fn(*args)


Keys = Sequence[tuple[str, int]]


def chosen(study: Study, count: int) -> list[tuple[str, int]]:
    """So many runs of the study's first point."""
    point = canonical(next(iter(study.points())))
    return [(point, repetition) for repetition in range(count)]


def tasks_of(study: Study, folder: str, keys: Keys, count: int) -> list[RunTask]:
    return [RunTask(study, folder, "none", tuple(keys[at::count])) for at in range(count)]


def inside(engine: OnSpark, tasks: Sequence[RunTask]) -> tuple[int, float]:
    """Events and seconds of runs on Spark."""
    began = time.perf_counter()
    rows = [row for some in engine.each("bench", run_task, tasks) for row in some]
    return _events(rows), time.perf_counter() - began


def outside(pool: Any, study: Study, keys: Keys, cores: int) -> tuple[int, float]:
    """The same in plain processes."""
    began = time.perf_counter()
    rows = [row for some in pool.map(_run_all, [(study, keys[at::cores]) for at in range(cores)], chunksize=1) for row in some]
    return _events(rows), time.perf_counter() - began


def _run_all(given: tuple[Study, Keys]) -> list[Any]:
    study, keys = given
    points = {canonical(point): point for point in study.points()}
    return [run_once(study, points[name], repetition) for name, repetition in keys]


def _events(rows: Sequence[Any]) -> int:
    failed = [row.error for row in rows if row.error is not None]
    if failed:
        raise AssertionError(failed[0])
    return sum(row.events for row in rows)


def beside_spark(study: Study, cores: int) -> Row:
    """A row for one number of cores."""
    keys = chosen(study, RUNS_PER_CORE * cores)
    best = {"inside": 0.0, "outside": 0.0}
    spark = spark_session(f"local[{cores}]")
    try:
        with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(cores) as pool:
            (Path(folder) / "results").mkdir()
            engine = OnSpark(spark, WorkFolder(folder))
            inside(engine, tasks_of(study, folder, keys[: 2 * cores], 2 * cores))
            outside(pool, study, keys[: 2 * cores], cores)
            for _ in range(ROUNDS):
                for name, (events, seconds) in (
                    ("inside", inside(engine, tasks_of(study, folder, keys, TASKS_PER_CORE * cores))),
                    ("outside", outside(pool, study, keys, cores)),
                ):
                    best[name] = max(best[name], events / seconds / cores)
    finally:
        spark.stop()
    return Row(
        f"{STUDY}, {cores} cores, events/s and core",
        f"inside Spark: {best['inside']:,.0f}",
        f"outside: {best['outside']:,.0f}",
        best["inside"] / best["outside"],
    )


def beside_simpy(study: Study) -> list[Row]:
    """The same runs on the two kernels; every measure must be the same."""
    rows = []
    for point in study.points():
        best: dict[str, float] = {}
        measured: dict[str, Mapping[str, float]] = {}
        for _ in range(ROUNDS):
            for name, kernel in (("ours", Kernel), ("SimPy", SimPyKernel)):
                vars(simulation)["Kernel"] = kernel
                try:
                    row = run_once(study, point, 0, nowhere)
                finally:
                    vars(simulation)["Kernel"] = Kernel
                best[name] = max(best.get(name, 0.0), _events([row]) / row.seconds)
                measured[name] = row.measures
        if repr(measured["ours"]) != repr(measured["SimPy"]):
            raise AssertionError(f"the kernels differ at {study.label(point)}: {measured}")
        ratio = best["ours"] / best["SimPy"]
        rows.append(Row(f"{STUDY}, {study.label(point)}", f"{best['ours']:,.0f}", f"SimPy: {best['SimPy']:,.0f}", ratio))
    return rows


def run() -> list[Row]:
    study = study_named(STUDY, small=True)
    return [*(beside_spark(study, cores) for cores in CORES), *beside_simpy(study)]


def main() -> None:
    print(markdown(run()))


if __name__ == "__main__":
    main()
