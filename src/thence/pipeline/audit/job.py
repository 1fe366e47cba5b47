"""``audit``: a trace in, a verdict and tables out.

Rules:

* Every violation is a row of the table ``violations``. Chains are told for the first ``explain`` of fifo and causal, in the
  order of the judge; cones, each a small trace of its own, for the first ``cones``.
* Rows that cannot be read are rows of the table ``bad``, and the verdict says how many there were.
* Without ``out`` nothing is kept but what is returned. With ``report``, the trace is measured too, and one HTML file tells all.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thence.errors import TraceError
from thence.pipeline.audit import tasks
from thence.pipeline.audit.auditor import Auditor
from thence.pipeline.audit.fragments import fragments_of, is_parquet
from thence.pipeline.audit.lost import lost_in, without_the_lost
from thence.pipeline.audit.plan import SLICE_EVENTS
from thence.pipeline.engine import OnSpark, Progress
from thence.pipeline.files import absolute, filesystem, reachable
from thence.pipeline.kernels.logged_clocks import MAX_CLOCKED_EVENTS, MAX_EXAMPLES, Compared
from thence.pipeline.result import AuditResult
from thence.pipeline.session import setting
from thence.pipeline.tables import ddl
from thence.pipeline.work import WorkFolder
from thence.trace.verdict import DEFAULT_REQUIRED, PROPERTIES, Violation, sort_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, Row, SparkSession

    from thence.pipeline.importers import Imported

EXPLAINED: Final = 1_000
REPORT: Final = "report.html"
CONES: Final = 10
SHOWN: Final = 10_000
"""How many violations are returned, and printed as JSON; the table has them all."""

IMPORTED_NOTES: Final = {
    "shiviz": "messages were derived from vector clocks, in which a message that was overtaken leaves no mark: such a log "
    "cannot show that order was broken"
}

_KEY: Final = ("run_number", "property", "process", "index", "later")


def audit(
    spark: SparkSession,
    source: str | DataFrame,
    *,
    require: Sequence[str] = DEFAULT_REQUIRED,
    slice_events: int = SLICE_EVENTS,
    out: str | None = None,
    work: str | None = None,
    explain: int = EXPLAINED,
    cones: int = CONES,
    report: bool = False,
    importing: Mapping[str, str | None] | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Audit the trace at a path, glob or URL, or in a DataFrame with its columns.

    What is no Parquet trace is imported first; ``importing`` are options of :func:`import_trace`, such as ``format``.
    """
    with _work_folder(work) as folder:
        watch = _Watch(progress)
        engine = OnSpark(spark, folder)
        place, imported = _as_parquet(spark, source, folder, importing or {}, watch)
        place, lost = _without_the_lost(spark, place, folder)
        auditor = Auditor(engine, place, folder, require, slice_events, watch)
        auditor.prepare()
        watch.step("judge")
        counts = auditor.judge()
        rows = _rows(spark, folder, any(counts.values()))
        watch.step("explain")
        late = explain if counts["fifo"] + counts["causal"] else 0
        explained = _explain(engine, auditor, rows, late, cones if out else 0, watch)
        table = _with_chains(spark, rows, explained)
        result = AuditResult(
            source=source if isinstance(source, str) else "a DataFrame",
            events=auditor.events - lost,
            runs=len(auditor.runs),
            processes=len({name for one in auditor.runs for name in one.run.processes}),
            slices=len(auditor.slices),
            properties={name: counts[name] for name in auditor.require},
            **_first(table, SHOWN if any(counts.values()) else 0),
            bad_rows=len(auditor.bad) + (imported.bad if imported else 0),
            bad_examples=[f"{bad.file}, row {bad.row}: {bad.reason}" for bad in auditor.bad[:10]],
            repairs=auditor.repairs,
        )
        if imported:
            result.bad_examples += imported.first_bad
            result.notes += [IMPORTED_NOTES[imported.format]] if imported.format in IMPORTED_NOTES else []
        _add_clocks(result, auditor.compare_clocks())
        if out:
            out = absolute(out)
            watch.step("write")
            result.cones = _keep(spark, auditor, table, explained, out)
            if imported and imported.bad_rows:
                spark.read.parquet(imported.bad_rows).write.mode("overwrite").parquet(f"{out}/bad")
        if out and report:
            watch.step("measure")
            from thence.pipeline.metrics import write_metrics

            write_metrics(spark, _events(spark, place), f"{out}/metrics")
        result.seconds = watch.over()
    if out and report:
        from thence.pipeline.report import write_report

        write_report(f"{out}/metrics", f"{out}/{REPORT}", result, title=f"Audit of {result.source}")
    return result


