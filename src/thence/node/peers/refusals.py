"""Frames of peers that were not taken: how many of each kind, and a line in the log for each peer and reason.

Who sends such frames without end sends a great many that are alike. A peer has the limits on lines of any other offender
(``runtime.offenders``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from thence.errors import FrameRefused, OverflowingFrame
from thence.runtime.offenders import Offender, escaped

log = logging.getLogger("thence.node")


class Refusals:
    """Counts the frames that were not taken, by what was wrong with them, and logs each reason once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` tells seconds."""
        self.counts: dict[str, int] = {}
        """How many there were, by the names of their errors."""
        self._clock = clock
        self._peers: dict[str, Offender] = {}

    def note(self, peer: str, refusal: FrameRefused) -> None:
        """Count a frame of a peer that was not taken; say why, once."""
        kind, now, text = type(refusal).__name__, self._clock(), str(refusal)
        count = self.counts[kind] = self.counts.get(kind, 0) + 1
        place = self._peers.get(peer)
        if place is None:
            place = self._peers[peer] = Offender(now)
        if place.may_say(f"{kind}: {text}", now):
            level = logging.INFO if isinstance(refusal, OverflowingFrame) else logging.WARNING
            log.log(level, "%s: %s (%d so far): %s", peer, kind, count, escaped(text))
