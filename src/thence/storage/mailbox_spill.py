"""Mailboxes that are too large for memory: their messages go to files (``storage.spill``), and readers find them in both.

``storage.mailbox`` says which messages go, and has the list of files. What reads a mailbox never brings messages back into it.
"""

from __future__ import annotations

import logging

from thence.errors import StoreFull
from thence.storage.mailbox import Batch, Mailbox, MailboxRoom
from thence.storage.spill import BlockReader, Spill

log = logging.getLogger("thence.spill")


def relieve(spill: Spill, client: str, mailbox: Mailbox, room: MailboxRoom, *, here: bool) -> None:
    """Write messages to files until those in memory fit, or until that cannot be done now: ``spill.full`` says why.

    If the receiver is not ``here``, all are written that make a block.
    """
    before, spill.trouble = spill.trouble, ""
    if not here:
        mailbox.set_aside()
    while (not here or mailbox.crowded(room)) and (block := mailbox.next_block()):
        try:
            mailbox.written(block, spill.write(client, block, mailbox.spilled))
        except StoreFull as error:
            spill.trouble = str(error)
            if not before:
                log.warning("messages for %s stay in memory: %s", client, error)
            return


class MailboxReader:
    """Where one receiver is in its mailbox: what it gets to next, from memory or from a file."""

    def __init__(self, spill: Spill | None, client: str) -> None:
        """``client`` has a mailbox; ``spill`` has the files of it, if there can be some."""
        self._blocks = BlockReader(spill, client, Batch)
        self._block: dict[int, Batch] = {}

    def at(self, mailbox: Mailbox, first: int, done: int = 0) -> tuple[int, Batch]:
        """Return the batch that begins at a position that is in the mailbox, and that position.

        Where messages up to ``done`` are not wanted, it may be one further on, but none that has others.
        """
        batch = mailbox.waiting.get(first) or mailbox.unwritten.get(first)
        if batch is not None:
            return first, batch
        if first not in self._block:
            wanted = min(max(first, done + 1), mailbox.spilled[-1].last)
            self._block = self._blocks.read(mailbox.spilled, wanted)
            first = first if first in self._block else next(iter(self._block))
        batch = self._block[first]
        if first + batch.count == self._blocks.next:
            self._block = {}  # It was the last one: somebody who has got everything, and stays, should keep nothing.
        return first, batch

    def behind(self, mailbox: Mailbox, position: int) -> tuple[int, Batch]:
        """Return the first batch with messages behind a position, and the position of its own first message."""
        first = mailbox.front
        while True:
            first, batch = self.at(mailbox, first, position)
            if first + batch.count - 1 > position:
                return first, batch
            first += batch.count