def _add_clocks(result: AuditResult, compared: Sequence[Compared]) -> None:
    """Add what the comparison of logged clocks gave, if there were any."""
    if not compared:
        return
    result.clocks = {"compared": sum(one.clocks for one in compared), "differ": sum(one.differ for one in compared)}
    result.notes += [f"clock: {example}" for one in compared for example in one.examples][:MAX_EXAMPLES]
    skipped = sum(one.skipped for one in compared)
    if skipped:
        result.notes.append(f"clocks of {skipped} runs of more than {MAX_CLOCKED_EVENTS:,} events were not compared")


def _events(spark: SparkSession, place: str) -> DataFrame:
    """Return the trace as a DataFrame, with all its columns, those that the files do not have included."""
    from thence.pipeline.metrics import typed

    # Servers write into folders of their own. Spark looks into folders by itself only where their names are columns.
    plain = not any("=" in fragment.path.removeprefix(fragment.root) for fragment in fragments_of(place))
    return typed(spark.read.option("recursiveFileLookup", plain).parquet(absolute(place)))


def _as_parquet(
    spark: SparkSession, source: str | DataFrame, work: WorkFolder, importing: Mapping[str, str | None], watch: _Watch
) -> tuple[str, Imported | None]:
    """Where the trace is as Parquet, and how it was imported, if it had to be."""
    place = f"{work.uri}/trace"
    given = {name: value for name, value in importing.items() if value is not None}
    if not isinstance(source, str):
        watch.step("write")
        source.write.parquet(place)
        return place, None
    if not given and not reachable(absolute(source)):
        watch.step("copy")
        _copy(spark, source, place)
        return place, None
    if not given and is_parquet(source):
        return source, None
    watch.step("import")
    from thence.pipeline.importers import import_trace

    named = {name: given.get(name) for name in ("format", "pattern", "delimiter", "mapping")}
    return place, import_trace(spark, source, place, **named)  # type: ignore[arg-type]


def _without_the_lost(spark: SparkSession, place: str, work: WorkFolder) -> tuple[str, int]:
    """Return where the trace to audit is, if processes were lost in this one, and how many were."""
    if not any(fragment.viewed for fragment in fragments_of(place)):
        return place, 0
    with _names_as_they_are(spark):
        events = _events(spark, place)
        lost = lost_in(events).count()
        if not lost:
            return place, 0
        without_the_lost(events).write.parquet(f"{work.uri}/survivors")
    return f"{work.uri}/survivors", lost


def _names_as_they_are(spark: SparkSession) -> AbstractContextManager[None]:
    """Let Spark take names of folders for text: the run "007" is not the run "7"."""
    return setting(spark, "spark.sql.sources.partitionColumnTypeInference.enabled", "false")


