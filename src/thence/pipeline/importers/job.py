"""An import from beginning to end: find the files, decide what they are, read them, write the trace, count.

Rules:

* The source is read once: what was staged is kept until both tables are written.
* Nothing but thence's own errors comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thence.errors import TraceError
from thence.pipeline.importers.mapped.ndjson import read_mapped
from thence.pipeline.importers.native import read_jsonl, read_parquet
from thence.pipeline.importers.output import bad_place, read_bad_rows, refuse_to_replace, write
from thence.pipeline.importers.plan import ImportPlan, SourceOptions, plan
from thence.pipeline.importers.shiviz import read_shiviz
from thence.pipeline.importers.sources import JSONL, PARQUET, Source, find, head, reading
from thence.pipeline.importers.staged import BAD, EVENT, IGNORED
from thence.trace.events import SEND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST_BAD_ROWS: Final = 5


@dataclass(frozen=True)
class Imported:
    """What an import has done. ``bad`` rows were set aside and are in ``bad_rows``; a verdict on the rest has to say so."""

    trace: str
    bad_rows: str | None
    format: str
    guessed: str | None
    """What was guessed, in words; None where everything was said."""
    files: int
    unit: str
    """What was counted of the source: a line that is not blank, a record of a document, or a row of Parquet."""
    lines: int
    ignored: int
    events: int
    """Rows of the trace."""
    runs: int
    processes: int
    messages: int
    bad: int
    first_bad: tuple[str, ...]
    caveats: tuple[str, ...]
    """What cannot be judged in the trace, and why; :func:`thence.pipeline.importers.caveats` reads it from the trace."""

    def to_json(self) -> str:
        """Return the same as one JSON object."""
        return msgspec.json.encode(asdict(self)).decode()


def import_trace(
    spark: SparkSession,
    source: str,
    out: str,
    *,
    format: str | None = None,  # noqa: A002 - what it is called everywhere
    pattern: str | None = None,
    delimiter: str | None = None,
    mapping: str | None = None,
    progress: Callable[[str], None] = lambda _step: None,
) -> Imported:
    """Make a Parquet trace at ``out`` of whatever is at ``source``.

    ``pattern`` and ``delimiter`` are regular expressions for ShiViz logs, ``mapping`` is the path of a mapping for JSON, or the
    name of a preset.
    """
    progress("finding files")
    found = find(spark, str(source))
    options = SourceOptions(format, pattern, delimiter, mapping)
    planned = plan(found.place, found.files, options, lambda files: head(spark, files))
    found = found.of_format(planned.format)
    refuse_to_replace(str(out), found)
    caveats = planned.caveats(str(source))
    progress("reading")
    with reading(str(source)):
        staged = _staged(spark, found, planned).persist()
        try:
            counts = _counts(staged)
            if planned.mapping is not None and not counts["events"] and not counts["bad"]:
                raise TraceError(
                    f"{source}: nothing in there is an event; expected {planned.mapping.about or 'what the mapping names'}"
                )
            progress("writing")
            write(staged, str(out), found, counts["events"], counts["bad"], caveats, blocks=counts.pop("blocks"))
            return Imported(
                trace=str(out),
                bad_rows=bad_place(str(out)) if counts["bad"] else None,
                format=planned.format,
                guessed=planned.guessed,
                files=len(found.files),
                unit=planned.unit,
                first_bad=_first_bad(spark, str(out)) if counts["bad"] else (),
                caveats=tuple(caveats),
                **counts,
            )
        finally:
            staged.unpersist()


# --- reading and counting ----------------------------------------------------------------------------------------------


def _staged(spark: SparkSession, source: Source, planned: ImportPlan) -> DataFrame:
    if planned.format == PARQUET:
        return read_parquet(spark, source)
    if planned.format == JSONL:
        return read_jsonl(spark, source)
    if planned.mapping is not None:
        return read_mapped(spark, source, planned.mapping)
    return read_shiviz(spark, source, planned.grammar)


def _counts(staged: DataFrame) -> dict[str, Any]:
    """Count everything in one pass, and without a shuffle of many tasks."""
    from pyspark.sql import functions as f

    is_event = f.col("what") == EVENT
    counted = {
        "lines": f.sum("lines"),
        "ignored": f.sum(f.when(f.col("what") == IGNORED, f.col("lines"))),
        "events": f.sum(f.when(is_event, 1)),
        "bad": f.sum(f.when(f.col("what") == BAD, 1)),
        "messages": f.sum(f.when(is_event & (f.col("kind") == SEND), 1)),
        "runs": f.size(f.collect_set(f.when(is_event, f.struct("run")))),
        "processes": f.size(f.collect_set(f.when(is_event, f.struct("run", "process")))),
        "blocks": f.sum(f.when((f.col("what") == BAD) & (f.col("block") > 0), 1)),
    }
    row = staged.agg(*(column.alias(name) for name, column in counted.items())).first()
    counts: dict[str, Any] = {name: int((row and row[name]) or 0) for name in counted}
    return {**counts, "blocks": counts["blocks"] > 0}


def _first_bad(spark: SparkSession, out: str) -> tuple[str, ...]:
    rows = read_bad_rows(spark, out).orderBy("source", "line").limit(FIRST_BAD_ROWS).collect()
    return tuple(_place(row["source"], row["line"], row["reason"]) for row in rows)


def _place(source: str | None, line: int | None, reason: str) -> str:
    return reason if source is None else f"{source.removeprefix('file:')}:{line}: {reason}"
