"""Frames that came before their turn, indexed by the one predecessor that each waits for.

Rules:

* A frame waits for one missing predecessor at a time. When that one is released, the frame is looked at again and
  either released or moved under the next one that is missing. What is satisfied stays satisfied, so a frame
  remembers how far it was checked (``cursor``), and its total cost depends on its own stamp, never on how many
  others wait.
* A predecessor is (stream, number): the number-th frame of a stream, which is released in the order of its numbers.
* How many frames wait is bounded, and how many bytes they have. When a bound is reached, frames that would wait are refused; a
  frame that can be released at once is always taken, so the one that everybody waits for gets through.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from thence.core.wire.messages import Envelope, Frame
from thence.errors import InternalError

StampT = TypeVar("StampT")

MAX_HELD = 1 << 20
"""How many frames may wait in one domain at one member, unless told otherwise,"""

MAX_HELD_BYTES = 1024 * 1024 * 1024
"""and of how many bytes, about."""

HELD_BYTES_EACH = MAX_HELD_BYTES // MAX_HELD
"""How many bytes are allowed for each frame that is, where fewer are,"""

MIN_HELD_BYTES = 32 * 1024 * 1024
"""and how many at least."""


def held_bytes(limit: int) -> int:
    """Return how many bytes may wait in one domain where so many frames may."""
    return min(MAX_HELD_BYTES, max(MIN_HELD_BYTES, HELD_BYTES_EACH * limit))


class Held(msgspec.Struct, Generic[StampT], array_like=True, gc=False):
    """A frame that waits: the ``number``-th of ``stream``, received from ``sender`` at ``since``."""

    sender: int
    stream: int
    number: int
    frame: Frame[StampT]
    since: int
    cursor: int = 0
    """How much of the stamp is known to be satisfied."""

    @property
    def message(self) -> Envelope:
        """The message, where a marker has been refused already."""
        if self.frame.envelope is None:
            raise InternalError("a marker where only messages are accepted")
        return self.frame.envelope


class Holding:
    """The waiting frames of one ordering."""

    def __init__(self, limit: int) -> None:
        """Hold at most ``limit`` frames."""
        self._limit = limit
        self._blocked: dict[tuple[int, int], list[Held[Any]]] = {}
        """What is missing, to the frames that wait for it."""
        self.held: set[tuple[int, int]] = set()
        self.bytes = 0

    def empty(self) -> Holding:
        """Return a holding with the same limit and nothing in it."""
        return Holding(self._limit)

    def __len__(self) -> int:
        return len(self.held)

    @property
    def full(self) -> bool:
        """Whether no further frame may wait."""
        return len(self.held) >= self._limit or self.bytes >= held_bytes(self._limit)

    @property
    def why_full(self) -> str:
        """What keeps further frames from waiting, for people."""
        if len(self.held) >= self._limit:
            return f"{len(self.held)} frames wait, the limit is max_held"
        return f"{len(self.held)} frames of {self.bytes} bytes wait; MAX_HELD_BYTES is {held_bytes(self._limit)}"

    def holds(self, stream: int, number: int) -> bool:
        """Return whether this very frame waits already."""
        return (stream, number) in self.held

    def awaits(self, stream: int, number: int) -> bool:
        """Return whether a frame waits for this one."""
        return (stream, number) in self._blocked

    def hold(self, held: Held[Any], missing: tuple[int, int]) -> None:
        """Let ``held`` wait for ``missing``."""
        self.held.add((held.stream, held.number))
        self.bytes += held.frame.weight
        self.hold_on(held, missing)

    def hold_on(self, held: Held[Any], missing: tuple[int, int]) -> None:
        """Let a frame that was taken out wait on, for ``missing``."""
        self._blocked.setdefault(missing, []).append(held)

    def take(self, stream: int, number: int) -> list[Held[Any]]:
        """Take out the frames that wait for exactly this one, to be forgotten or held on."""
        return self._blocked.pop((stream, number), _NOTHING)

    def forget(self, held: Held[Any]) -> None:
        """Drop a frame that was taken out and is now released."""
        self.held.remove((held.stream, held.number))
        self.bytes -= held.frame.weight

    def entries(self) -> list[tuple[int, int, Held[Any]]]:
        """Return every waiting frame behind (stream, number) of what it waits for.

        The order is the one in which frames will be looked at, so that a restored state goes on just as this one.
        """
        return [(*missing, held) for missing, group in self._blocked.items() for held in group]

    def restore(self, entries: list[tuple[int, int, Held[Any]]]) -> None:
        """Hold exactly ``entries``."""
        self._blocked.clear()
        self.held.clear()
        self.bytes = 0
        for stream, number, held in entries:
            self.hold(held, (stream, number))


_NOTHING: list[Held[Any]] = []
