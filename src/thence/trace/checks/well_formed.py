"""Well-formed: an index missing, repeated or out of place; a kind without its columns; two sends of one message.

Rules:

* A process's indices are 0, 1, 2, …. An event whose index is not one more than the one before it offends: after a
  hole, at the start when not 0, or when negative. After a hole, counting goes on from there.
* Each repetition of an index offends after the first.
* One event is one row, whatever is wrong with it; the detail says all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from thence.trace.events import DELIVER as DELIVER_KIND
from thence.trace.events import SEND as SEND_KIND
from thence.trace.events import Event
from thence.trace.evidence import Evidence
from thence.trace.history import DELIVER, RESEND, History
from thence.trace.verdict import Violation

PROPERTY = "well-formed"


def check(evidence: Evidence) -> Iterator[Violation]:
    """A row for each event that is not as a trace requires."""
    history = evidence.history
    for process, name in enumerate(history.names):
        previous = -1
        for number in range(history.first_event[process], history.first_event[process + 1]):
            event = history.events[number]
            role = history.roles[number]
            if role >= DELIVER and event.index == previous + 1:
                previous += 1
                continue
            faults = _faults(event, previous)
            if role == RESEND:
                faults.append(_resent(history, number))
            previous = max(event.index, -1)
            if faults:
                yield Violation(
                    property=PROPERTY,
                    process=name,
                    later=event.message,
                    run=history.run,
                    index=event.index,
                    detail=f"{name}'s event {event.index} " + " and ".join(faults),
                )


def _faults(event: Event, previous: int) -> list[str]:
    faults = []
    if event.index < 0:
        faults.append("has a negative index")
    elif event.index == previous:
        faults.append("has the index of the event before it")
    elif event.index != previous + 1:
        faults.append(f"comes where event {previous + 1} should be")
    if event.message is None and event.kind in (SEND_KIND, DELIVER_KIND):
        faults.append(f"is of kind {event.kind} but names no message")
    if event.to is None and event.kind == SEND_KIND:
        faults.append("is a send but names no destinations")
    return faults


def _resent(history: History, number: int) -> str:
    message = history.message_of[number]
    first = history.sent_at[message]
    return (
        f"sends {history.message_names[message]}, which {history.name_of(first)} sent in its event {history.events[first].index}"
    )
