"""``follow``: a folder that grows, judged by ``query``, with progress, tables, patience and an end.

Rules:

* Spark says what belongs to a batch and repeats a batch until it is committed, with the same rows; ``sink`` publishes them once.
* A batch is always carried out, also one that has been published: otherwise its state would be missing.
* Before the end is declared, the folder is looked at once more: no part is left unread by a race. Then what is left is told from
  the state store, and published as one more step.
"""

from __future__ import annotations

import json
import re
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from thence.errors import ConfigError, StorageError, ThenceError, TraceError
from thence.pipeline.kernels.encoder import COLUMNS
from thence.pipeline.session import settings
from thence.pipeline.source.offsets import begun_in, names_of
from thence.pipeline.source.pieces import pieces
from thence.pipeline.streaming.query import BLOCK_EVENTS, HOLD_S, JUDGED, ended, judged
from thence.pipeline.streaming.run import FollowLimits
from thence.pipeline.streaming.sink import FollowSink, FollowState, StepLag
from thence.pipeline.tables import TRACE, arrow_schema, ddl
from thence.trace.files import trace_files
from thence.trace.verdict import DEFAULT_REQUIRED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 0.2
TRIGGER: Final = "500 milliseconds"
"""How often Spark looks for new parts."""
PARTS_PER_BATCH: Final = 64
BYTES_PER_BATCH: Final = 8 << 20
"""So many new parts, and bytes of them, are taken in one step, the oldest first: about a million events."""
START_ATTEMPTS: Final = 6
"""How often a query is started that Spark gives up before it has begun:"""
SLOW_START: Final = "Python worker failed to connect back"
"""on a busy machine Python may need longer to start than the ten seconds that Spark waits for whoever looks for new parts."""

SETTINGS: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BLOCK_EVENTS),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "3",
    "spark.sql.streaming.stateStore.maintenanceInterval": "10s",
}
"""Of a following: what is read once is written once, and old states go soon."""

_OURS: Final = re.compile(r"\b(ConfigError|StorageError|TraceError): (.+)")
_ERRORS: Final = {"ConfigError": ConfigError, "StorageError": StorageError, "TraceError": TraceError}


Hear = Callable[[StepLag, pa.Table], None]
"""Hears of each step: the lag after it, and the violations found in it."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is followed, and how."""

    source: str
    checkpoint: str | None = None
    """Where to keep what a restart needs; without it the next start begins anew."""
    out: str | None = None
    require: Sequence[str] = DEFAULT_REQUIRED
    until_idle_s: float | None = None
    """The end is declared when no new part was found for so long."""
    hold_s: float | None = HOLD_S
    """For how long an event is held; None: for ever."""
    limits: FollowLimits = field(default_factory=FollowLimits)
    bytes_per_batch: int = BYTES_PER_BATCH
    parts_per_batch: int = PARTS_PER_BATCH


def follow(spark: SparkSession, options: Options, hear: Hear) -> FollowState:
    """Follow until idle for long enough, or until interrupted; return the last state, which says whether it is over."""
    if not hasattr(spark, "_sc"):
        raise ConfigError("over Spark Connect no folder can be followed; use --master, or audit_stream on a stream of your own")
    with ExitStack() as stack:
        checkpoint = options.checkpoint or stack.enter_context(tempfile.TemporaryDirectory(prefix="thence-follow-"))
        return Following(spark, options, Path(checkpoint).resolve(), hear).run()


