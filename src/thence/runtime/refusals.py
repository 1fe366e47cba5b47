"""Frames of neighbours that were not taken: how many of each kind, and the first ones in the log."""

from __future__ import annotations

import logging
from typing import Final

from thence.errors import FrameRefused, OverflowingFrame

MAX_LOGGED_REFUSALS: Final = 20
"""How many refused frames of each kind are described in the log; all are counted."""

log = logging.getLogger("thence.node")


def note_refusal(counts: dict[str, int], refusal: FrameRefused) -> None:
    """Count a frame that was not taken; say why, but not for ever."""
    kind = type(refusal).__name__
    count = counts[kind] = counts.get(kind, 0) + 1
    if count <= MAX_LOGGED_REFUSALS:
        level = logging.INFO if isinstance(refusal, OverflowingFrame) else logging.WARNING
        log.log(level, "%s (%d so far): %s", kind, count, refusal)
