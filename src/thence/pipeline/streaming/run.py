"""One run that is followed: what is held, what is on its way, and the clocks of all processes. Pure: events and the time come
in, rows go out.

Each step takes what can be judged of the events at hand, a consistent cut (``kernels.frontier``), and judges it as the audit
judges a slice: by the same scan, from a start that is known.

Rules:

* What is judged is judged once. Whatever part an event comes in, and in whatever order parts come, the rows are the judge's but
  for what docs/how-to/following.md names.
* Processes are numbered in the order of their names, as everywhere; when a new name appears, all is renumbered. A destination
  is a process, whether it has events or not.
* The first send of a message that is judged is its send. Others are not well-formed and carry nothing.
* A delivery that was given up as one of a message never sent stays that: its send, should it come, carries nothing.
* A run's clock, in milliseconds, goes on from visit to visit, and not by more than ``MOST_BETWEEN_MS``: patience must not run out
  while nobody follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thence.errors import TraceError
from thence.pipeline.kernels.encoder import encode
from thence.pipeline.kernels.frontier import BEGIN, END, holes, ready
from thence.pipeline.kernels.replay import DELIVER, NOBODY, RESEND, SEND, Longs
from thence.pipeline.kernels.slices import Slice, slice_of, without
from thence.pipeline.scan.rows import FOUND_SCHEMA
from thence.pipeline.scan.run import RunScan
from thence.pipeline.scan.window import SliceWindow
from thence.pipeline.streaming.total import Orders
from thence.pipeline.tables import TRACE, VIOLATIONS, arrow_schema

TICK_MS: Final = 10_000
"""So often a run is visited that holds events, though none come."""
MOST_BETWEEN_MS: Final = 2 * TICK_MS
"""By so much its clock goes on at most from visit to visit."""

MAX_PROCESSES: Final = 1_000
"""In one run, destinations included: clocks grow with the square of it."""
MAX_HELD: Final = 2_000_000
"""Events of one run that cannot be judged yet."""
MAX_FLIGHTS: Final = 500_000
"""Messages of one run that some destination lacks."""
MAX_FINISHED: Final = 50_000
"""Messages of one run that have arrived everywhere and are still known; after that the oldest are forgotten."""
MAX_HISTORY: Final = 50_000
"""Events of one run that were judged and are kept, so that chains can be told."""
MAX_CHAINS: Final = 20
"""So many chains are told of one run in one step."""

ROWS: Final = arrow_schema(VIOLATIONS)
HELD: Final = pa.schema(
    [field for field in arrow_schema(TRACE) if field.name in ("process", "index", "kind", "message", "to", "time")]
)
"""The columns of events that are held; ``time`` is when the event was first seen, by the clock of the run."""

Shelf = MutableMapping[int, Slice]
"""What was judged in earlier steps, by step."""


@dataclass(frozen=True, slots=True)
class FollowLimits:
    """How much is kept of one run; beyond a limit following ends with an error that names it.

    Only ``finished`` and ``history`` forget: docs/how-to/following.md says what that means.
    """

    processes: int = MAX_PROCESSES
    held: int = MAX_HELD
    flights: int = MAX_FLIGHTS
    finished: int = MAX_FINISHED
    history: int = MAX_HISTORY

    def check(self, name: str, what: str, count: int, where: str) -> None:
        """Refuse more of something than its limit."""
        limit = getattr(self, name)
        if count > limit:
            raise TraceError(f"{where}: {count:,} {what}; the limit is {limit:,}. thence audit has no such limit")


class Lag(NamedTuple):
    """How far behind a run is, at the end of a step."""

    run: str | None
    events: int
    """Judged so far."""
    held: int
    """Events that cannot be judged yet."""
    oldest: str | None
    """One that has been held for longest: its run, process and index."""
    oldest_s: float
    """For how long."""
    flights: int
    """Messages that some destination lacks."""
    counts: dict[str, int]
    """How many violations of each property were found."""


@dataclass(slots=True)
class FollowedRun:
    """The state of one run: its scan, and the events that cannot be judged yet."""

    scan: RunScan
    orders: Orders | None = None
    """For total order, if that is asked for."""
    held: pa.Table = field(default_factory=HELD.empty_table)
    steps: int = 0
    clock_ms: int = 0
    visited_ms: int | None = None
    """When the run was last visited, by the clock of whoever visits it."""
    counts: Counter[str] = field(default_factory=Counter)
    history: dict[int, int] = field(default_factory=dict)
    """How many events were judged in each of the steps that are on the shelf."""

    @classmethod
    def begin(cls, name: str | None, require: Collection[str], limits: FollowLimits) -> FollowedRun:
        """Return a run of which nothing is known yet."""
        scan = RunScan(name, [], np.empty(0, np.int64), tuple(require), remembered=limits.finished)
        return cls(scan, Orders() if "total" in require else None)

    def take(self, tables: Iterable[pa.Table], now_ms: int, limits: FollowLimits) -> None:
        """Hold more events, with the columns of ``HELD`` but for the time."""
        self._pass(now_ms)
        added = pa.concat_tables(tables)
        seen = pa.array(np.full(added.num_rows, self.clock_ms, np.int64))
        self.held = pa.concat_tables([self.held, added.append_column("time", seen).select(HELD.names).cast(HELD)])
        addressed = pc.list_flatten(added["to"]).unique().to_pylist()
        fresh = {*added["process"].unique().to_pylist(), *addressed}.difference(self.scan.names)
        if fresh:
            limits.check("processes", "processes", len(self.scan.names) + len(fresh), self._title)
            before = self.scan.names
            self.scan.add(sorted(fresh))
            self.history = {}  # There the processes have other numbers.
            if self.orders:
                number = {name: at for at, name in enumerate(self.scan.names)}
                self.orders.renumber(np.array([number[name] for name in before], np.int64), len(number))

    def step(self, now_ms: int, hold_s: float | None, limits: FollowLimits, shelf: Shelf) -> pa.Table:
        """Judge what can be judged by now, and tell what is wrong; who has been held for ``hold_s`` waits no longer."""
        self._pass(now_ms)
        rows = self._judge(BEGIN if hold_s is None else self.clock_ms - int(hold_s * 1000), limits, shelf)
        limits.check("flights", "messages are on their way", self.scan.flights.lacking, self._title)
        limits.check("held", "events are held, waiting for others", self.held.num_rows, self.lag.oldest or self._title)
        return rows

    def finish(self, limits: FollowLimits, shelf: Shelf) -> pa.Table:
        """There is nothing more to come: judge what is held, and tell what never arrived."""
        rows = self._judge(END, limits, shelf)
        return pa.concat_tables([rows, self._rows_of(list(self.scan.finish(self.steps)), {})])

    @property
    def lag(self) -> Lag:
        """How far behind this is."""
        where, for_ms = None, 0
        if self.held.num_rows:
            at = int(np.argmin(self.held["time"].to_numpy()))
            inside = f" of run {self.scan.run}" if self.scan.run is not None else ""
            where = f"{self.held['process'][at]}'s event {self.held['index'][at]}{inside}"
            for_ms = self.clock_ms - int(self.held["time"][at].as_py())
        return Lag(
            run=self.scan.run,
            events=self.scan.events,
            held=self.held.num_rows,
            oldest=where,
            oldest_s=for_ms / 1000,
            flights=self.scan.flights.lacking,
            counts=dict(self.counts),
        )

    @property
    def _title(self) -> str:
        return "the trace" if self.scan.run is None else f"run {self.scan.run!r}"

    def _pass(self, now_ms: int) -> None:
        if self.visited_ms is not None:
            self.clock_ms += min(max(0, now_ms - self.visited_ms), MOST_BETWEEN_MS)
        self.visited_ms = now_ms

    def _judge(self, overdue_ms: int, limits: FollowLimits, shelf: Shelf) -> pa.Table:
        """Judge a cut; keep it on the shelf for chains, as long as there is room."""
        for step in [step for step in shelf if step not in self.history]:
            del shelf[step]
        given = self._cut(overdue_ms)
        if not given.events:
            return ROWS.empty_table()
        found = [*self.scan.take(given, self.steps), *self.scan.release(self.steps)]  # A cut waits for nothing but itself.
        if self.orders:
            found.append(self.orders.take(self.scan.run, self.scan.names, given))
            self.orders.forget(self.scan.flights.names)
        given = without(given, self.scan.resent)
        rows = self._rows_of(found, shelf, given if given.events <= limits.history else None)
        self.history[self.steps] = given.events
        gone = [step for step in self.history if sum(self.history[at] for at in self.history if at >= step) > limits.history]
        for step in gone:
            del self.history[step]
            if step != self.steps:
                del shelf[step]
        if self.steps in self.history:
            shelf[self.steps] = given
        self.steps += 1
        return rows

    def _rows_of(self, found: list[pa.RecordBatch], shelf: Shelf, given: Slice | None = None) -> pa.Table:
        """Return rows with chains: as far as history reaches, null where it does not, and empty where there is none to tell."""
        table = pa.Table.from_batches(found, FOUND_SCHEMA)
        self.counts.update(table["property"].to_pylist())
        late = table["since"].is_valid().to_numpy(zero_copy_only=False)
        chains: list[Any] = [None if one else () for one in late.tolist()]
        known = {*self.history, self.steps} if given else set()
        explained = [at for at in np.flatnonzero(late).tolist() if table["since"][at].as_py() in known][:MAX_CHAINS]
        if given and explained:
            first = min(table["since"][at].as_py() for at in explained)
            slices = [*(shelf[step] for step in sorted(self.history) if step >= first), given]
            window = SliceWindow(list(self.scan.names), slices)
            for at in explained:
                chains[at] = window.chain(table["earlier"][at].as_py(), table["later"][at].as_py())
        return table.append_column("chain", pa.array(chains, pa.list_(pa.string()))).select(ROWS.names)

    def _cut(self, overdue_ms: int) -> Slice:
        """Find out what can be judged, and put what cannot be aside."""
        self.held = self.held.combine_chunks()
        names = list(self.scan.names)
        process = pc.index_in(self.held["process"], pa.array(names, pa.string())).to_numpy().astype(np.int64)
        index, seen = self.held["index"].to_numpy(), self.held["time"].to_numpy()
        waits = index > holes(process, index, self.scan.previous, seen <= overdue_ms)[process]
        encoded, messages, strangers = encode(self.held.filter(pa.array(~waits)), names)
        flight = pc.index_in(messages, self.scan.flights.names).fill_null(NOBODY).to_numpy()
        sent = flight != NOBODY
        reached = ready(encoded.first, encoded.role, encoded.message, sent, encoded.time <= overdue_ms)
        stops = reached < encoded.first[1:]
        stopped = np.zeros(len(names), np.int64)
        stopped[stops] = encoded.index[reached[stops]]
        waits |= stops[process] & (index >= stopped[process])
        sends = np.flatnonzero((encoded.role == SEND) | (encoded.role == RESEND))
        resent = self._resent(Slice(encoded, messages, [], flight, sent), sends[sent[encoded.message[sends]]])
        if stops.any() or resent:
            encoded, messages, strangers = encode(self.held.filter(pa.array(~waits)), names, resent.keys())
        self.held = self.held.filter(pa.array(waits))
        self.scan.resent = resent
        given = slice_of(encoded, messages, strangers)
        given.unsent[encoded.message[encoded.role == DELIVER]] = True
        given.unsent[encoded.message[encoded.role == SEND]] = False
        return given

    def _resent(self, given: Slice, again: Longs) -> dict[tuple[int, int, str], tuple[str | None, int]]:
        """Sends of messages that are known already: who sent each first, in which event; ``last`` has the flights."""
        encoded, flights = given.encoded, self.scan.flights
        found: dict[tuple[int, int, str], tuple[str | None, int]] = {}
        for event in again.tolist():
            message = int(encoded.message[event])
            flight = int(given.last[message])
            sender = int(flights.sender[flight])
            place = encoded.process_of(event), encoded.index_of(event), given.names[message].as_py()
            found[place] = self.scan.names[sender] if sender != NOBODY else None, int(flights.index[flight])
        return found
