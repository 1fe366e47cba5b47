"""The survey: which runs and processes there are, how much each did, and roughly when. One quick look at a few columns.

It samples: of each process in each fragment every ``SAMPLE_EVERY``-th event by index. From the samples the times of the cuts
are chosen; ``first_at`` then looks up exactly which event of a process is the first at such a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from thence.pipeline.audit.fragments import Bad, Fragment, read_fragment
from thence.pipeline.kernels.columns import dictionary_of
from thence.pipeline.kernels.compiler import compiled
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
    rows = _Rows(table)
    kind = dictionary_of(table["kind"])
    sends = np.array([name == "send" for name in kind.dictionary.to_pylist()], np.bool_)
    groups = int(rows.group.max()) + 1
    tally = GroupCounts(np.zeros(groups, np.int64), np.zeros(groups, np.int64), np.zeros(groups, np.int64))
    order = np.arange(table.num_rows)
    sampled = np.empty(table.num_rows // SAMPLE_EVERY + groups, np.int64)
    kinds = np.array(kind.indices, np.int32)
    count = take_samples(order, rows.group, rows.index, kinds, sends, SAMPLE_EVERY, tally, sampled)
    if count < 0:
        count = take_samples(rows.in_order(), rows.group, rows.index, kinds, sends, SAMPLE_EVERY, tally, sampled)
    sampled = sampled[:count][np.argsort(rows.group[sampled[:count]], kind="stable")]
    times = np.array(table["time"], np.int64)[sampled] if not table["time"].null_count else None
    edges = np.flatnonzero(np.diff(rows.group[sampled], prepend=-1, append=-1))
    stretches = []
    for begin, end in pairwise(edges.tolist()):
        group = int(rows.group[sampled[begin]])
        stretches.append(
            Stretch(
                *rows.name(group),
                int(tally.events[group]),
                int(tally.sends[group]),
                rows.index[sampled[begin:end]],
                np.empty(0, np.int64) if times is None else times[begin:end],
                sampled[begin:end],
                int(tally.last[group]),
            )
        )
    return Surveyed(stretches, bad)


class _Rows:
    """The rows of a fragment by groups: what one process of one run did is one."""

    def __init__(self, table: pa.Table) -> None:
        process = dictionary_of(table["process"])
        self._processes = process.dictionary
        self._runs: pa.Array | None = None
        self.group = np.array(process.indices, np.int64)
        if table["run"].null_count < table.num_rows:
            run = dictionary_of(table["run"])
            self._runs = run.dictionary
            self.group += (np.array(run.indices.fill_null(-1), np.int64) + 1) * len(self._processes)
        self._codes = None
        if self.group.max() > table.num_rows:  # few of the pairs occur
            self._codes, self.group = np.unique(self.group, return_inverse=True)
        self.index = np.array(table["index"], np.int64)

    def name(self, group: int) -> tuple[str | None, str]:
        """Run and process."""
        run, process = divmod(group if self._codes is None else int(self._codes[group]), len(self._processes))
        return None if not run or self._runs is None else _text(self._runs, run - 1), _text(self._processes, process)

    def in_order(self) -> Longs:
        """The rows by group and index. Most fragments have each process's events in order: then small numbers sort quickly."""
        if self.group.max() < 2**16:
            order = np.argsort(self.group.astype(np.uint16), kind="stable")
            steps = np.diff(self.index[order])
            if np.all((steps >= 0) | (np.diff(self.group[order]) > 0)):
                return order
        return np.lexsort((self.index, self.group))


class GroupCounts(NamedTuple):
    """Per group: how many events and sends there are, and the last index."""

    events: Longs
    sends: Longs
    last: Longs


@compiled
def take_samples(order, group, index, kind, sends, every, tally, sampled):  # type: ignore[no-untyped-def]
    """Count, and sample some rows of each group; return how many, or -1 if the order is not that of the indices."""
    tally.events[:], tally.sends[:] = 0, 0
    count = 0
    for row in order:
        g = group[row]
        if tally.events[g] and index[row] < tally.last[g]:
            return -1
        if tally.events[g] % every == 0:
            sampled[count] = row
            count += 1
        tally.events[g] += 1
        tally.sends[g] += sends[kind[row]]
        tally.last[g] = index[row]
    return count


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
    rows = _Rows(table)
    order = rows.in_order()
    group = rows.group[order]
    edges = np.flatnonzero(np.diff(group, prepend=-1, append=-1)).tolist()
    place = {rows.name(int(group[begin])): order[begin:end] for begin, end in pairwise(edges)}
    answers = []
    for question in questions:
        mine = place[question.run, question.process]
        times = table["time"].to_numpy()[mine] if question.timed else mine
        found = np.searchsorted(np.maximum.accumulate(times), question.times)
        answers.append(np.append(rows.index[mine], -1)[found])
    return answers


def _text(dictionary: pa.Array, place: int) -> str:
    return str(dictionary[place].as_py())
