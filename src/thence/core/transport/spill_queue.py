"""Frames that are too many for memory: whoever runs a member may keep them elsewhere, and hands them back in their turn.

A peer may be away for long. What it has not acknowledged is kept until it has, and nothing says how much that will be.
``step`` reads and writes no files, so it is the caller who looks, after a step, which channels need ``attention``, and does one
of two things: it writes the next block of frames somewhere, and says so (``Spilled``); or it reads the next ones again, and hands
them in (``Fetched``).

Rules:

* A frame is in one place: in memory, and so in the member's snapshot, until ``Spilled`` has told us otherwise; then elsewhere,
  until ``Fetched``. A caller who cannot write says nothing: the frame stays, and counts against the limits of the member.
* Only frames that this member has not sent go elsewhere, so the peer has asked for none of them again, and their numbers have no
  holes. What was on its way already stays: that is a window at most (``core.transport.window``).
* What comes behind goes behind. So a channel has three parts, the oldest first: ``queue``, here; ``first`` to ``last``,
  elsewhere; and ``behind``, here. Numbers run through all three.
* Nothing is recorded. After a crash the snapshot says which numbers are elsewhere; what came since comes from the records again,
  and goes elsewhere again. The peer may have more than the snapshot knows of: then those frames are never asked for.
* Only where each acks to whom it got a frame from, and nothing else keeps it (``core.places.place``): where messages are
  kept until all have them (``core.stability.stable``), for other members (the resilient
  ordering) or acknowledged by everybody (``core.transport.ack_all``), the same frames are in memory for other reasons, and limits
  hold as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from thence.core.wire.messages import Frame

StampT = TypeVar("StampT")

Numbered = Sequence[tuple[int, Frame[Any]]]
"""Frames of one channel with their numbers, in order."""


class SpillRoom(NamedTuple):
    """How much may wait for one peer in memory, beside what is on its way, and how much goes elsewhere at a time."""

    frames: int
    bytes: int
    block_frames: int
    block_bytes: int


class Elsewhere(msgspec.Struct, Generic[StampT]):
    """The frames ``first`` to ``last`` are elsewhere."""

    first: int
    last: int
    behind: dict[int, Frame[StampT]]
    """What waits behind them, here: by number, in order."""


class Weighed(Protocol):
    """What may go elsewhere."""

    @property
    def weight(self) -> int:
        """What it counts for in limits by bytes."""


WeighedT = TypeVar("WeighedT", bound=Weighed)


def cut_block(entries: Iterable[tuple[int, WeighedT]], most: int, most_bytes: int) -> list[tuple[int, WeighedT]]:
    """Return the first entries, so many or of so many bytes, which go elsewhere together."""
    block: list[tuple[int, WeighedT]] = []
    size = 0
    for number, entry in entries:
        block.append((number, entry))
        size += entry.weight
        if len(block) >= most or size >= most_bytes:
            break
    return block
