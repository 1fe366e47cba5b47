"""Creation: a delivery of a message that was never sent, or outside its ``to``, or causally before its own send.

Rules:

* Only first deliveries are judged; a second one is a duplication and nothing else.
* One delivery is one row, even if it is both outside ``to`` and before its send.
* Where a send names no destinations, nothing is outside them.
"""

from __future__ import annotations

from collections.abc import Iterator

from thence.trace.evidence.evidence import Evidence
from thence.trace.evidence.history import NOBODY
from thence.trace.verdict import Violation
from thence.trace.words import BACKWARD, OUTSIDE, UNSENT, created

PROPERTY = "creation"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Give a row for each delivery that should not have been possible."""
    history = evidence.history
    backward = evidence.replay.backward
    for process, name in enumerate(history.names):
        for event, message in evidence.first_deliveries(process):
            to = history.to[message]
            if history.sent_at[message] == NOBODY:
                reason = UNSENT
            elif to is not None and process not in to:
                reason = OUTSIDE
            elif event in backward:
                reason = BACKWARD
            else:
                continue
            yield evidence.row(PROPERTY, event, created(name, history.message_names[message], reason))
