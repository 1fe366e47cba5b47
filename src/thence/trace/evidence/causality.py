"""Happens-before, replayed: an order of all events of a run in which every cause comes before its effects.

The order is computed from (process, index) and from send to delivery, never from wall clocks or logged clocks.

Rules:

* Every delivery of a message, whether first, again or outside ``to``, comes after its send.
* A delivery causally before its own send breaks that rule by itself. Such *backward* deliveries are found first, by
  :mod:`thence.trace.evidence.cycles`, and their arrow from the send is left out, after which an order exists.
* Which of the many possible orders comes out decides nothing: clocks are the same in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from thence.trace.evidence.cycles import backward_deliveries
from thence.trace.evidence.history import DELIVER, NOBODY, SEND, History


@dataclass(slots=True)
class Replay:
    """The run in causal order, in stretches of consecutive events of one process."""

    stretches: list[tuple[int, range]] = field(default_factory=list)
    """(process, its next events), in an order that causality allows."""
    backward: set[int] = field(default_factory=set)
    """Deliveries causally before their own send."""


def replay(history: History) -> Replay:
    """Put a run into causal order."""
    walk = _Walk(history)
    walk.run()
    if walk.stuck():
        walk.result.backward.update(backward_deliveries(history, walk.next_event))
        walk.run()
    return walk.result


class _Walk:
    """Each process goes on until it must wait for a send; each send wakes those who wait for it."""

    def __init__(self, history: History) -> None:
        self.result = Replay()
        self.next_event = history.first_event[:-1]
        self._history = history
        self._was_sent = bytearray(sent_at == NOBODY for sent_at in history.sent_at)

    def stuck(self) -> bool:
        """Return whether events are left that wait for each other."""
        return self.next_event != self._history.first_event[1:]

    def run(self) -> None:
        waiting: dict[int, list[int]] = {}
        ready = list(range(len(self.next_event)))
        while ready:
            process = ready.pop()
            begin = self.next_event[process]
            end = self._advance(process, waiting, ready)
            if end > begin:
                self.next_event[process] = end
                self.result.stretches.append((process, range(begin, end)))

    def _advance(self, process: int, waiting: dict[int, list[int]], ready: list[int]) -> int:
        """Go on with one process as far as it can, and say where it stopped."""
        history, was_sent, backward = self._history, self._was_sent, self.result.backward
        roles, message_of = history.roles, history.message_of
        last = history.first_event[process + 1]
        for event in range(self.next_event[process], last):
            role = roles[event]
            if role == SEND:
                message = message_of[event]
                was_sent[message] = True
                if message in waiting:
                    ready.extend(waiting.pop(message))
            elif role >= DELIVER:
                message = message_of[event]
                if not was_sent[message] and event not in backward:
                    waiting.setdefault(message, []).append(process)
                    return event
        return last
