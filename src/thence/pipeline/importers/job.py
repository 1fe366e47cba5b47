"""An import from beginning to end: find the files, decide what they are, read them, write the trace, count.

Rules:

* The format is guessed where it is not named, from the names and the first lines; what was guessed is said.
* The source is read once: what was staged is kept until both tables are written.
* Nothing but thence's own errors comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from thence.errors import ConfigError, TraceError
from thence.pipeline.importers import logtext
from thence.pipeline.importers.mapping import Mapping, read_mapping
from thence.pipeline.importers.native import decode_house_line, read_jsonl, read_parquet
from thence.pipeline.importers.ndjson import read_ndjson
from thence.pipeline.importers.output import bad_place, read_bad_rows, refuse_to_replace, write
from thence.pipeline.importers.shiviz import read_shiviz
from thence.pipeline.importers.sources import FORMATS, JSONL, NDJSON, PARQUET, SHIVIZ, Source, find, head, reading
from thence.pipeline.importers.staged import BAD, EVENT, IGNORED
from thence.trace.events import SEND
from thence.trace.files import PARQUET_ENDING, PARQUET_MAGIC

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
    lines: int
    """Of the source, without blank ones; rows, for Parquet."""
    ignored: int
    events: int
    """Rows of the trace."""
    runs: int
    processes: int
    messages: int
    bad: int
    first_bad: tuple[str, ...]

    def to_json(self) -> str:
        """Return the same as one JSON object."""
        return msgspec.json.encode(asdict(self)).decode()


class ImportPlan(NamedTuple):
    """How a source will be read."""

    format: str
    guessed: str | None = None
    grammar: logtext.Grammar | None = None
    mapping: Mapping | None = None


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

    ``pattern`` and ``delimiter`` are regular expressions for ShiViz logs, ``mapping`` is the path of a mapping for NDJSON.
    """
    progress("finding files")
    found = find(spark, str(source))
    plan = _plan(spark, found, format, pattern, delimiter, mapping)
    found = found.of_format(plan.format)
    refuse_to_replace(str(out), found)
    progress("reading")
    with reading(str(source)):
        staged = _staged(spark, found, plan).persist()
        try:
            counts = _counts(staged)
            progress("writing")
            write(staged, str(out), found, counts["events"], counts["bad"], blocks=counts.pop("blocks"))
            return Imported(
                trace=str(out),
                bad_rows=bad_place(str(out)) if counts["bad"] else None,
                format=plan.format,
                guessed=plan.guessed,
                files=len(found.files),
                first_bad=_first_bad(spark, str(out)) if counts["bad"] else (),
                **counts,
            )
        finally:
            staged.unpersist()


# --- what it is --------------------------------------------------------------------------------------------------------


def _plan(
    spark: SparkSession,
    source: Source,
    named: str | None,
    pattern: str | None,
    delimiter: str | None,
    mapping: str | None,
) -> ImportPlan:
    if named is not None and named not in FORMATS:
        raise ConfigError(f"format {named}: not known; the formats are {', '.join(FORMATS)}")
    given = SHIVIZ if pattern or delimiter else NDJSON if mapping else None
    if named and given and named != given:
        raise ConfigError(f"format {named}: takes no {'regular expression' if given == SHIVIZ else 'mapping'}")
    chosen = named or given
    words = None
    if chosen is None:
        chosen, words = _guessed(spark, source)
    if chosen == NDJSON:
        if mapping is None:
            raise ConfigError(
                "JSON lines that are no trace need a mapping (--mapping FILE), which says where the columns come from"
            )
        return ImportPlan(chosen, words, mapping=read_mapping(mapping))
    if chosen == SHIVIZ:
        return _shiviz_plan(spark, source.of_format(SHIVIZ), words, pattern, delimiter)
    return ImportPlan(chosen, words)


def _guessed(spark: SparkSession, source: Source) -> tuple[str, str]:
    """Return the format that a source seems to have, and how that shows."""
    if any(file.path.endswith(PARQUET_ENDING) for file in source.files):
        return PARQUET, f"names end in {PARQUET_ENDING}"
    text = head(spark, source)
    if text.startswith(PARQUET_MAGIC.decode()):
        return PARQUET, "it begins like Parquet"
    lines = [line.encode() for line in text.splitlines() if line.strip()]
    if not lines:
        raise TraceError(f"{source.place}: nothing in there")
    if any(map(_is_event, lines)):
        return JSONL, "lines are events of a trace"
    if 2 * sum(map(_is_object, lines)) > len(lines):
        return NDJSON, "lines are JSON objects"
    return SHIVIZ, "lines are text"


def _is_event(line: bytes) -> bool:
    try:
        return bool(decode_house_line(line, {}))
    except TraceError:
        return False


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.MsgspecError, RecursionError):
        return False


def _shiviz_plan(
    spark: SparkSession, source: Source, words: str | None, pattern: str | None, delimiter: str | None
) -> ImportPlan:
    ending = delimiter or logtext.DEFAULT_DELIMITER
    logtext.compiled(ending)
    if pattern is not None:
        logtext.event_pattern(pattern)
        return ImportPlan(SHIVIZ, words, logtext.Grammar(pattern, ending))
    text = head(spark, source)
    brought = logtext.header(text)
    if brought is not None:
        logtext.event_pattern(brought[0].pattern)
        logtext.compiled(brought[0].delimiter)
        return ImportPlan(SHIVIZ, "the file begins with its regular expression")
    guess = logtext.guess(text, ending)
    if guess is None:
        raise TraceError(f"{source.place}: no events found; give the regular expression of the log (--pattern)")
    return ImportPlan(SHIVIZ, f"looks like {guess[0]}", logtext.Grammar(guess[1], ending))


# --- reading and counting ----------------------------------------------------------------------------------------------


def _staged(spark: SparkSession, source: Source, plan: ImportPlan) -> DataFrame:
    if plan.format == PARQUET:
        return read_parquet(spark, source)
    if plan.format == JSONL:
        return read_jsonl(spark, source).drop("order")
    if plan.mapping is not None:
        return read_ndjson(spark, source, plan.mapping)
    return read_shiviz(spark, source, plan.grammar)


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
