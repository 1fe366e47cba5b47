"""The mailboxes of a server: what waits in them, how much of it is in memory, and which of them are full.

Rules:

* A mailbox that has more messages than its room in memory is full. Where messages may be spilled (``storage.spill``), what is too
  much goes to files instead, and the mailbox is full when these may not hold more.
* A mailbox is full, too, if all mailboxes together have too much in memory when it gets a message. Before that, those that may
  spill do so earlier.
* While a mailbox is full, no more deliveries are taken.
* So that it does not come to that, whoever writes from here to a mailbox that has ``GREED`` times of what is left for all waits,
  and nobody else does. However many mailboxes somebody fills who does not read them, a part is left for others.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from thence.errors import Busy
from thence.storage import mailbox as storage_mailbox
from thence.storage.mailbox import Batch, Mailbox, MailboxRoom, weight_of
from thence.storage.mailbox_spill import relieve
from thence.storage.rejections import Rejected
from thence.storage.spill import Spill
from thence.storage.spill_files import SpillFile

GREED: Final = 4
"""A mailbox may have so many times in memory of what is left there for all: alone four fifths, one of 20 a part in 20.25."""

FEW_NAMED: Final = 4
"""To how many a batch is kept together with the names of all: it counts for more than these take (``MIN_BATCH_BYTES``)."""


class Mailboxes:
    """The mailboxes of one server, by client."""

    def __init__(
        self, all_mailboxes: dict[str, Mailbox], spill: Spill | None = None, spill_beyond: MailboxRoom | None = None
    ) -> None:
        """``spill`` has the files of a store; ``spill_beyond`` says how much of a mailbox stays in memory, if the rest may go."""
        self.all = all_mailboxes
        self.spill = spill
        self.spills = spill is not None and spill_beyond is not None
        """Whether mailboxes may spill. If not, those that did before only become empty."""
        in_memory = MailboxRoom(storage_mailbox.MAX_MAILBOX_MESSAGES, storage_mailbox.MAX_MAILBOX_BYTES)
        self.room = in_memory if spill is None or spill_beyond is None else spill_beyond
        """How much of a mailbox may be in memory."""
        self.here: set[str] = set()
        """The clients that take messages now; others are away, and little of what waits for them needs to be in memory."""
        self.in_memory = 0
        """How many bytes all mailboxes have in memory."""
        self.limit = 2**62
        """How many bytes a budget allows them there."""
        self.full = ""
        """The client whose mailbox is full, if there is one: then no more deliveries are taken."""
        self._full: dict[str, None] = {}
        self.refused: set[str] = set()
        """The clients for whom messages from here had to wait, since they have more than their part."""
        self._on_way = 0
        """How many bytes are on their way into mailboxes from here."""

    @property
    def most_bytes(self) -> int:
        """How many bytes all mailboxes may have in memory."""
        return min(storage_mailbox.MAX_MAILBOXES_BYTES, self.limit)

    # Messages in.

    def put(self, batch: Batch, names: Collection[str]) -> None:
        """Put a batch into the mailboxes of these clients."""
        self.in_memory += weight_of(batch) * len(names)
        room = self._room()
        many = batch.to is not None and len(batch.to) > FEW_NAMED
        for name in names:
            # Whoever comes last for its messages would keep the names of all others, which no limit counts.
            one = msgspec.structs.replace(batch, to=(name,)) if many else batch
            if self.all[name].put(one, room):
                self._crowded(name, self.all[name])

    def _room(self) -> MailboxRoom:
        """Return how much of a mailbox may be in memory now."""
        if self.in_memory < self.most_bytes // 2:
            return self.room
        if self.spills:
            return MailboxRoom(storage_mailbox.BLOCK_BATCHES, storage_mailbox.BLOCK_BYTES)
        return self.room if self.in_memory < self.most_bytes else MailboxRoom(0, 0)

    def _crowded(self, name: str, mailbox: Mailbox) -> None:
        """A mailbox has no room in memory."""
        if self.spill is not None and (self.spills or mailbox.spilling):
            mailbox.spilling = True
            self._relieve(name, mailbox, self.spill)
        if self._is_full(mailbox):
            self._full[name] = None
            self.full = self.full or name

    def _relieve(self, name: str, mailbox: Mailbox, spill: Spill) -> None:
        before = mailbox.in_memory
        relieve(spill, name, mailbox, self._room(), here=name in self.here or not self.spills)
        self.in_memory -= before - mailbox.in_memory

    def _is_full(self, mailbox: Mailbox) -> bool:
        if self.in_memory >= self.most_bytes and mailbox.in_memory:
            return True
        if self.spills and self.spill is not None:
            return mailbox.spilling and bool(self.spill.full)
        return mailbox.full(self.room)

    # Messages out.

    def sent(self, client: str, upto: int) -> int:
        """Note that messages of a client were submitted; return up to which number they were before."""
        mailbox = self.all.get(client)
        if mailbox is None:
            return 0  # It has left meanwhile.
        before, mailbox.sent = mailbox.sent, max(mailbox.sent, upto)
        return before

    def unsend(self, client: str, upto: int) -> None:
        """Take back what ``sent`` noted: they were not submitted after all."""
        if client in self.all:
            self.all[client].sent = upto

    def reject(self, rejected: Rejected) -> None:
        """Note that messages of a client were rejected."""
        mailbox = self.all.get(rejected.client)
        if mailbox is not None:  # It may have left meanwhile.
            mailbox.reject(rejected)

    # Room.

    def acknowledge(self, client: str, upto: int) -> None:
        """A client has done with its messages up to a position."""
        mailbox = self.all.get(client)
        if mailbox is not None:
            before = mailbox.in_memory
            gone = mailbox.acknowledge(upto)
            self.in_memory -= before - mailbox.in_memory
            if gone and self.spill is not None:
                self.spill.done_with(gone)
            if self._full:
                self.look_for_room()

    def drop(self, client: str, *, keep_files: bool) -> Mailbox | None:
        """Take away the mailbox of a client, and return it, if there is one."""
        mailbox = self.all.pop(client, None)
        if mailbox is not None:
            self.in_memory -= mailbox.in_memory
            if self.spill is not None and not keep_files:
                self.spill.done_with(mailbox.spilled)
        self.here.discard(client)
        self._full.pop(client, None)
        self.full = next(iter(self._full), "")
        return mailbox

    def look_for_room(self) -> None:
        """See which of the mailboxes that were full still are, and write what could not be written before."""
        if self.spill is not None and self.spill.trouble:
            for name in self._full:
                self._relieve(name, self.all[name], self.spill)
        self._full = {name: None for name in self._full if self._is_full(self.all[name])}
        self.full = next(iter(self._full), "")

    def reserve(self, batch: Batch) -> int:
        """Note that a batch from here is on its way; return how many bytes it will take in mailboxes of ours.

        ``Busy`` if one that it is for has more than its part. ``arrived`` is called when it is there.
        """
        all_mailboxes = self.all
        named = [(name, all_mailboxes[name]) for name in batch.to or () if name in all_mailboxes]
        if not named:
            return 0
        size, used, most = len(named) * weight_of(batch), self.in_memory + self._on_way, self.most_bytes
        if 5 * (used + size) > 4 * most:  # Otherwise nobody can have too much, by ``GREED``.
            left = GREED * (most - used - size)
            for name, mailbox in named:
                if mailbox.in_memory + size > left and (mailbox.in_memory or 2 * used >= most):
                    self.refused.add(name)
                    raise Busy(f"the mailbox of {name!r} has more than its part of MAX_MAILBOXES_BYTES ({most})")
        self._on_way += size
        return size

    def arrived(self, size: int) -> None:
        """A batch for which there was room is in its mailboxes, or will not be."""
        self._on_way -= size

    def is_full(self, client: str) -> bool:
        """Whether the mailbox of a client is full."""
        return client in self._full

    @property
    def in_the_way(self) -> str:
        """The client whose mailbox to empty first, where a full one stops deliveries; nothing if none does."""
        if self.full and self.in_memory >= self.most_bytes:
            return max(self.all, key=lambda name: self.all[name].in_memory)
        return self.full

    @property
    def why_full(self) -> str:
        """Say whose mailbox is full, and why, if one is."""
        if not self.full:
            return ""
        if self.in_memory >= self.most_bytes:
            limit = f"MAX_MAILBOXES_BYTES is {self.most_bytes}"
            return f"{self.in_memory} bytes wait in memory in all mailboxes, most of them for {self.in_the_way!r}; {limit}"
        because = f": {self.spill.full}" if self.spills and self.spill is not None else ""
        return f"the mailbox of {self.full!r} is full{because}"

    def spilled(self) -> list[SpillFile]:
        """Return the files that mailboxes need."""
        return [file for mailbox in self.all.values() for file in mailbox.spilled]

    def restore(self, all_mailboxes: dict[str, Mailbox]) -> None:
        """Go on with the mailboxes of a snapshot."""
        self.all = all_mailboxes
        for mailbox in all_mailboxes.values():
            mailbox.weigh()
        self.in_memory = sum([mailbox.in_memory for mailbox in all_mailboxes.values()])
        self._full = {name: None for name, mailbox in all_mailboxes.items() if self._is_full(mailbox)}
        self.full = next(iter(self._full), "")
