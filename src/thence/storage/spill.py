"""The spill queue: entries that are too many for memory, in files; written at the end, read in order, dropped from the front.

It has two users: mailboxes with messages (``storage.mailbox_spill``), and ways to peers with frames (``storage.frame_spill``).
A file holds entries of one *owner*, which have numbers without holes (``storage.spill_files``): a header, then blocks, each a
batch as in the log (``storage.segments``), under one checksum.

What is in memory, before and behind the files, is not here, since the two differ in it. Messages are read in place, by several
readers, and never come back into the mailbox. Frames go back into the channel, which sends them, and whose acks may have holes.

Rules:

* Nothing depends on a file before a snapshot names it: until then the log has its entries, and they are written again after a
  crash. So writing needs no sync; what a snapshot names is synced before the snapshot is, and checked at the next start.
* A file that no snapshot needs any more is deleted when that snapshot is durable, as the log is made short. What a crash leaves
  of others is deleted at the next start.
* A file is only ever appended to by the process that began it, behind what counts of it.
* Entries are read a block at a time, by those who get to them; memory holds one block for each of them.
* A disk that is full, or a limit that is reached, loses nothing: what would be written stays in memory, ``full`` says why, and
  whoever fills mailboxes or queues has to stop until there is room.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from thence.core.member.codec import STORED_FRAME
from thence.core.wire.messages import UNREADABLE, Frame
from thence.errors import ConfigError, StorageError
from thence.storage import files
from thence.storage.mailbox import Batch, ReadBatch
from thence.storage.recovery import ADVICE
from thence.storage.segments import (
    MARKER_BYTES,
    MAX_IDENTITY_BYTES,
    OUTLINE_BYTES,
    SPILL,
    Header,
    Outline,
    batch_at,
    decode_header,
    encode_batch,
    encode_header,
    outline_at,
)
from thence.storage.spill_files import SpillFile, SpillFiles, add_block

MAX_SPILLED_BYTES: Final = 64 * 2**30
"""How much may be in files where the store has no limit."""

SPILL_FILE_BYTES: Final = 16 * 2**20
"""From this size on a new file is begun; smaller where little may be spilled at all."""

RELEASE_BYTES: Final = 64 * 2**20
"""How much of files that are done with may be there before a snapshot is due that lets them go."""

_FILES_AT_LEAST: Final = 8
"""How many files the room there is should be enough for, so that some of it is free again before all of it is."""

_NAME = re.compile(r"spill-(\d{20})\.log")
_HEADER_BYTES: Final = 64 + MAX_IDENTITY_BYTES


class WaitingFrame(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """A frame for a peer, in a file."""

    frame: Frame[Any]

    @property
    def count(self) -> int:
        """How many numbers it takes."""
        return 1

    @property
    def weight(self) -> int:
        """What it counts for in limits by bytes."""
        return self.frame.weight


class _ReadFrame(WaitingFrame, frozen=True, array_like=True, gc=False, tag=2):
    frame: STORED_FRAME


Entry = Batch | WaitingFrame
EntryT = TypeVar("EntryT", Batch, WaitingFrame)
Block = Sequence[tuple[int, Entry]]
"""Entries of one owner with their numbers, or the numbers of the first messages in them: written and read together."""
NOUNS: Final = {Batch: "message", WaitingFrame: "frame"}
"""How an entry is called."""


def spill_path(folder: Path, number: int) -> Path:
    """Where the file with this number is."""
    return folder / f"spill-{number:020}.log"


def list_spill(folder: Path) -> dict[int, Path]:
    """Find the files in a store's folder, by number, ascending."""
    found = {int(named[1]): path for path in folder.iterdir() if (named := _NAME.fullmatch(path.name))}
    return dict(sorted(found.items()))


