"""The replay: every process steps through its events, waiting for sends that have not come yet, and clocks follow.

One loop serves two purposes, for both halves of the audit:

* **summing up** a slice from an unknown start. The state of a process has two parts: how many messages of each sender it has
  heard of within the slice, and, for each process, how much of that one's past *before* the slice reaches it: nothing, up to
  a message that was on its way into the slice, or all (``ALL``). Both parts grow by taking the maximum, so they are one
  vector;
* **judging** a slice whose start is known. The state of a process is its clock, and every delivery is looked at.

Rules:

* A message is a number: those named in the slice first, then those on their way into it that are not.
* A clock counts, for each process, the messages that it sent causally before; that of a message is the clock of its sender
  just before it was sent.
* Where a trace goes in circles (a delivery causally before its own send), the replay gets stuck; ``circles`` says which
  deliveries those are, and their arrow is left out.
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

OTHER: Final = 0
SEND: Final = 1
RESEND: Final = 2
DELIVER: Final = 3

NOBODY: Final = -1
ALL: Final = 2**31 - 1
"""All that a process knew when the slice began."""
NOTHING_MISSING: Final = 2**31 - 1


class Story(NamedTuple):
    """A slice, ready for the replay. ``M`` messages are named in it, ``F`` more were on their way into it."""

    first: Longs
    """Process p's events are ``first[p] … first[p + 1] - 1``."""
    role: Bytes
    message: Ints
    """The message of each event, from 0 to M + F - 1, or ``NOBODY``."""
    sender: Ints
    """Of each message; ``NOBODY`` if it was never sent."""
    rank: Ints
    """How many messages its sender had sent before it."""
    row: Ints
    """The place of each message in the table of clocks: those sent here by their order of sending, then those from before."""
    sent_here: npt.NDArray[np.bool_]
    unaddressed: npt.NDArray[np.bool_]
    """Whether a message names no destinations at all."""


class AwaitedByPair(NamedTuple):
    """For each pair of a receiver and a sender, the messages from the one to the other that were not delivered before."""

    first: Longs
    """Pair (receiver * n + sender) has entries ``first[pair] … first[pair + 1] - 1``, ascending by rank."""
    rank: Ints
    message: Ints


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
def advance(  # type: ignore[no-untyped-def]
    first, role, message, sender, rank, row, sent_here, backward, known, clocks, levels, out_of
):
    """Replay a slice without judging it; return the next event of each process, which is its last if nothing got stuck.

    ``known`` is the state of each process, and is left as it is at the end; ``clocks`` gets one row for each message sent
    here; ``levels`` is the width of the first part of the state if the start is unknown, else 0.
    """
    n = len(first) - 1
    next_event = first[:-1].copy()
    was_sent = ~sent_here
    waiting = np.full(len(sender), -1, np.int32)
    behind = np.full(n, -1, np.int32)
    ready = np.arange(n - 1, -1, -1).astype(np.int32)
    count = n
    while count:
        count -= 1
        p = ready[count]
        mine = known[p]
        event = next_event[p]
        last = first[p + 1]
        while event < last:
            kind = role[event]
            if kind == SEND:
                m = message[event]
                clocks[row[m]] = mine
                mine[p] = rank[m] + 1
                was_sent[m] = True
                count = wake(waiting, behind, m, ready, count)
            elif kind == DELIVER:
                m = message[event]
                s = sender[m]
                if s >= 0 and not backward[event]:
                    if not was_sent[m]:
                        behind[p] = waiting[m]
                        waiting[m] = p
                        break
                    if levels and not sent_here[m]:
                        mine[levels + s] = max(mine[levels + s], rank[m] + 1)
                    elif mine[s] <= rank[m]:
                        learn(mine, clocks[row[m]])
                        mine[s] = rank[m] + 1
            event += 1
        next_event[p] = event
    out_of[:] = next_event
