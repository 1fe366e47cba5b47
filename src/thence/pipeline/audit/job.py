"""``audit_trace``: a trace at a path or URL in, a verdict and tables out.

Rules:

* Every violation is a row of the table ``violations``. Chains are told for the first ``explain`` of fifo and causal, in the
  order of the judge; cones, each a small trace of its own, for the first ``cones``.
* Rows that cannot be read are rows of the table ``bad``, and the verdict says how many there were.
* Without ``out`` nothing is kept but what is returned. With ``report``, the trace is measured too, and one HTML file tells all.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from thence.errors import ConfigError, TraceError
from thence.pipeline.audit.auditor import Audit, audit, in_order
from thence.pipeline.catalog import drop_table, is_table, read_table, write_table
from thence.pipeline.files import absolute, is_folder_of_columns, listing, reachable, replace_files
from thence.pipeline.importers import caveats_of
from thence.pipeline.kernels.logged_clocks import MAX_CLOCKED_EVENTS, MAX_EXAMPLES
from thence.pipeline.kernels.plan import SLICE_EVENTS
from thence.pipeline.result import AuditResult, MissingMessage
from thence.pipeline.session import Progress, settings
from thence.pipeline.tables import VIOLATIONS
from thence.trace.files import PARQUET_ENDING
from thence.trace.verdict import DEFAULT_REQUIRED, Violation, sort_key
from thence.words import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from thence.pipeline.importers import Imported

EXPLAINED: Final = 1_000
REPORT: Final = "report.html"
CONES: Final = 10
SHOWN: Final = 10_000
"""How many violations are returned, and printed as JSON; the table has them all."""

WORST: Final = 10
"""So many findings are shown, those that caused the most."""

_KEY: Final = ("run_number", "property", "process", "index", "later")


def audit_trace(
    spark: SparkSession,
    source: str | DataFrame,
    *,
    require: Sequence[str] = DEFAULT_REQUIRED,
    slice_events: int = SLICE_EVENTS,
    out: str | None = None,
    explain: int = EXPLAINED,
    cones: int = CONES,
    report: bool = False,
    importing: Mapping[str, str | None] | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Audit the trace at a path, glob or URL, in a table (``table:NAME``), or in a DataFrame; tell the verdict.

    What is no Parquet trace is imported first; ``importing`` are options of :func:`import_trace`, such as ``format``. ``out``
    is a folder, or ``table:PREFIX`` for tables whose names begin so.
    """
    if out and report and is_table(out):
        raise ConfigError("a report is written into a folder: without it, or with --out DIR")
    watch = _Watch(progress)
    with ExitStack() as stack:
        events, imported = _events(spark, source, importing or {}, watch, stack)
        found = stack.enter_context(audit(events, require=require, slice_events=slice_events, progress=watch))
        findings, worst = _findings(found)
        watch.step("explain")
        explanations = found.explained(explain, cones if out and not is_table(out) else 0, watch)
        table = _with_chains(found.rows, explanations)
        wrong = [] if not found.bad_rows else found.bad.orderBy("file", "row").limit(10).collect()
        result = AuditResult(
            source=source if isinstance(source, str) else "a DataFrame",
            events=found.events,
            runs=len(found.plan.runs),
            processes=len({name for run in found.plan.runs for name in run.processes}),
            slices=found.plan.slices,
            properties=found.properties,
            findings=findings,
            worst=worst,
            **_first(table, SHOWN if not found.is_kept else 0),
            bad_rows=found.bad_rows + (imported.bad if imported else 0),
            bad_examples=[f"{row['file'] or 'the trace'}, row {row['row']}: {row['reason']}" for row in wrong],
            repairs=found.repairs,
        )
        if imported:
            result.bad_examples += imported.first_bad
        result.notes += caveats_of(events)
        untold = sum(row.get("chain") is None for row in explanations)
        if untold:
            result.notes.append(f"{counted(untold, 'chain')} not told: the messages lie too far apart")
        _add_clocks(result, found)
        if out:
            watch.step("write")
            out = out if is_table(out) else absolute(out)
            bad = spark.read.parquet(imported.bad_rows) if imported and imported.bad_rows else found.bad
            tables = {"violations": table, "findings": found.findings, "bad": bad if result.bad_rows else None}
            _write(spark, tables, out, [run.name for run in found.plan.runs])
            if not is_table(out):
                result.cones = _write_cones(explanations, out)
        if out and report:
            watch.step("measure")
            from thence.pipeline.metrics import typed, write_metrics

            write_metrics(spark, typed(events), f"{out}/metrics")
        result.seconds = watch.over()
    if out and report:
        from thence.pipeline.report import write_report

        write_report(f"{out}/metrics", f"{out}/{REPORT}", result, title=f"Audit of {result.source}")
    return result


def _events(
    spark: SparkSession,
    source: str | DataFrame,
    importing: Mapping[str, str | None],
    watch: _Watch,
    stack: ExitStack,
) -> tuple[DataFrame, Imported | None]:
    """Return the events, and how they were imported, if they had to be."""
    given = {name: value for name, value in importing.items() if value is not None}
    if not isinstance(source, str):
        return source, None
    if is_table(source):
        return read_table(spark, source), None
    if not given and (not reachable(absolute(source)) or _has_parquet(source)):
        return read_parquet_trace(spark, source), None
    watch.step("import")
    from thence.pipeline.importers import import_trace

    place = stack.enter_context(TemporaryDirectory(prefix="thence-import-"))
    named = {name: given.get(name) for name in ("format", "pattern", "delimiter", "mapping")}
    imported = import_trace(spark, source, f"{place}/trace", **named)  # type: ignore[arg-type]
    return spark.read.parquet(imported.trace), imported


