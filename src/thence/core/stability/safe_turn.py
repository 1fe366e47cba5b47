"""The turn of deliveries with safe delivery: what was delivered is handed up when it is safe, and not before.

Source: interconnect §7. Design note: docs/concepts/stability.md. Used at members of a domain with ``delivery = "safe"``.

Rules:

* A delivery has its position, and is forwarded, as soon as its order allows, as with notices; so nobody beyond waits for notices
  of others. It is handed up when ``core.stability.safe_notification`` says that all deliveries up to it are safe.
* What is safe is not recorded, but how far the turn has come is: the application has gone by it, and a restart must lead there
  again. What is behind that waits until others have told again what is safe.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from thence.core.ordering import Predecessor, Wait
from thence.core.wire.messages import Frame

Deliverable = list[tuple[str, Frame[Any]]]
"""Frames for the application, in order, each with the place by which it came."""

Late = tuple[int, str, Frame[Any]]
"""A delivery that waits: its position, by which place it came, and the frame."""


class SafeTurn:
    """The deliveries that wait until they are safe, in order."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._late: deque[Late] = deque()
        self.bytes = 0
        """How many bytes wait."""
        self.bytes_of: dict[str, int] = {}
        """How many bytes of each origin wait."""
        self.recorded = 0
        """Up to which position all was safe before a restart, as far as it is recorded."""

    def __len__(self) -> int:
        return len(self._late)

    def put(self, deliveries: Iterable[Late]) -> None:
        """Let these wait behind the others."""
        for late in deliveries:
            self._late.append(late)
            self._weigh(late[2], late[2].weight)

    def next(self, safe: int) -> list[Late]:
        """Return those that may be handed up now that all up to this position are safe."""
        ready, upto = [], max(safe, self.recorded)
        while self._late and self._late[0][0] <= upto:
            late = self._late.popleft()
            self._weigh(late[2], -late[2].weight)
            ready.append(late)
        return ready

    def _weigh(self, frame: Frame[Any], weight: int) -> None:
        self.bytes += weight
        if frame.envelope is not None:
            origin = frame.envelope.origin
            self.bytes_of[origin] = self.bytes_of.get(origin, 0) + weight
            if not self.bytes_of[origin]:
                del self.bytes_of[origin]

    def waiting(self) -> Iterator[Wait]:
        """Yield what waits, for people."""
        for position, place, frame in self._late:
            message = None if frame.envelope is None else frame.envelope.id
            yield Wait(message, place, Predecessor("those delivered here, until all have it", position), 0)

    def fork(self) -> SafeTurn:
        """Return a turn that goes on from here on its own."""
        twin = copy.copy(self)
        twin._late, twin.bytes_of = deque(self._late), dict(self.bytes_of)
        return twin
