"""What follows from what: when a frame that came in, and a message of our own, is *settled*: where it has to be, on disk.

Source: daisy §3.1.2, interconnect §7. Design note: docs/stability.md. ``core.settling`` reports it to whom a frame is from.

A frame that a member only takes is settled when it is taken. One that makes it send the message on is settled when all frames
that followed from it are: each receiver says so of the frames to it. So a message of one's own is *stable* when all frames are
settled that it went out in: then it is on the disk of every recipient, in every domain, and its origin need not keep it.

Rules:

* An *account* is kept of each message that came by one place and went on, or will. What is sent on because of it counts as
  pending; what it still waits for here keeps it open: its turn in the order of its domain, or the replica that forwards.
* The frames that brought the message are owed a report until nothing is pending and nothing open. A second copy from which
  nothing follows is owed nothing.
* All of this follows from the records, so a restart makes it again; only reports of others are missing, and come again. Meanwhile
  accounts are open that were closed before, never the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from thence.core.messages import Envelope, Frame
from thence.core.numbers import NumberSet

OURS: Final = ""
"""By which place messages of our own come."""

IN_ORDER: Final = "in order"
"""What keeps an account open while a message waits for its turn in the order of its domain or link."""

Owed = tuple[str, str, int]
"""A frame that came in: the place, from whom, and its number."""


class Account(msgspec.Struct, array_like=True):
    """What became of one message that came by one place."""

    pending: int = 0
    """How many frames that followed from it are not settled."""
    open: dict[str, None] = msgspec.field(default_factory=dict)
    """What it waits for here."""
    owed: list[Owed] = msgspec.field(default_factory=list)


class SavedLedger(msgspec.Struct, array_like=True):
    """What a restart must find again."""

    stable: NumberSet
    accounts: list[tuple[str, int, str, Account]]


Key = tuple[str, int, str]
"""A message, by origin and number, and the place by which it came."""


class Ledger:
    """The accounts of one member."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self.stable = NumberSet()
        """Which messages of our own are stable."""
        self.told = 0
        """Up to which of them the application was told so."""
        self._accounts: dict[Key, Account] = {}
        self._touched: dict[Key, None] = {}

    def pending(self, envelope: Envelope, came_by: str) -> int:
        """Return how many frames that followed from a message are not settled."""
        account = self._accounts.get((envelope.origin, envelope.number, came_by))
        return 0 if account is None else account.pending

    def pushed(self, frames: Iterable[tuple[str, Frame[Any]]], came_by: str) -> None:
        """These frames go out; the messages in them came by ``came_by``, and have had their turn there."""
        for _, frame in frames:
            if frame.envelope is not None:
                account = self._account(frame.envelope, came_by)
                account.pending += 1
                account.open.pop(IN_ORDER, None)

    def settled(self, envelope: Envelope, came_by: str) -> None:
        """One of those frames is settled."""
        key = (envelope.origin, envelope.number, came_by)
        self._accounts[key].pending -= 1
        self._touched[key] = None

    def open(self, envelope: Envelope, came_by: str, what: str) -> None:
        """A message waits here for something, and goes on then."""
        self._account(envelope, came_by).open[what] = None

    def is_open(self, envelope: Envelope, came_by: str) -> bool:
        """Return whether a message waits here."""
        account = self._accounts.get((envelope.origin, envelope.number, came_by))
        return account is not None and bool(account.open)

    def close(self, envelope: Envelope, came_by: str, what: str) -> None:
        """It waits for that no longer."""
        key = (envelope.origin, envelope.number, came_by)
        account = self._accounts.get(key)
        if account is not None and what in account.open:
            del account.open[what]
            self._touched[key] = None

    def owe(self, envelope: Envelope, frame: Owed) -> None:
        """The frame that brought a message is settled when its account is."""
        self._account(envelope, frame[0]).owed.append(frame)

    def sent(self, envelope: Envelope) -> None:
        """A message of our own has gone out."""
        self._account(envelope, OURS)

    def _account(self, envelope: Envelope, came_by: str) -> Account:
        key = (envelope.origin, envelope.number, came_by)
        self._touched[key] = None
        return self._accounts.setdefault(key, Account())

    def balance(self) -> list[Owed]:
        """Close the accounts in which nothing is left to happen; return the frames that are settled by that."""
        settled: list[Owed] = []
        for key in self._touched:
            account = self._accounts.get(key)
            if account is not None and not account.pending and not account.open:
                del self._accounts[key]
                settled += account.owed
                if key[2] == OURS:
                    self.stable.add(key[1])
        self._touched = {}
        return settled

    def news(self) -> int:
        """Return up to which number all messages of our own are stable, if that has not been told; otherwise 0."""
        if self.stable.upto == self.told:
            return 0
        self.told = self.stable.upto
        return self.told

    def unstable(self) -> list[int]:
        """Return the numbers of our own messages that went out and are not stable."""
        return [number for _, number, came_by in self._accounts if came_by == OURS]

    def __len__(self) -> int:
        return len(self._accounts)

    def fork(self) -> Ledger:
        """Return a ledger that goes on from here on its own."""
        twin = Ledger()
        twin.load(self.save())
        twin.told = self.told
        return twin

    def save(self) -> SavedLedger:
        """Return everything, for a snapshot. Equal states give equal bytes."""
        accounts = [
            (*key, Account(account.pending, dict(account.open), list(account.owed)))
            for key, account in sorted(self._accounts.items(), key=lambda item: item[0])
        ]
        return SavedLedger(NumberSet(self.stable.upto, dict(self.stable.beyond)), accounts)

    def load(self, saved: SavedLedger) -> None:
        """Become what ``save`` returned."""
        self.stable = saved.stable
        self._accounts = {(origin, number, came_by): account for origin, number, came_by, account in saved.accounts}
