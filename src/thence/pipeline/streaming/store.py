"""What following keeps on disk: its state in the checkpoint, and the tables for others.

Rules:

* A step is one change of state: a batch of Spark's, an end of patience, or the end. Its state is one file, with the rows
  that the step found, and appears whole, by renaming. That file decides: a step whose file is there has happened.
* Rows are published from that file, under the number of the step. Publishing again changes nothing, so a crash between the two
  costs nothing: the next start publishes once more.
* The last two states are kept. What is in the checkpoint was put there by thence, and is read without suspicion.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from thence.errors import ConfigError, StorageError
from thence.pipeline.streaming.follower import Follower, Lag
from thence.pipeline.tables import LAG, VIOLATIONS, arrow_schema
from thence.storage.files import PUBLIC_MODE, name_finished, write_unfinished
from thence.trace.verdict import Violation

KEPT_STATES: Final = 2
MAX_LAG_ROWS: Final = 10_000
"""The table of lag has so many rows at most, those of the last steps."""

FORMAT: Final = 3
"""Of the state; another one cannot be gone on from."""

FOUND: Final = arrow_schema(column for column in VIOLATIONS if column.name != "chain")


@dataclass(frozen=True, slots=True)
class StepLag:
    """The lag after a step."""

    step: int
    at_us: int
    """When the step ended, by this machine's clock."""
    lag: Lag
    behind_s: float | None
    """From when the newest part appeared to when the step ended; none if no part was read in it."""


@dataclass(slots=True)
class FollowState:
    """All that a restart needs."""

    source: str
    follower: Follower
    step: int = -1
    batch: int = -1
    """The last of Spark's batches that is in here."""
    clock_ns: int = 0
    """For how long this has been followed, over all restarts."""
    over: bool = False
    """Whether the end was declared."""
    rows: list[Violation] = field(default_factory=list)
    """What the last step found."""
    steps: list[StepLag] = field(default_factory=list)
    format: int = FORMAT


class FollowStore:
    """The folders of one following; ``out`` may be missing."""

    def __init__(self, checkpoint: Path, out: Path | None) -> None:
        self._folder = checkpoint / "state"
        self.out = out
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if out:
                out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{error.filename}: {error.strerror or error}") from error

    def load(self) -> FollowState | None:
        """The last state, or none if this is the beginning."""
        files = self._states()
        if not files and self.out and any((self.out / name).exists() for name in ("violations", "lag.parquet")):
            raise ConfigError(f"{self.out}: has tables of another following, whose checkpoint this is not; choose another folder")
        for file in reversed(files):
            try:
                state = pickle.loads(file.read_bytes())  # noqa: S301 - our own
            except (pickle.UnpicklingError, EOFError, OSError):
                continue  # the one before it will do if Spark repeats the batch; if not, that is noticed
            except (AttributeError, ImportError):
                state = None  # its classes had other names
            if not isinstance(state, FollowState) or state.format != FORMAT:
                raise StorageError(f"{file}: was written by another version of thence; begin with a new checkpoint")
            return state
        if files:
            raise StorageError(f"{self._folder}: none of the states there can be read; begin with a new checkpoint")
        return None

    def save(self, state: FollowState) -> None:
        """Make a step definite, and publish what it found."""
        del state.steps[:-MAX_LAG_ROWS]
        _write(self._folder / f"{state.step:012d}.pickle", pickle.dumps(state, protocol=5))
        self.publish(state)
        for file in self._states()[:-KEPT_STATES]:
            file.unlink()

    def publish(self, state: FollowState) -> None:
        """Put the rows of the last step, and the lag, where others find them."""
        if self.out is None:
            return
        if state.rows:
            folder = self.out / "violations" / f"step={state.step:012d}"
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder / "part-0.parquet", _parquet(violations_table(state.rows)))
        _write(self.out / "lag.parquet", _parquet(_lag_table(state.steps)))

    def _states(self) -> list[Path]:
        return sorted(self._folder.glob("*.pickle"))


def violations_table(rows: Sequence[Violation]) -> pa.Table:
    """Violations as a table."""
    return pa.table({name: [getattr(row, name) for row in rows] for name in FOUND.names}, schema=FOUND)


def _lag_table(steps: Sequence[StepLag]) -> pa.Table:
    rows = [{"step": one.step, "at": one.at_us, "behind_s": one.behind_s, **asdict(one.lag)} for one in steps]
    return pa.Table.from_pylist(rows, arrow_schema(LAG))


def _parquet(table: pa.Table) -> bytes:
    stream = pa.BufferOutputStream()
    pq.write_table(table, stream)
    return stream.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _write(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, and stays."""
    name_finished(write_unfinished(path, content, PUBLIC_MODE), path)
