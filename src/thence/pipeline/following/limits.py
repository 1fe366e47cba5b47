"""How much is kept while a trace is followed. Beyond a limit following ends with an error that names it.

Only one limit forgets: what is known of messages that have arrived everywhere. It is told in docs/how-to/following.md what that
means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from thence.errors import TraceError

MAX_RUNS: Final = 1_000
MAX_PROCESSES: Final = 1_000
"""In one run, destinations included: clocks grow with the square of it."""
MAX_HELD: Final = 2_000_000
"""Events that cannot be judged yet, in all runs."""
MAX_FLIGHTS: Final = 500_000
"""Messages of one run that some destination lacks."""
MAX_FINISHED: Final = 50_000
"""Messages of one run that have arrived everywhere and are still known; after that the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Limits:
    """All of them."""

    runs: int = MAX_RUNS
    processes: int = MAX_PROCESSES
    held: int = MAX_HELD
    flights: int = MAX_FLIGHTS
    finished: int = MAX_FINISHED

    def check(self, name: str, what: str, count: int, where: str) -> None:
        """Refuse more of something than its limit."""
        limit = getattr(self, name)
        if count > limit:
            raise TraceError(f"{where}: {count:,} {what}; the limit is {limit:,}")


def called(run: str | None) -> str:
    """A run in words."""
    return "the trace" if run is None else f"run {run!r}"
