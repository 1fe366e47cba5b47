"""Where to cut the runs of a trace into slices: from a survey, a table of a few numbers for each stretch of each process.

A cut is one index for each process, at equal times, because few messages cross such a cut backwards. Those that do are no
mistake: whoever gets one waits for the slice that sends it. Without times, a cut is made at equal shares of each process's
events.

Rules:

* A *stretch* holds the events of a process whose indices are the same but for their last bits. Within one, indices and times are
  taken to go evenly.
* A slice that is smaller than asked for is no harm. One holds at most so many sends that their clocks fit a stated size.
* Short runs share a *bin*, the rows that one task reads; a bin has one slice of each of its runs. A longer run has a bin for each
  of its slices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thence.errors import ConfigError
from thence.pipeline.kernels.replay import Longs
from thence.pipeline.tables import arrow_schema, columns

SLICE_EVENTS: Final = 1_000_000
"""About how many events a slice has."""
CLOCK_BYTES: Final = 256 << 20
"""What the clocks of the messages sent in one slice may take."""
FEWEST_EVENTS: Final = 1_000
"""No slice is made smaller than this for the sake of its clocks."""
MOST_STRETCHES: Final = 200_000
"""About how many stretches the survey of a trace has, and one more for each process."""

SURVEY: Final = columns(
    "run string, process string, stretch bigint, events bigint, sends bigint, first bigint, last bigint, start bigint, "
    "end bigint, timed bigint, viewed bigint, clocked bigint"
)
SURVEY_SCHEMA: Final = arrow_schema(SURVEY)


def shift_for(events: int) -> int:
    """By how many bits an index is shortened to number its stretch, in a trace of so many events."""
    return max(0, (max(1, events) // MOST_STRETCHES).bit_length())


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run, and its cuts."""

    name: str | None
    processes: list[str]
    totals: Longs
    """How many events each process has."""
    cuts: Longs
    """Of each cut and process: the index of the first event behind it."""
    bins: npt.NDArray[np.int64]
    """Which bin each slice is in."""

    @property
    def events(self) -> int:
        return int(self.totals.sum())

    @property
    def slices(self) -> int:
        return len(self.bins)


@dataclass(slots=True)
class Plan:
    """How a trace is cut."""

    runs: list[RunPlan]
    shift: int
    bins: int
    sends: int
    viewed: bool
    """Whether any process tells of lost ones."""
    clocked: bool
    """Whether any event logs a clock."""
    times: dict[int, tuple[int, int]] = field(default_factory=dict)
    """From when to when each run lasts that is cut by time."""

    @property
    def events(self) -> int:
        return sum(run.events for run in self.runs)

    @property
    def slices(self) -> int:
        return sum(run.slices for run in self.runs)


class _Surveyed:
    """The stretches of one run."""

    def __init__(self, table: pa.Table) -> None:
        names = table["process"].combine_chunks().dictionary_encode()
        self.processes = sorted(names.dictionary.to_pylist())
        number = {name: at for at, name in enumerate(self.processes)}
        place = np.array([number[name] for name in names.dictionary.to_pylist()], np.int64)
        process, stretch = place[names.indices.to_numpy()], table["stretch"].to_numpy()
        order = np.lexsort((stretch, process))
        self.process = process[order]
        self.events, self.sends, self.first, self.last, self.timed = (
            table[name].to_numpy()[order] for name in ("events", "sends", "first", "last", "timed")
        )
        self.is_timed = bool(np.all(self.timed == self.events))
        self.totals = np.bincount(self.process, self.events, len(self.processes)).astype(np.int64)
        self.bounds = np.searchsorted(self.process, np.arange(len(self.processes) + 1))
        if self.is_timed:
            self.start, self.end = (table[name].to_numpy()[order].astype(np.float64) for name in ("start", "end"))
        else:
            done = np.cumsum(self.events) - np.repeat(np.concatenate([[0], np.cumsum(self.totals)[:-1]]), np.diff(self.bounds))
            share = self.totals[self.process].astype(np.float64)
            self.start, self.end = (done - self.events) / share, (done - 1) / share


def plan_of(survey: pa.Table, shift: int, slice_events: int, offsets: dict[str | None, Longs] | None = None) -> Plan:
    """Cut the runs of a trace. ``offsets`` says of some runs by how much the clock of each process is ahead."""
    if slice_events < 1:
        raise ConfigError(f"a slice of {slice_events} events makes no sense; the default is {SLICE_EVENTS:,}")
    names = survey["run"].combine_chunks().dictionary_encode()
    code = names.indices.fill_null(len(names.dictionary)).to_numpy()
    order = np.argsort(code, kind="stable")
    bounds = np.searchsorted(code[order], np.arange(len(names.dictionary) + 2))
    found = [
        (name, _Surveyed(survey.take(pa.array(order[bounds[at] : bounds[at + 1]]))))
        for at, name in enumerate([*names.dictionary.to_pylist(), None])
        if bounds[at + 1] > bounds[at]
    ]
    found.sort(key=lambda pair: (pair[0] is not None, pair[0] or ""))
    plan = Plan([], shift, 0, int(np.sum(survey["sends"].to_numpy())), _any(survey, "viewed"), _any(survey, "clocked"))
    room = 0
    for name, run in found:
        cuts = _cuts(run, slice_events, (offsets or {}).get(name))
        slices = len(cuts) + 1
        events = int(run.totals.sum())
        if slices > 1 or events > room:
            plan.bins += slices
            bins, room = np.arange(plan.bins - slices, plan.bins), slice_events - events if slices == 1 else 0
        else:
            bins, room = np.array([plan.bins - 1]), room - events
        if run.is_timed:
            plan.times[len(plan.runs)] = int(run.start.min()), int(run.end.max())
        plan.runs.append(RunPlan(name, run.processes, run.totals, cuts, bins))
    return plan


