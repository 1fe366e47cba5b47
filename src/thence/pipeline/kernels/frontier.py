"""How far the events at hand can be judged: up to a hole in an index, or to a delivery whose send has not come.

What lies before is a consistent cut: with every event all that happened before it. So it makes a slice.

Rules:

* An event whose index was passed already is never held back by a hole.
* Who has waited too long (``overdue``) goes on across the hole, or without the send.
* Any send of a message will do, also one that turns out to be its second.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from thence.pipeline.kernels.compiler import compiled
from thence.pipeline.kernels.replay import DELIVER, RESEND, SEND, Bytes, Ints, Longs, wake

BEGIN: Final = np.iinfo(np.int64).min
END: Final = np.iinfo(np.int64).max


def holes(process: Longs, index: Longs, judged: Longs, overdue: npt.NDArray[np.bool_]) -> Longs:
    """For each process the last index before one of its events behind a hole, or ``END``; ``judged`` has the last one judged."""
    order = np.lexsort((index, process))
    process, index = process[order], index[order]
    previous = judged[process]
    goes_on = np.flatnonzero(process[1:] == process[:-1]) + 1
    previous[goes_on] = np.maximum(previous[goes_on], index[goes_on - 1])
    behind = np.flatnonzero((index > previous + 1) & ~overdue[order])[::-1]
    edge = np.full(len(judged), END, np.int64)
    edge[process[behind]] = index[behind] - 1  # of several the first one stays
    return edge


def ready(first: Longs, role: Bytes, message: Ints, sent: npt.NDArray[np.bool_], overdue: npt.NDArray[np.bool_]) -> Longs:
    """For each process its first event that must wait; ``sent`` says which messages were sent before."""
    reached = np.empty(len(first) - 1, np.int64)
    reach(first, role, message, sent.copy(), overdue, reached)
    return reached


@compiled
def reach(first, role, message, sent, overdue, reached):  # type: ignore[no-untyped-def]
    """Let every process step through its events until it must wait for a send."""
    n = len(first) - 1
    reached[:] = first[:-1]
    waiting = np.full(len(sent), -1, np.int32)
    behind = np.full(n, -1, np.int32)
    able = np.arange(n).astype(np.int32)
    count = n
    while count:
        count -= 1
        p = able[count]
        event = reached[p]
        while event < first[p + 1]:
            m = message[event]
            if role[event] == SEND or role[event] == RESEND:
                sent[m] = True
                count = wake(waiting, behind, m, able, count)
            elif role[event] == DELIVER and not sent[m] and not overdue[event]:
                behind[p] = waiting[m]
                waiting[m] = p
                break
            event += 1
        reached[p] = event
