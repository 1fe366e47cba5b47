"""``audit_stream``: a streaming DataFrame of events in, a streaming DataFrame of violations out.

    events → pack → by run → judge, with its state → unpack → violations

Rules:

* Events go to the judge as blocks, a few rows of Arrow bytes for each run and batch, and what it finds comes back so: then
  it costs nothing that Spark hands rows to Python one by one, and there is no pandas.
* The state of a run is one value in Spark's state store, on RocksDB (``state``); its history is a map beside it, an entry for
  each step. Whatever is decided depends on the events of a batch, the state and the time of the batch that Spark has written
  down. So a batch that is repeated has the same rows, and the checkpoint makes them count once.
* A run is judged by one task at a time. Runs are judged side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import Row

from thence.errors import ConfigError, TraceError
from thence.pipeline.kernels.encoder import COLUMNS
from thence.pipeline.kernels.slices import PACKED, Slice, pack, unpack
from thence.pipeline.streaming.run import TICK_MS, FollowedRun, FollowLimits
from thence.pipeline.streaming.state import from_bytes, table_of_bytes, table_to_bytes, to_bytes
from thence.pipeline.tables import TRACE, VIOLATIONS, arrow_schema, columns, ddl
from thence.trace.verdict import DEFAULT_REQUIRED, PROPERTIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOLD_S: Final = 600.0
"""For how long an event is held, unless told otherwise."""
BLOCK_EVENTS: Final = 65_536
OBSERVED: Final = "thence"
"""Under this name the progress of the query has how far behind it is."""

STATE: Final = "scan"
HISTORY: Final = "history"
PROVIDER: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER_SETTING: Final = "spark.sql.streaming.stateStore.providerClass"

BLOCKS: Final = columns("key string, events binary")
JUDGED: Final = columns(
    "run string, events bigint, held bigint, oldest string, oldest_s double, flights bigint, counts string, "
    "found bigint, rows binary"
)
"""What a step says of a run: how far it is (``run.Lag``), and the rows that the step found."""

_EVENTS: Final = pa.schema([arrow_schema(TRACE).field(name) for name in COLUMNS if name != "run"])


def audit_stream(
    events: DataFrame,
    *,
    require: Sequence[str] = DEFAULT_REQUIRED,
    hold_s: float | None = HOLD_S,
    limits: FollowLimits | None = None,
) -> DataFrame:
    """Return the violations in a stream of events, each once, as they are found; write them wherever Spark can.

    ``events`` has the columns of a trace; ``run`` and ``message`` may be missing. An event that lacks something is held for
    ``hold_s`` seconds, or for ever (None). What never arrives is told at the end, by :func:`end_of_stream`. Sets the state
    store of the session to RocksDB. ``observedMetrics`` of the query's progress has the lag, under ``thence``.
    """
    from pyspark.sql import functions as f

    steps = judged(events, require, hold_s, limits or FollowLimits())
    seen = steps.observe(
        OBSERVED,
        f.sum("events").alias("events"),
        f.sum("held").alias("held"),
        f.max("oldest_s").alias("oldest_s"),
        f.sum("flights").alias("flights"),
        f.sum("found").alias("found"),
    )
    return seen.mapInArrow(unpack_rows, ddl(VIOLATIONS))


def end_of_stream(spark: SparkSession, checkpoint: str, limits: FollowLimits | None = None) -> DataFrame:
    """Return what is still to be told if nothing more comes, of a query that has stopped; its state stays as it is."""
    return ended(spark, checkpoint, limits or FollowLimits()).mapInArrow(unpack_rows, ddl(VIOLATIONS))


def judged(events: DataFrame, require: Sequence[str], hold_s: float | None, limits: FollowLimits) -> DataFrame:
    """Return what each step says of each run, with the columns ``JUDGED``."""
    from pyspark.sql import functions as f

    for name in require:
        if name not in PROPERTIES:
            raise ConfigError(f"there is no property {name!r}; the properties are {', '.join(PROPERTIES)}")
    _use_rocksdb(events.sparkSession)
    given = dict(events.dtypes)
    made = []
    for column in TRACE:
        if column.name in COLUMNS:
            if given.get(column.name, column.kind) != column.kind:
                events = events.withColumn(column.name, f.col(column.name).cast(column.kind))
            made.append(f.col(column.name) if column.name in given else f.lit(None).cast(column.kind).alias(column.name))
    blocks = events.select(*made).mapInArrow(pack_events, ddl(BLOCKS))
    processor = RunJudge(tuple(require), hold_s, limits)
    mode = "None" if hold_s is None else "ProcessingTime"
    return blocks.groupBy("key").transformWithState(processor, ddl(JUDGED), "Append", mode)


def _use_rocksdb(spark: SparkSession) -> None:
    """Choose the state store. In a declarative pipeline nobody may, but the specification."""
    if spark.conf.get(PROVIDER_SETTING, None) != PROVIDER:
        spark.conf.set(PROVIDER_SETTING, PROVIDER)


def ended(spark: SparkSession, checkpoint: str, limits: FollowLimits) -> DataFrame:
    """Return what is left of each run, with the columns ``JUDGED``."""
    _use_rocksdb(spark)
    state = spark.read.format("statestore").option("path", checkpoint).option("stateVarName", STATE).load()
    return state.selectExpr("value.state as state").mapInArrow(_End(limits), ddl(JUDGED))


def events_of(table: pa.Table) -> pa.Table:
    """Return the columns of a trace that decide, but for the run; refuse rows that lack what they must have."""
    for name in ("process", "index", "kind"):
        if table[name].null_count:
            raise TraceError(f"{table[name].null_count} events of the stream have no {name}")
    if pc.list_flatten(table["to"]).null_count:
        raise TraceError("an event of the stream names a destination that is null")
    return table.select(_EVENTS.names).cast(_EVENTS)


def pack_events(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put the events of each run and batch into one row."""
    for batch in batches:
        runs = batch["run"].dictionary_encode(null_encoding="encode")
        code, names = runs.indices.to_numpy(), runs.dictionary.to_pylist()
        order = np.argsort(code, kind="stable")
        bounds = np.searchsorted(code[order], np.arange(len(names) + 1))
        table = events_of(pa.Table.from_batches([batch]))
        some = [table] if len(names) == 1 else [table.take(order[bounds[at] : bounds[at + 1]]) for at in range(len(names))]
        keys = ["" if name is None else f"={name}" for name in names]
        yield pa.record_batch([pa.array(keys), pa.array([table_to_bytes(one) for one in some], pa.binary())], schema=_BLOCKS)


