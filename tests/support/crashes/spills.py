"""Mailboxes for tests: small limits, what is kept in a mailbox, in memory or in files, and mistakes to plant in how files come
and go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from thence.node import backlog
from thence.storage import mailbox as mailbox_module
from thence.storage.mailbox import Batch, Mailbox
from thence.storage.mailbox_spill import MailboxReader
from thence.storage.spill import Spill
from thence.storage.spill_files import SpillFile


def kept_in(mailbox: Mailbox, spill: Spill | None, client: str) -> Iterator[tuple[int, Batch]]:
    """Give every batch that is kept in a mailbox, with the position of its first message, as its receiver would read them."""
    reader = MailboxReader(spill, client)
    first = mailbox.front
    while first <= mailbox.position:
        first, batch = reader.at(mailbox, first)
        yield first, batch
        first += batch.count


@contextmanager
def small_blocks(messages: int = 4, batches: int = 2) -> Iterator[None]:
    """Let mailboxes spill behind so many messages, so many batches at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mailbox_module, "SPILL_AFTER_MESSAGES", messages)
        patch.setattr(mailbox_module, "BLOCK_BATCHES", batches)
        patch.setattr(mailbox_module, "MIN_BATCH_BYTES", 0)
        patch.setattr(mailbox_module, "MIN_MESSAGE_BYTES", 0)
        yield


def forget_to_sync(patch: pytest.MonkeyPatch) -> None:
    """Plant a mistake: a snapshot names files that may not be on the disk yet."""
    patch.setattr(backlog, "sync_files", lambda _: None)


def delete_too_soon(patch: pytest.MonkeyPatch) -> None:
    """Plant a mistake: files go while the last snapshot still names them."""
    real = Spill.done_with

    def too_soon(spill: Spill, gone: Iterable[SpillFile]) -> None:
        real(spill, gone)
        spill.delete_done(spill.done)

    patch.setattr(Spill, "done_with", too_soon)
