"""A slice and what is on its way into it, put together for the replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thence.pipeline.kernels.circles import backward_deliveries
from thence.pipeline.kernels.compiler import compiled
from thence.pipeline.kernels.encoder import Encoded
from thence.pipeline.kernels.replay import ALL, NOBODY, AwaitedByPair, Ints, Longs, Story, advance


@dataclass(frozen=True, slots=True)
class Flights:
    """The messages on their way into a slice, and those that were delivered and never sent."""

    sender: Ints
    """``NOBODY`` if it was never sent."""
    rank: Ints
    """How many messages the sender had sent before it, in the whole run."""
    unaddressed: npt.NDArray[np.bool_]
    to_first: Longs
    to: Ints
    done: npt.NDArray[np.bool_]
    """Per destination: whether it had delivered the message before the slice."""
    outside_first: Longs
    outside: Ints
    """Who else had delivered it before the slice."""

    @property
    def count(self) -> int:
        return len(self.sender)


def tell(encoded: Encoded, named: int, base: Longs, flights: Flights, external: Ints, flight_of: Ints) -> Story:
    """Number the messages of a slice: first the ``named`` ones that its events name, then the flights.

    ``base`` counts the messages that each process sent before the slice; the local messages ``external`` are the flights
    ``flight_of``, and events name them by the flight's number.
    """
    total = named + flights.count
    process = np.repeat(np.arange(encoded.processes, dtype=np.int32), np.diff(encoded.first))
    sends = len(encoded.send_event)
    sent = encoded.message[encoded.send_event]
    senders = process[encoded.send_event]
    first_send = np.searchsorted(senders, np.arange(encoded.processes))
    sender = np.full(total, NOBODY, np.int32)
    rank = np.zeros(total, np.int32)
    row = np.full(total, NOBODY, np.int32)
    unaddressed = np.zeros(total, np.bool_)
    sender[sent] = senders
    rank[sent] = np.arange(sends) - first_send[senders] + base[senders]
    row[sent] = np.arange(sends)
    unaddressed[sent] = encoded.unaddressed
    sent_here = sender >= 0
    sender[named:], rank[named:], unaddressed[named:] = flights.sender, flights.rank, flights.unaddressed
    row[named:] = sends + np.arange(flights.count)
    message = encoded.message
    if len(external):
        renamed = np.arange(-1, named, dtype=np.int32)  # the last place is for NOBODY
        renamed[external + 1] = named + flight_of
        message = renamed[message + 1]
    return Story(encoded.first, encoded.role, message, sender, rank, row, sent_here, unaddressed)


def channels_of(story: Story, encoded: Encoded, named: int, flights: Flights) -> AwaitedByPair:
    """Who still has to get what from whom: the flights first, since they were sent before; each by rank."""
    n = encoded.processes
    ranked = np.argsort(flights.rank, kind="stable")
    pieces = (
        Awaited((named + ranked).astype(np.int32), ranked, flights.to_first, flights.to, flights.done),
        Awaited(
            encoded.message[encoded.send_event],
            np.arange(len(encoded.send_event)),
            encoded.to_first,
            encoded.to,
            np.zeros(len(encoded.to), np.bool_),
        ),
    )
    first = np.zeros(n * n + 1, np.int64)
    for piece in pieces:
        count_awaited(piece, story.sender, n, first[1:])
    np.cumsum(first, out=first)
    rank, message = np.empty(int(first[-1]), np.int32), np.empty(int(first[-1]), np.int32)
    at = first[:-1].copy()
    for piece in pieces:
        put_awaited(piece, story.sender, story.rank, n, at, rank, message)
    return AwaitedByPair(first, rank, message)


class Awaited(NamedTuple):
    """Messages and who is to get them."""

    message: Ints
    place: Longs
    """Where each of them is in ``to_first``."""
    to_first: Longs
    to: Ints
    done: npt.NDArray[np.bool_]


@compiled
def count_awaited(awaited, sender, n, count):  # type: ignore[no-untyped-def]
    """Count the messages for each pair of receiver and sender."""
    for k in range(len(awaited.message)):
        s = sender[awaited.message[k]]
        for j in range(awaited.to_first[awaited.place[k]], awaited.to_first[awaited.place[k] + 1]):
            if awaited.to[j] < n and not awaited.done[j]:
                count[awaited.to[j] * n + s] += 1


@compiled
def put_awaited(awaited, sender, rank, n, at, ranks, messages):  # type: ignore[no-untyped-def]
    """Put the messages in the places for their pairs: a counting sort."""
    for k in range(len(awaited.message)):
        m = awaited.message[k]
        for j in range(awaited.to_first[awaited.place[k]], awaited.to_first[awaited.place[k] + 1]):
            if awaited.to[j] < n and not awaited.done[j]:
                pair = awaited.to[j] * n + sender[m]
                ranks[at[pair]], messages[at[pair]] = rank[m], m
                at[pair] += 1


def delivered_before(story: Story, named: int, flights: Flights) -> tuple[Longs, Ints]:
    """For each message, who had delivered it before the slice."""
    addressed = np.repeat(np.arange(flights.count), np.diff(flights.to_first))[flights.done]
    outside = np.repeat(np.arange(flights.count), np.diff(flights.outside_first))
    flight = np.concatenate([addressed, outside])
    who = np.concatenate([flights.to[flights.done], flights.outside])
    order = np.argsort(flight, kind="stable")
    first = np.zeros(len(story.sender) + 1, np.int64)
    np.cumsum(np.bincount(flight + named, minlength=len(story.sender)), out=first[1:])
    return first, who[order]


def clocks_from(story: Story, known: Ints, of_flights: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The clocks of all messages of a slice that begins with ``known``, and the deliveries that go backward."""
    sends = int(story.sent_here.sum())
    clocks = np.zeros((sends + len(of_flights), known.shape[1]), np.int32)
    clocks[sends:] = of_flights
    backward = replay(story, known, clocks, levels=0)
    return clocks, backward


