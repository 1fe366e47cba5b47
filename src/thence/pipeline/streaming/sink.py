"""What following a folder leaves for others: tables, and a note of what is in them.

Rules:

* A step is published under the number of its batch: tables first, then the note in ``follow.json`` that it has been. Publishing
  again changes nothing, and each file appears whole, by renaming. So rows are in the tables once, whatever is killed when.
* A checkpoint goes on with the folder and the properties that it began with.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from thence.errors import ConfigError, StorageError, TraceError
from thence.pipeline.streaming.run import ROWS, Lag
from thence.pipeline.streaming.state import table_of_bytes
from thence.pipeline.tables import LAG, arrow_schema
from thence.storage.files import PUBLIC_MODE, name_finished, write_unfinished

MAX_RUNS: Final = 10_000
"""Of so many runs it is noted how far they are."""
MAX_LAG_ROWS: Final = 10_000
"""The table of lag has so many rows at most, those of the last steps."""
FORMAT: Final = 1
"""Of ``follow.json``; another one cannot be gone on from."""
OTHER_VERSION: Final = "was written by another version of thence; begin with a new checkpoint"


class StepLag(NamedTuple):
    """How far behind following is after a step; the columns are those of ``LAG``."""

    step: int
    at: int
    events: int
    violations: int
    held: int
    oldest: str | None
    oldest_s: float
    flights: int
    unread: int
    behind_s: float | None


class FollowState(msgspec.Struct):
    """What has been published."""

    source: str
    require: tuple[str, ...]
    batch: int = -1
    """The last of Spark's batches in it."""
    over: bool = False
    """Whether the end was declared."""
    runs: dict[str, Lag] = {}
    format: int = FORMAT

    @property
    def counts(self) -> Counter[str]:
        """How many violations of each property were found."""
        return sum((Counter(lag.counts) for lag in self.runs.values()), Counter())


Published = tuple[StepLag, pa.Table]
"""The lag after a step, and the violations found in it."""


class FollowSink:
    """The folders of one following; ``out`` may be missing."""

    def __init__(self, checkpoint: Path, out: Path | None) -> None:
        self._checkpoint, self._out, self._note = checkpoint, out, checkpoint / "follow.json"

    def load(self, source: str, require: tuple[str, ...]) -> FollowState:
        """Return what has been published; refuse what does not go with it."""
        out = self._out
        if (self._checkpoint / "state").exists():  # so it was before there was a state store
            raise StorageError(f"{self._checkpoint}: {OTHER_VERSION}")
        try:
            for folder in (self._checkpoint / "spark", *([out] if out else [])):
                folder.mkdir(parents=True, exist_ok=True)
            if not self._note.exists():
                if out and any((out / name).exists() for name in ("violations", "lag.parquet")):
                    raise ConfigError(
                        f"{out}: has tables of another following, whose checkpoint this is not; choose another folder"
                    )
                write_whole(self._note, msgspec.json.encode(FollowState(source, require)))
            state = msgspec.json.decode(self._note.read_bytes(), type=FollowState)
        except OSError as error:
            raise StorageError(f"{error.filename}: {error.strerror or error}") from error
        except msgspec.DecodeError as error:
            raise StorageError(f"{self._note}: cannot be read ({error}); begin with a new checkpoint") from None
        if state.format != FORMAT:
            raise StorageError(f"{self._note}: {OTHER_VERSION}")
        if state.source != source:
            raise ConfigError(f"{self._checkpoint}: follows {state.source}, not {source}; choose another checkpoint")
        if state.require != require:
            asked = ",".join(state.require)
            raise ConfigError(f"{self._checkpoint}: began with --require {asked}; go on with it, or choose another checkpoint")
        return state

    def publish(
        self, state: FollowState, reports: pa.Table, step: int, lag_of: Callable[[], StepLag]
    ) -> tuple[StepLag, pa.Table]:
        """Put what a step has found, with the columns ``JUDGED``, where others find it; then note that it is there."""
        found = [ROWS.empty_table()]
        for row in reports.to_pylist():
            content, many = row.pop("rows"), row.pop("found")
            lag = Lag(**{**row, "counts": json.loads(row["counts"])})
            state.runs["" if lag.run is None else f"={lag.run}"] = lag
            found += [table_of_bytes(content)] if many else []
        if len(state.runs) > MAX_RUNS:
            raise TraceError(f"the trace: {len(state.runs):,} runs; the limit is {MAX_RUNS:,}. thence audit has no such limit")
        rows, now = pa.concat_tables(found), lag_of()
        if self._out:
            if rows.num_rows:
                folder = self._out / "violations" / f"step={step:012d}"
                folder.mkdir(parents=True, exist_ok=True)
                write_whole(folder / "part-0.parquet", _parquet(rows))
            write_whole(self._out / "lag.parquet", _parquet(_lags(self._out / "lag.parquet", now)))
        state.batch = step
        write_whole(self._note, msgspec.json.encode(state))
        return now, rows


def _lags(file: Path, lag: StepLag) -> pa.Table:
    """Return the table of lag with one step more."""
    mine = pa.Table.from_pylist([lag._asdict()], arrow_schema(LAG))
    if not file.exists():
        return mine
    before = pq.read_table(file)
    before = before.filter(pc.less(before["step"], lag.step))
    return pa.concat_tables([before.slice(max(0, before.num_rows + 1 - MAX_LAG_ROWS)), mine])


def _parquet(table: pa.Table) -> bytes:
    stream = pa.BufferOutputStream()
    pq.write_table(table, stream)
    return stream.getvalue().to_pybytes()  # type: ignore[no-any-return]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, and stays."""
    name_finished(write_unfinished(path, content, PUBLIC_MODE), path)
