"""Messages on their way from one slice into the next ones: sent, and still to be delivered or named again.

Rules:

* A message is carried for as long as one of its destinations lacks it and has events to come, or a later slice names it.
* A destination without further events that lacks a message has lost it. The row about it is written when the message is carried
  no longer: only then is it known whether anybody delivered it.
* A message that was delivered and never sent is carried too, so that a second delivery is seen.
* Everything is an array, one row for a message: hundreds of thousands may be on their way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thence.pipeline.kernels.compiler import compiled
from thence.pipeline.kernels.replay import DELIVER, NOBODY, Bools, Bytes, Ints, Longs, Story
from thence.pipeline.kernels.slices import Slice, grouped
from thence.pipeline.scan.inspection import Awaited

WAITING: Final = 0
DONE: Final = 1
GIVEN_UP: Final = 2
"""What became of a message at a destination."""

NO_CLOCK: Final = 0
"""The slot of messages that were never sent."""


class ClockPool:
    """The clocks of messages on their way. A message keeps its slot, so that nothing is copied from slice to slice."""

    def __init__(self, processes: int) -> None:
        self.rows: Ints = np.zeros((1, processes), np.int32)
        self._free: Ints = np.empty(0, np.int32)

    def put(self, clocks: Ints) -> Ints:
        """Keep clocks; return their slots."""
        if len(clocks) > len(self._free):
            count = len(self.rows)
            larger = np.zeros((max(2 * count, count + len(clocks)), self.rows.shape[1]), np.int32)
            larger[:count] = self.rows
            self.rows = larger
            self._free = np.concatenate([self._free, np.arange(count, len(larger), dtype=np.int32)])
        slots, self._free = self._free[: len(clocks)], self._free[len(clocks) :]
        self.rows[slots] = clocks
        return slots

    def drop(self, slots: Ints) -> None:
        """Forget clocks."""
        self._free = np.concatenate([self._free, slots[slots > NO_CLOCK]])


@dataclass(frozen=True, slots=True)
class Flights:
    """Messages on their way."""

    names: pa.Array
    sender: Ints
    """``NOBODY`` if it was never sent."""
    rank: Ints
    """How many messages the sender had sent before it, in the whole run."""
    index: Longs
    """Of the event that sent it."""
    unaddressed: Bools
    to_first: Longs
    to: Ints
    state: Bytes
    """Per destination."""
    outside_first: Longs
    outside: Ints
    """Who else has delivered it."""
    slot: Ints
    """Of its clock."""
    since: Ints
    """The earliest slice that may have sent it."""
    last: Ints
    """The last slice that delivers it without sending it, or ``NEVER``."""

    @property
    def count(self) -> int:
        return len(self.sender)

    @property
    def lacking(self) -> int:
        """How many messages some destination may still deliver."""
        return len(np.unique(_groups(self.to_first)[self.state == WAITING]))

    def delivered(self) -> tuple[Longs, Ints]:
        """Who has delivered each message (offsets, processes)."""
        done = self.state == DONE
        flight = np.concatenate([_groups(self.to_first)[done], _groups(self.outside_first)])
        who = np.concatenate([self.to[done], self.outside])
        return _first(flight, self.count), who[np.argsort(flight, kind="stable")]


_PER_MESSAGE: Final = ("sender", "rank", "index", "unaddressed", "slot", "since", "last")


def no_flights() -> Flights:
    """Return a table without messages."""
    ints, longs = np.empty(0, np.int32), np.zeros(1, np.int64)
    return Flights(
        pa.array([], pa.string()),
        ints,
        ints,
        longs[:0],
        np.empty(0, np.bool_),
        longs,
        ints,
        np.empty(0, np.int8),
        longs,
        ints,
        ints,
        ints,
        ints,
    )


def flights_of(given: Slice, story: Story, reached: Longs, unsent_here: Longs, since: int) -> tuple[Flights, Longs]:
    """Return the messages that a slice has sent, or delivered though nobody ever sends them, and their numbers there.

    Their clocks are not kept yet, since most are carried no longer at the end of the slice: see :func:`unsaved`.
    """
    encoded = given.encoded
    sent = np.flatnonzero(encoded.send_event < reached[np.searchsorted(encoded.first, encoded.send_event, side="right") - 1])
    message = np.concatenate([encoded.message[encoded.send_event[sent]], unsent_here]).astype(np.int64)
    to_first, to = grouped(sent, encoded.to_first, encoded.to)
    unsent = len(unsent_here)
    return Flights(
        names=given.names.take(pa.array(message)),
        sender=story.sender[message],
        rank=story.rank[message],
        index=np.concatenate([encoded.index[encoded.send_event[sent]], np.full(unsent, NOBODY)]),
        unaddressed=story.is_unaddressed[message],
        to_first=np.concatenate([to_first, np.full(unsent, to_first[-1])]),
        to=to,
        state=np.full(len(to), WAITING, np.int8),
        outside_first=np.zeros(len(message) + 1, np.int64),
        outside=np.empty(0, np.int32),
        slot=np.concatenate([unsaved(sent), np.full(unsent, NO_CLOCK)]).astype(np.int32),
        since=np.full(len(message), since, np.int32),
        last=given.last[message],
    ), message


def unsaved(row: npt.NDArray[np.int32] | Longs) -> npt.NDArray[np.int32] | Longs:
    """Return as what the clock in a row of a slice is noted until it has a slot, and the other way round."""
    return -1 - row


def put_together(one: Flights, two: Flights) -> Flights:
    """Return the messages of both tables."""
    columns = {
        name: np.concatenate([getattr(one, name), getattr(two, name)]) for name in (*_PER_MESSAGE, "to", "state", "outside")
    }
    bounds = {
        name: np.concatenate([getattr(one, name), getattr(two, name)[1:] + getattr(one, name)[-1]])
        for name in ("to_first", "outside_first")
    }
    return Flights(names=pa.concat_arrays([one.names, two.names]), **columns, **bounds)


def take(given: Flights, kept: Longs) -> Flights:
    """Return some of the messages."""
    to_first, to = grouped(kept, given.to_first, given.to)
    _, state = grouped(kept, given.to_first, given.state)
    outside_first, outside = grouped(kept, given.outside_first, given.outside)
    columns = {name: getattr(given, name)[kept] for name in _PER_MESSAGE}
    lists = {"to_first": to_first, "to": to, "state": state, "outside_first": outside_first, "outside": outside}
    return Flights(names=given.names.take(pa.array(kept)), **columns, **lists)


def deliver(given: Flights, flight: Ints, process: Ints) -> Flights:
    """Note who has delivered which messages."""
    state = given.state.copy()
    odd = mark_delivered(given.to_first, given.to, state, flight, process)
    pairs = np.stack([np.concatenate([_groups(given.outside_first), flight[odd]]), np.concatenate([given.outside, process[odd]])])
    flights, who = np.unique(pairs, axis=1) if pairs.size else pairs
    return replace(given, state=state, outside_first=_first(flights, given.count), outside=who.astype(np.int32))


@compiled
def mark_delivered(to_first, to, state, flight, process):  # type: ignore[no-untyped-def]
    """Mark destinations that have delivered; return which of the deliveries were made by others."""
    odd = np.zeros(len(flight), np.bool_)
    for k in range(len(flight)):
        low, high = to_first[flight[k]], to_first[flight[k] + 1]
        p = process[k]
        if low + p < high and to[low + p] == p:  # it went to everybody
            low = low + p
        else:
            while low < high:
                middle = (low + high) // 2
                if to[middle] < p:
                    low = middle + 1
                else:
                    high = middle
            high = to_first[flight[k] + 1]
        if low < high and to[low] == p:
            state[low] = DONE
        else:
            odd[k] = True
    return odd


class Landed(NamedTuple):
    """What is carried on, and what is not."""

    flights: Flights
    lost: Ints
    """Messages, by number in the table before, and a destination of each that never delivered it."""
    lost_to: Ints
    somebody: Bools
    """Whether anybody delivered it."""
    gone: Longs
    """The messages that are carried no longer."""


def land(given: Flights, is_over: Bools, at: int, named: Longs, remembered: int = 0) -> Landed:
    """Carry on what later slices have to do with, and so many of the others, the newest ones.

    ``is_over[p]`` says that p has no further events; held events name the messages ``named``.
    """
    state = given.state.copy()
    over = np.ones(max(len(is_over), int(given.to.max(initial=-1)) + 1), np.bool_)
    over[: len(is_over)] = is_over
    state[(state == WAITING) & over[given.to]] = GIVEN_UP
    group = _groups(given.to_first)
    carried = (np.bincount(group[state == WAITING], minlength=given.count) > 0) | (given.last > at)
    carried[named] = True
    if remembered:
        carried[np.flatnonzero(~carried)[-remembered:]] = True
    gone = np.flatnonzero(~carried)
    lost = np.flatnonzero((state == GIVEN_UP) & ~carried[group])
    delivered = np.bincount(group[state == DONE], minlength=given.count) + np.diff(given.outside_first)
    noted = replace(given, state=state)
    return Landed(
        take(noted, np.flatnonzero(carried)), group[lost].astype(np.int32), given.to[lost], delivered[group[lost]] > 0, gone
    )


def awaited_by(given: Slice, story: Story, flights: Flights) -> Awaited:
    """Return who still has to get what: the flights first, since they were sent before; of each sender by rank."""
    encoded, n = given.encoded, given.encoded.processes
    order = np.lexsort((flights.rank, flights.sender))
    order = order[flights.sender[order] != NOBODY]
    bounds = np.searchsorted(flights.sender[order], np.arange(n + 1))
    sends = np.searchsorted(encoded.send_event, encoded.first)
    carried = OpenMessages(order, bounds, flights.to_first, flights.to, flights.state == WAITING)
    fresh = OpenMessages(
        np.arange(len(encoded.send_event)), sends, encoded.to_first, encoded.to, np.ones(len(encoded.to), np.bool_)
    )
    first = np.zeros(n + 1, np.int64)
    count_awaited(carried, first)
    count_awaited(fresh, first)
    np.cumsum(first, out=first)
    size = int(first[-1])
    awaited = Awaited(first, np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32))
    flying = np.arange(story.own, story.own + flights.count, dtype=np.int32)
    put_awaited(carried, fresh, flying, encoded.message[encoded.send_event], story.rank, first[:-1].copy(), awaited)
    return awaited


class OpenMessages(NamedTuple):
    """Messages by sender, and their destinations."""

    order: Longs
    bounds: Longs
    """Sender s has the messages ``order[bounds[s]] … order[bounds[s + 1] - 1]``."""
    to_first: Longs
    to: Ints
    is_open: Bools


@compiled
def count_awaited(some, count):  # type: ignore[no-untyped-def]
    """Count the messages for each receiver, one place further on."""
    for k in some.order:
        for j in range(some.to_first[k], some.to_first[k + 1]):
            if some.is_open[j] and some.to[j] < len(count) - 1:
                count[some.to[j] + 1] += 1


@compiled
def put_awaited(carried, fresh, flying, sent, rank, at, awaited):  # type: ignore[no-untyped-def]
    """Put the messages in the places for their receivers, sender by sender: a counting sort."""
    for s in range(len(at)):
        for some, message in ((carried, flying), (fresh, sent)):
            for k in some.order[some.bounds[s] : some.bounds[s + 1]]:
                for j in range(some.to_first[k], some.to_first[k + 1]):
                    p = some.to[j]
                    if some.is_open[j] and p < len(at):
                        awaited.sender[at[p]], awaited.rank[at[p]], awaited.message[at[p]] = s, rank[message[k]], message[k]
                        at[p] += 1


def renumber(given: Flights, place: Longs, processes: int) -> Flights:
    """Return the messages with processes that have the numbers ``place``, in ascending order, and strangers behind them."""
    return replace(
        given,
        sender=np.where(given.sender == NOBODY, NOBODY, place[given.sender]).astype(np.int32),
        to=_renumbered(given.to, place, processes),
        outside=place[given.outside].astype(np.int32),
    )


def _renumbered(number: Ints, place: Longs, processes: int) -> Ints:
    inside = number < len(place)
    return np.where(inside, place[np.where(inside, number, 0)], number - len(place) + processes).astype(np.int32)


def deliveries(story: Story, reached: Longs) -> tuple[Ints, Ints]:
    """Return the messages that were delivered, and by whom."""
    process = np.repeat(np.arange(len(reached), dtype=np.int32), np.diff(story.first))
    events = np.flatnonzero((story.role == DELIVER) & (np.arange(len(story.role)) < reached[process]))
    return story.message[events], process[events]


def _groups(first: Longs) -> Longs:
    return np.repeat(np.arange(len(first) - 1), np.diff(first))


def _first(group: Longs, count: int) -> Longs:
    """Where each group begins, among so many of each."""
    first = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(group, minlength=count), out=first[1:])
    return first
