"""Completeness: a (message, destination) never delivered, though the destination neither crashed for good nor left.

And **agreement**, which asks for less: only messages that somebody did deliver, be it one that crashed later, must reach all
of their destinations that are still there (uniform agreement). What nobody delivered may be lost with its sender.

Rules:

* A destination crashed for good if no ``recover`` follows its last ``crash``; it left if no ``join`` follows its last
  ``leave``.
* A destination that never appears in the trace has no excuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from thence.trace.events import CRASH, JOIN, LEAVE, RECOVER
from thence.trace.evidence.evidence import Evidence
from thence.trace.evidence.history import History
from thence.trace.verdict import Violation
from thence.trace.words import never_came, only_others_got

COMPLETENESS = "completeness"
AGREEMENT = "agreement"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Give a row for each message that did not reach a destination which was there to get it."""
    return _rows(evidence, COMPLETENESS, evidence.undelivered, never_came)


def check_agreement(evidence: Evidence) -> Iterator[Violation]:
    """Give a row for each message that somebody delivered and that did not reach such a destination."""
    somewhere = set[int]().union(*evidence.history.delivered)
    lost = [(message, process) for message, process in evidence.undelivered if message in somewhere]
    return _rows(evidence, AGREEMENT, lost, only_others_got)


def _rows(
    evidence: Evidence, name: str, undelivered: list[tuple[int, int]], tell: Callable[[str, str, str], str]
) -> Iterator[Violation]:
    history = evidence.history
    excused: dict[int, bool] = {}
    for message, process in undelivered:
        if process not in excused:
            excused[process] = _is_gone(history, process)
        if excused[process]:
            continue
        process_name, message_name = history.names[process], history.message_names[message]
        sender = history.name_of(history.sent_at[message])
        yield Violation(
            property=name,
            process=process_name,
            later=message_name,
            missing=1,
            run=history.run,
            detail=tell(process_name, message_name, sender),
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
