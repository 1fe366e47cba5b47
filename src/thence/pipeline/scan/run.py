"""The scan: a run judged slice by slice, in order, from the state that the slice before has left.

The state of a run is the clock of each process, the messages on their way, and the events that cannot be judged yet, since they
wait for a send that a later slice has. A slice need therefore not be a consistent cut: whatever is not reached is held and
judged with the next slice. The audit, an audit of what has been added, and following are this one scan.

Rules:

* The first send of a message by process and index is its send. Who calls says which sends of a slice are not (``resends``), which
  messages no slice sends, and up to which slice a message is named.
* What waits at the end waits for itself: the trace goes in circles. The arrows of those deliveries are left out.
* Everything that grows has a limit, and going beyond it is an error that says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from thence.errors import InternalError, TraceError
from thence.pipeline.kernels.columns import KINDS
from thence.pipeline.kernels.encoder import Encoded
from thence.pipeline.kernels.replay import NOBODY, NOTHING_MISSING, RESEND, SEND, Bools, Bytes, Ints, Longs, advance
from thence.pipeline.kernels.slices import Slice, joined, nothing, processes_of, rest, with_strangers, without
from thence.pipeline.scan.circles import backward_deliveries
from thence.pipeline.scan.flights import (
    ClockPool,
    Flights,
    awaited_by,
    deliver,
    deliveries,
    flights_of,
    land,
    no_flights,
    put_together,
    renumber,
    unsaved,
)  # fmt: skip
from thence.pipeline.scan.inspection import MessageClocks, judge_story
from thence.pipeline.scan.rows import Resent, Scene, late_rows, lost_rows, shape_rows
from thence.pipeline.scan.story import SliceStory, tell

MAX_HELD: Final = 20_000_000
"""Events that wait for the send of a message that has not come yet. In numbers they take about 30 bytes each."""
MAX_FLIGHT_BYTES: Final = 4 << 30
"""The clocks of all messages that some destination lacks."""


ENDLESS: Final = np.iinfo(np.int64).max
"""How many events a process has of which nobody knows."""


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """How much a scan may keep between two slices."""

    held: int = MAX_HELD
    flight_bytes: int = MAX_FLIGHT_BYTES


@dataclass(slots=True)
class RunScan:
    """The state of one run on its way through its slices."""

    run: str | None
    names: Sequence[str]
    totals: Longs
    """How many events each process has in all. It is over when that many are judged."""
    require: Collection[str]
    resent: Resent = field(default_factory=dict)
    """Sends that are not the first of their message: who sent it in which event."""
    limits: ScanLimits = field(default_factory=ScanLimits)
    remembered: int = 0
    """How many messages that have arrived everywhere are still known; where nobody can say what later slices name."""
    known: Ints = field(init=False)
    """The clock of each process."""
    base: Longs = field(init=False)
    """How many messages each process has sent."""
    previous: Longs = field(init=False)
    """The index of each process's last event that was judged."""
    judged: Longs = field(init=False)
    """How many events of each process were judged."""
    crashed: Bytes = field(init=False)
    left: Bytes = field(init=False)
    strangers: list[str] = field(default_factory=list)
    """Destinations that are no process of the run."""
    flights: Flights = field(default_factory=no_flights)
    held: Slice = field(init=False)
    _outdone: dict[tuple[int, int, str], tuple[str | None, int]] = field(default_factory=dict)
    """All sends so far that are not the first of their message."""
    held_since: int = 0
    """The earliest slice of which events may be held."""
    most_held: int = 0
    pool: ClockPool = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.names)
        self.known, self.pool, self.held = np.zeros((n, n), np.int32), ClockPool(n), nothing(n)
        self.base, self.judged, self.previous = np.zeros(n, np.int64), np.zeros(n, np.int64), np.full(n, -1, np.int64)
        self.crashed, self.left = np.zeros(n, np.int8), np.zeros(n, np.int8)

    @property
    def events(self) -> int:
        """How many events were judged."""
        return int(self.judged.sum())

    def take(self, given: Slice, number: int) -> Iterator[pa.RecordBatch]:
        """Judge the next slice and what was held before it, as far as that goes; give the rows."""
        given = with_strangers(without(given, self.resent) if self.resent else given, self.strangers)
        self._outdone |= {**resends_in(given, self.names), **self.resent}
        if self.held.events:
            given = joined([self.held, given])
        else:
            self.held_since = number
        yield from self._judge(given, tell(given, self.base, self.flights), number)
        if self.held.events > self.limits.held:
            raise TraceError(
                f"{self._title}: {self.held.events:,} events wait for messages sent much later in the trace; the limit is "
                f"{self.limits.held:,}. Times that are closer to each other help, and so does leaving them out"
            )

    def release(self, number: int) -> Iterator[pa.RecordBatch]:
        """Judge what is held: what it waits for will not come, so it waits for what nobody sends, or for itself."""
        while self.held.events:
            given, before = replace(self.held, unsent=never_sent(self.held)), self.held.events
            yield from self._judge(given, tell(given, self.base, self.flights), number)
            if self.held.events == before:
                begun = tell(given, self.base, self.flights)
                yield from self._judge(given, begun, number, backward_deliveries(begun.story))
            if self.held.events == before:
                raise InternalError(f"{self._title}: {before:,} events cannot be brought into an order")

    def finish(self, number: int) -> Iterator[pa.RecordBatch]:
        """Judge what is held, and tell what never arrived: nothing more will come."""
        yield from self.release(number)
        self.remembered = 0
        yield from self._land(np.ones(len(self.names), np.bool_), number, self.pool.rows, np.empty(0, np.int64))

    def _judge(self, given: Slice, begun: SliceStory, number: int, backward: Bools | None = None) -> Iterator[pa.RecordBatch]:
        story, encoded = begun.story, given.encoded
        if backward is None:
            backward = np.zeros(given.events, np.bool_)
        clocks = MessageClocks(np.zeros((len(encoded.send_event), len(self.names)), np.int32), self.pool.rows)
        reached = np.empty(len(self.names), np.int64)
        advance(story, backward, self.known, clocks.own, clocks.flights, reached)
        findings = judge_story(story, reached, backward, clocks, awaited_by(given, story, self.flights), self.flights.delivered())
        scene = Scene(self.run, self.names, given, story, self.flights, self._outdone, self.previous, self.held_since, number)
        yield from shape_rows(scene, reached, self.require)
        yield from late_rows(scene, findings, self.require)
        named = self._follow(given, begun, reached)
        self._count(given, reached)
        self.held = rest(given, reached) if np.any(reached < encoded.first[1:]) else nothing(len(self.names))
        if not self.held.events:
            self._outdone = {}
        self.most_held = max(self.most_held, self.held.events)
        yield from self._land(self.judged >= self.totals, number, clocks.own, named)

    def _follow(self, given: Slice, begun: SliceStory, reached: Longs) -> Longs:
        """Take up what was sent, and note what was delivered; return the flights that held events name."""
        story = begun.story
        fresh, message = flights_of(given, story, reached, begun.unsent, self.held_since)
        number = np.full(len(story.sender) + 1, NOBODY, np.int32)
        number[story.own : -1] = np.arange(self.flights.count)
        number[message] = self.flights.count + np.arange(fresh.count)
        delivered, process = deliveries(story, reached)
        self.flights = deliver(put_together(self.flights, fresh), number[delivered], process)
        is_held = np.arange(given.events) >= np.repeat(reached, np.diff(story.first))
        named = np.unique(number[story.message[is_held]])
        return np.asarray(named[named != NOBODY], np.int64)

    def _land(self, is_over: Bools, number: int, clocks: Ints, named: Longs) -> Iterator[pa.RecordBatch]:
        """Carry on what later slices have to do with, and tell what was lost."""
        before = self.flights
        landed = land(before, is_over, number, named, self.remembered)
        rows = lost_rows(self.run, self.names, self.strangers, before, landed, (self.crashed > 0) | (self.left > 0), self.require)
        yield from rows
        self.pool.drop(before.slot[landed.gone])
        slot = landed.flights.slot
        fresh = np.flatnonzero(slot < 0)
        if len(fresh):
            slot[fresh] = self.pool.put(clocks[unsaved(slot[fresh])])
        self.flights = landed.flights
        if self.pool.rows.nbytes > self.limits.flight_bytes:
            raise TraceError(
                f"{self._title}: {self.flights.count:,} messages are on their way at once, and their clocks, of "
                f"{len(self.names):,} processes each, take more than {self.limits.flight_bytes >> 20:,} MiB"
            )

    def _count(self, given: Slice, reached: Longs) -> None:
        """Count on from the end of what was judged; clocks have done so by themselves."""
        encoded = given.encoded
        n = len(self.names)
        sends, events = encoded.send_event, reached - encoded.first[:-1]
        process = processes_of(encoded)
        sent = process[sends[sends < reached[process[sends]]]]
        self.base = self.base + np.bincount(sent, minlength=n)
        if self.base.max(initial=0) >= NOTHING_MISSING:
            who = self.names[int(self.base.argmax())]
            raise TraceError(
                f"{self._title}: {who} has sent {self.base.max():,} messages; the limit is {NOTHING_MISSING - 1:,} in a run"
            )
        self.judged = self.judged + events
        some = np.flatnonzero(events)
        last = encoded.index[reached[some] - 1]
        self.previous[some] = np.maximum(self.previous[some], last)
        self.crashed = status_of(encoded, process, reached, KINDS["crash"], KINDS["recover"], self.crashed)
        self.left = status_of(encoded, process, reached, KINDS["leave"], KINDS["join"], self.left)

    def add(self, names: Sequence[str]) -> None:
        """Take in more processes, which changes the numbers of others. Nothing may be held."""
        every = sorted({*self.names, *names})
        number = {name: at for at, name in enumerate(every)}
        place = np.array([number[name] for name in self.names], np.int64)
        count = len(every)
        known, rows = np.zeros((count, count), np.int32), np.zeros((len(self.pool.rows), count), np.int32)
        known[np.ix_(place, place)], rows[:, place] = self.known, self.pool.rows
        self.known, self.pool.rows = known, rows
        self.flights = renumber(self.flights, place, count)
        for name, nothing_yet in (("base", 0), ("judged", 0), ("previous", -1), ("crashed", 0), ("left", 0), ("totals", ENDLESS)):
            before = getattr(self, name)
            after = np.full(count, nothing_yet, before.dtype)
            after[place] = before
            setattr(self, name, after)
        self.names, self.held = every, nothing(count)

    @property
    def _title(self) -> str:
        return "the trace" if self.run is None else f"run {self.run!r}"


