"""The box of one client at its server: what it has sent, and what waits for it; a state, without I/O.

Letters wait in three parts, the oldest first: ``waiting``, in memory; ``spilled``, in files (``runtime.spill``), if there are
more than memory should hold; and ``unwritten``, in memory behind those files.

Rules:

* Positions count the letters of a box from 1, without holes, through all three parts. What a client is told depends on positions
  only, never on where a letter was kept.
* A box that spills goes on to do so until everything in its files is acknowledged. Then all of it is in memory again.
* Of a box whose receiver is away, less than a block stays in memory once it spills. Who is there, and only behind, finds what
  came first and what comes last in memory, as long as there is room.
* A file is done with as a whole: its letters count as waiting until the last of them is acknowledged.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from thence.core.epochs import NEVER_MET, Claim, Epoch
from thence.runtime import rejections
from thence.runtime.rejections import Rejected

MAX_BOX_LETTERS: Final = 1_000_000
"""How many letters may wait for one client in memory before the server takes no more deliveries, for anyone."""

MAX_BOX_BYTES: Final = 1024 * 1024 * 1024
"""How many bytes may."""

MAX_BOXES_BYTES: Final = 1024 * 1024 * 1024
"""How many bytes may wait in memory for all clients of a server together; from half of it on boxes that may spill keep little
there. A letter for several clients counts for each of them, as it does in a snapshot."""

SPILL_AFTER_LETTERS: Final = 32_768
"""How many letters wait for one client in memory where more are spilled: more than a client that is there takes at a time."""

SPILL_AFTER_BYTES: Final = 8 * 1024 * 1024
"""How many bytes do."""

BLOCK_BUNDLES: Final = 1_024
"""How many bundles are written to a file together,"""

BLOCK_BYTES: Final = 256 * 1024
"""unless they have so many bytes before."""

MIN_BUNDLE_BYTES: Final = 512
"""What a bundle counts for in limits by bytes, at least: about what it takes in memory beside its letters. So what boxes really
take is at most twice what they count, however small the letters are."""

MIN_LETTER_BYTES: Final = 16
"""What each of its letters counts for, at least."""

KEEP_FENCED: Final = 8
"""Of how many epochs of earlier programs a mailbox knows what was accepted in them."""

HOME: Final = "home"
"""What the streams between a client and its server are called where their numbers are compared (``core.epochs``)."""

PASS_BY_LETTERS: Final = 1_024
"""How many letters a program may have in hand that were never in its box,"""

PASS_BY_BYTES: Final = 4 * 1024
"""and how long a bundle of them may be."""


class Bundle(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Letters ``first`` to ``first + count - 1`` of one client, for the same recipients."""

    sender: str
    first: int
    count: int
    to: tuple[str, ...] | None
    topic: str | None
    letters: bytes


class ReadBundle(Bundle, frozen=True, array_like=True, gc=False, tag=1):
    """A bundle as it was read: its letters are a part of what brought it, and not copied out of it."""

    letters: memoryview  # type: ignore[assignment]


def weight_of(bundle: Bundle) -> int:
    """Return what a bundle counts for in limits by bytes."""
    return max(len(bundle.letters), MIN_BUNDLE_BYTES, MIN_LETTER_BYTES * bundle.count)


