"""One run that is followed: what is held, what is on its way, and the clocks of all processes.

Each step takes what can be judged of the events at hand, a consistent cut (``kernels.frontier``), and judges it as the audit
judges a slice: by the same kernels, from a start that is known.

Rules:

* Processes are numbered in the order of their names, as everywhere; when a new name appears, all is renumbered. A destination
  is a process, whether it has events or not.
* The first send of a message that is judged is its send. Others are not well-formed and carry nothing.
* A delivery that was given up as one of a message never sent stays that: its send, should it come, carries nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thence.errors import TraceError
from thence.pipeline.kernels.encoder import KINDS, Encoded, encode
from thence.pipeline.kernels.frontier import BEGIN, holes, ready
from thence.pipeline.kernels.gist import last_indices, status_of
from thence.pipeline.kernels.ledger import Lost, SliceEntry, arrays_of, tell_slice
from thence.pipeline.kernels.replay import RESEND, SEND, Bytes, Ints, Longs
from thence.pipeline.kernels.rows import Scene, judged, lost_rows
from thence.pipeline.kernels.story import clocks_from
from thence.pipeline.streaming.flight import Aftermath, TrackedMessage, clocks_of, never_sent
from thence.pipeline.tables import TRACE, arrow_schema
from thence.trace.verdict import Violation

MAX_RUNS: Final = 1_000
MAX_PROCESSES: Final = 1_000
"""In one run, destinations included: clocks grow with the square of it."""
MAX_HELD: Final = 2_000_000
"""Events that cannot be judged yet, in all runs."""
MAX_FLIGHTS: Final = 500_000
"""Messages of one run that some destination lacks."""
MAX_FINISHED: Final = 50_000
"""Messages of one run that have arrived everywhere and are still known; after that the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class FollowLimits:
    """How much is kept while a trace is followed; beyond a limit following ends with an error that names it.

    Only ``finished`` forgets: docs/how-to/following.md says what that means.
    """

    runs: int = MAX_RUNS
    processes: int = MAX_PROCESSES
    held: int = MAX_HELD
    flights: int = MAX_FLIGHTS
    finished: int = MAX_FINISHED

    def check(self, name: str, what: str, count: int, where: str) -> None:
        """Refuse more of something than its limit."""
        limit = getattr(self, name)
        if count > limit:
            raise TraceError(f"{where}: {count:,} {what}; the limit is {limit:,}")


HELD: Final = pa.schema(
    [field for field in arrow_schema(TRACE) if field.name in ("process", "index", "kind", "message", "to", "time")]
)
"""The columns of events that are held; ``time`` is when the event was first seen here, in nanoseconds."""

Resent = dict[tuple[int, int, str], tuple[str | None, int]]
"""Sends of messages that are known already, by process, index and name: who sent each first, in which event."""


class _Slice:
    """What can be judged now."""

    def __init__(self, encoded: Encoded, messages: pa.Array, resent: Resent) -> None:
        self.encoded, self.messages, self.resent = encoded, messages, resent
        self.names: list[str] = messages.to_pylist()


