"""The short walk over the summaries of all slices, which gives each of them its true start.

A summary says of each process, and of each message on its way out, what it has heard of within the slice, and how much of
each process's past before the slice. Knowing the clocks at the start, that is all it takes to know them at the end.

Rows that heard the same of the past are resolved together: in a slice of some length nearly all have heard everything of
everybody.
"""

from __future__ import annotations

import numpy as np

from thence.pipeline.kernels.replay import ALL, Ints


def resolve(rows: Ints, known: Ints, flight_sender: Ints, flight_rank: Ints, flight_clocks: Ints) -> Ints:
    """The true clocks of summed-up states, given those of the processes and of the flights at the start of the slice."""
    n = known.shape[1]
    result = rows[:, :n].copy()
    patterns, which = np.unique(rows[:, n:], axis=0, return_inverse=True)
    place = {(int(s), int(r)): at for at, (s, r) in enumerate(zip(flight_sender, flight_rank, strict=True))}
    for number, pattern in enumerate(patterns):
        heard = known[pattern == ALL].max(axis=0, initial=0)
        for process in np.flatnonzero((pattern > 0) & (pattern < ALL)).tolist():
            level = int(pattern[process])
            heard = np.maximum(heard, flight_clocks[place[process, level - 1]])
            heard[process] = max(heard[process], level)
        mine = np.flatnonzero(which == number)
        result[mine] = np.maximum(result[mine], heard)
    return result
