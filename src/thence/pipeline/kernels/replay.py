"""The replay: every process steps through its events, waiting for sends that have not come yet, and clocks follow.

Rules:

* A message is a number: those named in the slice first, then those on their way into it that are not.
* A clock counts, for each process, the messages that it sent causally before; that of a message is the clock of its sender
  just before it was sent.
* Who waits for a send that does not come stops there, and so does who waits for it. What lies before is a consistent cut: with
  every event all that happened before it. So a slice may be cut anywhere, and what is not reached goes into the next one.
* Which order the replay finds decides nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from thence.pipeline.kernels.compiler import compiled

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

OTHER: Final = 0
SEND: Final = 1
RESEND: Final = 2
DELIVER: Final = 3

NOBODY: Final = -1
NOTHING_MISSING: Final = 2**31 - 1


class Story(NamedTuple):
    """A slice, ready for the replay. Its own messages have the numbers from 0 on, those on their way into it follow."""

    first: Longs
    """Process p's events are ``first[p] … first[p + 1] - 1``."""
    role: Bytes
    message: Ints
    """The message of each event, or ``NOBODY``."""
    sender: Ints
    """Of each message; ``NOBODY`` if it was never sent."""
    rank: Ints
    """How many messages its sender had sent before it."""
    row: Ints
    """The place of each message in the clocks of those sent here, in the order of sending, or in those of the flights."""
    is_awaited: Bools
    """Whether deliveries of a message wait for its send: it is sent here, or later."""
    is_unaddressed: Bools
    """Whether a message names no destinations at all."""
    own: int
    """How many messages the slice names; the flights come behind them."""


@compiled
def learn(known, heard):  # type: ignore[no-untyped-def]
    """Take the maximum, entry by entry."""
    for k in range(len(known)):
        known[k] = max(known[k], heard[k])


@compiled
def wake(waiting, behind, message, ready, count):  # type: ignore[no-untyped-def]
    """Make all ready that wait for a message; return how many are ready now."""
    process = waiting[message]
    waiting[message] = -1
    while process >= 0:
        ready[count] = process
        count += 1
        process = behind[process]
    return count


@compiled
def advance(story, backward, known, clocks, flight_clocks, reached):  # type: ignore[no-untyped-def]
    """Replay a slice as far as that goes; ``reached`` becomes the next event of each process.

    ``known`` is the clock of each process, and is left as it is at the end; ``clocks`` gets one row for each message sent here;
    ``backward`` says of which deliveries the arrow is left out.
    """
    n = len(story.first) - 1
    reached[:] = story.first[:-1]
    is_awaited = story.is_awaited.copy()
    waiting = np.full(len(is_awaited), -1, np.int32)
    behind = np.full(n, -1, np.int32)
    ready = np.arange(n - 1, -1, -1).astype(np.int32)
    count = n
    while count:
        count -= 1
        p = ready[count]
        mine = known[p]
        event = reached[p]
        last = story.first[p + 1]
        while event < last:
            kind = story.role[event]
            if kind == SEND:
                m = story.message[event]
                clocks[story.row[m]] = mine
                mine[p] = story.rank[m] + 1
                is_awaited[m] = False
                count = wake(waiting, behind, m, ready, count)
            elif kind == DELIVER:
                m = story.message[event]
                s = story.sender[m]
                if not backward[event]:
                    if is_awaited[m]:
                        behind[p] = waiting[m]
                        waiting[m] = p
                        break
                    if s >= 0 and mine[s] <= story.rank[m]:
                        learn(mine, clocks[story.row[m]] if m < story.own else flight_clocks[story.row[m]])
                        mine[s] = story.rank[m] + 1
            event += 1
        reached[p] = event
