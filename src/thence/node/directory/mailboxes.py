"""The mailboxes of a server: what waits in them, how much of it is in memory, and which of them are closed.

Rules:

* A mailbox *closes* when it has ``GREED`` times in memory of what is left there for all, or more messages than one may have.
  Where messages may be spilled (``storage.spill``), what is too much for memory goes to files, and the same holds for these.
* Whoever writes to a closed mailbox waits, at this server and at all others, which hear of it
  (``node.messages.closing_notices``). Nobody else does. However many mailboxes somebody fills who does not read them, a part is
  left for others.
* A mailbox opens again when it has half of what closes it: so others do not hear of it again and again.
* What is on its way when a mailbox closes is taken all the same, and counts apart, so that others have no less: it goes to
  files where there are some (``LATE_SPILLED_BYTES``), and otherwise takes one part in ``ON_WAY_SHARE`` of what all mailboxes
  have.
* If more than that comes, some server does not keep to it. The mailbox for which most came is *full*: then no more deliveries are
  taken.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from thence.errors import Busy
from thence.node.directory.closed_mailboxes import ClosedMailboxes
from thence.storage import mailbox as storage_mailbox
from thence.storage.mailbox import Batch, Mailbox, MailboxRoom, weight_of
from thence.storage.mailbox_spill import relieve
from thence.storage.rejections import Rejected
from thence.storage.spill import Spill
from thence.storage.spill_files import SpillFile

GREED: Final = 4
"""A mailbox may have so many times in memory of what is left there for all: alone four fifths, one of 20 a part in 20.25."""

ON_WAY_SHARE: Final = 4
"""What comes for closed mailboxes may take one part in so many of ``MAX_MAILBOXES_BYTES`` in memory, beside the whole of it."""

LATE_SPILLED_BYTES: Final = 1024 * 1024 * 1024
"""How many bytes that come for closed mailboxes go to files, where there is a store and mailboxes do not spill otherwise."""

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
        self.closed = ClosedMailboxes()
        self.late_spilled_bytes = LATE_SPILLED_BYTES
        """How much of what comes for closed mailboxes may go to files where mailboxes do not spill otherwise."""
        self.full = ""
        """The client whose mailbox is full, if there is one: then no more deliveries are taken."""
        self.refused: set[str] = set()
        """The clients for whom messages from here had to wait, since they have more than their part."""
        self._on_way = 0
        """How many bytes are on their way into mailboxes from here."""

    @property
    def most_bytes(self) -> int:
        """How many bytes all mailboxes may have in memory."""
        return min(storage_mailbox.MAX_MAILBOXES_BYTES, self.limit)

    @property
    def most_late_bytes(self) -> int:
        """How many bytes may be in memory that came for closed mailboxes, beside these."""
        return self.most_bytes // ON_WAY_SHARE

    @property
    def used(self) -> int:
        """How many bytes count towards ``most_bytes``."""
        return self.in_memory - self.closed.late

    # Messages in.

    def put(self, batch: Batch, names: Collection[str]) -> None:
        """Put a batch into the mailboxes of these clients."""
        size = weight_of(batch)
        self.in_memory += size * len(names)
        room = self._room()
        tight = len(self.closed) > 0 or 5 * self.used > 4 * self.most_bytes
        many = batch.to is not None and len(batch.to) > FEW_NAMED
        for name in names:
            # Whoever comes last for its messages would keep the names of all others, which no limit counts.
            one = msgspec.structs.replace(batch, to=(name,)) if many else batch
            crowded = self.all[name].put(one, room)
            if crowded or tight:
                self._look_at(name, self.all[name], size, crowded=crowded)

    def _room(self) -> MailboxRoom:
        """Return how much of a mailbox may be in memory now."""
        if self.spills and self.in_memory >= self.most_bytes // 2:
            return MailboxRoom(storage_mailbox.BLOCK_BATCHES, storage_mailbox.BLOCK_BYTES)
        return self.room

    def _look_at(self, name: str, mailbox: Mailbox, size: int, *, crowded: bool) -> None:
        """Spill from a mailbox or close it, if need be, now that it has so many bytes more."""
        if name in self.closed or mailbox.spilling or (self.spills and crowded):
            self._relieve(name, mailbox)
        if name not in self.closed and self._is_greedy(mailbox, size):
            self.closed.close(name, max(0, mailbox.in_memory - size))
            self._relieve(name, mailbox)
        self.closed.weigh(name, mailbox.in_memory)
        self._look_whether_full()

    def _is_greedy(self, mailbox: Mailbox, size: int) -> bool:
        """Whether a mailbox has more than its part, of memory or of files; ``size`` came last."""
        most, used, spill = self.most_bytes, self.used, self.spill
        if mailbox.in_memory > max(0, GREED * (most - used)) and (mailbox.in_memory > size or 2 * used >= most):
            return True
        if self.spills and spill is not None:
            part = GREED * (spill.limit_bytes - spill.bytes)
            return mailbox.spilling and (mailbox.spilled_bytes > part or bool(spill.full))
        return mailbox.full(self.room)

    def _may_open(self, mailbox: Mailbox) -> bool:
        """Whether a mailbox has half of what closes one, or less."""
        if 2 * mailbox.in_memory > GREED * (self.most_bytes - self.used):
            return False
        spill, room = self.spill, self.room
        if self.spills and spill is not None:
            part = GREED * (spill.limit_bytes - spill.bytes)
            return not mailbox.spilling or (2 * mailbox.spilled_bytes <= part and not spill.full)
        return not mailbox.full(MailboxRoom(room.messages // 2 + 1, room.bytes // 2 + 1))

    def _relieve(self, name: str, mailbox: Mailbox) -> None:
        """Write to files what is too much for memory; in a closed mailbox that is all that comes."""
        spill, late = self.spill, name in self.closed and not self.spills
        if spill is None or spill.bytes >= (self.late_spilled_bytes if late else spill.limit_bytes):
            return
        if late:
            mailbox.set_last_aside()
        mailbox.spilling = True
        before = mailbox.in_memory
        room = MailboxRoom(0, 0) if late else self._room()
        relieve(spill, name, mailbox, room, here=name in self.here or not self.spills)
        self.in_memory -= before - mailbox.in_memory

    def _look_whether_full(self) -> None:
        """See whether more came for closed mailboxes than may be on its way."""
        self.full = self.closed.latest() if self.closed.late >= self.most_late_bytes else ""

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
            if client in self.closed:
                self._look_at_closed(client, mailbox)
                self._look_whether_full()

    def _look_at_closed(self, client: str, mailbox: Mailbox) -> None:
        self.closed.weigh(client, mailbox.in_memory)
        if self._may_open(mailbox):
            self.closed.open(client)

    def drop(self, client: str, *, keep_files: bool) -> Mailbox | None:
        """Take away the mailbox of a client, and return it, if there is one."""
        mailbox = self.all.pop(client, None)
        if mailbox is not None:
            self.in_memory -= mailbox.in_memory
            if self.spill is not None and not keep_files:
                self.spill.done_with(mailbox.spilled)
        self.here.discard(client)
        self.closed.open(client)
        self._look_whether_full()
        return mailbox

    def look_for_room(self) -> None:
        """See which of the closed mailboxes may open, and write what could not be written before."""
        for name in list(self.closed):
            if self.spill is not None and self.spill.trouble:
                self._relieve(name, self.all[name])
            self._look_at_closed(name, self.all[name])
        self._look_whether_full()

    def reserve(self, batch: Batch) -> int:
        """Note that a batch from here is on its way; return how many bytes it will take in mailboxes of ours.

        ``Busy`` if one that it is for has more than its part. ``arrived`` is called when it is there.
        """
        all_mailboxes = self.all
        named = [(name, all_mailboxes[name]) for name in batch.to or () if name in all_mailboxes]
        if not named:
            return 0
        size, used, most = len(named) * weight_of(batch), self.used + self._on_way, self.most_bytes
        if 5 * (used + size) > 4 * most:  # Otherwise nobody can have too much, by ``GREED``.
            left = GREED * (most - used - size)
            for name, mailbox in named:
                if mailbox.in_memory + size > left and (mailbox.in_memory or 2 * used >= most):
                    self.refused.add(name)
                    if mailbox.in_memory and name not in self.closed:
                        self.closed.close(name, mailbox.in_memory)
                    raise Busy(f"the mailbox of {name!r} has more than its part of MAX_MAILBOXES_BYTES ({most})")
        self._on_way += size
        return size

    def arrived(self, size: int) -> None:
        """A batch for which there was room is in its mailboxes, or will not be."""
        self._on_way -= size

    @property
    def in_the_way(self) -> str:
        """The client whose mailbox to empty first, of those that are closed; nothing if none is."""
        return self.full or max(self.closed, key=lambda name: self.all[name].in_memory, default="")

    def why_closed(self, client: str) -> str:
        """Say why the mailbox of a client is closed."""
        mailbox, spill = self.all[client], self.spill
        if 2 * mailbox.in_memory > GREED * (self.most_bytes - self.used):
            limit = f"MAX_MAILBOXES_BYTES is {self.most_bytes}"
            return f"the mailbox of {client!r} is full: {self.used} bytes wait in memory in all mailboxes; {limit}"
        because = f": {spill.trouble or spill.usage}" if self.spills and spill is not None and mailbox.spilling else ""
        return f"the mailbox of {client!r} is full{because}"

    @property
    def why_full(self) -> str:
        """Say whose mailbox is full, and why, if one is."""
        return self.why_closed(self.full) if self.full else ""

    def spilled(self) -> list[SpillFile]:
        """Return the files that mailboxes need."""
        return [file for mailbox in self.all.values() for file in mailbox.spilled]

    def restore(self, all_mailboxes: dict[str, Mailbox], closed: Collection[str]) -> None:
        """Go on with the mailboxes of a snapshot, of which these were announced as closed."""
        self.all = all_mailboxes
        for mailbox in all_mailboxes.values():
            mailbox.weigh()
        self.in_memory = sum([mailbox.in_memory for mailbox in all_mailboxes.values()])
        for name, mailbox in all_mailboxes.items():
            if name in closed or self._is_greedy(mailbox, 0):
                self.closed.close(name, mailbox.in_memory)
        if self.closed:  # Nobody has noted how much of it came late. If none of it had, nothing would be left for others.
            most = max(self.closed, key=lambda name: all_mailboxes[name].in_memory)
            late = max(0, min(self.used - 4 * self.most_bytes // 5, self.most_late_bytes - 1, all_mailboxes[most].in_memory))
            self.closed.close(most, all_mailboxes[most].in_memory - late)
            self.closed.weigh(most, all_mailboxes[most].in_memory)
