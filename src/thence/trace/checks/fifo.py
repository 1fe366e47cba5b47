"""FIFO: a delivery at p while a message that the same sender sent to p before has not been delivered there yet.

Rules:

* Judged are first deliveries of messages that were sent, and not causally before their own send.
* A message counts as missing if it names p in ``to``, whether it comes later or never.
* A delivery outside ``to`` is judged like any other, and never missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from thence.trace.evidence import Evidence
from thence.trace.history import NOBODY
from thence.trace.verdict import Violation
from thence.trace.words import and_more

PROPERTY = "fifo"


def check(evidence: Evidence) -> Iterator[Violation]:
    """A row for each delivery that overtook one of its sender's earlier messages."""
    history = evidence.history
    for process in range(len(history.names)):
        inbox = evidence.inbox(process)
        for event, message in evidence.first_deliveries(process):
            sender, rank = history.sender_of[message], history.rank_of[message]
            if sender == NOBODY:
                continue
            if inbox.next_missing[sender] < rank and evidence.has_send_before(event):
                earlier = history.sent_by[sender][inbox.next_missing[sender]]
                yield _row(evidence, event, earlier, inbox.count_missing(sender, rank))
            inbox.deliver(sender, rank)


def _row(evidence: Evidence, event: int, earlier: int, missing: int) -> Violation:
    history = evidence.history
    later = history.message_of[event]
    name, later_name, earlier_name = (
        history.name_of(event),
        history.message_names[later],
        history.message_names[earlier],
    )
    sender = history.name_of(history.sent_at[earlier])
    return Violation(
        property=PROPERTY,
        process=name,
        later=later_name,
        earlier=earlier_name,
        missing=missing,
        chain=evidence.chains.between(earlier, later),
        run=history.run,
        index=history.events[event].index,
        detail=f"{name} delivered {later_name} although {earlier_name}{and_more(missing)}, which {sender} sent to "
        f"{name} before it, had not been delivered there yet",
    )
