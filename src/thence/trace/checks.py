"""The checks, one function for each property, in the order of the rows of the table that defines them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec
import numpy as np

from thence.trace.events import CRASH, JOIN, LEAVE, RECOVER
from thence.trace.evidence.clocks import Clocks
from thence.trace.evidence.evidence import Evidence
from thence.trace.evidence.history import AGAIN, DELIVER, NOBODY, RESEND, SEND, History
from thence.trace.evidence.inbox import ProcessInbox
from thence.trace.verdict import Violation
from thence.trace.words import (
    BACKWARD,
    OUTSIDE,
    UNSENT,
    again,
    contradicted,
    created,
    misplaced,
    misshapen,
    never_came,
    only_others_got,
    overtook_cause,
    overtook_sender,
    sent_before,
)

Check = Callable[[Evidence], Iterator[Violation]]


def well_formed(evidence: Evidence) -> Iterator[Violation]:
    """Well-formed: an index missing, repeated or out of place; a kind without its columns; two sends of one message.

    Rules:

    * A process's indices are 0, 1, 2, …. An event whose index is not one more than the one before it offends: after a
      hole, at the start when not 0, or when negative. After a hole, counting goes on from there.
    * Each repetition of an index offends after the first.
    * One event is one row, whatever is wrong with it; the detail says all of it.
    """
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
                yield evidence.row("well-formed", number, misshapen(name, event.index, faults))


def _resent(history: History, number: int) -> str:
    message = history.message_of[number]
    first = history.sent_at[message]
    return sent_before(history.message_names[message], history.name_of(first), history.events[first].index)


def creation(evidence: Evidence) -> Iterator[Violation]:
    """Creation: a delivery of a message that was never sent, or outside its ``to``, or causally before its own send.

    Rules:

    * Only first deliveries are judged; a second one is a duplication and nothing else.
    * One delivery is one row, even if it is both outside ``to`` and before its send.
    * Where a send names no destinations, nothing is outside them.
    """
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
            yield evidence.row("creation", event, created(name, history.message_names[message], reason))


def duplication(evidence: Evidence) -> Iterator[Violation]:
    """Duplication: each delivery of a message at a process after the first."""
    history = evidence.history
    event = history.roles.find(AGAIN)
    while event >= 0:
        message = history.message_names[history.message_of[event]]
        yield evidence.row("duplication", event, again(history.name_of(event), message))
        event = history.roles.find(AGAIN, event + 1)


def fifo(evidence: Evidence) -> Iterator[Violation]:
    """FIFO: a delivery at p while a message that the same sender sent to p before has not been delivered there yet.

    Rules:

    * Judged are first deliveries of messages that were sent, and not causally before their own send.
    * A message counts as missing if it names p in ``to``, whether it comes later or never.
    * A delivery outside ``to`` is judged like any other, and never missing.
    """
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
                yield evidence.late("fifo", event, earlier, missing, partial(overtook_sender, sender=history.name_of(sent_at)))
            inbox.deliver(sender, rank)


def causal(evidence: Evidence) -> Iterator[Violation]:
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
                        yield _causal_row(evidence, event, clocks, inbox)
                    clocks.deliver(process, event, message)
                if role == DELIVER:
                    inbox.deliver(sender_of[message], rank_of[message])
                clocks.release(message)


def _causal_row(evidence: Evidence, event: int, clocks: Clocks, inbox: ProcessInbox) -> Violation:
    history = evidence.history
    later = history.message_of[event]
    clock = clocks.of_send(later)
    offenders = np.flatnonzero(clock > inbox.next_missing).tolist()
    missing = sum(inbox.count_missing(sender, int(clock[sender])) for sender in offenders)
    first_missing = (history.sent_by[sender][inbox.next_missing[sender]] for sender in offenders)
    earlier = next(m for m in first_missing if not np.count_nonzero(clocks.of_send(m) > inbox.next_missing))
    return evidence.late("causal", event, earlier, missing, overtook_cause)


def total(evidence: Evidence) -> Iterator[Violation]:
    """Total: a pair of processes that deliver the same two messages in opposite orders.

    Rules:

    * One row for each pair of processes, named in the order of their names; first deliveries count.
    * The witness: ``later`` is the first message, in the order of the first-named process, that the other delivered
      before one that the first-named had already delivered; ``earlier`` is the first such one. ``index`` is that of the
      delivery of ``later`` at the first-named process.
    """
    history = evidence.history
    delivered = [
        np.array([message for _, message in evidence.first_deliveries(process)], np.int64)
        for process in range(len(history.names))
    ]
    absent = -1
    place_there = np.full(len(history.message_names), absent, np.int64)
    for two in range(len(delivered)):
        place_there[delivered[two]] = np.arange(len(delivered[two]))
        for one in range(two):
            places = place_there[delivered[one]]
            common = np.flatnonzero(places != absent)
            places = places[common]
            behind = places < np.maximum.accumulate(places)
            if np.count_nonzero(behind):
                late = int(np.argmax(behind))
                early = int(np.argmax(places > places[late]))
                messages = delivered[one][common]
                yield _total_row(evidence, one, two, int(messages[early]), int(messages[late]))
        place_there[delivered[two]] = absent


def _total_row(evidence: Evidence, one: int, two: int, earlier: int, later: int) -> Violation:
    history = evidence.history
    event = next(event for event, message in evidence.first_deliveries(one) if message == later)
    first, second = history.names[one], history.names[two]
    earlier_name, later_name = history.message_names[earlier], history.message_names[later]
    row = evidence.row("total", event, contradicted(first, second, earlier_name, later_name))
    return msgspec.structs.replace(row, process=f"{first},{second}", earlier=earlier_name)


def completeness(evidence: Evidence) -> Iterator[Violation]:
    """Completeness: a (message, destination) never delivered, though the destination neither crashed for good nor left.

    And **agreement**, which asks for less: only messages that somebody did deliver, be it one that crashed later, must reach all
    of their destinations that are still there (uniform agreement). What nobody delivered may be lost with its sender.

    Rules:

    * A destination crashed for good if no ``recover`` follows its last ``crash``; it left if no ``join`` follows its last
      ``leave``.
    * A destination that never appears in the trace has no excuse.
    """
    return _lost_rows(evidence, "completeness", evidence.undelivered, never_came)


def agreement(evidence: Evidence) -> Iterator[Violation]:
    """Give a row for each message that somebody delivered and that did not reach such a destination."""
    somewhere = set[int]().union(*evidence.history.delivered)
    lost = [(message, process) for message, process in evidence.undelivered if message in somewhere]
    return _lost_rows(evidence, "agreement", lost, only_others_got)


def _lost_rows(
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


CHECKS: Final[dict[str, Check]] = {
    "well-formed": well_formed,
    "creation": creation,
    "duplication": duplication,
    "fifo": fifo,
    "causal": causal,
    "total": total,
    "completeness": completeness,
    "agreement": agreement,
}
