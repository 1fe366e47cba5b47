"""Completeness: a (message, destination) never delivered, though the destination neither crashed for good nor left.

Rules:

* A destination crashed for good if no ``recover`` follows its last ``crash``; it left if no ``join`` follows its last
  ``leave``.
* A destination that never appears in the trace has no excuse.
"""

from __future__ import annotations

from collections.abc import Iterator

from thence.trace.events import CRASH, JOIN, LEAVE, RECOVER
from thence.trace.evidence import Evidence
from thence.trace.history import History
from thence.trace.verdict import Violation

PROPERTY = "completeness"


def check(evidence: Evidence) -> Iterator[Violation]:
    """A row for each message that did not reach a destination which was there to get it."""
    history = evidence.history
    excused: dict[int, bool] = {}
    for message, process in evidence.undelivered:
        if process not in excused:
            excused[process] = _is_gone(history, process)
        if excused[process]:
            continue
        name, message_name = history.names[process], history.message_names[message]
        sender = history.name_of(history.sent_at[message])
        yield Violation(
            property=PROPERTY,
            process=name,
            later=message_name,
            missing=1,
            run=history.run,
            detail=f"{name} never delivered {message_name}, which {sender} sent to it",
        )


def _is_gone(history: History, process: int) -> bool:
    crashed = left = False
    for event in history.events[history.first_event[process] : history.first_event[process + 1]]:
        if event.kind == CRASH:
            crashed = True
        elif event.kind == RECOVER:
            crashed = False
        elif event.kind == LEAVE:
            left = True
        elif event.kind == JOIN:
            left = False
    return crashed or left
