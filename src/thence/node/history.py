"""What happened at one server, as a trace that others can audit: each send and each delivery once, also over crashes.

Rules:

* An event is written when the entry that it follows from is durable. So nothing is in a trace that a crash then undoes.
* The log forgets only what is on disk as a trace (``flush`` before each compaction). After a crash the same records give the same
  events with the same numbers, and those that the trace has already are left out.
* The time of an event is when it first happened. The log keeps it, so it is the same after a crash.
* The arrival of a message stands right before its delivery, with the time at which it came in: only sends and deliveries, which
  follow from the log, decide how events are numbered. What earlier versions wrote into the log is numbered as they did it,
  without arrivals, up to the first start that tells them (``storage.journal.Started``).
* Every start writes into a folder of its own beside the others, ``start=NAME.0000``, ``start=NAME.0001``, …, and goes on in
  another one after ``PARTS_PER_FOLDER``; together they are one trace. These are names of partitions, since Spark looks into no
  other folders below the one that it is given. Earlier versions wrote ``NAME.0000``.
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
from typing import Any, Final

from thence.core.member.contract import Delivery
from thence.core.topology.model import Topology
from thence.core.wire.messages import MAX_NAME_CHARACTERS, Envelope, Frame
from thence.core.wire.records import Record, happened_at
from thence.errors import ConfigError, MalformedFrame, StorageError, StoreFull
from thence.net.names import MAX_TOPIC_CHARACTERS
from thence.node.arrival_times import ArrivalTimes, SavedTimes
from thence.storage import files
from thence.storage.bodies import read_body
from thence.storage.mailbox import Batch
from thence.trace.events import RECOVER, Event
from thence.trace.live import LiveTraceWriter
from thence.trace.recorder import NOBODYS, About, Recorder
from thence.words import counted

ROWS_PER_PART: Final = 16_384
"""How many events are kept in memory at most before they are written."""

PARTS_PER_FOLDER: Final = 10_000
"""How many parts are in one folder, which a start has to list: half a day of them, where each is five seconds old."""

MAX_UNWRITTEN: Final = 1_000_000
"""How many are while they cannot be written; then nothing more is taken. What follows from what was taken comes on top."""

_START: Final = "start="

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
        self._waiting: deque[tuple[int, list[Event]]] = deque()
        """Events that follow from the entry of each number."""
        self._made: list[Event] = []
        """Those that are being made."""
        self.events_written = 0
        self._folder = folder
        self.active = folder is not None
        self._folders = 0
        self._writer: LiveTraceWriter | None = None
        self._unfinished: deque[Event] = deque()
        """Events that are in no finished part of the trace."""
        self._finished = 0
        """How many events in finished parts of this writer are not among them any more."""
        self._arrivals = ArrivalTimes(server)
        self._tells_arrivals = False
        """Whether arrivals are events from here on."""
        self._last_at = 0
        """When the last record was made of those that are stepped through again."""
        self.trouble = ""
        """Why the trace is not written at the moment."""
        self.full = ""
        """Why the server may take nothing for that."""
        if folder is not None:
            # Not by a glob: another server may be called as this one and a number.
            mine = re.compile(rf"({_START})?{re.escape(server)}\.\d{{4,}}", re.ASCII)
            starts = [path for path in folder.iterdir() if mine.fullmatch(path.name)] if folder.is_dir() else []
            starts.sort(key=_number, reverse=True)
            self.events_written = _events_in(starts)
            self._folders = _number(starts[0]) + 1 if starts else 0
            try:
                self._writer = self._open(folder)
            except StorageError as error:
                if getattr(error.__cause__, "errno", None) not in files.FULL:
                    raise
                self._stopped(error)
        self._recorder = Recorder(self._made.append, topology.processes, overhead=True)

    def check_new(self) -> None:
        """The server begins anew, and numbers its events anew: refuse to mistake them for those of one that was there before."""
        if self.events_written:
            raise ConfigError(
                f"{self._folder}: has {counted(self.events_written, 'event')} of {self._server!r} that another store told. "
                "Give a new folder with --trace, or "
                "start on the store that belongs to it; with --durability memory every start begins anew"
            )

    def resume(self, events: int, arrived: SavedTimes | None) -> None:
        """The log begins behind so many events, when these messages waited; None: no arrivals are told so far."""
        self.events = events
        self._recorder.resume(self._server, events)
        self._tells_arrivals = arrived is not None
        self._arrivals.load(arrived or [])

    def saved_arrivals(self) -> SavedTimes | None:
        """Return what ``resume`` needs to know of arrivals."""
        return self._arrivals.save() if self._tells_arrivals else None

    def begin(self, *, arrivals: bool) -> None:
        """The server has started, and tells arrivals from here on, or not yet: that depends on its version."""
        self._tells_arrivals = arrivals

    def time_of(self, record: Record) -> int:
        """Return when a stored record was made: what follows from it happened then, and not now. 0: nobody knows.

        A record that does not say when counts as made with the last one that did: only then is it before all that came later.
        """
        self._last_at = happened_at(record) or self._last_at
        return self._last_at

    def arrived(self, came: Sequence[Record | Frame[Any]], at: int) -> None:
        """These records were made, or these frames came in where nothing is recorded."""
        if self._folder is not None:
            self._arrivals.note(came, at)

    def record(self, sequence: int, accepted: Sequence[Envelope], deliveries: Sequence[Delivery], now: int) -> None:
        """These followed from the entry with this number."""
        if self._folder is None:
            return
        recorder, server = self._recorder, self._server
        for envelope in accepted:
            recorder.send(server, envelope, now, self._domain, self._everyone, _about(envelope))
        for delivery in deliveries:
            news = delivery.news
            if news is not None:
                recorder.view(server, news.lost, now)
                continue
            envelope = delivery.envelope
            if envelope.origin != server:
                arrived_at = self._arrivals.take(envelope)
                if self._tells_arrivals:
                    recorder.arrive(server, envelope, arrived_at, delivery.domain)
            recorder.deliver(server, envelope, now, delivery.domain, delivery.frame.stamp, _about(envelope))
        self._follow_from(sequence)

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
            self._recorder.note(self._server, kind, at)
            self._follow_from(sequence)

    def _follow_from(self, sequence: int) -> None:
        """Let what was made wait until the entry with this number is durable."""
        made = self._made
        if made:
            self.events = made[-1].index + 1
            self._waiting.append((sequence, made[:]))
            made.clear()

    def release(self, durable: int) -> None:
        """Write what follows from entries up to this one."""
        waiting = self._waiting
        due: list[Event] = []
        while waiting and waiting[0][0] <= durable:
            due += waiting.popleft()[1]
        if due and due[0].index < self.events_written:
            due = [event for event in due if event.index >= self.events_written]
        if due:
            self._write(due)

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

    def _write(self, events: Sequence[Event]) -> None:
        self._unfinished.extend(events)

        def write_each(writer: LiveTraceWriter) -> None:
            for event in events:
                writer.write(event)

        if self._writer is not None and not self._writer.add(events):
            self._try(write_each)
        if self._writer is None and len(self._unfinished) >= MAX_UNWRITTEN:
            self.full = f"{MAX_UNWRITTEN:,} events are not in the trace (MAX_UNWRITTEN), which cannot be written: {self.trouble}"

    def _try(self, act: Callable[[LiveTraceWriter], object]) -> None:
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
        whole = writer.whole
        for _ in range(whole - self._finished):
            self._unfinished.popleft()
        self._finished = whole

    def _stopped(self, error: Exception) -> None:
        if not self.trouble:
            log.warning("the trace is not written for now: %s", error)
        self.trouble = str(error)

    def _open(self, folder: Path) -> LiveTraceWriter:
        writer = LiveTraceWriter(folder / f"{_START}{self._server}.{self._folders:04d}", rows_per_part=ROWS_PER_PART)
        self._folders += 1
        self._finished = 0
        return writer


def _about(envelope: Envelope) -> About:
    """Return whose message it is. Others may have written what is too long for a name: it must not fill our memory."""
    try:
        body = read_body(envelope.body, envelope.origin)
    except MalformedFrame:
        return NOBODYS
    if not isinstance(body, Batch) or len(body.sender) > MAX_NAME_CHARACTERS:
        return NOBODYS
    topic = body.topic
    return About(body.sender, topic if topic is None or len(topic) <= MAX_TOPIC_CHARACTERS else None)


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