_BLOCKS: Final = arrow_schema(BLOCKS)


def unpack_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Take the rows out that steps have found."""
    for batch in batches:
        for found, content in zip(batch["found"].to_pylist(), batch["rows"], strict=True):
            if found:
                yield from table_of_bytes(content.as_buffer()).to_batches(BLOCK_EVENTS)


def _status(run: FollowedRun, rows: pa.Table) -> dict[str, Any]:
    lag = run.lag._asdict()
    return {**lag, "counts": json.dumps(lag["counts"]), "found": rows.num_rows, "rows": table_to_bytes(rows)}


class RunJudge(StatefulProcessor):
    """Judges the runs of a partition; Spark calls it."""

    def __init__(self, require: tuple[str, ...], hold_s: float | None, limits: FollowLimits) -> None:
        self._require, self._hold_s, self._limits = require, hold_s, limits

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._state = handle.getValueState(STATE, "state binary")
        self._history = handle.getMapState(HISTORY, "step bigint", "slice binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - Spark's names
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        state = self._state.get()
        if state is None:
            run = FollowedRun.begin(key[0][1:] if key[0] else None, self._require, self._limits)
        else:
            run = from_bytes(state[0])
        shelf = _Shelf(self._history, run.history)
        run.take([table_of_bytes(row["events"]) for row in rows], now_ms, self._limits)
        yield self._step(run, now_ms, shelf)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        run = from_bytes(self._state.get()[0])
        before = run.steps
        row = self._step(run, timerValues.getCurrentProcessingTimeInMs(), _Shelf(self._history, run.history))
        if run.steps > before:
            yield row

    def close(self) -> None:
        """There is nothing to close."""

    def _step(self, run: FollowedRun, now_ms: int, shelf: _Shelf) -> Row:
        rows = run.step(now_ms, self._hold_s, self._limits, shelf)
        self._state.update((to_bytes(run),))
        if self._hold_s is not None and run.held.num_rows:
            self._handle.registerTimer(now_ms + max(1, min(TICK_MS, int(self._hold_s * 1000))))
        return Row(**_status(run, rows))


class _Shelf(MutableMapping[int, Slice]):
    """Slices of earlier steps in a map state."""

    def __init__(self, state: Any, steps: Iterable[int]) -> None:
        self._state, self._steps = state, dict.fromkeys(steps)

    def __getitem__(self, step: int) -> Slice:
        packed = table_of_bytes(self._state.getValue((step,))[0])
        return unpack({name: packed[name][0] for name in packed.column_names})

    def __setitem__(self, step: int, given: Slice) -> None:
        packed = pa.Table.from_pylist([pack(given)], arrow_schema(PACKED))
        self._state.updateValue((step,), (table_to_bytes(packed),))
        self._steps[step] = None

    def __delitem__(self, step: int) -> None:
        del self._steps[step]
        self._state.removeKey((step,))

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._steps))

    def __len__(self) -> int:
        return len(self._steps)


class _End:
    """Tells what is left of each run; a class, so that it pickles by name."""

    def __init__(self, limits: FollowLimits) -> None:
        self.limits = limits

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for state in batch["state"]:
                run = from_bytes(state.as_py())
                rows = run.finish(self.limits, {})
                yield pa.RecordBatch.from_pylist([_status(run, rows)], arrow_schema(JUDGED))
