"""``audit``: a DataFrame of events in, DataFrames of what was found out.

The steps are those of ``transforms``, each a job of Spark's with the name of the step. Between them the driver holds the
survey, the plan, and counts.

Rules:

* Every result is counted: each event of the survey must have become part of a slice, and been judged. If not, that is an error,
  and no verdict.
* Where clocks are so wrong that messages arrive slices before they are sent, they are put right once by the least time that
  messages seem to take, and the trace is cut again.
* What is kept between the steps is kept by Spark, and let go by ``close``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa

from thence.errors import ConfigError, StorageError, TraceError
from thence.pipeline.audit import transforms
from thence.pipeline.audit.clocks import compare_clocks, least_lags
from thence.pipeline.audit.explain import Ends, Window, explain, windows_of
from thence.pipeline.audit.lost import lost_in, without_the_lost
from thence.pipeline.audit.total import total_order
from thence.pipeline.kernels.marks import AGAIN, BACKWARD
from thence.pipeline.kernels.plan import (
    MOST_STRETCHES,
    ROUTES,
    SLICE_EVENTS,
    SURVEY_SCHEMA,
    Plan,
    offsets_of,
    plan_of,
    routes_of,
    shift_for,
)
from thence.pipeline.scan.here import outdone
from thence.pipeline.scan.rows import Resent
from thence.pipeline.scan.run import ScanLimits
from thence.pipeline.session import Progress, settings, watched
from thence.pipeline.tables import VIOLATIONS, ddl
from thence.trace.verdict import DEFAULT_REQUIRED, PROPERTIES
from thence.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_AGAIN: Final = 1_000_000
"""How many messages may be sent more than once."""
MOST_SURVEYED: Final = 5 * MOST_STRETCHES
"""If the survey has more rows than this, stretches are made longer."""
SKEWED_SHARE: Final = 0.01
"""If more of all events than this are deliveries in slices before that of their send, clocks are put right."""
MAX_PROCESSES: Final = 20_000
"""In one run: the clocks of all processes take four bytes for each pair of them, 1.5 GiB for so many."""

ARROW: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
}
"""Batches between Spark and Python: many events, and few slices."""


@dataclass(slots=True)
class _Prepared:
    """A trace that is cut into slices."""

    plan: Plan
    layout: transforms.Layout
    sliced: DataFrame
    slices: DataFrame
    facts: DataFrame | None
    resent: dict[int, Resent]
    events: dict[tuple[int, int], int]
    """How many events each slice has, by run and slice."""
    backward: int
    distance: int


@dataclass
class Audit:
    """What an audit found. The tables are DataFrames that stay until :meth:`close`; leaving a ``with`` block does that."""

    spark: SparkSession
    required: tuple[str, ...]
    trace: DataFrame
    """The events as they were given."""
    plan: Plan
    properties: dict[str, int]
    """How many violations there are of each property that was checked."""
    rows: DataFrame
    bad_rows: int
    bad: DataFrame
    """Rows that could not be read: file, row, reason."""
    lost_events: int
    repairs: list[str]
    most_held: int
    prepared: _Prepared = field(repr=False)
    kept: ExitStack = field(repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what Spark keeps for this audit."""
        self.kept.close()

    @property
    def events(self) -> int:
        """How many events were judged."""
        return self.plan.events - self.lost_events

    @property
    def is_kept(self) -> bool:
        """Whether everything that was asked for was kept."""
        return not any(self.properties.values())

    @property
    def violations(self) -> DataFrame:
        """A row for each violation, without chains: ``explained`` has those of the first ones."""
        from pyspark.sql import functions as f

        columns = [name for name, *_ in VIOLATIONS if name != "chain"]
        return self.rows.select(*columns, f.array().cast("array<string>").alias("chain")).select(
            *(name for name, *_ in VIOLATIONS)
        )

    @property
    def verdict(self) -> DataFrame:
        """A row for each property that was checked: how many violations there are of it, and whether it was kept."""
        rows = [(name, count, count == 0) for name, count in self.properties.items()]
        return self.spark.createDataFrame(rows, "property string, violations bigint, kept boolean")

    @property
    def findings(self) -> DataFrame:
        """A row for each message that is missing somewhere and its destination: how many violations that one loss caused."""
        from pyspark.sql import functions as f

        late = f.col("property").isin("fifo", "causal")
        counts = [f.count(f.when(f.col("property") == name, 1)).alias(name) for name in ("fifo", "causal")]
        never = f.max(f.when(~late, 1).otherwise(0)).cast("boolean").alias("lost")
        missing = self.rows.where(f.col("property").isin("fifo", "causal", "completeness"))
        grouped = missing.groupBy("run", "process", f.when(late, f.col("earlier")).otherwise(f.col("later")).alias("message"))
        first = f.min(f.when(late, f.struct("index", "later")))
        table = grouped.agg(*counts, never, first.alias("first"))
        columns = ["run", "message", "process", "lost", "fifo", "causal"]
        return table.select(*columns, f.col("first.index").alias("first_index"), f.col("first.later").alias("first_later"))

    @cached_property
    def clocks(self) -> DataFrame:
        """A row for each run that logs clocks: how many were compared with those that follow, and how many differ."""
        return compare_clocks(self.prepared.sliced, self.prepared.layout, any_logged=self.plan.clocked)

    @cached_property
    def metrics(self) -> Mapping[str, DataFrame]:
        """Measurements of the trace, by name: the tables of ``thence.pipeline.tables.TABLES``."""
        from thence.pipeline.metrics import measured, typed

        return dict(measured(typed(self.trace), partial(_keep, self.kept)))

    def explained(self, most: int, cones: int = 0, progress: Progress | None = None) -> list[dict[str, Any]]:
        """Return the first violations of fifo and causal, in the judge's order, with chain and story; some with a cone."""
        from pyspark.sql import functions as f

        if not most or not (self.properties.get("fifo") or self.properties.get("causal")):
            return []
        late = [row.asDict() for row in in_order(self.rows.where(f.col("since").isNotNull())).limit(most).collect()]
        prepared = self.prepared
        wanted = [
            Ends(number=at, cone=at < cones, position=row["index"], **{name: row[name] for name in _ENDS})
            for at, row in enumerate(late)
        ]
        windows: list[Window] = windows_of(wanted, prepared.events)
        with watched(self.spark, "explain", progress):
            explanations = explain(prepared.slices, prepared.layout, windows, prepared.resent).collect() if windows else []
        by_number = {row["number"]: row for row in explanations}
        if len(by_number) != sum(len(window.ends) for window in windows):
            raise StorageError(f"Spark returned {len(by_number)} chains, and {sum(len(w.ends) for w in windows)} were asked for")
        return [{**row, **(by_number[at].asDict() if at in by_number else {"number": at})} for at, row in enumerate(late)]


