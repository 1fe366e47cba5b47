"""Findings as rows: the same rows, with the same words, that the judge gives, but for chains, which come later.

Rows are made a column at a time: of a bad trace there may be more of them than events. Each row of fifo and causal also says
between which slices its two messages were sent, so that the chain between them can be looked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from string import Formatter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thence.pipeline.kernels.encoder import KIND_NAMES, KINDS
from thence.pipeline.kernels.replay import NOBODY, RESEND, Bools, Longs, Story
from thence.pipeline.kernels.slices import Slice, processes_of
from thence.pipeline.scan.flights import Flights, Landed
from thence.pipeline.scan.inspection import AGAIN, BACKWARD, CAUSAL, FIFO, OUTSIDE, UNSENT, Findings
from thence.pipeline.tables import VIOLATIONS, arrow_schema, columns
from thence.trace import words

ROWS_PER_BATCH: Final = 100_000

FOUND: Final = (*(column for column in VIOLATIONS if column.name != "chain"), *columns("since int, until int"))
"""The columns of a row. The sends of both messages, and the offending event, lie in the slices from ``since`` to ``until``."""

FOUND_SCHEMA: Final = arrow_schema(FOUND)

Resent = Mapping[tuple[int, int, str], tuple[str | None, int]]
"""Sends that another send outdoes, by process, index and name: who sent the message in which event.

Nobody, if the message has been given up as one that was never sent."""


class Sentence(NamedTuple):
    """How a finding is told."""

    property: str
    sentence: str
    reason: str = ""


SENTENCES: Final = {
    UNSENT: Sentence("creation", words.CREATED, words.UNSENT),
    OUTSIDE: Sentence("creation", words.CREATED, words.OUTSIDE),
    BACKWARD: Sentence("creation", words.CREATED, words.BACKWARD),
    AGAIN: Sentence("duplication", words.AGAIN),
    FIFO: Sentence("fifo", words.OVERTOOK_SENDER),
    CAUSAL: Sentence("causal", words.OVERTOOK_CAUSE),
}


class Scene(NamedTuple):
    """A slice and everything needed to speak of it."""

    run: str | None
    processes: Sequence[str]
    slice: Slice
    story: Story
    flights: Flights
    """Those on their way into it."""
    resent: Resent
    previous: Longs
    """The index of each process's last event before the slice."""
    since: int
    """The earliest slice that its events may have been read in."""
    number: int


def late_rows(scene: Scene, findings: Findings, require: Collection[str]) -> Iterator[pa.RecordBatch]:
    """The rows about deliveries, of the properties that are asked for."""
    asked = [what for what, kind in SENTENCES.items() if kind.property in require]
    chosen = np.flatnonzero(np.isin(findings.what, asked))
    names = pa.concat_arrays([scene.slice.names, scene.flights.names]) if len(chosen) else None
    for begin in range(0, len(chosen), ROWS_PER_BATCH):
        some = chosen[begin : begin + ROWS_PER_BATCH]
        for what in asked:
            mine = some[findings.what[some] == what]
            if len(mine):
                yield _rows_of(scene, findings, mine, SENTENCES[what], names)


def _rows_of(scene: Scene, findings: Findings, mine: Longs, kind: Sentence, names: pa.Array) -> pa.RecordBatch:
    story = scene.story
    event, earlier = findings.event[mine], findings.earlier[mine]
    process = np.searchsorted(story.first, event, side="right") - 1
    said: dict[str, Any] = {
        "process": _words(scene.processes, process),
        "later": names.take(pa.array(story.message[event])),
        "reason": kind.reason,
    }
    values: dict[str, Any] = {"index": scene.slice.encoded.index[event]}
    if kind.property in ("fifo", "causal"):
        missing = pa.array(findings.missing[mine])
        said |= {
            "earlier": names.take(pa.array(earlier)),
            "sender": _words(scene.processes, story.sender[earlier]),
            "more": _and_more(missing),
        }
        flown = earlier >= story.own
        since = np.full(len(mine), scene.since, np.int32)
        since[flown] = scene.flights.since[earlier[flown] - story.own]
        values |= {"earlier": said["earlier"], "missing": missing, "since": since, "until": scene.number}
    detail = sentence(kind.sentence, said, len(mine))
    return found(scene.run, kind.property, len(mine), process=said["process"], later=said["later"], detail=detail, **values)


