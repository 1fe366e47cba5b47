"""Who is on the way where: messages that cross from one slice into later ones, followed through the gists of all slices.

This is the part of the audit that sees all slices at once, so it holds only what crosses: names, senders, destinations.

Rules:

* A flight is carried for as long as one of its destinations lacks it and has events to come, or a later slice delivers it.
* A destination that has no more events and lacks a message has lost it.
* An external message that is no flight is an *orphan*. The caller finds out what it is and comes again: nobody sent it
  (``unsent``), it was sent in an earlier slice that must be told to let it out (``forced`` there), or in a later one, and the
  cut is no cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thence.errors import TraceError
from thence.pipeline.kernels.encoder import Encoded
from thence.pipeline.kernels.gist import Gist
from thence.pipeline.kernels.replay import NOBODY, Ints, Longs, Story
from thence.pipeline.kernels.story import Flights, tell

MAX_FLIGHTS = 2_000_000
"""How many messages may be on their way across one cut."""


@dataclass(slots=True, kw_only=True)
class FlyingMessage:
    """What the replay must know of a message on its way."""

    sender: int
    """``NOBODY`` if it was delivered and never sent."""
    rank: int = 0
    unaddressed: bool = False
    to: list[int] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    """The destinations that have delivered it."""
    outside: set[int] = field(default_factory=set)
    """Who else has delivered it."""

    def deliver(self, processes: Iterable[int]) -> None:
        """Note who has delivered it."""
        for process in processes:
            (self.done if process in self.to else self.outside).add(process)


@dataclass(slots=True, kw_only=True)
class Crossing(FlyingMessage):
    """One message that crosses a cut."""

    name: str
    slice: int
    local: int
    """Its number in the slice that sent it."""
    last_reference: int
    given_up: set[int] = field(default_factory=set)


class Lost(NamedTuple):
    """A message that a destination never delivered."""

    name: str
    sender: int
    to: str
    somebody: bool
    """Whether anybody delivered it."""


class SliceEntry(NamedTuple):
    """What a slice must know of those before it."""

    base: Longs
    """How many messages each process had sent."""
    previous: Longs
    """The index of each process's last event, or -1."""
    flights: Flights
    names: list[str]
    slices: Ints
    locals: Ints
    external: Ints
    flight_of: Ints
    """The local messages ``external`` are these flights."""
    carried: Ints
    """The local messages sent here that go on to later slices."""


