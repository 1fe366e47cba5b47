"""What happened at one server, as a trace that others can audit: each send and each delivery once, also over crashes.

Rules:

* An event is written when the entry that it follows from is durable. So nothing is in a trace that a crash then undoes.
* The log forgets only what is on disk as a trace (``flush`` before each compaction). After a crash the same records give the same
  events with the same numbers, and those that the trace has already are left out.
* The time of an event is when it first happened. The log keeps it, so it is the same after a crash.
* Every start writes into a folder of its own beside the others, ``NAME.0000``, ``NAME.0001``, …, and goes on in another one after
  ``PARTS_PER_FOLDER``; together they are one trace.
* Events are numbered without a hole, so the last one of the newest part says how many there are: a start looks at the newest
  folder only and opens one part, however old the trace is, and older folders may be deleted.
* A disk that is full stops the trace and at first nothing else, at a start neither: events wait in memory and are tried again, in
  another folder, since half a part may be in this one. The log does not forget them meanwhile.
* With ``MAX_UNWRITTEN`` of them nothing more is taken (``full``), as with a full disk of the store, until they are written. A
  trace with a gap could not be audited, and a server that ended for it would not come back before there is room.
"""

from __future__ import annotations

import logging
import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from thence.core.member.contract import Delivery
from thence.core.topology.model import Topology
from thence.core.wire.messages import Envelope
from thence.core.wire.records import Record, happened_at
from thence.errors import ConfigError, StorageError, StoreFull
from thence.storage import files
from thence.trace.events import RECOVER, Event
from thence.trace.live import LiveTraceWriter
from thence.trace.recorder import Recorder
from thence.words import counted

ROWS_PER_PART: Final = 16_384
"""How many events are kept in memory at most before they are written."""

PARTS_PER_FOLDER: Final = 10_000
"""How many parts are in one folder, which a start has to list: half a day of them, where each is five seconds old."""

MAX_UNWRITTEN: Final = 1_000_000
"""How many are while they cannot be written; then nothing more is taken. What follows from what was taken comes on top."""

_PART: Final = re.compile(r"part-(\d{5,})\.parquet", re.ASCII)

log = logging.getLogger("thence.history")


