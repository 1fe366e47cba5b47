"""The mailbox of one client at its server: what it has sent, and what waits for it; a state, without I/O.

Messages wait in three parts, the oldest first: ``waiting``, in memory; ``spilled``, in files (``storage.spill``), if there are
more than memory should hold; and ``unwritten``, in memory behind those files.

Rules:

* Positions count the messages of a mailbox from 1, without holes, through all three parts. What a client is told depends on
  positions only, never on where a message was kept.
* A mailbox that spills goes on to do so until everything in its files is acknowledged. Then all of it is in memory again.
* Of a mailbox whose receiver is away, less than a block stays in memory once it spills. Who is there, and only behind, finds what
  came first and what comes last in memory, as long as there is room.
* A file is done with as a whole: its messages count as waiting until the last of them is acknowledged.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from thence.core.epochs.epoch import NEVER_MET, Claim, Epoch
from thence.core.transport.spill_queue import cut_block
from thence.storage import rejections
from thence.storage.rejections import Rejected
from thence.storage.spill_files import SpillFiles, block_weight, split_done

MAX_MAILBOX_MESSAGES: Final = 1_000_000
"""How many messages may wait for one client in memory before the server takes no more deliveries, for anyone."""

MAX_MAILBOX_BYTES: Final = 1024 * 1024 * 1024
"""How many bytes may."""

MAX_MAILBOXES_BYTES: Final = 1024 * 1024 * 1024
"""How many bytes may wait in memory for all clients of a server together; from half of it on mailboxes that may spill keep little
there. A message for several clients counts for each of them, as it does in a snapshot."""

SPILL_AFTER_MESSAGES: Final = 32_768
"""How many messages wait for one client in memory where more are spilled: more than a client that is there takes at a time."""

SPILL_AFTER_BYTES: Final = 8 * 1024 * 1024
"""How many bytes do."""

BLOCK_BATCHES: Final = 1_024
"""How many batches are written to a file together, unless they have ``BLOCK_BYTES`` before."""

BLOCK_BYTES: Final = 256 * 1024
"""How many bytes are written to a file together."""

MIN_BATCH_BYTES: Final = 512
"""What a batch counts for in limits by bytes, at least: about what it takes in memory beside its messages. So what mailboxes
really take is at most twice what they count, however small the messages are."""

MIN_MESSAGE_BYTES: Final = 16
"""What each of its messages counts for, at least."""

KEEP_FENCED: Final = 8
"""Of how many epochs of earlier programs a mailbox knows what was accepted in them."""

HOME: Final = "home"
"""What the streams between a client and its server are called where their numbers are compared (``core.epochs.epoch``)."""

PASS_BY_MESSAGES: Final = 1_024
"""How many messages a program may have in hand that were never in its mailbox."""

PASS_BY_BYTES: Final = 4 * 1024
"""How many bytes a batch of them may have."""


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Messages ``first`` to ``first + count - 1`` of one client, for the same recipients."""

    sender: str
    first: int
    count: int
    to: tuple[str, ...] | None
    topic: str | None
    messages: bytes

    @property
    def weight(self) -> int:
        """What it counts for in limits by bytes."""
        return weight_of(self)


class ReadBatch(Batch, frozen=True, array_like=True, gc=False, tag=1):
    """A batch as it was read: its messages are a part of what brought it, and not copied out of it."""

    messages: memoryview  # type: ignore[assignment]


def weight_of(batch: Batch) -> int:
    """Return what a batch counts for in limits by bytes: with every message, so quicker than the property."""
    return max(len(batch.messages), MIN_BATCH_BYTES, MIN_MESSAGE_BYTES * batch.count)


