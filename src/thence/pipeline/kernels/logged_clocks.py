"""Clocks that a trace logs, compared with those that follow from its messages.

Logs count in different ways: by events, by sends, in steps of one or more. What all of them must keep is this: the entry for
process q in the clock of an event is what q logged for itself at its last event that lies in the past of this one. That is
what is compared, so no convention has to be known; only that the own entry grows.

This holds a whole run and all its clocks, so it is done only for runs of up to ``MAX_CLOCKED_EVENTS``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from thence.pipeline.kernels.encoder import Encoded
from thence.pipeline.kernels.replay import DELIVER, SEND, Longs

MAX_CLOCKED_EVENTS: Final = 2_000_000
MAX_EXAMPLES: Final = 10

Clock = Mapping[str, int]


class Compared(NamedTuple):
    """How many clocks were compared, how many were not as they should be, and some of those in words."""

    clocks: int
    differ: int
    examples: list[str]
    skipped: int = 0
    """Runs that were too large."""


def compare(encoded: Encoded, names: Sequence[str], clocks: Sequence[Clock | None]) -> Compared:
    """Compare the clocks that the events of a whole run log, in the order of ``encoded``."""
    walk = _Walk(encoded, names, clocks)
    walk.run()
    return Compared(walk.compared, walk.differ, walk.examples)


class _Walk:
    """Each process goes on until it must wait for a send; what is waited for in vain is not compared."""

    def __init__(self, encoded: Encoded, names: Sequence[str], clocks: Sequence[Clock | None]) -> None:
        self.compared = self.differ = 0
        self.examples: list[str] = []
        self._encoded, self._names, self._clocks = encoded, names, clocks
        self._own: list[list[int]] = [[] for _ in names]
        """What each process logged for itself, event by event."""
        self._known = np.zeros((len(names), len(names)), np.int64)
        """How many logged events of each process lie in the past of each process."""
        self._of_message: dict[int, Longs] = {}
        self._sent = set(encoded.message[encoded.role == SEND].tolist())

    def run(self) -> None:
        following = self._encoded.first[:-1].tolist()
        waiting: dict[int, list[int]] = {}
        ready = list(range(len(following)))
        while ready:
            process = ready.pop()
            while following[process] < self._encoded.first[process + 1]:
                event = following[process]
                message = int(self._encoded.message[event])
                if self._encoded.role[event] == DELIVER and message in self._sent:
                    if message not in self._of_message:
                        waiting.setdefault(message, []).append(process)
                        break
                    np.maximum(self._known[process], self._of_message[message], out=self._known[process])
                self._look(process, event)
                if self._encoded.role[event] == SEND:
                    self._of_message[message] = self._known[process].copy()
                    ready += waiting.pop(message, [])
                following[process] += 1

    def _look(self, process: int, event: int) -> None:
        clock = self._clocks[event]
        if clock is None:
            return
        self._own[process].append(clock.get(self._names[process], 0))
        self._known[process, process] += 1
        self.compared += 1
        wrong = [
            f"{name} at {clock.get(name, 0)} where {expected} follows from the messages"
            for name, expected in self._expected(process)
            if clock.get(name, 0) != expected
        ]
        wrong += [
            f"{name}, of whom the trace knows nothing, at {entry}" for name, entry in clock.items() if name not in self._names
        ]
        if wrong:
            self.differ += 1
            if len(self.examples) < MAX_EXAMPLES:
                index = self._encoded.index_of(event)
                self.examples.append(f"{self._names[process]}'s event {index} logs {wrong[0]}")

    def _expected(self, process: int) -> list[tuple[str, int]]:
        return [
            (name, self._own[other][int(count) - 1] if count else 0)
            for other, (name, count) in enumerate(zip(self._names, self._known[process], strict=True))
        ]
