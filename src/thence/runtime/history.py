"""What happened at one server, as a trace that others can audit: each send and each delivery once, also over crashes.

Rules:

* An event is written when the entry that it follows from is durable. So nothing is in a trace that a crash then undoes.
* The log forgets only what is on disk as a trace (``flush`` before each compaction). After a crash the same records give the same
  events with the same numbers, and those that the trace has already are left out.
* Every start writes into a folder of its own beside the others, ``NAME.0000``, ``NAME.0001``, …; together they are one trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from thence.core.member import Delivery
from thence.core.messages import Envelope
from thence.core.topology import Topology
from thence.trace.events import RECOVER, Event
from thence.trace.live import LiveTraceWriter
from thence.trace.recorder import Recorder

ROWS_PER_PART: Final = 16_384
"""How many events are kept in memory at most before they are written."""


class History:
    """See the module's text. Without a folder it does nothing."""

    def __init__(self, folder: Path | None, server: str, topology: Topology) -> None:
        """Go on behind what the folder has of this server."""
        self.events = 0
        """How many events there were in all."""
        self._server = server
        self._domain = topology.homes[server][0]
        self._waiting: deque[tuple[int, Event]] = deque()
        self._sequence = 0
        self._written = 0
        self._writer: LiveTraceWriter | None = None
        if folder is not None:
            starts = sorted(folder.glob(f"{server}.[0-9]*")) if folder.is_dir() else []
            self._written = sum(_rows_in(start) for start in starts)
            self._writer = LiveTraceWriter(folder / f"{server}.{len(starts):04d}", rows_per_part=ROWS_PER_PART)
        self._recorder = Recorder(self._take, topology.processes, overhead=True)

    def resume(self, events: int) -> None:
        """The log begins behind so many events."""
        self.events = events
        self._recorder.resume(self._server, events)

    def record(self, sequence: int, accepted: Sequence[Envelope], deliveries: Sequence[Delivery], now: int) -> None:
        """These followed from the entry with this number."""
        if self._writer is None:
            return
        self._sequence = sequence
        for envelope in accepted:
            self._recorder.send(self._server, envelope, now, self._domain)
        for delivery in deliveries:
            self._recorder.deliver(self._server, delivery.envelope, now, delivery.domain, delivery.frame.stamp)

    def started(self, sequence: int, at: int) -> None:
        """The server came back."""
        if self._writer is not None:
            self._sequence = sequence
            self._recorder.note(self._server, RECOVER, at)

    def release(self, durable: int) -> None:
        """Write what follows from entries up to this one."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= durable:
            event = waiting.popleft()[1]
            if event.index >= self._written and self._writer is not None:
                self._writer.write(event)

    def tick(self) -> None:
        """Let others see what has waited long enough."""
        if self._writer is not None:
            self._writer.tick()

    def flush(self) -> None:
        """Put on disk all that may be written."""
        if self._writer is not None:
            self._writer.end_part()

    def close(self) -> None:
        """Write the rest."""
        if self._writer is not None:
            self._writer.close()

    def _take(self, event: Event) -> None:
        self.events = event.index + 1
        self._waiting.append((self._sequence, event))


def _rows_in(start: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(part).num_rows for part in sorted(start.glob("part-*.parquet")))