class Following:
    """One start of a following."""

    def __init__(self, spark: SparkSession, options: Options, checkpoint: Path, hear: Hear) -> None:
        self._spark, self._options, self._hear = spark, options, hear
        self._source, self._checkpoint = Path(options.source).resolve(), checkpoint
        if self._source.is_file():
            raise ConfigError(f"{self._source}: a folder can be followed, a file cannot")
        self._sink = FollowSink(checkpoint, Path(options.out) if options.out else None)
        self.state = self._sink.load(str(self._source), tuple(options.require))
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._busy_s = time.monotonic()
        self._looked = False

    def run(self) -> FollowState:
        """Follow until idle for long enough, or until interrupted; return the last state."""
        if self.state.over:
            return self.state
        try:
            self._go_on()
            last, attempts = self._rest(), START_ATTEMPTS
            while last is None:
                if not self._unread()[0]:
                    attempts -= 1
                if not attempts:
                    raise StorageError(f"{self._checkpoint}: the state lacks events that were read; begin with a new checkpoint")
                self._go_on()
                last = self._rest()
        except KeyboardInterrupt:
            with self._lock:
                return self.state
        self.state.over = True
        self._publish(last, self.state.batch + 1)
        return self.state

    def _rest(self) -> pa.Table | None:
        """Return what is left to tell; nothing if a part is unread, or what was read is not yet in the state."""
        if self._unread()[0]:
            return None
        if not self.state.runs:
            return arrow_schema(JUDGED).empty_table()
        rest = ended(self._spark, str(self._checkpoint / "spark"), self._options.limits).toArrow()
        seen = sum(lag.events + lag.held for lag in self.state.runs.values())
        return rest if sum(rest["events"].to_pylist()) == seen else None

    def _go_on(self) -> None:
        """Let Spark work until idle for long enough."""
        for attempt in range(1, START_ATTEMPTS + 1):
            query, self._busy_s, self._looked = self._start(), time.monotonic(), False
            try:
                while query.isActive and not self._is_idle(query):
                    time.sleep(POLL_S)
                if attempt == START_ATTEMPTS or SLOW_START not in str(query.exception()):
                    self._raise(query)
                    return
            finally:
                query.stop()

    def _start(self) -> StreamingQuery:
        from thence.pipeline.source import ThenceSource

        options = self._options
        self._spark.dataSource.register(ThenceSource)
        stream = self._spark.readStream.format("thence").schema(ddl(column for column in TRACE if column.name in COLUMNS))
        stream = stream.option("maxPartsPerTrigger", str(options.parts_per_batch))
        stream = stream.option("maxBytesPerTrigger", str(options.bytes_per_batch))
        cores = {"spark.sql.shuffle.partitions": str(self._spark.sparkContext.defaultParallelism)}
        with settings(self._spark, SETTINGS | cores):
            steps = judged(stream.load(str(self._source)), options.require, options.hold_s, options.limits)
            writer = steps.writeStream.foreachBatch(self._batch).option("checkpointLocation", str(self._checkpoint / "spark"))
            return writer.outputMode("append").trigger(processingTime=TRIGGER).start()

    def _batch(self, frame: DataFrame, number: int) -> None:
        """Called by Spark, in a thread of its own."""
        table = frame.toArrow()
        with self._lock:
            try:
                self._take(table, number)
            except BaseException as error:
                self._error = self._error or error
                raise

    def _take(self, table: pa.Table, number: int) -> None:
        if number < self.state.batch:
            raise StorageError(
                f"{self._checkpoint}: Spark goes on with batch {number}, and batch {self.state.batch} was published; "
                "begin with a new checkpoint"
            )
        if table.num_rows and number > self.state.batch:
            self._publish(table, number)
            self._busy_s = time.monotonic()

    def _publish(self, reports: pa.Table, step: int) -> None:
        self._hear(*self._sink.publish(self.state, reports, step, lambda: self._lag(step, has_read=not self.state.over)))

    def _lag(self, step: int, *, has_read: bool) -> StepLag:
        lags, at_s = list(self.state.runs.values()), time.time()
        oldest = max((lag for lag in lags if lag.held), key=lambda lag: lag.oldest_s, default=None)
        unread, read, since_s = self._unread() if has_read else (0, 0, 0.0)
        events, held = sum(lag.events for lag in lags), sum(lag.held for lag in lags)
        return StepLag(
            step=step,
            at=int(at_s * 1_000_000),
            events=events,
            violations=self.state.counts.total(),
            held=held,
            oldest=oldest.oldest if oldest else None,
            oldest_s=oldest.oldest_s if oldest else 0.0,
            flights=sum(lag.flights for lag in lags),
            unread=unread * (events + held) // max(1, read),
            behind_s=max(0.0, at_s - since_s) if has_read else None,
        )

    def _unread(self) -> tuple[int, int, float]:
        """Return the bytes of all that Spark leaves unread by now, and of the rest, and when the oldest unread part appeared.

        If all were read, that is when the newest one appeared.
        """
        offsets = [file for file in self._checkpoint.glob("spark/offsets/*") if file.name.isdecimal()]
        newest = max(offsets, key=lambda file: int(file.name), default=None)
        offset = json.loads(newest.read_text("utf-8").splitlines()[-1]) if newest else {}
        done, begun = set(names_of(offset)), begun_in(offset)
        unread = read = 0
        appeared: tuple[list[float], list[float]] = [], []
        for part in trace_files(self._source) if self._source.exists() else []:
            name, status = part.relative_to(self._source).as_posix(), part.stat()
            left = 0 if name in done else status.st_size
            if name in begun:
                left = sum(piece.size_bytes for piece in pieces([part], self._source) if piece.start >= begun[name])
            unread, read = unread + left, read + status.st_size - left
            appeared[left > 0].append(status.st_mtime)
        return unread, read, min(appeared[True], default=max(appeared[False], default=0.0))

    def _is_idle(self, query: StreamingQuery) -> bool:
        """Whether nothing new was found for long enough, not counting the time before Spark first looked."""
        if self._options.until_idle_s is None:
            return False
        status = query.status
        self._looked = self._looked or query.lastProgress is not None or status["message"].startswith("Waiting")
        if not self._looked or status["isDataAvailable"] or self._lock.locked():
            self._busy_s = time.monotonic()
        return time.monotonic() - self._busy_s > self._options.until_idle_s

    def _raise(self, query: StreamingQuery) -> None:
        """Whatever ended the query before its time, as the error that it was."""
        error = query.exception()
        if error is not None and isinstance(self._error, ThenceError):
            raise self._error
        if error is not None:
            ours = _OURS.findall(str(error))
            if ours:
                raise _ERRORS[ours[-1][0]](ours[-1][1])
            raise StorageError(f"{self._source}: Spark could not go on: {_reason(str(error))}") from None


def _reason(text: str) -> str:
    """The line of Spark's message that says what it was."""
    lines = [line.strip() for line in text.splitlines() if "Error:" in line]
    return lines[-1] if lines else text.partition("\n")[0]