class TraceHistory:
    """Writes the trace of one server: each send and each delivery once, also over crashes. Without a folder it does nothing."""

    def __init__(self, folder: Path | None, server: str, topology: Topology) -> None:
        """Go on behind what the folder has of this server."""
        self.events = 0
        """How many events there were in all."""
        self._server = server
        self._domain, self._everyone = topology.homes[server][0], topology.processes
        self._waiting: deque[tuple[int, Event]] = deque()
        self._sequence = 0
        self._written = 0
        self._folder = folder
        self.active = folder is not None
        self._folders = 0
        self._writer: LiveTraceWriter | None = None
        self._unfinished: deque[Event] = deque()
        """Events that are in no finished part of the trace."""
        self._finished = 0
        """How many events in finished parts of this writer are not among them any more."""
        self._last_at = 0
        """When the last record was made of those that are stepped through again."""
        self.trouble = ""
        """Why the trace is not written at the moment."""
        self.full = ""
        """Why the server may take nothing for that."""
        if folder is not None:
            # Not by a glob: another server may be called as this one and a number.
            mine = re.compile(re.escape(server) + r"\.\d{4,}", re.ASCII)
            starts = [path for path in folder.iterdir() if mine.fullmatch(path.name)] if folder.is_dir() else []
            starts.sort(key=_number, reverse=True)
            self._written = _events_in(starts)
            self._folders = _number(starts[0]) + 1 if starts else 0
            try:
                self._writer = self._open(folder)
            except StorageError as error:
                if getattr(error.__cause__, "errno", None) not in files.FULL:
                    raise
                self._stopped(error)
        self._recorder = Recorder(self._take, topology.processes, overhead=True)

    def check_new(self) -> None:
        """The server begins anew, and numbers its events anew: refuse to mistake them for those of one that was there before."""
        if self._written:
            raise ConfigError(
                f"{self._folder}: has {counted(self._written, 'event')} of {self._server!r} that another store told. "
                "Give a new folder with --trace, or "
                "start on the store that belongs to it; with --durability memory every start begins anew"
            )

    def resume(self, events: int) -> None:
        """The log begins behind so many events."""
        self.events = events
        self._recorder.resume(self._server, events)

    def time_of(self, record: Record) -> int:
        """Return when a stored record was made: what follows from it happened then, and not now. 0: nobody knows.

        A record that does not say when counts as made with the last one that did: only then is it before all that came later.
        """
        self._last_at = happened_at(record) or self._last_at
        return self._last_at

    def record(self, sequence: int, accepted: Sequence[Envelope], deliveries: Sequence[Delivery], now: int) -> None:
        """These followed from the entry with this number."""
        if self._folder is None:
            return
        self._sequence = sequence
        for envelope in accepted:
            self._recorder.send(self._server, envelope, now, self._domain, self._everyone)
        for delivery in deliveries:
            news = delivery.news
            if news is not None:
                self._recorder.view(self._server, news.lost, now)
                continue
            self._recorder.deliver(self._server, delivery.envelope, now, delivery.domain, delivery.frame.stamp)

    def started(self, sequence: int, at: int) -> None:
        """The server came back."""
        self._last_at = at
        self.note(sequence, RECOVER, at)

    def changed(self, topology: Topology) -> None:
        """Another topology is in force."""
        self._domain, self._everyone = topology.homes[self._server][0], topology.processes

    def note(self, sequence: int, kind: str, at: int) -> None:
        """The server came in with a later version of the fabric, or has left it."""
        if self._folder is not None:
            self._sequence = sequence
            self._recorder.note(self._server, kind, at)

    def release(self, durable: int) -> None:
        """Write what follows from entries up to this one."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= durable:
            event = waiting.popleft()[1]
            if event.index >= self._written and self._folder is not None:
                self._write(event)

    def tick(self) -> None:
        """Let others see what has waited long enough, and try again what could not be written."""
        if self._folder is not None:
            self._try(LiveTraceWriter.tick)

    def flush(self) -> None:
        """Put on disk all that may be written; ``StoreFull`` if that cannot be done now."""
        if self._folder is None:
            return
        self._try(LiveTraceWriter.end_part)
        if self._writer is None:
            raise StoreFull(f"the trace cannot be written: {self.trouble}")
        files.sync_folder(self._writer.path)
        files.sync_folder(self._folder)

    def close(self) -> None:
        """Write the rest. What cannot be written is in the log, and comes with the next start."""
        if self._folder is not None:
            self._try(LiveTraceWriter.close)

    def _write(self, event: Event) -> None:
        self._unfinished.append(event)
        if self._writer is not None:
            self._try(lambda writer: writer.write(event))
        elif len(self._unfinished) >= MAX_UNWRITTEN:
            self.full = f"{MAX_UNWRITTEN:,} events are not in the trace (MAX_UNWRITTEN), which cannot be written: {self.trouble}"

    def _try(self, act: Callable[[LiveTraceWriter], None]) -> None:
        """Write, if that can be done; go on in another folder where it could not."""
        try:
            if self._writer is None and self._folder is not None:
                self._writer = self._open(self._folder)
                for event in self._unfinished:
                    self._writer.write(event)
            if self._writer is not None:
                act(self._writer)
                self.trouble = self.full = ""
                self._forget_finished(self._writer)
                if self._writer.parts >= PARTS_PER_FOLDER and not self._unfinished and self._folder is not None:
                    self._writer.close()
                    files.sync_folder(self._writer.path)  # Later, ``flush`` sees to the next one.
                    self._writer = self._open(self._folder)
        except (OSError, StorageError) as error:
            self._stopped(error)
            if self._writer is not None:
                self._forget_finished(self._writer)  # Of many events some may be in parts that others have read by now.
                with suppress(OSError):
                    self._writer.abandon()
                with suppress(OSError, StorageError):
                    files.sync_folder(self._writer.path)  # Nobody comes back to it.
                self._writer = None

    def _forget_finished(self, writer: LiveTraceWriter) -> None:
        for _ in range(writer.whole - self._finished):
            self._unfinished.popleft()
        self._finished = writer.whole

    def _stopped(self, error: Exception) -> None:
        if not self.trouble:
            log.warning("the trace is not written for now: %s", error)
        self.trouble = str(error)

    def _open(self, folder: Path) -> LiveTraceWriter:
        writer = LiveTraceWriter(folder / f"{self._server}.{self._folders:04d}", rows_per_part=ROWS_PER_PART)
        self._folders += 1
        self._finished = 0
        return writer

    def _take(self, event: Event) -> None:
        self.events = event.index + 1
        self._waiting.append((self._sequence, event))


def _number(start: Path) -> int:
    return int(start.name.rpartition(".")[2])


def _events_in(starts: Sequence[Path]) -> int:
    """Return how many events there were up to the last one that is in these folders, the newest first."""
    for start in starts:
        with os.scandir(start) as entries:
            parts = [int(found[1]) for entry in entries if (found := _PART.fullmatch(entry.name))]
        for number in sorted(parts, reverse=True):
            last = _last_event(start / f"part-{number:05d}.parquet")
            if last is not None:
                return last + 1
    return 0


def _last_event(part: Path) -> int | None:
    """Return the number of the last event in a part; None if it has none, as that of a start at which nothing happened."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(part) as file:
            for group in reversed(range(file.num_row_groups)):
                rows = file.read_row_group(group, columns=["index"]).column("index")
                if len(rows):
                    return int(rows[-1].as_py())
    except (pa.ArrowException, OSError) as error:
        raise StorageError(f"{part}: cannot be read, so nobody knows where the trace goes on: {error}") from error
    return None