class Spill:
    """All files of one store."""

    def __init__(self, folder: Path, identity: str, limit_bytes: int | None = None) -> None:
        """Keep files in the folder of the store ``identity``; ``restore`` looks at those that are there."""
        self.folder = folder
        self.identity = identity
        self.limit_bytes = MAX_SPILLED_BYTES if limit_bytes is None else limit_bytes
        self.bytes = 0
        """Of all files, also of those that are done with."""
        self.trouble = ""
        """Why the last messages could not be written."""
        self.done_bytes = 0
        self._done: list[SpillFile] = []
        """Files that nobody needs but, perhaps, the last snapshot."""
        self._file_bytes = min(SPILL_FILE_BYTES, self.limit_bytes // _FILES_AT_LEAST)
        self._release_bytes = min(RELEASE_BYTES, self.limit_bytes // _FILES_AT_LEAST)
        self._last = 0
        self._ours: dict[int, None] = {}
        """Files that this process has begun."""
        self._unsynced: dict[int, None] = {}

    def restore(self, needed: Collection[SpillFile]) -> None:
        """Go on with the files that a snapshot names, all of which must be there, and with no others."""
        there = list_spill(self.folder)
        for file in needed:
            check_file(self.folder, file, self.identity)
        numbers = {file.number for file in needed}
        for number, path in there.items():
            if number not in numbers:
                path.unlink()
        for file in needed:
            _cut(spill_path(self.folder, file.number), file.end)
            self.bytes += file.end
        self._last = max([0, *there])

    # Writing.

    @property
    def full(self) -> str:
        """Why no more messages should come, if so."""
        if self.trouble:
            return self.trouble
        return self.usage if self.bytes >= self.limit_bytes else ""

    @property
    def usage(self) -> str:
        """Say how much is in files, and how much may be."""
        return f"{self.bytes} bytes are spilled in {self.folder}; the limit is {self.limit_bytes}"

    def write(self, owner: str, block: Block, files: SpillFiles) -> SpillFiles:
        """Write entries behind those in the last file of their owner, or into a new one; return all its files.

        ``StoreFull`` means later: nothing has changed.
        """
        entries = [_encoder.encode((owner, number, entry)) for number, entry in block]
        first = block[0][0]
        if files and files[-1].number in self._ours and files[-1].end < self._file_bytes:
            file = files[-1]
            written = encode_batch(file.marker, first, entries)
            self._append(file.number, file.end, written, os.O_WRONLY)
            file.end += len(written)
        else:
            number, marker = self._last + 1, os.urandom(MARKER_BYTES)
            header = encode_header(SPILL, self.identity, marker, number)
            written = header + encode_batch(marker, first, entries)
            self._append(number, 0, written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            file = SpillFile(number, marker, len(header), len(written), first, first, 0)
            self._last = number
            self._ours[number] = None
        self.bytes += len(written)
        return add_block(files, file, block)

    def _append(self, number: int, end: int, written: bytes, flags: int) -> None:
        path = spill_path(self.folder, number)
        try:
            descriptor = os.open(path, flags, files.FILE_MODE)
        except OSError as error:
            raise files.failure(error, "opening", path) from error
        try:
            files.write_all(descriptor, written, end, path)
        finally:
            os.close(descriptor)
        self._unsynced[number] = None

    # What a snapshot needs, and what it does not need any more.

    def take_unsynced(self) -> list[Path]:
        """Return the files that have something that is not durable, for ``sync_files``."""
        unsynced, self._unsynced = self._unsynced, {}
        return [spill_path(self.folder, number) for number in unsynced]

    def done_with(self, gone: Iterable[SpillFile]) -> None:
        """Nobody needs these but, perhaps, the last snapshot."""
        for file in gone:
            self._done.append(file)
            self.done_bytes += file.end

    @property
    def done(self) -> int:
        """How many files there are that only the last snapshot may need."""
        return len(self._done)

    @property
    def release_due(self) -> bool:
        """Whether there are so many that a snapshot should be made that does not need them."""
        return self.done_bytes >= self._release_bytes or bool(self._done and self.full)

    def delete_done(self, count: int) -> None:
        """Delete the oldest of them: a snapshot is durable that does not need them."""
        for file in self._done[:count]:
            spill_path(self.folder, file.number).unlink()
            self.bytes -= file.end
            self.done_bytes -= file.end
            self._ours.pop(file.number, None)
        del self._done[:count]


class BlockReader(Generic[EntryT]):
    """Where somebody is in the files of one owner: the next block is found at once."""

    def __init__(self, spill: Spill | None, owner: str, kind: type[EntryT]) -> None:
        """``spill`` has the files, if there can be some; there are entries of one ``kind`` in them."""
        self._spill = spill
        self._owner = owner
        self._kind: type[EntryT] = kind
        self._file: SpillFile | None = None
        self._offset = 0
        """Where the block behind the last one begins in the file."""
        self.next = 0
        """The number of its first entry."""

    def read(self, files: SpillFiles, wanted: int) -> dict[int, EntryT]:
        """Return the block that has a number, which is in one of the files."""
        noun = NOUNS[self._kind]
        file = next(file for file in files if file.last >= wanted)
        if self._spill is None:
            raise StorageError(f"{noun}s for {self._owner!r} are in file {file.number} of a store that is not there")
        path = spill_path(self._spill.folder, file.number)
        descriptor = _opened(path)
        try:
            if self._file is file and self.next == wanted:
                offset = self._offset
            else:
                offset = _find(descriptor, file, wanted, path)
            block, end = read_block(descriptor, file, offset, path, self._owner, self._kind)
        finally:
            os.close(descriptor)
        last = max(block)
        self._file, self._offset, self.next = file, end, last + block[last].count
        if not min(block) <= wanted < self.next:
            raise _unreadable(path, offset, f"{noun} {wanted} for {self._owner!r} is not here")
        return block


def sync_files(paths: Sequence[Path]) -> None:
    """Make files durable, with their names. Blocks; they may be written to meanwhile, which needs another sync."""
    for path in paths:
        descriptor = _opened(path)
        try:
            files.sync_data(descriptor, path)
        finally:
            os.close(descriptor)
    if paths:
        files.sync_folder(paths[0].parent)


def _cut(path: Path, end: int) -> None:
    """Let go of what a crash left behind the part that counts; should it come back, it is not read."""
    if path.stat().st_size > end:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, end)
        finally:
            os.close(descriptor)


def check_file(folder: Path, file: SpillFile, identity: str) -> None:
    """Raise if a file is not there, too short or not of this store."""
    path = spill_path(folder, file.number)
    header, size = read_header(path)
    if header.identity != identity:
        raise ConfigError(f"{folder} is the store of {header.identity!r}, not of {identity!r}")
    if (header.number, header.marker, header.size) != (file.number, file.marker, file.start):
        raise _unreadable(path, 0, "this is another file than the one that the snapshot names")
    if size < file.end:
        raise _unreadable(path, size, f"the file ends here, and what is in it up to number {file.last} takes {file.end} bytes")


def read_header(path: Path) -> tuple[Header, int]:
    """Return the header of a file, and how long the file is."""
    descriptor = _opened(path)
    try:
        return decode_header(files.read_at(descriptor, _HEADER_BYTES, 0, path), SPILL, str(path)), os.fstat(descriptor).st_size
    except StorageError as error:
        if isinstance(error.__cause__, OSError):
            raise
        raise StorageError(f"{error}. {ADVICE}") from None
    finally:
        os.close(descriptor)


def read_block(
    descriptor: int, file: SpillFile, offset: int, path: Path, owner: str, kind: type[EntryT]
) -> tuple[dict[int, EntryT], int]:
    """Return the entries of a block by their numbers, and where the block ends."""
    outline = _outline(descriptor, file, offset, path)
    data = files.read_at(descriptor, outline.size, offset, path)
    batch = batch_at(memoryview(data), 0, file.marker)
    if batch is None or batch.end != len(data):
        raise _unreadable(path, offset, f"the checksum of a block of {outline.size} bytes is wrong")
    block: dict[int, EntryT] = {}
    expected = batch.first
    for written in batch.entries(data):
        entry = cast("EntryT", read_entry(written, (owner, expected), kind, path, offset))
        block[expected] = entry
        expected += entry.count
    return block, offset + len(data)


def read_entry(written: bytes, expected: tuple[str, int], kind: type[Entry], path: Path, offset: int) -> Entry:
    """Return an entry of a block, which must be of this kind, for this owner, at this number."""
    try:
        owner, number, entry = _decoder.decode(written)
    except UNREADABLE as error:
        raise _unreadable(path, offset, f"a block whose {NOUNS[kind]}s cannot be read: {error}") from None
    there = WaitingFrame if isinstance(entry, WaitingFrame) else Batch
    if (owner, number) != expected or there is not kind:
        described = (f"{NOUNS[of]} {at} for {whose!r}" for of, whose, at in ((kind, *expected), (there, owner, number)))
        raise _unreadable(path, offset, f"{next(described)} should be here, and {next(described)} is")
    return entry


def _find(descriptor: int, file: SpillFile, wanted: int, path: Path) -> int:
    """Return where the block with a position begins, going by what the beginnings of blocks say."""
    offset = file.start
    while True:
        behind = offset + _outline(descriptor, file, offset, path).size
        if behind >= file.end or _outline(descriptor, file, behind, path).first > wanted:
            return offset
        offset = behind


def _outline(descriptor: int, file: SpillFile, offset: int, path: Path) -> Outline:
    outline = outline_at(files.read_at(descriptor, OUTLINE_BYTES, offset, path), file.marker)
    if outline is None or offset + outline.size > file.end:
        raise _unreadable(path, offset, "a block should begin here")
    return outline


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise _unreadable(path, 0, error.strerror or str(error)) from error


def _unreadable(path: Path, offset: int, why: str) -> StorageError:
    return StorageError(f"{path}, offset {offset}: {why}. {ADVICE}")


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[str, int, ReadBatch | _ReadFrame])