def _keep(stack: ExitStack, table: DataFrame) -> DataFrame:
    """Let Spark keep a table until a stack is closed."""
    from pyspark.storagelevel import StorageLevel

    kept = table.persist(StorageLevel.MEMORY_AND_DISK)
    stack.callback(kept.unpersist)
    return kept


def in_order(rows: DataFrame) -> DataFrame:
    """Return rows in the order of the judge."""
    from pyspark.sql import functions as f

    place = f.array_position(f.array(*map(f.lit, PROPERTIES)), f.col("property"))
    return rows.orderBy(f.col("run").asc_nulls_first(), place, "process", f.col("index").asc_nulls_last(), "later")


def audit(
    events: DataFrame,
    *,
    require: Sequence[str] = DEFAULT_REQUIRED,
    slice_events: int = SLICE_EVENTS,
    limits: ScanLimits | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Audit the trace in a DataFrame with the columns of a trace; others are ignored.

    >>> with audit(spark.table("events"), require=["causal"]) as found:  # doctest: +SKIP
    ...     found.violations.groupBy("process").count().show()
    """
    required = known(require)
    spark = events.sparkSession
    with ExitStack() as stack:
        stack.enter_context(settings(spark, ARROW))
        auditor = _Auditor(spark, required, slice_events, limits, progress, stack)
        found = auditor.run(events)
        found.kept = stack.pop_all()
        return found


def known(require: Sequence[str]) -> tuple[str, ...]:
    """Return the properties that are asked for, in the order of the judge."""
    unknown = sorted(set(require).difference(PROPERTIES))
    if unknown or not require:
        what = f"unknown property {unknown[0]!r}" if unknown else "no property is required"
        raise ConfigError(f"{what}; the properties are {', '.join(PROPERTIES)}")
    return tuple(name for name in PROPERTIES if name in require)


class _Auditor:
    """One audit on its way."""

    def __init__(
        self,
        spark: SparkSession,
        require: tuple[str, ...],
        slice_events: int,
        limits: ScanLimits | None,
        progress: Progress | None,
        stack: ExitStack,
    ) -> None:
        self.spark, self.require, self.slice_events, self.limits = spark, require, slice_events, limits
        self.progress, self.stack = progress, stack
        self.repairs: list[str] = []

    def run(self, events: DataFrame) -> Audit:
        """Take all steps but those that nobody may ask for."""
        raw, trace = events, transforms.normalise(events)
        survey, shift, bad = self._survey(trace)
        lost = 0
        if np.any(survey["viewed"].to_numpy()):
            trace = trace.where(transforms.readable())
            lost = lost_in(trace).select("of_run", "name").count()
            trace = without_the_lost(trace) if lost else trace
            survey, shift, _ = self._survey(trace) if lost else (survey, shift, bad)
        plan = plan_of(survey, shift, self.slice_events)
        prepared = self._prepare(trace, survey, plan)
        if prepared.distance > 1 and prepared.backward > SKEWED_SHARE * plan.events and plan.times:
            prepared = self._repaired(trace, survey, prepared)
        rows, held = self._judge(prepared)
        counts = self._counts(rows)
        return Audit(
            self.spark,
            self.require,
            raw,
            prepared.plan,
            {name: counts.get(name, 0) for name in self.require},
            rows,
            bad,
            transforms.validate(raw),
            lost,
            self.repairs,
            held,
            prepared,
            self.stack,
        )

    def _survey(self, trace: DataFrame) -> tuple[pa.Table, int, int]:
        with watched(self.spark, "survey", self.progress):
            shift = shift_for(trace.count())
            found = transforms.survey(trace, shift).limit(MOST_SURVEYED + 1).toArrow()
            if len(found) > MOST_SURVEYED:  # Indices are far apart, or there are very many processes or runs.
                shift = transforms.wider_shift(trace, shift)
                found = transforms.survey(trace, shift).toArrow()
            found = found.cast(SURVEY_SCHEMA)
        good = found.filter(found["process"].is_valid())
        bad = sum(found["events"].to_pylist()) - sum(good["events"].to_pylist())
        return good, shift, bad

    def _prepare(self, trace: DataFrame, survey: pa.Table, plan: Plan) -> _Prepared:
        largest = max((len(run.processes) for run in plan.runs), default=0)
        if largest > MAX_PROCESSES:
            raise TraceError(
                f"a run has {largest:,} processes; the limit is {MAX_PROCESSES:,}. Audit its domains one by one, or name what "
                "belongs together by one name"
            )
        layout = transforms.layout_of(plan, self._tasks())
        routes = self.spark.createDataFrame(routes_of(plan, survey).to_pylist(), ddl(ROUTES))
        sliced = transforms.assign_slices(trace.where(transforms.readable()), routes, plan.shift)
        slices = self._kept(transforms.summarise(sliced, layout, max(1, plan.bins)))
        with watched(self.spark, "encode", self.progress):
            found = slices.select("run_number", "slice", "events").collect()
        events = {(row["run_number"], row["slice"]): row["events"] for row in found}
        self._check("slices", sum(events.values()), plan.events)
        prepared = _Prepared(plan, layout, sliced, slices, None, {}, events, 0, 0)
        if any(run.slices > 1 for run in plan.runs):
            self._resolve(prepared)
        return prepared

    def _resolve(self, prepared: _Prepared) -> None:
        """Find out what slices must know of each other."""
        from pyspark.sql import functions as f

        prepared.facts = self._kept(transforms.resolve(prepared.slices, prepared.layout, min(prepared.plan.bins, self._tasks())))
        with watched(self.spark, "resolve", self.progress):
            facts = prepared.facts.where(f.col("what") >= AGAIN).limit(MAX_AGAIN + 1).collect()
        if len(facts) > MAX_AGAIN:
            raise TraceError(
                f"more than {MAX_AGAIN:,} messages are sent more than once; is the name of a message unique in its run?"
            )
        again: dict[tuple[int, int], list[int]] = defaultdict(list)
        for row in facts:
            if row["what"] == BACKWARD:
                prepared.backward += row["local"]
                prepared.distance = max(prepared.distance, row["last"])
            else:
                again[row["run_number"], row["slice"]].append(row["local"])
        if again:
            places: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
            for row in transforms.sends_again(prepared.slices, again).collect():
                places[row["run_number"]][row["message"]].append((row["process"], row["index"]))
            runs = prepared.layout.runs
            prepared.resent = {number: outdone(found, runs[number].processes) for number, found in places.items()}

    def _repaired(self, trace: DataFrame, survey: pa.Table, prepared: _Prepared) -> _Prepared:
        """Cut again by clocks that are put right."""
        with watched(self.spark, "look at clocks", self.progress):
            lags = least_lags(prepared.sliced, prepared.layout)
        offsets = {}
        for number, least in lags.items():
            run = prepared.plan.runs[number]
            offset = offsets_of(least)
            offsets[run.name] = offset
            name = f"run {run.name!r}: " if run.name is not None else ""
            self.repairs.append(f"{name}clocks differ by up to {np.ptp(offset) / 1e6:,.3f} ms, cut again by clocks put right")
        return (
            self._prepare(trace, survey, plan_of(survey, prepared.plan.shift, self.slice_events, offsets))
            if offsets
            else prepared
        )

    def _judge(self, prepared: _Prepared) -> tuple[DataFrame, int]:
        from pyspark.sql import functions as f

        plan = prepared.plan
        rows = self._kept(
            transforms.judge(prepared.slices, prepared.facts, prepared.layout, self.require, prepared.resent, self.limits)
        )
        with watched(self.spark, "judge", self.progress):
            counts = rows.where(f.col("events").isNotNull()).select("run_number", "events", "held").collect()
        judged = {row["run_number"]: row["events"] for row in counts}
        self._check("runs", len(judged), len(plan.runs))
        self._check("events", sum(judged.values()), plan.events)
        found = rows.where(f.col("events").isNull()).drop("events", "held")
        if "total" in self.require:
            total = self._kept(total_order(prepared.sliced, prepared.layout))
            found = found.unionByName(total, allowMissingColumns=True)
        return found, max((row["held"] for row in counts), default=0)

    def _counts(self, rows: DataFrame) -> dict[str, int]:
        with watched(self.spark, "count", self.progress):
            return {row["property"]: row["count"] for row in rows.groupBy("property").count().collect()}

    def _kept(self, table: DataFrame) -> DataFrame:
        """Let Spark keep a table until the audit is closed."""
        return _keep(self.stack, table)

    def _tasks(self) -> int:
        """Into how many tasks runs are dealt."""
        return int(self.spark.conf.get("spark.sql.shuffle.partitions") or 200)

    def _check(self, what: str, found: int, wanted: int) -> None:
        if found != wanted:
            raise StorageError(
                f"Spark returned {counted(found, what.removesuffix('s'))} of {wanted:,}: the audit is not whole, and there is no "
                "verdict. Did the trace change while it was read?"
            )


_ENDS: Final = ("run_number", "since", "until", "earlier", "later", "process")
