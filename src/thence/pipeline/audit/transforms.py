"""The steps of an audit, each a small function from DataFrames to a DataFrame, which can be used and looked at alone.

``normalise → survey → assign_slices → summarise → resolve → judge``. Rows are moved by Spark's own shuffle; what is done with
them is done by ``pipeline.kernels`` on Arrow. Between ``survey`` and ``assign_slices`` the driver decides where to cut, by
``kernels.plan``, from one row for each few thousand events.

Rules:

* An event goes through Python once, in ``summarise``. After that a slice is one row of bytes.
* One task holds one slice, and in ``judge`` the state of one run.
* Nothing is written but by Spark: no folder is shared, no file is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thence.errors import TraceError
from thence.pipeline.kernels.columns import KINDS
from thence.pipeline.kernels.encoder import encode
from thence.pipeline.kernels.marks import AGAIN, FACTS, MARKS, facts_of, marks_of, note_facts, sends_of
from thence.pipeline.kernels.plan import MOST_STRETCHES, SURVEY_SCHEMA, Plan, RunPlan
from thence.pipeline.kernels.slices import PACKED, Slice, pack, slice_of, unpack
from thence.pipeline.scan.rows import FOUND, Resent
from thence.pipeline.scan.run import RunScan, ScanLimits
from thence.pipeline.tables import TRACE, arrow_schema, columns, ddl
from thence.trace.events import SEND, VIEW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REQUIRED: Final = ("process", "index", "kind")
"""Without these a row cannot be read."""

READ: Final = ("run", "process", "index", "kind", "message", "to", "time", "clock")
"""The columns of a trace that an audit reads."""

BETWEEN: Final = "\0"
"""Stands between the names of destinations on their way to Python."""

_KEYS: Final = columns("part int, run_number int, slice int")
SLICES: Final = (*_KEYS, *columns("events bigint"), *PACKED)
"""A slice as a row. ``part`` is the task that will judge its run."""
NOTED: Final = (*columns("part int"), *FACTS)
JUDGED: Final = (*FOUND, *columns("run_number int, events bigint, held bigint"))
"""A violation, or, where ``events`` is given, that so many events of a run were judged, of which so many had to wait at once."""
PLACES: Final = columns("run_number int, process int, index bigint, message string")

_SLICES_SCHEMA: Final = arrow_schema(SLICES)
_NOTED_SCHEMA: Final = arrow_schema(NOTED)
_JUDGED_SCHEMA: Final = arrow_schema(JUDGED)

Batches = Iterator[pa.RecordBatch]


def normalise(events: DataFrame) -> DataFrame:
    """Return the columns of a trace that the audit reads, with the types of a trace; a column that is not there is null."""
    from pyspark.sql import functions as f

    there = {field.name: field.dataType.simpleString() for field in events.schema}
    missing = [name for name in REQUIRED if name not in there]
    if missing:
        raise TraceError(
            f"the trace has no column {' and no column '.join(missing)}; its columns are {', '.join(there) or 'none'}"
        )
    chosen: list[Column] = []
    for name, kind, *_ in TRACE:
        if name not in READ:
            continue
        if name not in there:
            chosen.append(f.lit(None).cast(kind).alias(name))
        elif _fits(there[name], kind):
            chosen.append(f.col(name).cast(kind).alias(name))
        else:
            raise TraceError(f"column '{name}': expected {kind}, found the type {there[name]}")
    return events.select(*chosen)


def _fits(found: str, wanted: str) -> bool:
    """Whether a column can be read as another type without a guess."""
    if wanted == "bigint":
        return found in ("tinyint", "smallint", "int", "bigint", "void")
    if wanted.startswith(("array", "map")):
        return found.startswith(wanted[:5]) or found == "void"
    return not found.startswith(("array", "map", "struct"))


def readable() -> Column:
    """Return whether a row can be read."""
    from pyspark.sql import functions as f

    return f.col("process").isNotNull() & f.col("index").isNotNull() & f.col("kind").isNotNull()


def validate(events: DataFrame) -> DataFrame:
    """Return the rows that cannot be read, where they are, if they come from files, and why."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    lacks = [f.when(f.col(name).isNull(), f.lit(f"no {name}")) for name in REQUIRED]
    reason = f.concat(f.lit("has "), f.concat_ws(" and ", *lacks)).alias("reason")
    wrong = events.where(~readable())
    try:
        return wrong.select(f.col("_metadata.file_path").alias("file"), (f.col("_metadata.row_index") + 1).alias("row"), reason)
    except AnalysisException:
        return wrong.select(f.lit(None).cast("string").alias("file"), f.lit(None).cast("bigint").alias("row"), reason)