def sum_up(story: Story) -> tuple[Ints, Ints]:
    """From an unknown start: the state of each process at the end, and of each message sent here when it was sent."""
    n = len(story.first) - 1
    known = np.zeros((n, 2 * n), np.int32)
    known[np.arange(n), n + np.arange(n)] = ALL
    clocks = np.zeros((int(story.sent_here.sum()), 2 * n), np.int32)
    replay(story, known, clocks, levels=n)
    return known, clocks


def resolve(rows: Ints, known: Ints, flight_sender: Ints, flight_rank: Ints, flight_clocks: Ints) -> Ints:
    """Return the true clocks of summed-up states, given those of the processes and of the flights at the start of the slice.

    Rows that heard the same of the past are resolved together: in a slice of some length nearly all have heard everything.
    """
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


def backward_in(story: Story) -> npt.NDArray[np.bool_]:
    """Which deliveries of a slice go backward; whatever its start."""
    n = len(story.first) - 1
    _, backward = clocks_from(story, np.zeros((n, n), np.int32), np.zeros((len(story.sender), n), np.int32))
    return backward


def replay(story: Story, known: Ints, clocks: Ints, levels: int) -> npt.NDArray[np.bool_]:
    """Replay a slice, and once more if it goes in circles; return which deliveries go backward."""
    backward = np.zeros(len(story.role), np.bool_)
    reached = np.empty(len(story.first) - 1, np.int64)
    start = known.copy()
    for _ in range(2):
        advance(
            story.first, story.role, story.message, story.sender, story.rank, story.row, story.sent_here, backward, known,
            clocks, levels, reached,
        )  # fmt: skip
        if np.array_equal(reached, story.first[1:]):
            break
        backward = backward_deliveries(story, reached)
        known[:] = start
    return backward
