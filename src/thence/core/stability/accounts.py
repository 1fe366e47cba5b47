"""Accounts of what follows from what: they say when a frame that came in, or a message of our own, is stable.

Source: daisy §3.1.2, interconnect §7. Design note: docs/concepts/stability.md. ``core.stability.stable`` tells senders.

A frame that a member only takes is stable when it is taken. A frame whose message is sent on is stable when all frames that
followed from it are; their receivers say so. A message of one's own is stable when all frames in which it went out are: then it
is on the disk of every recipient, in every domain, and its origin need not keep it.

Rules:

* There is an *account* of each message that came by one place and went on, or will. Frames sent because of it are pending. What
  it waits for here keeps it open: its turn in the order of its domain, or the replica that forwards.
* The frames that brought the message are owed an ack until nothing is pending and nothing open. A second copy from which
  nothing follows is owed nothing, but one that a replica sent: it is to say what the first one was to say, if that one is dead.
* All of this follows from the records, so a restart restores it. Only acks of others are missing, and come again. Until then
  accounts may be open that were closed before, never the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from thence.core.wire.messages import Envelope, Frame
from thence.core.wire.number_set import NumberSet

OURS: Final = ""
"""The place by which messages of our own come."""

IN_ORDER: Final = "in order"
"""Keeps an account open while a message waits for its turn in the order of its domain or link."""

Owed = tuple[str, str, int]
"""A frame that came in: the place, from whom, and its number."""


class Account(msgspec.Struct, array_like=True):
    """What became of one message that came by one place."""

    pending: int = 0
    """How many frames that followed from it are not stable."""
    open: dict[str, None] = msgspec.field(default_factory=dict)
    """What it waits for here."""
    owed: list[Owed] = msgspec.field(default_factory=list)


class SavedAccounts(msgspec.Struct, array_like=True):
    """What a restart needs."""

    stable: NumberSet
    accounts: list[tuple[str, int, str, Account]]


Key = tuple[str, int, str]
"""A message, by origin and number, and the place by which it came."""


class Accounts:
    """The accounts of one member."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self.stable = NumberSet()
        """Which messages of our own are stable."""
        self.notified = 0
        """The application knows of those up to this number."""
        self._accounts: dict[Key, Account] = {}
        self._touched: dict[Key, None] = {}

    def pending(self, envelope: Envelope, came_by: str) -> int:
        """Return how many frames that followed from a message are not stable."""
        account = self._accounts.get((envelope.origin, envelope.number, came_by))
        return 0 if account is None else account.pending

    def pushed(self, frames: Iterable[tuple[str, Frame[Any]]], came_by: str, *, in_turn: bool = True) -> None:
        """Note frames that go out. Their messages came by ``came_by`` and, if ``in_turn``, have had their turn there."""
        for _, frame in frames:
            if frame.envelope is not None:
                account = self._account(frame.envelope, came_by)
                account.pending += 1
                if in_turn:
                    account.open.pop(IN_ORDER, None)

    def became_stable(self, envelope: Envelope, came_by: str) -> None:
        """Note that one of those frames is stable."""
        key = (envelope.origin, envelope.number, came_by)
        self._accounts[key].pending -= 1
        self._touched[key] = None

    def open(self, envelope: Envelope, came_by: str, what: str) -> None:
        """Note that a message waits here for something before it goes on."""
        self._account(envelope, came_by).open[what] = None

    def knows(self, envelope: Envelope, came_by: str) -> bool:
        """Return whether there is an account of a message, so that not all have it."""
        return (envelope.origin, envelope.number, came_by) in self._accounts

    def is_open(self, envelope: Envelope, came_by: str) -> bool:
        """Return whether a message waits here."""
        account = self._accounts.get((envelope.origin, envelope.number, came_by))
        return account is not None and bool(account.open)

    def close(self, envelope: Envelope, came_by: str, what: str) -> None:
        """Note that it waits for that no longer."""
        key = (envelope.origin, envelope.number, came_by)
        account = self._accounts.get(key)
        if account is not None and what in account.open:
            del account.open[what]
            self._touched[key] = None

    def owe(self, envelope: Envelope, frame: Owed) -> None:
        """Note the frame that brought a message: it is stable when the account is closed."""
        self._account(envelope, frame[0]).owed.append(frame)

    def sent(self, envelope: Envelope) -> None:
        """Note that a message of our own has gone out."""
        self._account(envelope, OURS)

    def _account(self, envelope: Envelope, came_by: str) -> Account:
        key = (envelope.origin, envelope.number, came_by)
        self._touched[key] = None
        return self._accounts.setdefault(key, Account())

    def balance(self) -> list[Owed]:
        """Close the finished accounts; return the frames that are stable by that."""
        stable: list[Owed] = []
        for key in self._touched:
            account = self._accounts.get(key)
            if account is not None and not account.pending and not account.open:
                del self._accounts[key]
                stable += account.owed
                if key[2] == OURS:
                    self.stable.add(key[1])
        self._touched = {}
        return stable

    def news(self) -> int:
        """Return the number up to which all our own messages are stable if it is news, else 0."""
        if self.stable.upto == self.notified:
            return 0
        self.notified = self.stable.upto
        return self.notified

    def unstable(self) -> list[int]:
        """Return the numbers of our own messages that went out and are not stable."""
        return [number for _, number, came_by in self._accounts if came_by == OURS]

    def __len__(self) -> int:
        return len(self._accounts)

    def fork(self) -> Accounts:
        """Return an independent copy."""
        twin = Accounts()
        twin.load(self.save())
        twin.notified = self.notified
        return twin

    def save(self) -> SavedAccounts:
        """Return everything, for a snapshot. Equal states give equal bytes."""
        accounts = [
            (*key, Account(account.pending, dict(account.open), list(account.owed)))
            for key, account in sorted(self._accounts.items(), key=lambda item: item[0])
        ]
        return SavedAccounts(self.stable.copy(), accounts)

    def load(self, saved: SavedAccounts) -> None:
        """Restore what ``save`` returned."""
        self.stable = saved.stable
        self._accounts = {(origin, number, came_by): account for origin, number, came_by, account in saved.accounts}