def survey(events: DataFrame, shift: int) -> DataFrame:
    """Return a row for each stretch of each process; rows that cannot be read are in a stretch of nobody's."""
    from pyspark.sql import functions as f

    good = readable()
    keys = (
        f.col("run"),
        f.when(good, f.col("process")).alias("process"),
        f.when(good, f.shiftright(f.col("index"), shift)).alias("stretch"),
    )
    counted: dict[str, Column] = {
        "events": f.count("*"),
        "sends": f.count(f.when(f.col("kind") == SEND, 1)),
        "first": f.min("index"),
        "last": f.max("index"),
        "start": f.min("time"),
        "end": f.max("time"),
        "timed": f.count("time"),
        "viewed": f.count(f.when((f.col("kind") == VIEW) & (f.size("to") > 0), 1)),
        "clocked": f.count("clock"),
    }
    return events.groupBy(*keys).agg(*(column.alias(name) for name, column in counted.items())).select(*SURVEY_SCHEMA.names)


def wider_shift(events: DataFrame, shift: int) -> int:
    """Return by how many bits to shorten indices that are far apart, such as times, to have about as many stretches as wanted."""
    from pyspark.sql import functions as f

    tried = range(shift, 64, 2)
    counts = [f.approx_count_distinct(f.xxhash64("run", "process", f.shiftright("index", shift))) for shift in tried]
    (found,) = events.agg(*(count.alias(str(shift)) for shift, count in zip(tried, counts, strict=True))).collect()
    least = found[-1]
    return next(shift for shift, count in zip(tried, found, strict=True) if count <= least + MOST_STRETCHES or count == least)


def assign_slices(events: DataFrame, routes: DataFrame, shift: int) -> DataFrame:
    """Return the events with the number of their run, their slice, and the bin that a task reads."""
    from pyspark.sql import functions as f

    routed = routes.select(*(f.col(name).alias(f"_{name}") for name in routes.columns))
    on = (
        f.col("run").eqNullSafe(f.col("_run"))
        & (f.col("process") == f.col("_process"))
        & (f.shiftright(f.col("index"), shift) == f.col("_stretch"))
    )
    beyond = f.size(f.filter(f.coalesce("_more", f.array().cast("array<bigint>")), lambda cut: cut <= f.col("index")))
    behind = (
        f.when(f.col("_cut").isNull() | (f.col("index") < f.col("_cut")), 0)
        .when(f.col("_more").isNull(), 1)
        .otherwise(1 + beyond)
    )
    return events.join(f.broadcast(routed), on).select(
        *(name for name in events.columns if name != "run"),
        f.col("_run_number").alias("run_number"),
        f.col("_number").alias("process_number"),
        (f.col("_base") + behind).alias("slice"),
        (f.col("_bin") + behind).alias("bin"),
    )


@dataclass(frozen=True, slots=True)
class Layout:
    """What tasks must know of the plan: the processes of each run, and which task judges it."""

    runs: Sequence[RunPlan]
    parts: Sequence[int]


def layout_of(plan: Plan, tasks: int) -> Layout:
    """Deal runs out to tasks: each of the largest to the one that has least."""
    load = [0] * max(1, min(tasks, len(plan.runs)))
    parts = [0] * len(plan.runs)
    for number in sorted(range(len(plan.runs)), key=lambda number: -plan.runs[number].events):
        parts[number] = min(range(len(load)), key=load.__getitem__)
        load[parts[number]] += plan.runs[number].events
    return Layout(plan.runs, parts)


