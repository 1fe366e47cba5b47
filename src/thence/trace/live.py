"""A trace that can be followed while it is written: each part appears, whole, as soon as it is finished.

Rules:

* The folder must be new or empty. Parts are only ever added: a part that has its name never changes and never goes.
* A part ends when it has ``rows_per_part`` rows, or when its first row is ``max_age_s`` old. Age is looked at when a row is
  written and when :meth:`LiveTraceWriter.tick` is called; who may be idle for long calls that from time to time.
* A writer that fails takes back the part that is not finished; the parts before it stay, others may have read them.
* Same events, same rows; but where one part ends and the next begins depends on how quick the writer was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from thence.errors import ConfigError, StorageError
from thence.trace.events import Event
from thence.trace.files import JSONL_ENDINGS, Written
from thence.trace.parquet import ParquetSink

ROWS_PER_LIVE_PART: Final = 65_536
MAX_AGE_S: Final = 5.0


class LiveTraceWriter(Written):
    """Writes a trace whose parts appear as soon as they are finished.

    A context manager, as :class:`~thence.trace.files.TraceWriter` is.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        rows_per_part: int = ROWS_PER_LIVE_PART,
        max_age_s: float = MAX_AGE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make the folder; ``clock`` gives seconds."""
        self.path = Path(path)
        self.count = 0
        self._max_age_s = max_age_s
        self._clock = clock
        self._due_s = 0.0
        self._open = True
        if self.path.name.endswith(JSONL_ENDINGS):
            raise ConfigError(f"{self.path}: a live trace is a folder of parts; choose a name that does not end in .jsonl")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            in_the_way = next(self.path.iterdir(), None)
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror or error}") from error
        if in_the_way is not None:
            raise ConfigError(f"{self.path}: {in_the_way.name} is in the way; a live trace needs a new folder")
        self._sink = ParquetSink(self.path, rows_per_part, rows_per_part, live=True)

    def write(self, event: Event) -> None:
        """Add one event."""
        if not self._sink.pending:
            self._due_s = self._clock() + self._max_age_s
        self._sink.write(event)
        self.count += 1
        self.tick()

    def add(self, events: Sequence[Event]) -> bool:
        """Add events that neither begin nor end a part, which touches no file and is quick; return whether that is so."""
        if self._clock() >= self._due_s or not self._sink.add(events):
            return False
        self.count += len(events)
        return True

    @property
    def pending(self) -> int:
        """How many of the events are in no finished part yet."""
        return self._sink.pending

    @property
    def whole(self) -> int:
        """How many of the events are in finished parts, also after a failure."""
        return self._sink.whole

    @property
    def parts(self) -> int:
        """How many parts there are, with the one that is not finished."""
        return self._sink.parts

    def end_part(self) -> None:
        """Finish the part now, if anything is in it."""
        self._sink.end_part()

    def tick(self) -> None:
        """Finish the part if it is old enough."""
        if self._sink.pending and self._clock() >= self._due_s:
            self._sink.end_part()

    def close(self) -> None:
        """Finish the last part."""
        if not self._open:
            return
        self._open = False
        try:
            self._sink.close()
        except BaseException:
            self._sink.discard()
            raise

    def abandon(self) -> None:
        """Take back what is in no finished part."""
        if self._open:
            self._open = False
            self._sink.discard()
