"""The turn of deliveries in a topology with safe delivery: nothing overtakes a message of our own that is not safe.

Rules:

* A message of our own is delivered here when all members of the domains it went into have it (``core.stability.safe_delivery``).
* What is delivered behind it waits, so that the order of deliveries is the order in which messages were released.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from typing import Any

from thence.core.stability.safe_delivery import SafeDelivery
from thence.core.wire.messages import Envelope, Frame

Deliverable = list[tuple[str, Frame[Any]]]
"""Frames for the application, in order, each with the place by which it came."""

SavedLate = tuple[str, Frame[Any], list[tuple[str, int]]]
"""A delivery that waits: by which place it came, the frame, and in which domains how many frames of ours have to be safe."""


class SafeTurn:
    """The deliveries that wait for messages of our own to become safe, in order."""

    def __init__(self, name: str, guards: Mapping[str, SafeDelivery]) -> None:
        """Be the turn at ``name``, with what knows in each domain what is safe there; nothing waits."""
        self._name = name
        self._guards = guards
        self._late: deque[SavedLate] = deque()
        self._unsafe: dict[int, list[tuple[str, int]]] = {}
        """For each message of ours that is not delivered here yet: what has to be safe before."""
        self.bytes = 0
        """How many bytes wait."""

    def __len__(self) -> int:
        return len(self._late)

    @property
    def first(self) -> Envelope | None:
        """The message for which all others wait."""
        return self._late[0][1].envelope

    def sent(self, place: str, pushed: int, frames: list[tuple[str, Frame[Any]]]) -> None:
        """Note that a message of our own went out, the ``pushed``-th in a domain: if it is for us too, it waits."""
        envelope = next((frame.envelope for _, frame in frames if frame.envelope is not None), None)
        if envelope is not None and (envelope.to is None or self._name in envelope.to):
            self._unsafe.setdefault(envelope.number, []).append((place, pushed))

    def next(self, deliverable: Deliverable) -> Deliverable:
        """Let these wait behind the others; return what may be delivered now."""
        for name, frame in deliverable:
            envelope = frame.envelope
            ours = envelope is not None and envelope.origin == self._name
            self._late.append((name, frame, self._unsafe.pop(envelope.number, []) if envelope is not None and ours else []))
            self.bytes += frame.weight
        ready: Deliverable = []
        while self._late and all(self._is_safe(name, pushed) for name, pushed in self._late[0][2]):
            name, frame, _ = self._late.popleft()
            self.bytes -= frame.weight
            ready.append((name, frame))
        return ready

    def _is_safe(self, name: str, pushed: int) -> bool:
        return self._guards[name].own >= pushed

    def fork(self, guards: Mapping[str, SafeDelivery]) -> SafeTurn:
        """Return a turn that goes on from here on its own, with these guards."""
        twin = copy.copy(self)
        twin._guards, twin._late = guards, deque(self._late)
        twin._unsafe = {number: list(awaited) for number, awaited in self._unsafe.items()}
        return twin

    def save(self) -> list[SavedLate]:
        """Return what waits, for a snapshot."""
        return list(self._late)

    def load(self, saved: list[SavedLate]) -> None:
        """Go on from what ``save`` returned."""
        self._late.extend(saved)
        self.bytes = sum(frame.weight for _, frame, _ in saved)
