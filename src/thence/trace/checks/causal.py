"""Causal: a delivery of m at p while a message to p, sent causally before m, has not been delivered there yet.

Rules:

* Judged are first deliveries of messages that were sent, and not causally before their own send.
* A message counts as missing if it names p in ``to``, whether it comes later or never.
* Causality runs through every process, also through those outside the destinations, and through deliveries outside
  ``to``.
* ``earlier`` is, among the missing messages that no other missing one precedes, the one with the smallest
  (process, index) of its send.

How: ``inbox.next_missing`` holds each sender's first message still missing at p; the clock of m's send says how many
of each sender's messages came before it. Order is kept if no entry of the clock exceeds its peer: one comparison
of two short arrays for each delivery. Only an offending delivery is looked at more closely.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from thence.trace.evidence.clocks import Clocks
from thence.trace.evidence.evidence import Evidence
from thence.trace.evidence.history import DELIVER, NOBODY, SEND
from thence.trace.evidence.inbox import ProcessInbox
from thence.trace.verdict import Violation
from thence.trace.words import overtook_cause

PROPERTY = "causal"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Give a row for each delivery that overtook a message on which it depends."""
    history = evidence.history
    roles, message_of, sender_of, rank_of = history.roles, history.message_of, history.sender_of, history.rank_of
    backward = evidence.replay.backward
    clocks = Clocks(history, evidence.undelivered)
    inboxes = [evidence.inbox(process) for process in range(len(history.names))]
    for process, stretch in evidence.replay.stretches:
        inbox = inboxes[process]
        for event in stretch:
            role, message = roles[event], message_of[event]
            if role == SEND:
                clocks.send(process, message)
            elif role >= DELIVER and sender_of[message] != NOBODY:
                if event not in backward:
                    if role == DELIVER and np.count_nonzero(clocks.of_send(message) > inbox.next_missing):
                        yield _row(evidence, event, clocks, inbox)
                    clocks.deliver(process, event, message)
                if role == DELIVER:
                    inbox.deliver(sender_of[message], rank_of[message])
                clocks.release(message)


def _row(evidence: Evidence, event: int, clocks: Clocks, inbox: ProcessInbox) -> Violation:
    history = evidence.history
    later = history.message_of[event]
    clock = clocks.of_send(later)
    offenders = np.flatnonzero(clock > inbox.next_missing).tolist()
    missing = sum(inbox.count_missing(sender, int(clock[sender])) for sender in offenders)
    first_missing = (history.sent_by[sender][inbox.next_missing[sender]] for sender in offenders)
    earlier = next(m for m in first_missing if not np.count_nonzero(clocks.of_send(m) > inbox.next_missing))
    return evidence.late(PROPERTY, event, earlier, missing, overtook_cause)
