"""Following on Structured Streaming: Spark finds and reads new parts, and says again what it said before a crash.

Workers read the parts; judging is done here, in the driver, since a cut needs all of a run at once. Batches come one after the
other, each exactly once: Spark repeats a batch until it is committed, and a batch that is in the state already is passed over.

Rules:

* One lock: a step is a batch, or patience running out between two batches, or the end.
* Before the end is declared, Spark is asked once more for everything that is there: no part is left unread by a race.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from thence.errors import ConfigError, StorageError, ThenceError
from thence.pipeline.kernels.encoder import TIMED_COLUMNS
from thence.pipeline.streaming.follower import NS, Follower
from thence.pipeline.streaming.store import FollowState, FollowStore, StepLag
from thence.pipeline.tables import TRACE, ddl
from thence.trace.files import trace_files
from thence.trace.verdict import DEFAULT_REQUIRED, Violation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 0.2
TRIGGER: Final = "500 milliseconds"
"""How often Spark looks for new parts."""
PARTS_PER_BATCH: Final = 64
"""So many new parts are taken at once, the oldest first; they must fit into the memory of the driver."""
HOLD_S: Final = 600.0
START_ATTEMPTS: Final = 6
"""How often a query is started that Spark gives up before it has begun:"""
SLOW_START: Final = "Python worker failed to connect back"
"""on a busy machine Python may need longer to start than the ten seconds that Spark waits for whoever looks for new parts."""

Hear = Callable[[StepLag, Sequence[Violation]], None]
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


def follow(spark: SparkSession, options: Options, hear: Hear) -> FollowState:
    """Follow until idle for long enough, or until interrupted; return the last state, which says whether it is over."""
    if not hasattr(spark, "_sc"):
        raise ConfigError("over Spark Connect nothing can be followed: batches are judged in the driver; use --master")
    with ExitStack() as stack:
        checkpoint = options.checkpoint or stack.enter_context(tempfile.TemporaryDirectory(prefix="thence-follow-"))
        following = Following(spark, options, Path(checkpoint).resolve(), hear)
        return following.run()


class Following:
    """One start of a following."""

    def __init__(self, spark: SparkSession, options: Options, checkpoint: Path, hear: Hear) -> None:
        self._spark, self._options, self._hear = spark, options, hear
        self._checkpoint = checkpoint
        self._source = Path(options.source).resolve()
        if self._source.is_file():
            raise ConfigError(f"{self._source}: a folder can be followed, a file cannot")
        self._store = FollowStore(checkpoint, Path(options.out) if options.out else None)
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        follower = Follower(tuple(options.require), options.hold_s)
        self.state = self._begin(follower)
        self._started_ns = time.monotonic_ns() - self.state.clock_ns
        self._busy_ns = time.monotonic_ns()
        self._looked = False

    def run(self) -> FollowState:
        """Follow until idle for long enough, or until interrupted; return the last state."""
        if self.state.over:
            return self.state
        try:
            self._go_on({"processingTime": TRIGGER}, until=self._is_idle)
            self._go_on({"availableNow": True}, until=lambda query: not query.isActive)
        except KeyboardInterrupt:
            with self._lock:
                return self._store.load() or self.state
        with self._lock:
            self._commit(self.state.follower.finish(), over=True)
        return self.state

    def _go_on(self, trigger: Mapping[str, Any], until: Callable[[StreamingQuery], bool]) -> None:
        """Let Spark work; in between see whether patience is at its end."""
        for attempt in range(1, START_ATTEMPTS + 1):
            query, self._busy_ns, self._looked = self._start(**trigger), time.monotonic_ns(), False
            try:
                while query.isActive and not until(query):
                    time.sleep(POLL_S)
                    self._tick()
                if attempt == START_ATTEMPTS or SLOW_START not in str(query.exception()):
                    self._raise(query)
                    return
            finally:
                query.stop()

    def _begin(self, fresh: Follower) -> FollowState:
        state = self._store.load()
        if state is None:
            return FollowState(str(self._source), fresh)
        if state.source != str(self._source):
            raise ConfigError(f"{self._checkpoint}: follows {state.source}, not {self._source}; choose another checkpoint")
        if tuple(state.follower.require) != tuple(fresh.require):
            asked = ",".join(state.follower.require)
            raise ConfigError(f"{self._checkpoint}: began with --require {asked}; go on with it, or choose another checkpoint")
        state.follower.hold_s = fresh.hold_s
        self._store.publish(state)
        return state

    def _start(self, **trigger: Any) -> StreamingQuery:
        from thence.pipeline.source import ThenceSource

        self._spark.dataSource.register(ThenceSource)
        schema = ddl(column for column in TRACE if column.name in TIMED_COLUMNS)
        stream = self._spark.readStream.format("thence").schema(schema).option("maxPartsPerTrigger", str(PARTS_PER_BATCH))
        writer = stream.load(str(self._source)).writeStream.foreachBatch(self._batch)
        return writer.option("checkpointLocation", str(self._checkpoint / "spark")).trigger(**trigger).start()

    def _batch(self, frame: DataFrame, number: int) -> None:
        """Called by Spark, in a thread of its own."""
        with self._lock:
            if number <= self.state.batch:
                return
            try:
                self._take(frame.toArrow(), number)
            except BaseException as error:
                self._error = self._error or error
                raise

    def _take(self, table: pa.Table, number: int) -> None:
        if number != self.state.batch + 1:
            raise StorageError(
                f"{self._checkpoint}: Spark goes on with batch {number}, and the state ends with batch {self.state.batch}; "
                "begin with a new checkpoint"
            )
        newest_s = self._newest_s()
        found = self.state.follower.take(table, self._now_ns())
        self.state.batch = number
        self._commit(found, newest_s=newest_s)
        self._busy_ns = time.monotonic_ns()

    def _tick(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                if self._error is None and self.state.follower.is_overdue(self._now_ns()):
                    self._commit(self.state.follower.tick(self._now_ns()))
            finally:
                self._lock.release()

    def _commit(self, found: list[Violation], *, over: bool = False, newest_s: float | None = None) -> None:
        """A step has been done: make it definite, and tell of it."""
        state = self.state
        state.step += 1
        state.clock_ns, state.over, state.rows = self._now_ns(), over, found
        at_s = time.time()
        behind_s = None if newest_s is None else max(0.0, at_s - newest_s)
        state.steps.append(StepLag(state.step, int(at_s * 1_000_000), state.follower.lag(state.clock_ns), behind_s))
        self._store.save(state)
        self._hear(state.steps[-1], found)

    def _now_ns(self) -> int:
        """For how long this has been followed, over all restarts."""
        return time.monotonic_ns() - self._started_ns

    def _newest_s(self) -> float:
        return max((file.stat().st_mtime for file in trace_files(self._source)), default=0.0)

    def _is_idle(self, query: StreamingQuery) -> bool:
        """Whether nothing new was found for long enough, not counting the time before Spark first looked."""
        if self._options.until_idle_s is None:
            return False
        status = query.status
        self._looked = self._looked or status["message"].startswith("Waiting")
        if not self._looked or status["isDataAvailable"] or self._lock.locked():
            self._busy_ns = time.monotonic_ns()
        return time.monotonic_ns() - self._busy_ns > self._options.until_idle_s * NS

    def _raise(self, query: StreamingQuery) -> None:
        """Whatever ended the query before its time, as the error that it was."""
        error = query.exception()
        if error is not None and isinstance(self._error, ThenceError):
            raise self._error
        if error is not None:
            raise StorageError(f"{self._source}: Spark could not go on: {_reason(str(error))}") from None


def _reason(text: str) -> str:
    """The line of Spark's message that says what it was."""
    lines = [line.strip() for line in text.splitlines() if "Error:" in line]
    return lines[-1] if lines else text.partition("\n")[0]