def found(run: str | None, name: str, count: int, **values: Any) -> pa.RecordBatch:
    """Return rows of one property; what is not given is null, and ``missing`` 0."""
    values = {"run": run, "property": name, "missing": 0, **values}
    arrays = []
    for column in FOUND_SCHEMA:
        given = values.get(column.name)
        if given is None or isinstance(given, str | int):
            arrays.append(pa.repeat(pa.scalar(given, column.type), count))
        else:
            arrays.append(given if isinstance(given, pa.Array) else pa.array(given, column.type))
    return pa.record_batch(arrays, schema=FOUND_SCHEMA)


def sentence(template: str, values: Mapping[str, Any], count: int) -> pa.Array:
    """Fill in a sentence for many rows at once."""
    parts: list[Any] = []
    for text, name, _, _ in Formatter().parse(template):
        parts += [text] if text else []
        parts += [values[name]] if name else []
    if not any(isinstance(part, pa.Array) for part in parts):
        return pa.repeat("".join(parts), count)
    return pc.binary_join_element_wise(*parts, "")


def _and_more(missing: pa.Array) -> pa.Array:
    text = pc.binary_join_element_wise(" (and ", pc.subtract(missing, 1).cast(pa.string()), " more)", "")
    return pc.if_else(pc.greater(missing, 1), text, "")


def _words(every: Sequence[str], number: npt.NDArray[Any]) -> pa.Array:
    return pa.array(every, pa.string()).take(pa.array(number))


def lost_rows(
    run: str | None,
    processes: Sequence[str],
    strangers: Sequence[str],
    flights: Flights,
    landed: Landed,
    gone: Bools,
    require: Collection[str],
) -> Iterator[pa.RecordBatch]:
    """Rows for what never reached a destination that was there to get it."""
    is_gone = np.concatenate([gone, np.zeros(len(strangers), np.bool_)])
    due = ~is_gone[landed.lost_to]
    for name, mine, template in (
        ("completeness", due, words.NEVER_CAME),
        ("agreement", due & landed.somebody, words.ONLY_OTHERS_GOT),
    ):
        if name in require and mine.any():
            said = {
                "process": _words([*processes, *strangers], landed.lost_to[mine]),
                "later": flights.names.take(pa.array(landed.lost[mine])),
                "sender": _words(processes, flights.sender[landed.lost[mine]]),
            }
            count = int(mine.sum())
            detail = sentence(template, said, count)
            yield found(run, name, count, process=said["process"], later=said["later"], missing=1, detail=detail)


def shape_rows(scene: Scene, reached: Longs, require: Collection[str]) -> Iterator[pa.RecordBatch]:
    """The rows about events that are not well-formed."""
    if "well-formed" not in require:
        return
    encoded, index_of = scene.slice.encoded, scene.slice.encoded.index
    complete_ones = np.ones(len(encoded.role), np.bool_)
    complete_ones[encoded.incomplete] = False
    lengths = np.diff(encoded.first)
    previous = np.repeat(scene.previous, lengths)  # what comes below it comes too late, and is out of place
    goes_on = np.ones(len(previous), np.bool_)
    goes_on[encoded.first[:-1][lengths > 0]] = False
    after = np.flatnonzero(goes_on)
    previous[after] = np.maximum(previous[after], index_of[after - 1])
    speechless = (encoded.message < 0) & ((encoded.kind == KINDS["send"]) | (encoded.kind == KINDS["deliver"]))
    wrong = (index_of != previous + 1) | (index_of < 0) | speechless | ~complete_ones | (encoded.role == RESEND)
    wrong &= np.arange(len(wrong)) < np.repeat(reached, lengths)
    events = np.flatnonzero(wrong)
    process_of = processes_of(encoded)
    for begin in range(0, len(events), ROWS_PER_BATCH):
        shapes: dict[str, list[Any]] = {"process": [], "index": [], "later": [], "detail": []}
        for event in events[begin : begin + ROWS_PER_BATCH].tolist():
            process, index = scene.processes[int(process_of[event])], int(index_of[event])
            number = int(encoded.message[event])
            message = scene.slice.names[number].as_py() if number != NOBODY else None
            kind = KIND_NAMES.get(int(encoded.kind[event]), "")
            faults = words.misplaced(
                index, int(previous[event]), kind, message=message is not None, to=bool(complete_ones[event])
            )
            if message is not None and encoded.role[event] == RESEND:
                faults.append(words.sent_before(message, *scene.resent[int(process_of[event]), index, message]))
            shapes["process"].append(process)
            shapes["index"].append(index)
            shapes["later"].append(message)
            shapes["detail"].append(words.misshapen(process, index, faults))
        yield found(scene.run, "well-formed", len(shapes["index"]), **shapes)