class Ledger:
    """The flights of one run. ``entries`` has one entry for each slice."""

    def __init__(self, names: Sequence[str], gists: Sequence[Gist], unsent: Collection[str] = ()) -> None:
        self.names = names
        self.entries: list[SliceEntry] = []
        self.lost: list[Lost] = []
        self.orphans: dict[str, int] = {}
        """External messages of which nothing is known, and the slice that named each first."""
        self._gists = gists
        self._unsent = set(unsent)
        self._flights: dict[str, Crossing] = {}
        self._last_reference = {name: at for at, gist in enumerate(gists) for name in gist.external_names}
        self._last_slice = np.full(len(names), -1, np.int64)
        for at, gist in enumerate(gists):
            self._last_slice[gist.last_index > -2] = at
        base = np.zeros(len(names), np.int64)
        previous = np.full(len(names), -1, np.int64)
        for at, gist in enumerate(gists):
            self._visit(at, gist, base.copy(), previous.copy())
            base += gist.sent
            previous = np.where(gist.last_index > -2, np.maximum(gist.last_index, -1), previous)

    @property
    def gone(self) -> set[str]:
        """The processes that crashed for good or left."""
        crashed, left = np.zeros(len(self.names), np.bool_), np.zeros(len(self.names), np.bool_)
        for gist in self._gists:
            crashed = np.where(gist.crashed >= 0, gist.crashed > 0, crashed)
            left = np.where(gist.left >= 0, gist.left > 0, left)
        return {self.names[process] for process in np.flatnonzero(crashed | left).tolist()}

    def _visit(self, at: int, gist: Gist, base: Longs, previous: Longs) -> None:
        for name in gist.external_names:
            if name not in self._flights:
                if name not in self._unsent:
                    self.orphans.setdefault(name, at)
                last = self._last_reference[name]
                self._flights[name] = Crossing(name=name, sender=NOBODY, slice=at, local=NOBODY, last_reference=last)
        if len(self._flights) > MAX_FLIGHTS:
            raise TraceError(f"{len(self._flights)} messages cross one cut of the trace; the limit is {MAX_FLIGHTS}")
        flights = list(self._flights.values())
        number = {flight.name: place for place, flight in enumerate(flights)}
        flight_of = np.array([number[name] for name in gist.external_names], np.int32)
        snapshot = arrays_of(flights)
        self._deliver(gist)
        carried = self._open(at, gist, base)
        self._let_go(at)
        self.entries.append(
            SliceEntry(
                base,
                previous,
                snapshot,
                [flight.name for flight in flights],
                np.array([flight.slice for flight in flights], np.int32),
                np.array([flight.local for flight in flights], np.int32),
                gist.external_local,
                flight_of,
                np.array([local for local in carried if local >= 0], np.int32),
            )
        )
        names = [*self.names, *gist.strangers]
        self.lost += [
            Lost(name, sender, names[to], somebody or name in self._last_reference)
            for name, sender, to, somebody in zip(
                gist.lost_names, gist.lost_sender.tolist(), gist.lost_to.tolist(), gist.lost_delivered.tolist(), strict=True
            )
        ]

    def _deliver(self, gist: Gist) -> None:
        for place, name in enumerate(gist.external_names):
            begin, end = gist.external_first[place], gist.external_first[place + 1]
            self._flights[name].deliver(gist.external_by[begin:end].tolist())

    def _open(self, at: int, gist: Gist, base: Longs) -> list[int]:
        """Take up what leaves the slice; return which of its messages those are."""
        carried = []
        for place, name in enumerate(gist.open_names):
            begin, end = gist.open_to_first[place], gist.open_to_first[place + 1]
            to, done = gist.open_to[begin:end].tolist(), gist.open_done[begin:end].tolist()
            sender, local = int(gist.open_sender[place]), int(gist.open_local[place])
            reference = self._last_reference.get(name, -1)
            if bool(gist.open_unaddressed[place]) and reference <= at:
                continue  # nobody waits for it, and nobody will name it again
            delivered = {process for process, had in zip(to, done, strict=True) if had}
            flight = self._flights[name] = Crossing(
                name=name,
                sender=sender,
                rank=int(gist.open_rank[place] + base[sender]),
                unaddressed=bool(gist.open_unaddressed[place]),
                to=to,
                done=delivered,
                outside=set(gist.open_outside.get(name, ())).difference(to),
                slice=at,
                local=local,
                last_reference=reference,
            )
            # Who has no events to come has lost it; the gist has noted that.
            flight.given_up = {process for process in to if process not in delivered and not self._goes_on(process, at)}
            carried.append(local)
        return carried

    def _goes_on(self, process: int, at: int) -> bool:
        """Whether a process has events in later slices."""
        return process < len(self.names) and bool(self._last_slice[process] > at)

    def _let_go(self, at: int) -> None:
        """Forget what no later slice has to do with; note what was lost."""
        for name, flight in list(self._flights.items()):
            waiting = False
            for process in flight.to:
                if process in flight.done or process in flight.given_up:
                    continue
                if self._goes_on(process, at):
                    waiting = True
                else:
                    flight.given_up.add(process)
                    somebody = bool(flight.done or flight.outside) or name in self._last_reference
                    self.lost.append(Lost(name, flight.sender, self.names[process], somebody))
            if not waiting and flight.last_reference <= at:
                del self._flights[name]


def arrays_of(flights: Sequence[FlyingMessage]) -> Flights:
    """The flights as arrays, for the replay."""
    to_first = np.cumsum([0, *(len(flight.to) for flight in flights)])
    outside_first = np.cumsum([0, *(len(flight.outside) for flight in flights)])
    return Flights(
        np.array([flight.sender for flight in flights], np.int32),
        np.array([flight.rank for flight in flights], np.int32),
        np.array([flight.unaddressed for flight in flights], np.bool_),
        to_first.astype(np.int64),
        np.array([process for flight in flights for process in flight.to], np.int32),
        np.array([process in flight.done for flight in flights for process in flight.to], np.bool_),
        outside_first.astype(np.int64),
        np.array([process for flight in flights for process in sorted(flight.outside)], np.int32),
    )


def tell_slice(encoded: Encoded, messages: pa.Array, entry: SliceEntry) -> Story:
    """Return a slice and what is on its way into it, ready for the replay."""
    return tell(encoded, len(messages), entry.base, entry.flights, entry.external, entry.flight_of)