def resends_in(given: Slice, names: Sequence[str]) -> dict[tuple[int, int, str], tuple[str | None, int]]:
    """Return the sends of a slice that another send in it outdoes."""
    encoded = given.encoded
    found: dict[tuple[int, int, str], tuple[str | None, int]] = {}
    for event in np.flatnonzero(encoded.role == RESEND).tolist():
        message = encoded.message[event]
        first = np.flatnonzero((encoded.message == message) & (encoded.role == SEND))
        if len(first):
            place = encoded.process_of(event), encoded.index_of(event), given.names[int(message)].as_py()
            found[place] = names[encoded.process_of(int(first[0]))], encoded.index_of(int(first[0]))
    return found


def never_sent(given: Slice) -> Bools:
    """Return which messages of the last slice of all nobody sends."""
    unsent = np.ones(len(given.names), np.bool_)
    unsent[given.encoded.message[given.encoded.send_event]] = False
    return unsent


def status_of(encoded: Encoded, process: Ints, reached: Longs, gone: int, back: int, before: Bytes) -> Bytes:
    """Per process: 1 if the last of these two kinds of event is ``gone``, else 0; as before if there is neither."""
    events = np.flatnonzero((encoded.kind == gone) | (encoded.kind == back))
    events = events[events < reached[process[events]]]
    status = before.copy()
    status[process[events]] = encoded.kind[events] == gone  # of several the last one stays
    return status
