"""The audit of a small trace in this process: the same kernels, or the judge, without Spark, whose start alone takes longer.

Rules:

* Only Parquet files on this machine, of up to ``SMALL_EVENTS`` events. Anything out of the ordinary is left to Spark: lost
  processes, logged clocks, rows that cannot be read, or name nobody.
* The rows, the chains and their order are those of the audit on Spark.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from thence.errors import ConfigError, TraceError
from thence.pipeline.audit.explain import Ends, explain_window, windows_of
from thence.pipeline.audit.total import contradictions
from thence.pipeline.catalog import is_table
from thence.pipeline.files import GLOB, is_url
from thence.pipeline.importers import caveats
from thence.pipeline.kernels.plan import SLICE_EVENTS
from thence.pipeline.kernels.slices import without
from thence.pipeline.result import AuditResult, MissingMessage
from thence.pipeline.scan.here import LocalAudit, audit_table
from thence.pipeline.scan.rows import FOUND_SCHEMA
from thence.pipeline.tables import TRACE, arrow_schema
from thence.trace.events import DELIVER, SEND, VIEW
from thence.trace.files import PARQUET_ENDING, partition_of, read_trace, trace_files
from thence.trace.judge import judge
from thence.trace.verdict import PROPERTIES, Violation, sort_key
from thence.trace.words import tell_chain

SMALL_EVENTS: Final = 2_000_000
"""So many events take about as long here as the start of Spark."""

JUDGED_EVENTS: Final = 50_000
"""So many events the judge looks at sooner than the kernels are compiled, which is done once."""
WORST: Final = 10
"""So many findings are shown, those that caused the most."""

_READ: Final = ("run", "process", "index", "kind", "message", "to", "time")


def read_small(source: str, most: int = SMALL_EVENTS) -> pa.Table | None:
    """Return a small Parquet trace of this machine; nothing if it is anything else, which Spark can read or say what is wrong."""
    root = Path(source)
    if is_url(source) or is_table(source) or GLOB.search(source):
        return None
    if not root.exists():
        raise TraceError(f"{source}: no such file or folder")
    files = _files(root)
    if not files or not all(file.name.endswith(PARQUET_ENDING) for file in files):
        return None
    wanted = pa.schema([arrow_schema(TRACE).field(name) for name in _READ])
    tables: list[pa.Table] = []
    rows = 0
    for file in files:
        try:
            with pq.ParquetFile(file) as opened:
                rows += opened.metadata.num_rows
                if rows > most:
                    return None
                there = set(opened.schema_arrow.names)
                tables.append(opened.read(columns=[name for name in (*_READ, "clock") if name in there]))
        except (pa.ArrowException, OSError):
            return None
        tables[-1] = _typed(tables[-1], partition_of(PurePosixPath(file), PurePosixPath(root)), wanted)
        if tables[-1] is None:
            return None
    table = pa.concat_tables(tables)
    needed = table["process"], table["index"], table["kind"], pc.list_flatten(table["to"])
    odd = any(column.null_count for column in needed) or pc.any(pc.equal(table["kind"], VIEW)).as_py()
    return None if odd else table


def _files(root: Path) -> list[Path]:
    try:
        return trace_files(root)
    except TraceError:  # Other formats end otherwise.
        return []


def _typed(table: pa.Table, given: dict[str, str | None], wanted: pa.Schema) -> Any:
    if "clock" in table.column_names and table["clock"].null_count < table.num_rows:
        return None
    columns = []
    for field in wanted:
        if field.name in table.column_names:
            try:
                column = table[field.name].cast(field.type)
            except pa.ArrowException:
                return None
            columns.append(column.fill_null(given[field.name]) if given.get(field.name) is not None else column)
        else:
            columns.append(pa.chunked_array([pa.repeat(pa.scalar(given.get(field.name), field.type), table.num_rows)]))
    return pa.table(columns, schema=wanted)


def audit_small(
    table: pa.Table, require: Sequence[str], *, slice_events: int = SLICE_EVENTS, explain: int = 0, source: str = ""
) -> AuditResult:
    """Audit a trace that :func:`read_small` has read."""
    began = time.monotonic()
    if not require:
        raise ConfigError(f"no property is required; the properties are {', '.join(PROPERTIES)}")
    if table.num_rows <= JUDGED_EVENTS:
        return _judged(source, require, explain, began)
    found = audit_table(table, [name for name in require if name != "total"], slice_events)
    rows = found.rows
    if "total" in require:
        rows = pa.concat_tables([rows, total_rows(table, found)])
    violations, stories = with_chains(found, rows, explain)
    counts = Counter(rows["property"].to_pylist())
    found_missing = findings(violations)
    return AuditResult(
        events=found.plan.events,
        properties={name: counts[name] for name in PROPERTIES if name in require},
        violations=violations,
        stories=stories,
        findings=len(found_missing),
        worst=found_missing[:WORST],
        source=source,
        runs=len(found.plan.runs),
        processes=len({name for run in found.plan.runs for name in run.processes}),
        slices=found.plan.slices,
        notes=[*caveats(source), "a small trace: audited in this process, without Spark (--master starts it)"],
        seconds={"audit": round(time.monotonic() - began, 3)},
    )


def _judged(source: str, require: Sequence[str], explain: int, began: float) -> AuditResult:
    """Return what the judge says."""
    events = read_trace(source)
    verdict = judge(events, require)
    result = AuditResult.of(verdict)
    late = [row for row in verdict.violations if row.chain][:explain]
    wanted = {(row.run, message) for row in late for message in row.chain}
    senders: dict[tuple[str | None, str], str] = {}
    for event in events:
        if event.kind == SEND and event.message is not None and (event.run, event.message) in wanted:
            key = event.run, event.message
            senders[key] = min(senders.get(key, event.process), event.process)
    result.stories = {row: tell_chain(row.chain, {name: senders[row.run, name] for name in row.chain}) for row in late}
    missing = findings(verdict.violations)
    result.findings, result.worst, result.source = len(missing), missing[:WORST], source
    result.runs, result.processes = len({event.run for event in events}), len({event.process for event in events})
    result.slices = result.runs
    result.notes = [*caveats(source), "a small trace: judged in this process, without Spark (--master starts it)"]
    result.seconds = {"judge": round(time.monotonic() - began, 3)}
    return result


def findings(violations: Sequence[Violation]) -> list[MissingMessage]:
    """Return the messages that are missing somewhere, those that caused the most violations first."""
    caused: dict[tuple[str | None, str, str], Counter[str]] = defaultdict(Counter)
    for row in violations:
        message = row.later if row.property == "completeness" else row.earlier
        if row.property in ("completeness", "fifo", "causal") and message is not None:
            caused[row.run, message, row.process][row.property] += 1
    made = [
        MissingMessage(run, message, process, count["completeness"] > 0, count["fifo"], count["causal"])
        for (run, message, process), count in caused.items()
    ]
    return sorted(made, key=lambda one: (-one.causal, -one.fifo, one.run is not None, one.run or "", one.message, one.process))


def total_rows(table: pa.Table, found: LocalAudit) -> pa.Table:
    """Return a row for each pair of processes that disagree about an order."""
    made = table.filter(pc.and_(pc.equal(table["kind"], DELIVER), table["message"].is_valid()))
    made = made.append_column("side", pa.repeat(0, len(made)))
    batches = []
    for run in found.plan.runs:
        mine = made["run"].is_null() if run.name is None else pc.equal(made["run"], run.name).fill_null(False)
        batches += list(contradictions(run.name, made.filter(mine)))
    return pa.Table.from_batches(batches, FOUND_SCHEMA)


def with_chains(found: LocalAudit, rows: pa.Table, explain: int) -> tuple[list[Violation], dict[Violation, str]]:
    """Return all violations in the judge's order, the first ones of fifo and causal with their chains; and those in words."""
    names = [name for name in Violation.__struct_fields__ if name != "chain"]
    listed = [(Violation(**{name: row[name] for name in names}), row) for row in rows.to_pylist()]
    listed.sort(key=lambda pair: sort_key(pair[0]))
    numbers = {run.name: at for at, run in enumerate(found.plan.runs)}
    late = [(at, row) for at, (_, row) in enumerate(listed) if row["since"] is not None][:explain]
    wanted = [
        Ends(
            number=at,
            run_number=numbers[row["run"]],
            since=row["since"],
            until=min(row["until"], len(found.slices[numbers[row["run"]]]) - 1),
            earlier=row["earlier"],
            later=row["later"],
            process=row["process"],
            position=row["index"],
            cone=False,
        )
        for at, row in late
    ]
    events = {(run, at): one.events for run, slices in found.slices.items() for at, one in enumerate(slices)}
    chains, stories = {}, {}
    for window in windows_of(wanted, events):
        run = found.plan.runs[window.run]
        slices = [without(one, found.resent[window.run]) for one in found.slices[window.run][window.first : window.last + 1]]
        for one in explain_window(slices, run.processes, window.ends):
            chains[one.number], stories[one.number] = one.chain, one.story
    violations = [
        Violation(**{name: getattr(violation, name) for name in names}, chain=chains.get(at, ()))
        for at, (violation, _) in enumerate(listed)
    ]
    return violations, {violations[at]: story for at, story in stories.items()}
