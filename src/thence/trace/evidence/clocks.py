"""Vector clocks of sends, kept only while somebody may ask for them.

``clock[sender]`` counts that sender's messages whose send happens before. Only sends have clocks that matter: all
that the causal check asks is which sends happen before which.

Rules:

* A clock lives from its send until every delivery of the message has been replayed. That of a message with a
  destination that never gets it lives on, for it may be named as the missing one. So memory follows the messages in
  flight, not the trace.
* Arrays are never changed once handed out.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from thence.trace.evidence.history import DELIVER, NOBODY, History

Clock = npt.NDArray[np.int32]
"""A count for each sender."""

UNBOUNDED: Final = 2**31 - 1
"""Larger than any count."""


class Clocks:
    """The clocks at the present point of a replay."""

    def __init__(self, history: History, undelivered: list[tuple[int, int]]) -> None:
        self._history = history
        self._known: list[Clock] = [np.zeros(len(history.sent_by), np.int32) for _ in history.names]
        self.known_at_send: dict[int, Clock] = {}
        self._awaited = _count_awaited(history, undelivered)
        self._last_send = [NOBODY] * len(history.names)
        for process, sent in zip(history.sender_process, history.sent_by, strict=True):
            self._last_send[process] = history.sent_at[sent[-1]]

    def of_send(self, message: int) -> Clock:
        """Return how many messages of each sender were sent causally before this one."""
        return self.known_at_send[message]

    def send(self, process: int, message: int) -> None:
        """A process sends."""
        before = self._known[process]
        if self._awaited[message]:
            self.known_at_send[message] = before
        after = before.copy()
        after[self._history.sender_of[message]] += 1
        self._known[process] = after

    def deliver(self, process: int, event: int, message: int) -> None:
        """A process learns what the send of a message knew, and of the send itself."""
        if event > self._last_send[process]:
            return  # it will never tell anybody
        sender, rank = self._history.sender_of[message], self._history.rank_of[message]
        known = self._known[process]
        if known[sender] <= rank:
            known = np.maximum(known, self.known_at_send[message])
            known[sender] = rank + 1
            self._known[process] = known

    def release(self, message: int) -> None:
        """One delivery of a message has been dealt with; forget its clock after the last."""
        self._awaited[message] -= 1
        if not self._awaited[message]:
            self.known_at_send.pop(message, None)


def _count_awaited(history: History, undelivered: list[tuple[int, int]]) -> list[int]:
    awaited = [0] * len(history.message_names)
    for role, message in zip(history.roles, history.message_of, strict=True):
        if role >= DELIVER:
            awaited[message] += 1
    for message, _ in undelivered:
        awaited[message] += 1
    return awaited
