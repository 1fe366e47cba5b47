"""FIFO: a delivery at p while a message that the same sender sent to p before has not been delivered there yet.

Rules:

* Judged are first deliveries of messages that were sent, and not causally before their own send.
* A message counts as missing if it names p in ``to``, whether it comes later or never.
* A delivery outside ``to`` is judged like any other, and never missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from thence.trace.evidence.evidence import Evidence
from thence.trace.evidence.history import NOBODY
from thence.trace.verdict import Violation
from thence.trace.words import overtook_sender

PROPERTY = "fifo"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Give a row for each delivery that overtook one of its sender's earlier messages."""
    history = evidence.history
    for process in range(len(history.names)):
        inbox = evidence.inbox(process)
        for event, message in evidence.first_deliveries(process):
            sender, rank = history.sender_of[message], history.rank_of[message]
            if sender == NOBODY:
                continue
            if inbox.next_missing[sender] < rank and evidence.has_send_before(event):
                earlier = history.sent_by[sender][inbox.next_missing[sender]]
                sent_at = history.sent_at[earlier]
                missing = inbox.count_missing(sender, rank)
                yield evidence.late(PROPERTY, event, earlier, missing, partial(overtook_sender, sender=history.name_of(sent_at)))
            inbox.deliver(sender, rank)