class MailboxMet(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """A program and the mailbox of its client have met, and this is what the mailbox shows from here on (``runtime.homes``)."""

    client: str
    since: int
    claim: Claim
    fenced: tuple[str, ...] = ()
    """The ids of epochs of earlier programs, which nobody may go on with."""
    sent: int = 0
    """The number of the last letter that was accepted in these."""


class Room(NamedTuple):
    """How much of a box may be in memory."""

    letters: int
    bytes: int


class SpillFile(msgspec.Struct, array_like=True):
    """A file with letters of one box, as far as it counts: what is behind ``end`` was never part of a snapshot."""

    number: int
    marker: bytes
    """What its blocks begin with (``runtime.segments``)."""
    start: int
    """Where its first block begins."""
    end: int
    first: int
    """The position of its first letter."""
    last: int
    letters_bytes: int


NOTHING_UNWRITTEN: Final[dict[int, Bundle]] = {}
"""What most boxes have: one for all, since a million clients have a million boxes. Whoever adds to it makes another one."""


NOTHING_REJECTED: Final[list[Rejected]] = []
"""The same."""


NOTHING_FENCED: Final[dict[str, int]] = {}
"""The same."""


class Box(msgspec.Struct, array_like=True):
    """See the module's text."""

    temporary: bool = False
    sent: int = 0
    """The number of the last letter that was submitted for it, or rejected."""
    position: int = 0
    """The position of the last letter that was put in."""
    acknowledged: int = 0
    waiting: dict[int, Bundle] = msgspec.field(default_factory=dict)
    """Bundles with letters that are not acknowledged, by the position of the first letter in each."""
    bytes: int = 0
    """Of all three parts, by ``weight_of``."""
    front: int = 1
    """The position of the oldest bundle's first letter."""
    since: int = 0
    """The number of the notice by which the client got its name; one that was forgotten and comes again has another box."""
    spilling: bool = False
    """Whether new letters go behind what is in files."""
    spilled: tuple[SpillFile, ...] = ()
    spilled_letters: int = 0
    spilled_bytes: int = 0
    unwritten: dict[int, Bundle] = msgspec.field(default_factory=lambda: NOTHING_UNWRITTEN)
    unwritten_bytes: int = 0
    rejected: list[Rejected] = msgspec.field(default_factory=lambda: NOTHING_REJECTED)
    """What its client may not have heard yet: acceptance of a later letter must not pass for acceptance of these."""
    entry: str = ""
    """By which entry of the access file its client last came in; nothing if that is not known (``runtime.revocation``)."""

    id: int = 0
    """Which mailbox this is, of all that ever were; 0: it was made by a version that drew no ids."""
    claim: Claim | None = None
    """What it shows to its client, but for its reach; None: it has never met a program that knows epochs, or only its first."""
    reach: int = -1
    """Its position at the first start of the server since it has this claim; below 0: there was none."""
    fenced: dict[str, int] = msgspec.field(default_factory=lambda: NOTHING_FENCED)
    """Ids of epochs of earlier programs, the newest last, and the number of the last letter that was accepted in each."""

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
        """Note that letters were rejected (``runtime.rejections``)."""
        self.rejected = self.rejected or []
        rejections.note(self.rejected, rejected)
        self.sent = max(self.sent, rejected.last)

    @property
    def in_memory(self) -> int:
        """How many bytes are not in files."""
        return self.bytes - self.spilled_bytes

    def weigh(self) -> None:
        """Count all bytes anew: an earlier version, which made the snapshot that this comes from, counted otherwise."""
        self.unwritten_bytes = sum([weight_of(bundle) for bundle in self.unwritten.values()])
        self.spilled_bytes = sum([file.letters_bytes for file in self.spilled])
        in_memory = sum([weight_of(bundle) for bundle in self.waiting.values()]) + self.unwritten_bytes
        self.bytes = in_memory + self.spilled_bytes

    def put(self, bundle: Bundle, room: Room) -> bool:
        """Add letters at the end; return whether there are more in memory than there is room for, or were before."""
        before, size = self.position, weight_of(bundle)
        self.position = last = before + bundle.count
        self.bytes = total = self.bytes + size
        if self.spilling:
            if self.unwritten:
                self.unwritten[before + 1] = bundle
            else:
                self.unwritten = {before + 1: bundle}
            self.unwritten_bytes += size
            return True
        self.waiting[before + 1] = bundle
        return last - self.acknowledged >= room[0] or total >= room[1]

    def pass_by(self, bundle: Bundle) -> bool:
        """Count letters as put in and taken out, if they are few and short enough to need no limit of their own; say whether."""
        behind = self.position + bundle.count
        if (
            self.waiting
            or len(bundle.letters) > PASS_BY_BYTES
            or behind - self.acknowledged >= min(PASS_BY_LETTERS, MAX_BOX_LETTERS)
        ):
            return False
        self.position = behind
        self.front = behind + 1
        return True

    def acknowledge(self, upto: int) -> list[SpillFile]:
        """Forget the bundles that are done with; return the files that are."""
        done = self.acknowledged = max(self.acknowledged, min(upto, self.position))
        self._forget(done)
        return self._acknowledge_spilled(done) if self.spilling else []

    def _forget(self, done: int) -> None:
        front, waiting = self.front, self.waiting
        while front <= done:
            bundle = waiting.get(front)
            if bundle is None or front + bundle.count - 1 > done:
                break  # It is in a file, or not all of it is done with.
            del waiting[front]
            front += bundle.count
            self.bytes -= weight_of(bundle)
        self.front = front

    def _acknowledge_spilled(self, done: int) -> list[SpillFile]:
        gone: list[SpillFile] = []
        while self.spilled and self.spilled[0].last <= done:
            file, self.spilled = self.spilled[0], self.spilled[1:]
            gone.append(file)
            self.front = file.last + 1
            self.bytes -= file.letters_bytes
            self.spilled_bytes -= file.letters_bytes
            self.spilled_letters -= file.last - file.first + 1
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

    def full(self, room: Room) -> bool:
        """Whether there are more letters, wherever they are, than there is room for."""
        return self.position - self.acknowledged >= room.letters or self.bytes >= room.bytes

    def crowded(self, room: Room) -> bool:
        """Whether there are more letters in memory than there is room for."""
        in_memory = self.position + 1 - self.front - self.spilled_letters
        return in_memory >= room.letters or self.in_memory >= room.bytes

    def next_block(self) -> list[tuple[int, Bundle]]:
        """Return the oldest bundles that are not written, if there are enough of them to be."""
        if len(self.unwritten) < BLOCK_BUNDLES and self.unwritten_bytes < BLOCK_BYTES:
            return []
        block: list[tuple[int, Bundle]] = []
        size = 0
        for position, bundle in self.unwritten.items():
            block.append((position, bundle))
            size += weight_of(bundle)
            if len(block) >= BLOCK_BUNDLES or size >= BLOCK_BYTES:
                break
        return block

    def written(self, block: list[tuple[int, Bundle]], file: SpillFile) -> None:
        """The oldest unwritten bundles are in this file now, which is the last one, or a new one behind it."""
        size = sum(weight_of(bundle) for _, bundle in block)
        for position, _ in block:
            del self.unwritten[position]
        if not self.spilled or self.spilled[-1] is not file:
            self.spilled += (file,)
        position, bundle = block[-1]
        self.spilled_letters += position + bundle.count - block[0][0]
        self.spilled_bytes += size
        self.unwritten_bytes -= size
        file.last = position + bundle.count - 1
        file.letters_bytes += size
