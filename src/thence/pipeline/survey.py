"""The survey: which runs and processes there are, how much each did, and roughly when. One quick look at a few columns.

It samples: of each process in each fragment every ``SAMPLE_EVERY``-th event by index. From the samples the times of the cuts
are chosen; ``first_at`` then looks up exactly which event of a process is the first at such a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from thence.pipeline.fragments import Bad, Fragment, read_fragment
from thence.pipeline.kernels.encode import _dictionary
from thence.pipeline.kernels.replay import Longs

SAMPLE_EVERY: Final = 1024

SURVEYED: Final = ("run", "process", "index", "kind", "time")


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one process of one run did in one fragment."""

    run: str | None
    process: str
    events: int
    sends: int
    index: Longs
    """Of the sampled events, ascending; the first is the least."""
    time: Longs
    """Of the same, or empty where there are no times."""
    row: Longs
    """Where in the fragment they are."""
    last_index: int


class Surveyed(NamedTuple):
    """What was seen in one fragment."""

    stretches: list[Stretch]
    bad: tuple[Bad, ...]


def survey(fragment: Fragment) -> Surveyed:
    """Look at one fragment."""
    table, bad = read_fragment(fragment, SURVEYED)
    if not table.num_rows:
        return Surveyed([], bad)
    run, process = _dictionary(table["run"]), _dictionary(table["process"])
    kind = _dictionary(table["kind"])
    runs = run.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    processes = process.indices.to_numpy()
    sends = np.array([name == "send" for name in kind.dictionary.to_pylist()], np.bool_)[kind.indices.to_numpy()]
    index = table["index"].to_numpy()
    times = table["time"].to_numpy() if not table["time"].null_count else None
    group = (runs.astype(np.int64) + 1) * len(process.dictionary) + processes
    order = _by_group_and_index(group, index)
    edges = np.flatnonzero(np.diff(group[order], prepend=-1, append=-1))
    stretches = []
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        rows = order[begin:end]
        sampled = rows[::SAMPLE_EVERY]
        stretches.append(
            Stretch(
                None if runs[rows[0]] < 0 else _text(run.dictionary, int(runs[rows[0]])),
                _text(process.dictionary, int(processes[rows[0]])),
                len(rows),
                int(sends[rows].sum()),
                index[sampled],
                np.empty(0, np.int64) if times is None else times[sampled],
                sampled.astype(np.int64),
                int(index[rows[-1]]),
            )
        )
    return Surveyed(stretches, bad)


class Question(NamedTuple):
    """Which event of a process is the first at or after each of some times, within a fragment?"""

    run: str | None
    process: str
    times: Longs
    timed: bool
    """Whether the trace has times; else the place in the fragment is meant."""


def first_at(given: tuple[Fragment, list[Question]]) -> list[Longs]:
    """The indices that were asked for; -1 where no event of the fragment is late enough."""
    fragment, questions = given
    table, _ = read_fragment(fragment, SURVEYED)
    run, process = _dictionary(table["run"]), _dictionary(table["process"])
    runs, processes = run.dictionary.to_pylist(), process.dictionary.to_pylist()
    run_codes = run.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    process_codes = process.indices.to_numpy()
    index = table["index"].to_numpy()
    answers = []
    for question in questions:
        code = -1 if question.run is None else runs.index(question.run)
        rows = np.flatnonzero((process_codes == processes.index(question.process)) & (run_codes == code))
        rows = rows[np.argsort(index[rows], kind="stable")]
        times = table["time"].to_numpy()[rows] if question.timed else rows
        place = np.searchsorted(np.maximum.accumulate(times), question.times)
        answers.append(np.append(index[rows], -1)[place])
    return answers


def _by_group_and_index(group: Longs, index: Longs) -> Longs:
    """The order by group and index. Most fragments have each process's events in order: then small numbers sort quickly."""
    if group.max(initial=0) < 2**16:
        order = np.argsort(group.astype(np.uint16), kind="stable")
        steps = np.diff(index[order])
        if np.all((steps >= 0) | (np.diff(group[order]) > 0)):
            return order
    return np.lexsort((index, group))


def _text(dictionary: pa.Array, place: int) -> str:
    return str(dictionary[place].as_py())
