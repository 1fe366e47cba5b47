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

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thence.errors import TraceError
from thence.pipeline.kernels.encoder import encode
from thence.pipeline.kernels.frontier import holes, ready
from thence.pipeline.kernels.replay import DELIVER, NOBODY, RESEND, SEND, Longs
from thence.pipeline.kernels.slices import Slice, slice_of
from thence.pipeline.scan.run import RunScan
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


@dataclass(slots=True)
class FollowedRun:
    """The state of one run: its scan, and the events that cannot be judged yet."""

    name: str | None
    scan: RunScan
    held: pa.Table = field(default_factory=HELD.empty_table)
    steps: int = 0

    @classmethod
    def begin(cls, name: str | None, require: Collection[str], limits: FollowLimits) -> FollowedRun:
        """Return a run of which nothing is known yet."""
        return cls(name, RunScan(name, [], np.empty(0, np.int64), tuple(require), remembered=limits.finished))

    @property
    def events(self) -> int:
        """How many events were judged."""
        return self.scan.events

    @property
    def flights(self) -> int:
        """How many messages some destination lacks."""
        return self.scan.flights.lacking

    def take(self, table: pa.Table, limits: FollowLimits) -> None:
        """Hold more events: a table with the columns of ``HELD``."""
        self.held = pa.concat_tables([self.held, table]).combine_chunks()
        addressed = table["to"].combine_chunks().flatten().unique()
        fresh = {*table["process"].unique().to_pylist(), *addressed.to_pylist()}.difference(self.scan.names)
        if fresh:
            limits.check("processes", "processes", len(self.scan.names) + len(fresh), self._title)
            self.scan.add(sorted(fresh))

    def step(self, overdue_ns: int, limits: FollowLimits) -> list[Violation]:
        """Judge what can be judged; who was first seen at ``overdue_ns`` or before waits no longer."""
        if not self.held.num_rows:
            return []
        given = self._cut(overdue_ns)
        found = list(violations_in(self.scan.take(given, self.steps))) if given.events else []
        self.steps += 1
        limits.check("flights", "messages are on their way", self.flights, self._title)
        return found

    def lost(self) -> Iterator[Violation]:
        """What never arrived, if there is nothing more to come."""
        return violations_in(self.scan.finish(self.steps))

    @property
    def _title(self) -> str:
        return "the trace" if self.name is None else f"run {self.name!r}"

    def _cut(self, overdue_ns: int) -> Slice:
        """Find out what can be judged, and put what cannot be aside."""
        names = list(self.scan.names)
        process = pc.index_in(self.held["process"], pa.array(names, pa.string())).to_numpy().astype(np.int64)
        index, seen = self.held["index"].to_numpy(), self.held["time"].to_numpy()
        waits = index > holes(process, index, self.scan.previous, seen <= overdue_ns)[process]
        encoded, messages, strangers = encode(self.held.filter(pa.array(~waits)), names)
        flight = pc.index_in(messages, self.scan.flights.names).fill_null(NOBODY).to_numpy()
        sent = flight != NOBODY
        reached = ready(encoded.first, encoded.role, encoded.message, sent, encoded.time <= overdue_ns)
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


def violations_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Violation]:
    """Return rows as violations, without chains."""
    for batch in batches:
        names = [name for name in Violation.__struct_fields__ if name != "chain"]
        for row in batch.select(names).to_pylist():
            yield Violation(**row)
