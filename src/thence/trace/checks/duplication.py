"""Duplication: each delivery of a message at a process after the first."""

from __future__ import annotations

from collections.abc import Iterator

from thence.trace.evidence.evidence import Evidence
from thence.trace.evidence.history import AGAIN
from thence.trace.verdict import Violation
from thence.trace.words import again

PROPERTY = "duplication"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Give a row for each delivery that is not the first."""
    history = evidence.history
    event = history.roles.find(AGAIN)
    while event >= 0:
        message = history.message_names[history.message_of[event]]
        yield evidence.row(PROPERTY, event, again(history.name_of(event), message))
        event = history.roles.find(AGAIN, event + 1)
