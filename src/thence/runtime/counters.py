"""What is counted where it happens: histograms, and traffic that goes on counting when a connection is made again.

Rules:

* Counting costs as much as adding to a number. Whatever can be found out when somebody asks is not counted (``observe.metrics``).
* Counts begin with the process. Whoever reads them looks at differences.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

COMMIT_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""The bounds for how long a commit takes: from a quick disk to one that is in trouble."""

COMMIT_ENTRIES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
"""The bounds for how many entries share a commit."""

SAMPLE_EVERY: Final = 64
"""Of how many packets to a peer one is looked into, for the share of its bytes that is control information."""


class Histogram:
    """How often a value was within each bound, how often there was any, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """``bounds`` ascend; a value belongs to the first that is not below it."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def note(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class TrafficCounts(NamedTuple):
    """What went over connections."""

    frames_in: int = 0
    frames_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def plus(self, other: TrafficCounts) -> TrafficCounts:
        """Return both together."""
        return TrafficCounts(*[mine + theirs for mine, theirs in zip(self, other, strict=True)])