def _any(survey: pa.Table, name: str) -> bool:
    return bool(np.any(survey[name].to_numpy()))


def _cuts(run: _Surveyed, slice_events: int, offsets: Longs | None) -> Longs:
    events, count = int(run.totals.sum()), len(run.processes)
    sends = max(1, int(run.sends.sum()))
    fitting = int(CLOCK_BYTES / (4 * count) / (sends / events))
    slices = max(1, round(events / min(slice_events, max(FEWEST_EVENTS, fitting))))
    if slices == 1:
        return np.empty((0, count), np.int64)
    shifts = np.zeros(count) if offsets is None else offsets.astype(np.float64)
    start, end = run.start - shifts[run.process], run.end - shifts[run.process]
    # Half the events of a stretch are taken to happen at its beginning, half at its end.
    when = np.concatenate([start, end])
    order = np.argsort(when, kind="stable")
    passed = np.cumsum(np.concatenate([run.events, run.events])[order])
    at = np.unique(when[order][np.searchsorted(passed, passed[-1] * np.arange(1, slices) // slices)])
    cuts = np.empty((len(at), count), np.int64)
    for process in range(count):
        mine = slice(int(run.bounds[process]), int(run.bounds[process + 1]))
        cuts[:, process] = _index_at(at, start[mine], end[mine], run.first[mine], run.last[mine])
    return np.maximum.accumulate(cuts, axis=0)


def _index_at(
    at: npt.NDArray[np.float64], start: npt.NDArray[np.float64], end: npt.NDArray[np.float64], first: Longs, last: Longs
) -> Longs:
    """The first index of a process at or after each of some times, as far as its stretches tell."""
    until = np.maximum.accumulate(end)
    place = np.searchsorted(until, at)
    inside = np.minimum(place, len(until) - 1)
    length = np.maximum(until[inside] - start[inside], 1e-9)
    share = np.clip((at - start[inside]) / length, 0, 1)
    index = first[inside] + np.ceil(share * (last[inside] - first[inside])).astype(np.int64)
    return np.where(place == len(until), np.iinfo(np.int64).max, index)


def slices_of(run: RunPlan, process: npt.NDArray[np.integer], index: Longs) -> Longs:
    """Return the slice of each event."""
    result = np.zeros(len(index), np.int64)
    for cut in run.cuts:
        result += index >= cut[process]
    return result


def routes_of(plan: Plan, survey: pa.Table) -> pa.Table:
    """Return for each stretch the numbers of its run and process, its bin and slice, the first cut in it, and further ones."""
    runs = {run.name: (at, {name: p for p, name in enumerate(run.processes)}) for at, run in enumerate(plan.runs)}
    made: dict[str, list[object]] = {name: [] for name in ROUTES_SCHEMA.names}
    columns = [survey[name].to_pylist() for name in ("run", "process", "stretch", "first", "last")]
    for name, process, stretch, first, last in zip(*columns, strict=True):
        number, places = runs[name]
        run = plan.runs[number]
        mine = run.cuts[:, places[process]]
        base, after = np.searchsorted(mine, [first, last], side="right").tolist()
        cuts = mine[base:after].tolist()
        row = (
            name,
            process,
            stretch,
            number,
            places[process],
            int(run.bins[base]),
            base,
            *(cuts[:1] or [None]),
            cuts[1:] or None,
        )
        for column, value in zip(ROUTES_SCHEMA.names, row, strict=True):
            made[column].append(value)
    return pa.table(made, schema=ROUTES_SCHEMA)


ROUTES: Final = columns(
    "run string, process string, stretch bigint, run_number int, number int, bin int, base int, cut bigint, more array<bigint>"
)
ROUTES_SCHEMA: Final = arrow_schema(ROUTES)


def offsets_of(lags: npt.NDArray[np.float64]) -> Longs:
    """By how much each process's clock is ahead, so that no message arrives before it was sent, if that can be.

    ``lags[s, r]`` is the least time from a send of s to its delivery at r, infinite where there is none. Wanted are offsets with
    ``offset[r] - offset[s] <= lag``: shortest ways in a graph of processes [Bellman, Ford].
    """
    least = lags.copy()
    np.fill_diagonal(least, 0)
    offsets = np.zeros(len(least))
    for _ in range(len(least)):
        better = (offsets[:, None] + least).min(axis=0)
        if np.array_equal(better, offsets):
            break
        offsets = better
    return offsets.astype(np.int64)