def _copy(spark: SparkSession, source: str, place: str) -> None:
    """Let Spark read what Arrow cannot, just as it was named."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with _names_as_they_are(spark):
            spark.read.parquet(source).write.parquet(place)
    except (PySparkException, Py4JError) as error:
        reason = " ".join(str(error).partition("\n\tat ")[0].split())
        raise TraceError(f"{source}: neither Arrow nor Spark can read this: {reason}") from None


def _rows(spark: SparkSession, work: WorkFolder, some: bool) -> DataFrame:
    """Return the rows that were left in the work folder."""
    if not some:
        return spark.createDataFrame([], ddl(tasks.FOUND))
    return spark.read.schema(ddl(tasks.FOUND)).parquet(f"{work.uri}/{tasks.VIOLATIONS_FOLDER}")


def _explain(
    engine: OnSpark, auditor: Auditor, rows: DataFrame, explain: int, cones: int, progress: Progress
) -> dict[tuple[Any, ...], tasks.Explanation]:
    """Chains, by what tells rows apart."""
    if not explain:
        return {}
    late = _in_order(rows.where("earlier_slice is not null")).limit(explain).collect()
    windows = defaultdict(list)
    for number, row in enumerate(late):
        last = max(row["later_slice"], row["slice"]) if number < cones else row["later_slice"]
        ends = tasks.Ends(
            number,
            (row["earlier_slice"], row["earlier_local"]),
            (row["later_slice"], row["later_local"]),
            row["process"],
            row["index"],
            number < cones,
        )
        windows[row["run_number"], row["earlier_slice"], last].append(ends)
    things = [(auditor.runs[run].slices[first : last + 1], ends) for (run, first, last), ends in windows.items()]
    found = [one for some in engine.each("explain", tasks.tell_chains, things, progress) for one in some]
    return {tuple(late[one.number][name] for name in _KEY): one for one in found}


def _with_chains(spark: SparkSession, rows: DataFrame, explained: Mapping[tuple[Any, ...], tasks.Explanation]) -> DataFrame:
    from pyspark.sql import functions as f

    rows = rows.drop("earlier_slice", "earlier_local", "later_slice", "later_local", "slice")
    if not explained:
        return rows.withColumn("story", f.lit(None).cast("string"))
    schema = "run_number int, property string, process string, index long, later string, found array<string>, story string"
    chains = spark.createDataFrame([(*key, list(one.chain), one.story) for key, one in explained.items()], schema)
    joined = rows.join(f.broadcast(chains), list(_KEY), "left")
    return joined.withColumn("chain", f.coalesce("found", "chain")).select(*rows.columns, "story")


def _first(table: DataFrame, most: int) -> dict[str, Any]:
    found = [(_violation(row), row["story"]) for row in _in_order(table).limit(most).collect()] if most else []
    return {
        "violations": sorted((violation for violation, _ in found), key=sort_key),
        "stories": {violation: story for violation, story in found if story},
    }


def _in_order(table: DataFrame) -> DataFrame:
    """The rows in the order of the judge."""
    from pyspark.sql import functions as f

    place = f.array_position(f.array(*map(f.lit, PROPERTIES)), f.col("property"))
    return table.orderBy(f.col("run").asc_nulls_first(), place, "process", f.col("index").asc_nulls_last(), "later")


def _violation(row: Row) -> Violation:
    values = {name: row[name] for name in Violation.__struct_fields__}
    return Violation(**{**values, "chain": tuple(row["chain"])})


def _keep(
    spark: SparkSession, auditor: Auditor, table: DataFrame, explained: Mapping[tuple[Any, ...], tasks.Explanation], out: str
) -> list[str]:
    """Write the tables and the cones; return the names of the cones."""
    table.write.mode("overwrite").parquet(f"{out}/violations")
    if auditor.bad:
        bad = spark.createDataFrame([tuple(bad) for bad in auditor.bad], "file string, row long, reason string")
        bad.write.mode("overwrite").parquet(f"{out}/bad")
    files, root = filesystem(out)
    names = []
    for one in sorted(explained.values(), key=lambda one: one.number):
        if one.cone:
            files.create_dir(f"{root}/cones", recursive=True)
            names.append(str(PurePosixPath(root) / "cones" / f"{one.number:04d}.jsonl"))
            with files.open_output_stream(names[-1]) as stream:
                stream.write(b"".join(msgspec.json.encode(event) + b"\n" for event in one.cone))
    return names


@contextmanager
def _work_folder(work: str | None) -> Iterator[WorkFolder]:
    if work is None:
        with tempfile.TemporaryDirectory(prefix="thence-audit-") as folder:
            yield WorkFolder(folder)
        return
    given = WorkFolder(f"{absolute(work).rstrip('/')}/thence-audit-{time.time_ns()}")
    given.make()
    try:
        yield given
    finally:
        given.remove()


class _Watch:
    """Passes progress on, and takes the time of the steps."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._seconds: dict[str, float] = defaultdict(float)
        self._step = ""
        self._since = time.monotonic()

    def __call__(self, step: str, done: int, total_: int) -> None:
        self.step(step)
        if self._progress:
            self._progress(step, done, total_)

    def step(self, name: str) -> None:
        if name != self._step:
            now = time.monotonic()
            if self._step:
                self._seconds[self._step] += now - self._since
            self._step, self._since = name, now

    def over(self) -> dict[str, float]:
        self.step("")
        return {name: round(seconds, 3) for name, seconds in self._seconds.items()}
