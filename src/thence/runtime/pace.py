"""How many connections are begun with in a second from each place: whoever comes without end waits, and others do not.

A place has so many at once, and gets one more every so often. Each one that comes behind these is told when its turn is.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from thence.runtime.offenders import MAX_PLACES


class ArrivalPace:
    """See the module's text."""

    def __init__(self, per_s: float, burst: int, longest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``longest_s``: how long one may have to wait for its turn, at most."""
        self._every_s, self._burst_s, self._longest_s = 1 / per_s, burst / per_s, longest_s
        self._clock = clock
        self._last: dict[str, float] = {}
        """When the last one of each place has its turn, the place that was quiet for longest first."""

    def delay(self, place: str) -> float | None:
        """Return after how many seconds somebody has its turn; None: that would be too long, and it has none."""
        now = self._clock()
        last = self._last.pop(place, 0.0)
        turn = max(last, now - self._burst_s) + self._every_s
        too_long = turn - now > self._longest_s
        self._last[place] = last if too_long else turn
        if len(self._last) > MAX_PLACES:
            del self._last[next(iter(self._last))]
        return None if too_long else max(0.0, turn - now)