@dataclass(slots=True)
class FollowedRun:
    """The state of one run."""

    name: str | None
    names: list[str] = field(default_factory=list)
    known: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    """The clock of each process."""
    base: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    """How many messages each process has sent."""
    judged: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    """The last index of each process that was judged, or -1."""
    crashed: Bytes = field(default_factory=lambda: np.zeros(0, np.int8))
    left: Bytes = field(default_factory=lambda: np.zeros(0, np.int8))
    flights: dict[str, TrackedMessage] = field(default_factory=dict)
    """Messages that some destination lacks."""
    finished: dict[str, TrackedMessage] = field(default_factory=dict)
    """Messages that have arrived everywhere, or were never sent; the oldest first."""
    held: pa.Table = field(default_factory=HELD.empty_table)
    events: int = 0
    """How many were judged."""

    def take(self, table: pa.Table, limits: FollowLimits) -> None:
        """Hold more events: a table with the columns of ``HELD``."""
        self.held = pa.concat_tables([self.held, table]).combine_chunks()
        addressed = table["to"].combine_chunks().flatten().unique()
        fresh = {*table["process"].unique().to_pylist(), *addressed.to_pylist()}.difference(self.names)
        if fresh:
            limits.check("processes", "processes", len(self.names) + len(fresh), self._title)
            self._add(fresh)

    def step(self, overdue_ns: int, require: Collection[str], limits: FollowLimits) -> list[Violation]:
        """Judge what can be judged; who was first seen at ``overdue_ns`` or before waits no longer."""
        if not self.held.num_rows:
            return []
        cut = self._cut(overdue_ns)
        found = self._judge(cut, require) if len(cut.encoded.role) else []
        limits.check("flights", "messages are on their way", len(self.flights), self._title)
        while len(self.finished) > limits.finished:
            del self.finished[next(iter(self.finished))]
        return found

    def lost(self, require: Collection[str]) -> Iterator[Violation]:
        """What never arrived, if there is nothing more to come."""
        lost = [
            Lost(name, flight.sender, self.names[to], bool(flight.done or flight.outside))
            for name, flight in self.flights.items()
            for to in flight.lacking
        ]
        gone = {self.names[process] for process in np.flatnonzero((self.crashed > 0) | (self.left > 0)).tolist()}
        return (row.violation for row in lost_rows(self.name, self.names, lost, gone, require))

    def _add(self, fresh: Collection[str]) -> None:
        """Renumber all processes, now that there are more."""
        names = sorted({*self.names, *fresh})
        count = len(names)
        number = {name: at for at, name in enumerate(names)}
        place = np.array([number[name] for name in self.names], np.int64)
        known, base, judged = np.zeros((count, count), np.int32), np.zeros(count, np.int64), np.full(count, -1, np.int64)
        crashed, left = np.zeros(count, np.int8), np.zeros(count, np.int8)
        known[np.ix_(place, place)] = self.known
        base[place], judged[place], crashed[place], left[place] = self.base, self.judged, self.crashed, self.left
        self.known, self.base, self.judged, self.crashed, self.left = known, base, judged, crashed, left
        self.names = names
        for flight in (*self.flights.values(), *self.finished.values()):
            flight.renumber(place, count)

    @property
    def _title(self) -> str:
        return "the trace" if self.name is None else f"run {self.name!r}"

    def _known(self, name: str) -> TrackedMessage | None:
        return self.flights.get(name) or self.finished.get(name)

    def _cut(self, overdue_ns: int) -> _Slice:
        """Find out what can be judged, and put what cannot be aside."""
        process = pc.index_in(self.held["process"], pa.array(self.names, pa.string())).to_numpy().astype(np.int64)
        index, seen = self.held["index"].to_numpy(), self.held["time"].to_numpy()
        low = np.full(len(self.names), BEGIN, np.int64)
        high = holes(process, index, self.judged, seen <= overdue_ns)
        encoded, messages, _ = encode(self.held, self.names, low, high)
        sent = np.array([self._known(name) is not None for name in messages.to_pylist()], np.bool_)
        reached = ready(encoded.first, encoded.role, encoded.message, sent, encoded.time <= overdue_ns)
        waiting = np.flatnonzero(reached < encoded.first[1:])
        high[waiting] = encoded.index[reached[waiting]]
        sends = np.flatnonzero((encoded.role == SEND) | (encoded.role == RESEND))
        resent = self._resent(encoded, messages, sends[sent[encoded.message[sends]]])
        if len(waiting) or resent:
            encoded, messages, _ = encode(self.held, self.names, low, high, resent.keys())
        self.held = self.held.filter(pa.array(index >= high[process]))
        return _Slice(encoded, messages, resent)

    def _resent(self, encoded: Encoded, messages: pa.Array, again: Longs) -> Resent:
        """Sends of messages that are known already: who sent each first, in which event."""
        found: Resent = {}
        for event in again.tolist():
            name = messages[int(encoded.message[event])].as_py()
            process = int(np.searchsorted(encoded.first, event, side="right")) - 1
            flight = self._known(name)
            if flight is not None:
                sender = self.names[flight.sender] if flight.sender >= 0 else None
                found[process, encoded.index_of(event), name] = sender, flight.index
        return found

    def _judge(self, cut: _Slice, require: Collection[str]) -> list[Violation]:
        encoded = cut.encoded
        aftermath = Aftermath(encoded, cut.messages, cut.names)
        outer = [cut.names[local] for local in aftermath.external.tolist()]
        flying = dict(self.flights)
        for name in outer:
            if name not in flying:
                flying[name] = self.finished.get(name) or never_sent(len(self.names))
        entry = self._entry(flying, aftermath.external, outer)
        story = tell_slice(encoded, cut.messages, entry)
        clocks, backward = clocks_from(story, self.known, clocks_of(flying.values(), len(self.names)))
        scene = Scene(self.name, 0, self.names, encoded, cut.messages, entry, story, cut.resent)
        found = [row.violation for row in judged(scene, backward, clocks, require)]
        for name, processes in zip(outer, aftermath.deliveries(), strict=True):
            flying[name].deliver(processes)
            self._file(name, flying[name])
        for name, flight in aftermath.sent(story, clocks):
            self._file(name, flight)
        self._go_on(encoded)
        return found

    def _entry(self, flying: Mapping[str, TrackedMessage], external: Ints, outer: Collection[str]) -> SliceEntry:
        place = {name: at for at, name in enumerate(flying)}
        none = np.zeros(len(flying), np.int32)
        flight_of = np.array([place[name] for name in outer], np.int32)
        flights = arrays_of(list(flying.values()))
        return SliceEntry(self.base, self.judged, flights, list(flying), none, none, external, flight_of, none[:0])

    def _file(self, name: str, flight: TrackedMessage) -> None:
        """Put a message where it belongs by now."""
        if flight.is_finished:
            self.flights.pop(name, None)
            self.finished[name] = flight
        else:
            self.flights[name] = flight

    def _go_on(self, encoded: Encoded) -> None:
        """Count on from the end of a slice; clocks have done so by themselves."""
        process = np.repeat(np.arange(encoded.processes), np.diff(encoded.first))
        self.base = self.base + np.bincount(process[encoded.send_event], minlength=len(self.names))
        self.judged = np.maximum(self.judged, last_indices(encoded))
        self.events += len(encoded.role)
        crashed = status_of(encoded, KINDS["crash"], KINDS["recover"])
        left = status_of(encoded, KINDS["leave"], KINDS["join"])
        self.crashed = np.where(crashed >= 0, crashed, self.crashed)
        self.left = np.where(left >= 0, left, self.left)
