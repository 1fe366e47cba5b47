"""Well-formed: an index missing, repeated or out of place; a kind without its columns; two sends of one message.

Rules:

* A process's indices are 0, 1, 2, …. An event whose index is not one more than the one before it offends: after a
  hole, at the start when not 0, or when negative. After a hole, counting goes on from there.
* Each repetition of an index offends after the first.
* One event is one row, whatever is wrong with it; the detail says all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from thence.trace.evidence.evidence import Evidence
from thence.trace.evidence.history import DELIVER, RESEND, History
from thence.trace.verdict import Violation
from thence.trace.words import misplaced, misshapen, sent_before

PROPERTY = "well-formed"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Give a row for each event that is not as a trace requires."""
    history = evidence.history
    for process, name in enumerate(history.names):
        previous = -1
        for number in range(history.first_event[process], history.first_event[process + 1]):
            event = history.events[number]
            role = history.roles[number]
            if role >= DELIVER and event.index == previous + 1:
                previous += 1
                continue
            faults = misplaced(event.index, previous, event.kind, message=event.message is not None, to=event.to is not None)
            if role == RESEND:
                faults.append(_resent(history, number))
            previous = max(event.index, -1)
            if faults:
                yield evidence.row(PROPERTY, number, misshapen(name, event.index, faults))


def _resent(history: History, number: int) -> str:
    message = history.message_of[number]
    first = history.sent_at[message]
    return sent_before(history.message_names[message], history.name_of(first), history.events[first].index)
