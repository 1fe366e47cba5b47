"""The plan: how each run of a trace is cut into slices.

A cut is one index for each process: what lies before it belongs to earlier slices. Any cut will do that no message crosses
backwards; good ones are about as far apart as was asked for.

Cuts are made at equal *times*, since few messages cross those backwards. Nobody trusts the clocks for it: whether a cut is
one is found out when the slices are read. If clocks were wrong, the least time that any message seems to have taken from one
process to another tells by how much, as no message arrives before it is sent (``offsets``), and the cuts are made again; what
remains is repaired by merging slices. Without times, the order of the files takes their place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from thence.errors import ConfigError
from thence.pipeline.audit.survey import Surveyed
from thence.pipeline.kernels.gist import NO_LAG
from thence.pipeline.kernels.replay import Longs

SLICE_EVENTS: Final = 1_000_000
"""How many events a slice holds unless told otherwise."""

STATE_BYTES: Final = 64 * 2**20
"""The clocks of the messages sent in one slice take no more than this; a slice is made smaller where they would. What does not
fit into the cache of the processor takes twice as long to judge."""

FEWEST_EVENTS: Final = 1_000
"""But no smaller than this, unless asked for."""

FRAGMENT_BITS: Final = 32
"""Without times, the place in the files is the number of the fragment times this power of two, and the row in it."""
BEGIN: Final = np.iinfo(np.int64).min
END: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class TraceRun:
    """One run of the trace: its processes by name, sorted, and for each the sampled events."""

    name: str | None
    processes: list[str]
    events: int
    sends: int
    index: list[Longs]
    time: list[Longs]
    """Aligned with ``index``."""
    weight: list[Longs]
    """How many events each sampled one stands for."""
    fragment: list[Longs]
    """Where each of them was found."""
    timed: bool
    """Whether ``time`` is time, and not the place in the files."""
    fragments: list[tuple[int, int, int, int]]
    """(process, fragment, first index, last index): where to find what."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """Slice k of a run holds the indices ``low[k][p] … high[k][p] - 1`` of each process p."""

    low: Longs
    high: Longs

    @property
    def count(self) -> int:
        return len(self.low)


def runs_of(surveyed: Sequence[Surveyed]) -> list[TraceRun]:
    """Put together what was seen in the fragments."""
    stretches = defaultdict(list)
    for fragment, seen in enumerate(surveyed):
        for stretch in seen.stretches:
            stretches[stretch.run].append((fragment, stretch))
    runs = []
    for name, found in sorted(stretches.items(), key=lambda item: (item[0] is not None, item[0] or "")):
        processes = sorted({stretch.process for _, stretch in found})
        number = {process: at for at, process in enumerate(processes)}
        timed = all(len(stretch.time) for _, stretch in found)
        sampled: list[list[tuple[Longs, Longs, Longs, Longs]]] = [[] for _ in processes]
        for fragment, stretch in found:
            samples = len(stretch.index)
            time = stretch.time if timed else stretch.row + (fragment << FRAGMENT_BITS)
            weight = np.full(samples, -(-stretch.events // samples), np.int64)
            sampled[number[stretch.process]].append((stretch.index, time, weight, np.full(samples, fragment, np.int64)))
        columns = [[np.concatenate(column) for column in zip(*some, strict=True)] for some in sampled]
        orders = [np.argsort(index, kind="stable") for index, *_ in columns]
        ordered = [[column[order] for column in some] for some, order in zip(columns, orders, strict=True)]
        indices, times, weights, fragments = (list(column) for column in zip(*ordered, strict=True))
        runs.append(
            TraceRun(
                name,
                processes,
                sum(stretch.events for _, stretch in found),
                sum(stretch.sends for _, stretch in found),
                indices,
                times,
                weights,
                fragments,
                timed,
                [(number[s.process], fragment, int(s.index[0]), s.last_index) for fragment, s in found],
            )
        )
    return runs


def slice_events_for(run: TraceRun, asked: int) -> int:
    """How many events a slice of this run may hold."""
    if asked < 1:
        raise ConfigError(f"a slice of {asked} events makes no sense; the default is {SLICE_EVENTS}")
    clock_bytes = 2 * 4 * len(run.processes)
    sends_per_event = max(run.sends, 1) / max(run.events, 1)
    return min(asked, max(FEWEST_EVENTS, int(STATE_BYTES / clock_bytes / sends_per_event)))


class CutDraft(NamedTuple):
    """Cuts of a run, to be made exact: between two sampled events only their fragment knows."""

    edges: Longs
    """Per cut and process: the first sampled event that is late enough."""
    questions: dict[tuple[int, int], tuple[Longs, Longs]]
    """Per process and fragment: which cuts are to be looked up there, and at which times of the process's own clock."""