def summarise(sliced: DataFrame, layout: Layout, bins: int) -> DataFrame:
    """Return each slice as one row: its events in numbers, ready to be judged."""
    from pyspark.sql import functions as f

    # What goes to Python goes as numbers, and destinations as one text: a column of lists takes three times as long.
    kinds = f.create_map(*(f.lit(part) for pair in KINDS.items() for part in pair))
    rows = sliced.select(
        "bin",
        "run_number",
        "slice",
        f.col("process_number").alias("process"),
        "index",
        f.coalesce(kinds[f.col("kind")], f.lit(0)).alias("kind"),
        f.when(~f.col("kind").isin(*KINDS), f.col("kind")).alias("other"),
        "message",
        f.array_join("to", BETWEEN).alias("to"),
        f.when(f.col("to").isNotNull(), f.size("to")).alias("to_size"),
    )
    return rows.repartitionById(bins, "bin").drop("bin").mapInArrow(_Summarise(layout), ddl(SLICES))


class _Summarise:
    """Encodes the slices of a bin; a class, so that it pickles by name."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def __call__(self, batches: Batches) -> Batches:
        read = [batch for batch in batches if batch.num_rows]
        if not read:
            return
        table = pa.Table.from_batches(read)
        numbers = table["run_number"].to_numpy()
        for number in np.unique(numbers).tolist():
            mine = table if numbers[0] == number == numbers[-1] and np.all(numbers == number) else table.filter(numbers == number)
            run = self.layout.runs[number]
            (at,) = pc.unique(mine["slice"]).to_pylist()
            given = slice_of(*encode(_with_lists(mine.drop_columns(["run_number", "slice"])), run.processes))
            keys = {"part": self.layout.parts[number], "run_number": number, "slice": at, "events": given.events}
            yield pa.RecordBatch.from_pylist([{**keys, **pack(given)}], _SLICES_SCHEMA)


def _with_lists(table: pa.Table) -> pa.Table:
    """Take the texts of destinations apart."""
    sizes, texts = table["to_size"].fill_null(0), table["to"]
    lists = pc.split_pattern(texts, BETWEEN)
    lists = pc.if_else(pc.and_(pc.equal(sizes, 0), texts.is_valid()), pa.scalar([], lists.type), lists)
    if not pc.all(pc.equal(pc.list_value_length(lists).fill_null(0), sizes)).as_py():
        raise TraceError("column 'to': a name is null, or has the character NUL in it")
    return table.set_column(table.column_names.index("to"), "to", lists).drop_columns(["to_size"])


def slices_in(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Mapping[str, pa.Scalar], Slice]]:
    """The rows of slices, and the slices in them."""
    for batch in batches:
        names = batch.schema.names
        for at in range(batch.num_rows):
            row = {name: column[at] for name, column in zip(names, batch.columns, strict=True)}
            yield row, unpack(row)


def resolve(slices: DataFrame, layout: Layout, tasks: int) -> DataFrame:
    """Return what slices must know of each other: what nobody sends, where a message is named last, what is sent twice."""
    marks = slices.mapInArrow(_mark, ddl(MARKS))
    return marks.repartition(tasks, "run_number", "hash").mapInArrow(_Resolve(layout.parts), ddl(NOTED))


def _mark(batches: Batches) -> Batches:
    for row, given in slices_in(batches):
        yield marks_of(given, row["run_number"].as_py(), row["slice"].as_py())


class _Resolve:
    """Brings the marks of each message together."""

    def __init__(self, parts: Sequence[int]) -> None:
        self.parts = np.array(parts, np.int32)

    def __call__(self, batches: Batches) -> Batches:
        read = [batch for batch in batches if batch.num_rows]
        if read:
            facts = facts_of(pa.Table.from_batches(read))
            part = pa.array(self.parts[facts["run_number"].to_numpy()])
            yield pa.record_batch([part, *facts.columns], schema=_NOTED_SCHEMA)


def sends_again(slices: DataFrame, again: Mapping[tuple[int, int], Sequence[int]]) -> DataFrame:
    """Return where messages are sent that may be sent more than once: in these slices of these runs, with these numbers."""
    from pyspark.sql import functions as f

    wanted = f.array(*(f.struct(f.lit(run).alias("run"), f.lit(at).alias("at")) for run, at in again))
    here = f.array_contains(wanted, f.struct(f.col("run_number").alias("run"), f.col("slice").alias("at")))
    return slices.where(here).mapInArrow(_Sends(again), ddl(PLACES))


class _Sends:
    """Looks up the sends of some messages."""

    def __init__(self, again: Mapping[tuple[int, int], Sequence[int]]) -> None:
        self.again = again

    def __call__(self, batches: Batches) -> Batches:
        for row, given in slices_in(batches):
            run = row["run_number"].as_py()
            for local in self.again[run, row["slice"].as_py()]:
                found = [dict(zip(("process", "index", "message"), send, strict=True)) for send in sends_of(given, local)]
                yield pa.RecordBatch.from_pylist([{"run_number": run, **send} for send in found], arrow_schema(PLACES))


def judge(
    slices: DataFrame,
    facts: DataFrame | None,
    layout: Layout,
    require: Sequence[str],
    resent: Mapping[int, Resent] | None = None,
    limits: ScanLimits | None = None,
) -> DataFrame:
    """Return a row for each violation, and one for each run that says how many of its events were judged."""
    from pyspark.sql import functions as f

    rows = slices.withColumns(
        {"what": f.lit(None).cast("int"), "local": f.lit(None).cast("int"), "last": f.lit(None).cast("int")}
    )
    if facts is not None:
        rows = rows.unionByName(facts.where(f.col("what") < AGAIN), allowMissingColumns=True)
    placed = rows.repartitionById(max(layout.parts) + 1, "part").sortWithinPartitions("run_number", "slice", f.col("what").desc())
    scan = _Judge(layout.runs, tuple(require), dict(resent or {}), limits or ScanLimits())
    return placed.mapInArrow(scan, ddl(JUDGED))


class _Judge:
    """Scans the runs of a part, one after the other, each slice by slice."""

    def __init__(self, runs: Sequence[RunPlan], require: Sequence[str], resent: Mapping[int, Resent], limits: ScanLimits) -> None:
        self.runs, self.require, self.resent, self.limits = runs, require, resent, limits

    def __call__(self, batches: Batches) -> Batches:
        scan: RunScan | None = None
        number = -1
        facts: list[pa.RecordBatch] = []
        for batch in batches:
            what = batch["what"]
            for begin, end in _stretches(what.is_null().to_numpy(zero_copy_only=False)):
                part = batch.slice(begin, end - begin)
                if part["what"][0].as_py() is not None:
                    facts.append(part.select(["what", "local", "last"]))
                    continue
                for row, given in slices_in([part]):
                    if row["run_number"].as_py() != number:
                        yield from self._finish(scan, number)
                        number = row["run_number"].as_py()
                        scan = self._begin(number)
                    for some in facts:
                        note_facts(given, *(some[name].to_numpy() for name in ("what", "local", "last")))
                    facts = []
                    if scan is not None:
                        yield from self._rows(scan.take(given, row["slice"].as_py()), number)
        yield from self._finish(scan, number)

    def _begin(self, number: int) -> RunScan:
        run = self.runs[number]
        resent = dict(self.resent.get(number, {}))
        return RunScan(run.name, run.processes, run.totals, self.require, resent, self.limits)

    def _finish(self, scan: RunScan | None, number: int) -> Batches:
        if scan is not None:
            yield from self._rows(scan.finish(self.runs[number].slices), number)
            count = {"run_number": number, "events": scan.events, "held": scan.most_held}
            yield pa.RecordBatch.from_pylist([count], _JUDGED_SCHEMA)

    def _rows(self, found: Batches, number: int) -> Batches:
        for batch in found:
            count = batch.num_rows
            nothing = pa.nulls(count, pa.int64())
            run = pa.repeat(pa.scalar(number, pa.int32()), count)
            yield pa.record_batch([*batch.columns, run, nothing, nothing], schema=_JUDGED_SCHEMA)


def _stretches(flags: Any) -> Iterator[tuple[int, int]]:
    """Where flags that are alike begin and end: rows of facts together, each slice alone."""
    edges = (np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist()
    bounds = [0, *edges, len(flags)]
    yield from pairwise(bounds)