class MailboxMet(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """A program and the mailbox of its client have met, and this is what the mailbox shows from here on
    (``node.directory.homes``)."""

    client: str
    since: int
    claim: Claim
    fenced: tuple[str, ...] = ()
    """The ids of epochs of earlier programs, which nobody may go on with."""
    sent: int = 0
    """The number of the last message that was accepted in these."""


class MailboxRoom(NamedTuple):
    """How much of a mailbox may be in memory."""

    messages: int
    bytes: int


NOTHING_UNWRITTEN: Final[dict[int, Batch]] = {}
"""What most mailboxes have: one for all, since a million clients have a million mailboxes. Whoever adds to it makes another
one."""


NOTHING_REJECTED: Final[list[Rejected]] = []
"""The same."""


NOTHING_FENCED: Final[dict[str, int]] = {}
"""The same."""


class Mailbox(msgspec.Struct, array_like=True):
    """The messages that wait for one client, in memory and in files, and what the client has sent."""

    temporary: bool = False
    sent: int = 0
    """The number of the last message that was submitted for it, or rejected."""
    position: int = 0
    """The position of the last message that was put in."""
    acknowledged: int = 0
    waiting: dict[int, Batch] = msgspec.field(default_factory=dict)
    """Batches with messages that are not acknowledged, by the position of the first message in each."""
    bytes: int = 0
    """Of all three parts, by ``Batch.weight``."""
    front: int = 1
    """The position of the oldest batch's first message."""
    since: int = 0
    """The number of the notice by which the client got its name; one that was forgotten and comes again has another mailbox."""
    spilling: bool = False
    """Whether new messages go behind what is in files."""
    spilled: SpillFiles = ()
    spilled_messages: int = 0
    spilled_bytes: int = 0
    unwritten: dict[int, Batch] = msgspec.field(default_factory=lambda: NOTHING_UNWRITTEN)
    unwritten_bytes: int = 0
    rejected: list[Rejected] = msgspec.field(default_factory=lambda: NOTHING_REJECTED)
    """What its client may not have heard yet: acceptance of a later message must not pass for acceptance of these."""
    entry: str = ""
    """By which entry of the access file its client last came in; nothing if that is not known (``server.revocation``)."""

    id: int = 0
    """Which mailbox this is, of all that ever were; 0: it was made by a version that drew no ids."""
    claim: Claim | None = None
    """What it shows to its client, but for its reach; None: it has never met a program that knows epochs, or only its first."""
    reach: int = -1
    """Its position at the first start of the server since it has this claim; below 0: there was none."""
    fenced: dict[str, int] = msgspec.field(default_factory=lambda: NOTHING_FENCED)
    """Ids of epochs of earlier programs, the newest last, and the number of the last message that was accepted in each."""

    @property
    def shown(self) -> Claim:
        """What it shows to its client."""
        claim = self.claim
        if claim is None:
            claim = NEVER_MET.agree(Epoch(1, f"{self.id:016x}")) if self.id else NEVER_MET
        return claim if self.reach < 0 else claim.started({HOME: self.reach})

    def started(self) -> None:
        """The server has started again."""
        if self.reach < 0:
            self.reach = self.position

    def met(self, met: MailboxMet) -> None:
        """A program has met it."""
        self.claim, self.reach = met.claim, -1
        if met.fenced:
            fenced = {**self.fenced, **dict.fromkeys(met.fenced, met.sent)}
            self.fenced = dict(list(fenced.items())[-KEEP_FENCED:])

    def reject(self, rejected: Rejected) -> None:
        """Note that messages were rejected (``storage.rejections``)."""
        self.rejected = self.rejected or []
        rejections.note(self.rejected, rejected)
        self.sent = max(self.sent, rejected.last)

    @property
    def in_memory(self) -> int:
        """How many bytes are not in files."""
        return self.bytes - self.spilled_bytes

    def weigh(self) -> None:
        """Count all bytes anew: an earlier version, which made the snapshot that this comes from, counted otherwise."""
        self.unwritten_bytes = sum([batch.weight for batch in self.unwritten.values()])
        self.spilled_bytes = sum([file.weight for file in self.spilled])
        in_memory = sum([batch.weight for batch in self.waiting.values()]) + self.unwritten_bytes
        self.bytes = in_memory + self.spilled_bytes

    def put(self, batch: Batch, room: MailboxRoom) -> bool:
        """Add messages at the end; return whether there are more in memory than there is room for, or were before."""
        before, size = self.position, weight_of(batch)
        self.position = last = before + batch.count
        self.bytes = total = self.bytes + size
        if self.spilling:
            if self.unwritten:
                self.unwritten[before + 1] = batch
            else:
                self.unwritten = {before + 1: batch}
            self.unwritten_bytes += size
            return True
        self.waiting[before + 1] = batch
        return last - self.acknowledged >= room[0] or total >= room[1]

    def pass_by(self, batch: Batch) -> bool:
        """Count messages as put in and taken out, if they are few and short enough to need no limit of their own; say whether."""
        behind = self.position + batch.count
        if (
            self.waiting
            or len(batch.messages) > PASS_BY_BYTES
            or behind - self.acknowledged >= min(PASS_BY_MESSAGES, MAX_MAILBOX_MESSAGES)
        ):
            return False
        self.position = behind
        self.front = behind + 1
        return True

    def acknowledge(self, upto: int) -> SpillFiles:
        """Forget the batches that are done with; return the files that are."""
        done = self.acknowledged = max(self.acknowledged, min(upto, self.position))
        self._forget(done)
        return self._acknowledge_spilled(done) if self.spilling else ()

    def _forget(self, done: int) -> None:
        front, waiting = self.front, self.waiting
        while front <= done:
            batch = waiting.get(front)
            if batch is None or front + batch.count - 1 > done:
                break  # It is in a file, or not all of it is done with.
            del waiting[front]
            front += batch.count
            self.bytes -= weight_of(batch)
        self.front = front

    def _acknowledge_spilled(self, done: int) -> SpillFiles:
        gone, self.spilled = split_done(self.spilled, done)
        if gone:
            weight = sum([file.weight for file in gone])
            self.front = gone[-1].last + 1
            self.bytes -= weight
            self.spilled_bytes -= weight
            self.spilled_messages -= gone[-1].last - gone[0].first + 1
        if not self.spilled:
            self.waiting |= self.unwritten
            self.unwritten, self.unwritten_bytes, self.spilling = NOTHING_UNWRITTEN, 0, False
            self._forget(done)
        return gone

    def set_aside(self) -> None:
        """Let everything in memory be written, as far as no files are before it."""
        if self.waiting and not self.spilled:
            # What was set aside before, and could not be written, is older than what has come since.
            self.unwritten, self.waiting = dict(sorted((self.waiting | self.unwritten).items())), {}
            self.unwritten_bytes = self.bytes

    def set_last_aside(self) -> None:
        """Let what came last be written, and all that comes behind it."""
        if not self.spilling and self.waiting:
            self.spilling = True
            position, batch = self.waiting.popitem()
            self.unwritten, self.unwritten_bytes = {position: batch}, weight_of(batch)

    def full(self, room: MailboxRoom) -> bool:
        """Whether there are more messages, wherever they are, than there is room for."""
        return self.position - self.acknowledged >= room.messages or self.bytes >= room.bytes

    def crowded(self, room: MailboxRoom) -> bool:
        """Whether there are more messages in memory than there is room for."""
        in_memory = self.position + 1 - self.front - self.spilled_messages
        return in_memory >= room.messages or self.in_memory >= room.bytes

    def next_block(self) -> list[tuple[int, Batch]]:
        """Return the oldest batches that are not written, if there are enough of them to be."""
        if len(self.unwritten) < BLOCK_BATCHES and self.unwritten_bytes < BLOCK_BYTES:
            return []
        return cut_block(self.unwritten.items(), BLOCK_BATCHES, BLOCK_BYTES)

    def written(self, block: list[tuple[int, Batch]], files: SpillFiles) -> None:
        """Note that the oldest unwritten batches are in files now, which are all of its files."""
        for position, _ in block:
            del self.unwritten[position]
        size, (position, batch) = block_weight(block), block[-1]
        self.spilled = files
        self.spilled_messages += position + batch.count - block[0][0]
        self.spilled_bytes += size
        self.unwritten_bytes -= size
