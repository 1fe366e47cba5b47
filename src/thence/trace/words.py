"""Violations in words that a person understands: the same ones in the judge and in the audit."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from thence.trace.events import DELIVER, SEND

UNSENT: Final = "which nobody ever sent"
OUTSIDE: Final = "which was not sent to it"
BACKWARD: Final = "although its sending was itself caused by this delivery"

CREATED: Final = "{process} delivered {later}, {reason}"
AGAIN: Final = "{process} delivered {later} again"
OVERTOOK_SENDER: Final = (
    "{process} delivered {later} although {earlier}{more}, which {sender} sent to {process} before it, had not been delivered "
    "there yet"
)
OVERTOOK_CAUSE: Final = (
    "{process} delivered {later} although {earlier}{more}, sent to {process} causally before it, had not been delivered there yet"
)
NEVER_CAME: Final = "{process} never delivered {later}, which {sender} sent to it"
ONLY_OTHERS_GOT: Final = "{process} never delivered {later}, which {sender} sent to it and somebody else delivered"
"""Sentences with places for names: the judge fills them in one by one, the audit a column at a time."""


def misplaced(index: int, previous: int, kind: str, *, message: bool, to: bool) -> list[str]:
    """Return what is wrong with an event that follows one of index ``previous``; ``message`` and ``to`` say if it has those."""
    faults = []
    if index < 0:
        faults.append("has a negative index")
    elif index == previous:
        faults.append("has the index of the event before it")
    elif index != previous + 1:
        faults.append(f"comes where event {previous + 1} should be")
    if not message and kind in (SEND, DELIVER):
        faults.append(f"is of kind {kind} but names no message")
    if not to and kind == SEND:
        faults.append("is a send but names no destinations")
    return faults


def sent_before(message: str, sender: str | None, index: int) -> str:
    """Return what is wrong with a second send, or with one that comes when nobody waits for it any more."""
    if sender is None:
        return f"sends {message}, which had been given up as never sent"
    return f"sends {message}, which {sender} sent in its event {index}"


def misshapen(process: str, index: int, faults: Sequence[str]) -> str:
    """Describe all that is wrong with an event."""
    return f"{process}'s event {index} " + " and ".join(faults)


def created(process: str, message: str, reason: str) -> str:
    """Describe a delivery that should not have been possible."""
    return CREATED.format(process=process, later=message, reason=reason)


def again(process: str, message: str) -> str:
    """Describe a second delivery."""
    return AGAIN.format(process=process, later=message)


def overtook_sender(process: str, later: str, earlier: str, missing: int, sender: str) -> str:
    """Describe a delivery that overtook one of its sender's earlier messages."""
    return OVERTOOK_SENDER.format(process=process, later=later, earlier=earlier, more=_and_more(missing), sender=sender)


def overtook_cause(process: str, later: str, earlier: str, missing: int) -> str:
    """Describe a delivery that overtook a message on which it depends."""
    return OVERTOOK_CAUSE.format(process=process, later=later, earlier=earlier, more=_and_more(missing))


def contradicted(one: str, two: str, earlier: str, later: str) -> str:
    """Describe two processes that disagree."""
    return f"{one} delivered {earlier} before {later}, {two} delivered them the other way round"


def never_came(process: str, message: str, sender: str) -> str:
    """Describe a message that did not reach a destination."""
    return NEVER_CAME.format(process=process, later=message, sender=sender)


def only_others_got(process: str, message: str, sender: str) -> str:
    """Describe a message that reached some and not this destination."""
    return ONLY_OTHERS_GOT.format(process=process, later=message, sender=sender)


def _and_more(missing: int) -> str:
    return f" (and {missing - 1} more)" if missing > 1 else ""


def tell_chain(chain: Sequence[str], senders: Mapping[str, str]) -> str:
    """Return a chain as a story: who sent what after what. ``senders`` gives the sender of each message.

    >>> tell_chain(["m1", "m2", "m3"], {"m1": "A", "m2": "A", "m3": "B"})
    'A sent m1, then A sent m2, then B delivered m2 and sent m3'
    """
    steps = [f"{senders[chain[0]]} sent {chain[0]}"] if chain else []
    for earlier, later in itertools.pairwise(chain):
        if senders[earlier] == senders[later]:
            steps.append(f"{senders[later]} sent {later}")
        else:
            steps.append(f"{senders[later]} delivered {earlier} and sent {later}")
    return ", then ".join(steps)