def draft(run: TraceRun, slice_events: int, offsets: Longs | None = None) -> CutDraft:
    """Cut a run at equal times, by clocks that are put right by ``offsets``."""
    count = len(run.processes)
    slices = max(1, round(run.events / slice_events))
    shifts = np.zeros(count, np.int64) if offsets is None else offsets
    times = [np.maximum.accumulate(run.time[process]) - shifts[process] for process in range(count)]
    everything = np.concatenate(times)
    order = np.argsort(everything, kind="stable")
    passed = np.cumsum(np.concatenate(run.weight)[order])
    wanted = passed[-1] * np.arange(1, slices) // slices
    at = np.unique(everything[order][np.searchsorted(passed, wanted)])
    edges = np.empty((len(at), count), np.int64)
    questions: dict[tuple[int, int], tuple[Longs, Longs]] = {}
    for process in range(count):
        place = np.searchsorted(times[process], at)
        edges[:, process] = np.append(run.index[process], END)[place]
        before = run.fragment[process][np.maximum(place - 1, 0)]
        for fragment in np.unique(before[place > 0]).tolist():
            asked = np.flatnonzero((before == fragment) & (place > 0))
            own = at[asked] + shifts[process] - (0 if run.timed else fragment << FRAGMENT_BITS)
            questions[process, fragment] = (asked, own)
    return CutDraft(edges, questions)


def exact(plan: CutDraft, answers: Mapping[tuple[int, int], Longs]) -> Cuts:
    """The cuts, with what the fragments answered; -1 means that the draft was right."""
    edges = plan.edges.copy()
    for (process, fragment), (asked, _) in plan.questions.items():
        found = answers[process, fragment]
        edges[asked, process] = np.where(found >= 0, np.minimum(found, edges[asked, process]), edges[asked, process])
    edges = np.maximum.accumulate(edges, axis=0)
    count = edges.shape[1]
    edges = np.concatenate([np.full((1, count), BEGIN), edges, np.full((1, count), END)])
    return Cuts(edges[:-1], edges[1:])


def whole_run(run: TraceRun) -> Cuts:
    """No cut at all."""
    edges = np.full((1, len(run.processes)), BEGIN, np.int64)
    return Cuts(edges, np.full_like(edges, END))


def merge(cuts: Cuts, spans: Sequence[tuple[int, int]]) -> Cuts:
    """Make one slice of each span of slices (first, last); spans may overlap."""
    joined = np.zeros(cuts.count, np.bool_)  # whether a slice goes on from the one before it
    for first, last in spans:
        joined[first + 1 : last + 1] = True
    begins = np.flatnonzero(~joined)
    ends = np.append(begins[1:], cuts.count) - 1
    return Cuts(cuts.low[begins], cuts.high[ends])


def offsets_of(lags: Longs) -> Longs:
    """By how much each process's clock is ahead, so that no message arrives before it was sent, if that can be.

    ``lags[s * n + r]`` is the least time from a send of s to its delivery at r. Wanted are offsets with
    ``offset[r] - offset[s] <= lag``: shortest ways in a graph of processes [Bellman, Ford].
    """
    count = round(len(lags) ** 0.5)
    least = lags.reshape(count, count).astype(np.float64)
    least[lags.reshape(count, count) == NO_LAG] = np.inf
    np.fill_diagonal(least, 0)
    offsets = np.zeros(count)
    for _ in range(count):
        better = (offsets[:, None] + least).min(axis=0)
        if np.array_equal(better, offsets):
            break
        offsets = better
    return offsets.astype(np.int64)
