"""ShiViz and GoVector logs: text with vector clocks becomes a trace with messages.

The text is taken apart by :mod:`~thence.pipeline.importers.logtext`, the messages are found by
:mod:`~thence.pipeline.importers.clocks`; this file makes rows of what they say, and lets Spark hand them the data.

Rules:

* All files of a source are one log. A file is read whole, up to ``MAX_FILE_BYTES``, since an event may take several lines; a
  run is derived whole, in one task.
* A logged event becomes, in this order: one ``deliver`` row for each message it heard, one row of kind ``event`` that stands
  for the event itself and holds its clock and time, and one ``send`` row if anybody heard from it directly. Only the
  ``event`` row accounts for lines of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from thence.pipeline.importers.clocks import Derived, Logged, derive, message_id
from thence.pipeline.importers.logtext import Grammar, parse_log, text_of
from thence.pipeline.importers.sources import Source, partition_of, refuse_large_files
from thence.pipeline.importers.staged import BAD, EVENT, STAGED, Row, applied, batch, parted
from thence.pipeline.tables import ddl
from thence.trace.events import DELIVER, SEND

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LOGGED: Final = "event"
"""The kind of the row that stands for an event of the log."""


def read_shiviz(spark: SparkSession, source: Source, grammar: Grammar | None) -> DataFrame:
    """Return the staged rows of a log."""
    refuse_large_files(source)

    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for given in batches:
            for path, content in zip(*(column.to_pylist() for column in given.columns), strict=True):
                yield batch(parsed_rows(path, content, grammar))

    files = source.reader(spark).format("binaryFile").load(source.place).select("path", "content")
    parsed = files.mapInArrow(parse, ddl(STAGED)).repartition(source.tasks, "run")
    return parsed.groupBy("run").applyInArrow(applied(derived_rows), ddl(STAGED))


def parsed_rows(path: str, content: bytes, grammar: Grammar | None) -> Iterator[Row]:
    """Yield what is in one file, as rows that are staged but for their messages."""
    run = partition_of(path).get("run")
    for found in parse_log(text_of(content), grammar):
        yield {
            "what": found.what,
            "run": run if found.run is None else found.run,
            "process": found.host,
            "clock": found.clock,
            "time": found.time,
            "source": path,
            "line": found.line,
            "lines": found.lines,
            "block": 0,
            "raw": found.raw,
            "reason": found.reason,
        }


def derived_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Give the rows of one run their messages. What is no event goes through as it is."""
    events, others = parted(rows)
    yield from others
    events.sort(key=lambda row: (row["source"], row["line"]))
    derived = derive([Logged(row["process"], row["clock"]) for row in events])
    yield from _accepted(events, derived)
    for place, reason in derived.refused:
        kept = {name: events[place][name] for name in ("source", "line", "lines", "block", "raw", "run")}
        yield {**kept, "what": BAD, "reason": reason}
    for _, reason in derived.missing:
        yield {"what": BAD, "run": events[0]["run"], "lines": 0, "reason": reason}


def _accepted(events: list[Row], derived: Derived) -> Iterator[Row]:
    index: dict[str, int] = {}
    for heard in derived.events:
        logged = events[heard.place]
        process = logged["process"]
        own: list[Row] = [{"kind": DELIVER, "message": message} for message in heard.received]
        own.append({"kind": LOGGED, "clock": logged["clock"], "line": logged["line"], "lines": logged["lines"]})
        if heard.sent_to:
            message = message_id(process, logged["clock"][process])
            own.append({"kind": SEND, "message": message, "to": heard.sent_to})
        common = {
            "what": EVENT,
            "run": logged["run"],
            "process": process,
            "time": logged["time"],
            "source": logged["source"],
            "lines": 0,
        }
        for number, row in enumerate(own, index.get(process, 0)):
            yield {**common, **row, "index": number}
        index[process] = index.get(process, 0) + len(own)