def _has_parquet(source: str) -> bool:
    """Return whether anything there ends as Parquet files do; something else may be a trace of another kind."""
    return any(path.endswith(PARQUET_ENDING) for path in listing(source, PARQUET_ENDING).paths)


def read_parquet_trace(spark: SparkSession, source: str) -> DataFrame:
    """Return the Parquet trace at a path, glob or URL, with columns that the names of its folders give."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    place = absolute(source)
    # Servers write into folders of their own. Spark looks into folders by itself only where their names are columns.
    plain = reachable(place) and not is_folder_of_columns(place)
    try:
        # The run "007" is not the run "7".
        with settings(spark, {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}):
            # Files may have columns that others lack: with the schema of one of them, those would be absent unsaid.
            return spark.read.option("recursiveFileLookup", plain).option("mergeSchema", True).parquet(place)
    except (PySparkException, Py4JError) as error:
        reason = " ".join(str(error).partition("\n\tat ")[0].split())
        raise TraceError(f"{source}: cannot be read as a Parquet trace: {reason}") from None


def worst_first() -> list[Column]:
    """Return by what findings are sorted, so that those come first that caused the most."""
    from pyspark.sql import functions as f

    return [f.desc("causal"), f.desc("fifo"), f.asc_nulls_first("run"), f.asc("message"), f.asc("process")]


def _findings(found: Audit) -> tuple[int, list[MissingMessage]]:
    """Return how many messages are missing somewhere, and those that caused the most violations."""
    if not any(found.properties.get(name) for name in ("fifo", "causal", "completeness")):
        return 0, []
    rows = found.findings.orderBy(*worst_first()).limit(WORST).collect()
    return found.findings.count(), [MissingMessage(**{name: row[name] for name in MissingMessage.__slots__}) for row in rows]


def _add_clocks(result: AuditResult, found: Audit) -> None:
    """Add what the comparison of logged clocks gave, if there were any."""
    rows = found.clocks.collect() if found.plan.clocked else []
    if not rows:
        return
    result.clocks = {name: sum(row[name] or 0 for row in rows) for name in ("compared", "differ")}
    result.notes += [f"clock: {example}" for row in rows for example in row["examples"] or ()][:MAX_EXAMPLES]
    skipped = sum(row["skipped"] for row in rows)
    if skipped:
        result.notes.append(f"clocks of {skipped} runs of more than {MAX_CLOCKED_EVENTS:,} events were not compared")


def _with_chains(rows: DataFrame, explanations: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return the table of violations, with the chains that were found."""
    from pyspark.sql import functions as f

    columns = [name for name, *_ in VIOLATIONS if name != "chain"]
    empty = f.array().cast("array<string>")
    chains = [(*(row[name] for name in _KEY), list(row["chain"]), row["story"]) for row in explanations if row.get("chain")]
    if not chains:
        table = rows.withColumns({"chain": empty, "story": f.lit(None).cast("string")})
    else:
        schema = "run_number int, property string, process string, index long, later string, chain array<string>, story string"
        joined = rows.join(f.broadcast(rows.sparkSession.createDataFrame(chains, schema)), list(_KEY), "left")
        table = joined.withColumn("chain", f.coalesce("chain", empty))
    return table.select(*columns[: columns.index("detail")], "chain", "detail", "story")


def _first(table: DataFrame, most: int) -> dict[str, Any]:
    rows = in_order(table).limit(most).collect() if most else []
    found = [(Violation(**{name: row[name] for name in _FIELDS}, chain=tuple(row["chain"])), row["story"]) for row in rows]
    return {
        "violations": sorted((violation for violation, _ in found), key=sort_key),
        "stories": {violation: story for violation, story in found if story},
    }


_FIELDS: Final = tuple(name for name in Violation.__struct_fields__ if name != "chain")


def _write(spark: SparkSession, tables: Mapping[str, DataFrame | None], out: str, runs: Sequence[str | None]) -> None:
    """Write tables into folders or a catalog; one that is not there this time is removed, since it is of an audit before."""
    for name, table in tables.items():
        if is_table(out):
            place = f"{out}_{name}"
            if table is None:
                drop_table(spark, place)
            else:
                write_table(table, place, runs if name == "violations" else ())
        elif table is None:
            replace_files(f"{out}/{name}", {})
        else:
            table.write.mode("overwrite").parquet(f"{out}/{name}")


def _write_cones(explanations: Sequence[Mapping[str, Any]], out: str) -> list[str]:
    """Write the cones, in place of those that are there; return where they are."""
    cones = {f"{row['number']:04d}.jsonl": bytes(row["cone"]) for row in explanations if row.get("cone")}
    return replace_files(f"{out}/cones", cones)


class _Watch:
    """Passes progress on, and takes the time of the steps."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._seconds: dict[str, float] = defaultdict(float)
        self._step = ""
        self._since = time.monotonic()

    def __call__(self, step: str, done: int, total: int) -> None:
        self.step(step)
        if self._progress:
            self._progress(step, done, total)

    def step(self, name: str) -> None:
        if name != self._step:
            now = time.monotonic()
            if self._step:
                self._seconds[self._step] += now - self._since
            self._step, self._since = name, now

    def over(self) -> dict[str, float]:
        self.step("")
        return {name: round(seconds, 3) for name, seconds in self._seconds.items()}
