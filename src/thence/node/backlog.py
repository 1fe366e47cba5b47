"""What becomes of messages and frames that wait for long: how many stay in memory, where the rest goes, and what snapshots hold.

Rules:

* Without ``spill_after_bytes``, messages wait in memory, and a full mailbox stops deliveries. With it, what is too much for
  memory goes to files of the store (``storage.spill``), and only when these may hold no more a mailbox is full. The same holds
  for frames that wait for peers (``storage.frame_spill``), and for what clients may send then.
* What is spilled is synced before a snapshot that names it, and deleted after one that does not.
* The most that the store may hold is shared out once: one part for the log and its snapshots, one for what is spilled. So
  acknowledgements, which make room in the one, never wait for room in the other.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from thence.core.member.member import Member
from thence.core.wire.messages import Envelope
from thence.node.driver.driver import Driver
from thence.storage import mailbox
from thence.storage.frame_spill import Outgoing, SavedFiles
from thence.storage.mailbox import MailboxRoom
from thence.storage.spill import Spill, sync_files
from thence.storage.spill_files import SpillFile
from thence.storage.store import MemoryStore, Store

SPILL_SHARE: Final = 2
"""Of what the store may hold, one part in so many is for what is spilled, where that may be."""

MAILBOX_SHARE: Final = 8
"""Of what the log may hold, one part in so many is the most of a mailbox that stays in memory: it is in each snapshot, too."""

RELEASE_WITHIN_S: Final = 10.0
"""How long a file of messages that everybody is done with may stay before a snapshot is made that lets it go."""

RELEASE_AGAIN_S: Final = 1.0
"""How long after one such snapshot, which may have failed for want of room, the next one is made at the earliest."""


class BacklogLimits(NamedTuple):
    """How much may be where; None: no limit, or that nothing may."""

    log_bytes: int | None
    spilled_bytes: int | None
    in_memory: MailboxRoom | None
    """Of each mailbox, where the rest is spilled."""


def share_out(max_store_bytes: int | None, spill_after_bytes: int | None) -> BacklogLimits:
    """Share out what the store may hold."""
    if spill_after_bytes is None:
        return BacklogLimits(max_store_bytes, None, None)
    if max_store_bytes is None:
        return BacklogLimits(None, None, MailboxRoom(mailbox.SPILL_AFTER_MESSAGES, spill_after_bytes))
    spilled = max_store_bytes // SPILL_SHARE
    logged = max_store_bytes - spilled
    return BacklogLimits(
        logged, spilled, MailboxRoom(mailbox.SPILL_AFTER_MESSAGES, min(spill_after_bytes, logged // MAILBOX_SHARE))
    )


class Backlog:
    """What one node has spilled, from one snapshot to the next."""

    outgoing: Outgoing | None = None
    """What waits for peers, where there is a store on disk."""

    def __init__(self, store: Store | MemoryStore, limits: BacklogLimits) -> None:
        """Without a store on disk, nothing can be spilled."""
        self.spill = None if isinstance(store, MemoryStore) else Spill(store.folder, store.identity, limits.spilled_bytes)
        self._unneeded = 0
        """How many files the snapshot that is being written does not need."""
        self._asked_at = -math.inf
        """When we last said that a snapshot should be made."""

    def keep_frames_of(self, member: Member, driver: Driver) -> None:
        """Keep frames of a member, too, which ``driver`` steps."""
        if self.spill is not None:
            self.outgoing = Outgoing(member, self.spill, driver.step)
            driver.after_step = self.outgoing.look_after

    def restore(self, messages: list[SpillFile], frames: SavedFiles) -> None:
        """Go on with the files that a snapshot names."""
        if self.spill is not None and self.outgoing is not None:
            self.outgoing.restore(frames)
            self.spill.restore([*messages, *self.outgoing.files()])

    def write_frames(self) -> None:
        """Keep what waits for peers within memory."""
        if self.outgoing is not None:
            self.outgoing.write()

    def try_frames_again(self) -> None:
        """Keep it so, and bring back what they can have, where that did not work before."""
        if self.outgoing is not None:
            self.outgoing.try_again()

    def messages(self) -> Iterator[Envelope]:
        """Give the messages that wait for peers in files."""
        return iter(()) if self.outgoing is None else self.outgoing.envelopes()

    def snapshot_begun(self) -> SavedFiles:
        """A snapshot says what mailboxes need at this moment; return what the member needs."""
        saved = [] if self.outgoing is None else self.outgoing.saved()
        self._unneeded = 0 if self.spill is None else self.spill.done
        return saved

    async def make_durable(self) -> None:
        """Sync what the snapshot names."""
        if self.spill is not None and (unsynced := self.spill.take_unsynced()):
            await asyncio.to_thread(sync_files, unsynced)

    def snapshot_durable(self) -> None:
        """Delete what only an earlier snapshot needed."""
        if self.spill is not None:
            self.spill.delete_done(self._unneeded)

    def release_due(self) -> bool:
        """Whether a snapshot should be made because there is much that it would let go."""
        return self.spill is not None and self.spill.release_due and self._ask(RELEASE_AGAIN_S)

    def release_overdue(self) -> bool:
        """Whether it should because there is something for long; to be asked now and then."""
        return self.spill is not None and self.spill.done > 0 and self._ask(RELEASE_WITHIN_S)

    def _ask(self, after_s: float) -> bool:
        now = time.monotonic()
        if now - self._asked_at < after_s:
            return False
        self._asked_at = now
        return True
