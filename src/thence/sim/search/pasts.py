"""What the checks know of a run, as numbers, and what each step makes of it, found out once.

Rules:

* A past is made of bit masks over messages (``MemberSteps.bit_of``), independent of every stamp.
* What is not checked for stays empty, so that runs which differ only in that count as one.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from thence.sim.search.member_steps import BODILESS
from thence.sim.search.search import Broken

OUT_OF_NOTHING: Final = "creation"
TWICE: Final = "duplication"


class Past(NamedTuple):
    """What the checks need to know of a run, in bit masks over its messages."""

    sent: int
    """How many messages there are."""
    addressed: tuple[int, ...]
    """Per process: the messages for it."""
    delivered: tuple[int, ...]
    known: tuple[int, ...]
    """Per process: the messages whose sending lies in its causal past."""
    causes: tuple[int, ...]
    """Per message: the messages whose sending lies in the past of its own."""
    orders: tuple[tuple[int, ...], ...]
    """Per process: the messages as delivered."""


class Pasts:
    """Numbers for the pasts of runs."""

    def __init__(self, processes: int, messages: int, require: frozenset[str], *, ordered: bool = False) -> None:
        """Number 0 is the run in which nothing has happened yet. ``ordered``: note in which order each process delivers."""
        self._ordered = ordered or "total" in require
        none = (0,) * processes
        start = Past(0, none, none, none, (0,) * (processes * messages), ((),) * processes)
        self.known: list[Past] = [start]
        self._numbers = {start: 0}
        self._found: dict[tuple[int, int, int, tuple[int, ...], tuple[int, ...]], str | int] = {}
        self._messages = messages
        self._require = require

    def after(self, past: int, process: int, recipients: int, sent: tuple[int, ...], delivered: tuple[int, ...]) -> int:
        """Return the number of the past in which a process has also sent and delivered; ``Broken`` names what that breaks."""
        key = (past, process, recipients, sent, delivered)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._find(self.known[past], process, recipients, sent, delivered)
        if isinstance(found, str):
            raise Broken(found)
        return found

    def expect_less(self, past: int, processes: int, given_up: int) -> int:
        """Return the number of a past in which these processes are no longer addressed by messages that were given up."""
        known = self.known[past]
        addressed = tuple(mask & ~given_up if processes >> at & 1 else mask for at, mask in enumerate(known.addressed))
        return self._number(known._replace(addressed=addressed))

    def _find(self, past: Past, process: int, recipients: int, sent: tuple[int, ...], delivered: tuple[int, ...]) -> str | int:
        for message in sent:
            past = self._sent(past, process, recipients, message)
        for message in delivered:
            broken = self._broken(past, process, message)
            if broken:
                return broken
            past = self._delivered(past, process, message)
        return self._number(past)

    def _number(self, past: Past) -> int:
        number = self._numbers.setdefault(past, len(self.known))
        if number == len(self.known):
            self.known.append(past)
        return number

    def _sent(self, past: Past, process: int, recipients: int, message: int) -> Past:
        bit = 1 << message
        causal = "causal" in self._require
        return past._replace(
            sent=past.sent + 1,
            addressed=tuple(mask | bit if recipients >> at & 1 else mask for at, mask in enumerate(past.addressed)),
            known=_put(past.known, process, past.known[process] | bit) if causal else past.known,
            causes=_put(past.causes, message, past.known[process]),
        )

    def _broken(self, past: Past, process: int, message: int) -> str | None:
        """Return what the delivery of a message breaks, if anything."""
        if message == BODILESS or not past.addressed[process] >> message & 1:
            return OUT_OF_NOTHING
        bit = 1 << message
        if past.delivered[process] & bit:
            return TWICE
        awaited = past.addressed[process] & ~past.delivered[process]
        of_the_same_sender_before = bit - (1 << message // self._messages * self._messages)
        if "fifo" in self._require and awaited & of_the_same_sender_before:
            return "fifo"
        if past.causes[message] & awaited:
            return "causal"
        if "total" in self._require and self._contradicts(past, process, message):
            return "total"
        return None

    def _delivered(self, past: Past, process: int, message: int) -> Past:
        bit = 1 << message
        if self._ordered:
            past = past._replace(orders=_put(past.orders, process, (*past.orders[process], message)))
        if "causal" in self._require:
            past = past._replace(known=_put(past.known, process, past.known[process] | past.causes[message] | bit))
        return past._replace(delivered=_put(past.delivered, process, past.delivered[process] | bit))

    @staticmethod
    def _contradicts(past: Past, process: int, message: int) -> bool:
        """Return whether somebody delivered ``message`` before one that this process has delivered already."""
        return any(
            past.delivered[process] >> later & 1
            for order in past.orders
            if message in order
            for later in order[order.index(message) + 1 :]
        )


def _put(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])
