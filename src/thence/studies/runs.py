"""One run of a study, and the task that does a few of them: what a worker does, without Spark.

Rules:

* A model that raises, or leaves out a measure, costs its own run only: the row says why, and how to see it again.
* A task writes the rows of its runs itself, under a temporary name that is changed at the end. What was written stays written,
  whatever happens to anybody else.
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

import msgspec
import pyarrow as pa

from thence.errors import ConfigError
from thence.studies.models import model_named
from thence.studies.study import Point, Study, canonical
from thence.studies.work import WorkFolder
from thence.trace.events import Event
from thence.trace.files import TraceWriter
from thence.trace.recorder import Sink, nowhere

RESULTS: Final = "results"
TRACES: Final = "traces"
EVENTS: Final = "events"
"""A model may tell under this name how many events it simulated, also where the study has no such measure."""

Traces = Literal["none", "first", "all"]

SCHEMA: Final = pa.schema(
    [
        ("study", pa.string()),
        ("point", pa.string()),
        ("repetition", pa.int32()),
        ("seed", pa.int64()),
        ("measures", pa.map_(pa.string(), pa.float64())),
        ("seconds", pa.float64()),
        ("events", pa.int64()),
        ("error", pa.string()),
    ]
)


class RunRow(NamedTuple):
    """What one run gave. ``seconds`` are of the processor; ``error`` says why it gave nothing."""

    study: str
    point: str
    repetition: int
    seed: int
    measures: Mapping[str, float]
    seconds: float
    events: int | None
    error: str | None

    @property
    def key(self) -> tuple[str, int]:
        """Which run it is."""
        return self.point, self.repetition


class RunTask(NamedTuple):
    """A few runs: canonical points and repetitions."""

    study: Study
    folder: str
    traces: Traces
    runs: tuple[tuple[str, int], ...]


def run_once(study: Study, point: Point, repetition: int, sink: Sink = nowhere) -> RunRow:
    """Do one run; what goes wrong in the model is in the row."""
    seed = study.seed(point, repetition)
    name = canonical(point)
    before = time.process_time()
    try:
        returned = model_named(study.model)(point, seed, sink)
        measures = {measure: _measured(study, measure, returned) for measure in sorted(study.measures)}
    except Exception as error:  # noqa: BLE001 - a model may raise anything, and the other runs go on
        seconds = time.process_time() - before
        return RunRow(study.name, name, repetition, seed, {}, seconds, None, f"{type(error).__name__}: {error}")
    seconds = time.process_time() - before
    events = returned.get(EVENTS)
    return RunRow(study.name, name, repetition, seed, measures, seconds, None if events is None else int(events), None)


def _measured(study: Study, measure: str, returned: Mapping[str, float]) -> float:
    if measure not in returned:
        raise ConfigError(f"the model {study.model!r} did not return the measure {measure!r} (it returned {', '.join(returned)})")
    value = returned[measure]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"the model {study.model!r} returned {value!r} as the measure {measure!r}, which is no number")
    return float(value) + 0.0  # Of two zeros, one.


def run_task(task: RunTask) -> list[RunRow]:
    """Do the runs of a task and leave their rows in the folder of results."""
    rows = []
    for name, repetition in task.runs:
        point = json.loads(name)
        if task.traces == "all" or (task.traces == "first" and repetition == 0):
            with Traced(trace_folder(Path(task.folder), name, repetition), task.study, point, repetition) as traced:
                rows.append(run_once(task.study, point, repetition, traced.write))
        else:
            rows.append(run_once(task.study, point, repetition))
    digest = hashlib.sha256("\n".join(f"{name} {repetition}" for name, repetition in task.runs).encode()).hexdigest()
    WorkFolder(task.folder).put_rows(RESULTS, digest[:24], [to_batch(rows)])
    return rows


def to_batch(rows: Iterable[RunRow]) -> pa.RecordBatch:
    """Return rows as Arrow."""
    columns = zip(*((*row[:4], sorted(row.measures.items()), *row[5:]) for row in rows), strict=True)
    return pa.record_batch([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def trace_folder(folder: Path, point: str, repetition: int) -> Path:
    """Return where the trace of a run is kept."""
    return folder / TRACES / f"{hashlib.sha256(point.encode()).hexdigest()[:16]}-{repetition}"


class Traced:
    """Writes the trace of a run, with the point and the repetition as its run; without any event there is no trace."""

    def __init__(self, path: Path, study: Study, point: Point, repetition: int) -> None:
        self.path = path
        self.events = 0
        self._run = f"{study.label(point)}/{repetition}"
        self._writer: TraceWriter | None = None

    def write(self, event: Event) -> None:
        """Add an event."""
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = TraceWriter(self.path)
        self._writer.write(msgspec.structs.replace(event, run=self._run))
        self.events += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._writer is not None:
            if kind is None:
                self._writer.close()
            else:
                self._writer.abandon()


def replay_command(study: Study, point: Point, repetition: int) -> str:
    """Return the command that does one run again, alone."""
    words = ["thence", "study", "replay", study.source, *(["--small"] if study.is_small else [])]
    return shlex.join([*words, "--point", study.label(point), "--repetition", str(repetition)])


def same(one: float, other: float) -> bool:
    """Return whether two measured values are the same; nothing is the same as nothing."""
    return one == other or (math.isnan(one) and math.isnan(other))
