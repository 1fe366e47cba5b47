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

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from thence.core.wire.messages import Envelope, Frame
from thence.errors import InternalError

StampT = TypeVar("StampT")

MAX_HELD = 1 << 20
"""How many frames may wait in one domain at one member, unless an option says otherwise."""

MAX_HELD_BYTES = 1024 * 1024 * 1024
"""About how many bytes they may have."""

HELD_BYTES_EACH = MAX_HELD_BYTES // MAX_HELD
"""How many bytes are allowed for each frame where fewer frames are allowed."""

MIN_HELD_BYTES = 32 * 1024 * 1024
"""How many bytes are allowed at least."""


def held_bytes(limit: int) -> int:
    """Return how many bytes may wait in one domain where so many frames may."""
    return min(MAX_HELD_BYTES, max(MIN_HELD_BYTES, HELD_BYTES_EACH * limit))


class HeldFrame(msgspec.Struct, Generic[StampT], array_like=True, gc=False):
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


class Gate(ABC):
    """What a frame waits for beside its predecessors: something that happens outside of the domain.

    When that has happened, whoever put up the gate calls ``Ordering.open``.
    """

    @abstractmethod
    def missing(self, frame: Frame[Any]) -> tuple[int, int] | None:
        """Return what this frame waits for outside, or None; as (stream, number), where such streams are below 0."""

    @abstractmethod
    def name(self, stream: int) -> str:
        """Return whose stream that is, for people."""


class PendingFrames:
    """The waiting frames of one ordering."""

    def __init__(self, limit: int) -> None:
        """Hold at most ``limit`` frames."""
        self._limit = limit
        self._blocked: dict[tuple[int, int], list[HeldFrame[Any]]] = {}
        """What is missing, to the frames that wait for it."""
        self.held: set[tuple[int, int]] = set()
        """The stream and the number of each frame that waits."""
        self.bytes = 0
        """How many bytes they have, about."""
        self.gate: Gate | None = None
        """Put up by whoever owns the ordering, again after a restart: it is no part of the state."""

    def put_up(self, gate: Gate) -> None:
        """Let frames wait before this gate, also those that waited before another one: names may have other numbers there."""
        before, self._blocked, self.gate = self._blocked, {}, gate
        for missing, group in before.items():
            for held in group:
                anew = gate.missing(held.frame) if missing[0] < 0 else None
                self._blocked.setdefault(anew or missing, []).append(held)

    def empty(self) -> PendingFrames:
        """Return one with the same limit and gate, in which nothing waits."""
        twin = PendingFrames(self._limit)
        twin.gate = self.gate
        return twin

    def __len__(self) -> int:
        return len(self.held)

    @property
    def size(self) -> tuple[int, int]:
        """How many frames wait, and how many bytes they have, about."""
        return len(self.held), self.bytes

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

    def awaits(self, stream: int, number: int) -> bool:
        """Return whether a frame waits for this one."""
        return (stream, number) in self._blocked

    def hold(self, held: HeldFrame[Any], missing: tuple[int, int]) -> None:
        """Let ``held`` wait for ``missing``."""
        self.held.add((held.stream, held.number))
        self.bytes += held.frame.weight
        self._blocked.setdefault(missing, []).append(held)

    def take(self, stream: int, number: int) -> list[HeldFrame[Any]]:
        """Take out the frames that wait for exactly this one, and forget them."""
        frames = self._blocked.pop((stream, number), _NOTHING)
        for held in frames:
            self._forget(held)
        return frames

    def freed(
        self, stream: int, number: int, missing_for: Callable[[HeldFrame[Any]], tuple[int, int] | None]
    ) -> list[HeldFrame[Any]]:
        """Take out what waited for this one and waits for nothing more; the others wait on, for what they miss now."""
        free = []
        for held in self._blocked.pop((stream, number), _NOTHING):
            missing = missing_for(held)
            if missing is None and self.gate is not None:
                missing = self.gate.missing(held.frame)
            if missing is None:
                self._forget(held)
                free.append(held)
            else:
                self._blocked.setdefault(missing, []).append(held)
        return free

    def _forget(self, held: HeldFrame[Any]) -> None:
        self.held.remove((held.stream, held.number))
        self.bytes -= held.frame.weight

    def entries(self) -> list[tuple[int, int, HeldFrame[Any]]]:
        """Return every waiting frame behind (stream, number) of what it waits for.

        The order is the one in which frames will be looked at, so that a restored state goes on just as this one.
        """
        return [(*missing, held) for missing, group in self._blocked.items() for held in group]

    def messages(self) -> list[Envelope]:
        """Return the messages that wait, without markers."""
        return [held.frame.envelope for _, _, held in self.entries() if held.frame.envelope is not None]

    def restore(self, entries: list[tuple[int, int, HeldFrame[Any]]]) -> None:
        """Hold exactly ``entries``."""
        self._blocked.clear()
        self.held.clear()
        self.bytes = 0
        for stream, number, held in entries:
            self.hold(held, (stream, number))


_NOTHING: list[HeldFrame[Any]] = []
