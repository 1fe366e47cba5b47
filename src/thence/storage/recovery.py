"""What a store's folder holds: the newest whole snapshot and the entries behind it, or the damage that is in the way.

Reading only: nothing in here changes a file. The store acts on what it is told, and ``thence store`` shows it.

Rules:

* A torn tail is what a crash left of a commit that was never acknowledged: bytes at the end of the last segment with nothing
  whole behind them, and beyond what the mark says was durable. It is not damage.
* Everything else that cannot be read, or is not there, is damage to what was acknowledged, and named by file and offset.
* A snapshot that cannot be read is passed over only if an older one, or none at all, and every entry since then are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from thence.errors import ConfigError, StorageError
from thence.storage.files import UNFINISHED, read_whole
from thence.storage.segments import (
    MARK_BYTES,
    SEGMENT,
    Gap,
    Header,
    LogBatch,
    decode_header,
    decode_mark,
    decode_snapshot,
    read_batches,
)
from thence.words import counted

MARK_NAME = "durable"
LOCK_NAME = "lock"
ADVICE = "`thence store verify` lists all damage; restore the folder from a copy. Nothing was changed"

_NAME = re.compile(r"(segment|snapshot)-(\d{20})\.(?:log|bin)")


def segment_path(folder: Path, first: int) -> Path:
    """Where the segment is that begins with this sequence number."""
    return folder / f"segment-{first:020}.log"


def snapshot_path(folder: Path, upto: int) -> Path:
    """Where the snapshot is that stands for everything up to this sequence number."""
    return folder / f"snapshot-{upto:020}.bin"


class Listing(NamedTuple):
    """The files of a store by the number in their names, ascending, and those that were never finished."""

    segments: dict[int, Path]
    snapshots: dict[int, Path]
    unfinished: list[Path]


def list_folder(folder: Path) -> Listing:
    """Find the files of a store; whatever else is in the folder is none of our business."""
    listing = Listing({}, {}, [])
    for path in sorted(folder.iterdir()):
        named = _NAME.fullmatch(path.name.removesuffix(UNFINISHED))
        if named and path.name.endswith(UNFINISHED):
            listing.unfinished.append(path)
        elif named:
            (listing.segments if named[1] == "segment" else listing.snapshots)[int(named[2])] = path
    return listing


def read_mark(folder: Path) -> int | None:
    """How far everything was durable, at least; None if the mark is missing or cannot be read."""
    try:
        with (folder / MARK_NAME).open("rb") as file:
            return decode_mark(file.read(MARK_BYTES + 1))
    except FileNotFoundError:
        return None


@dataclass(slots=True)
class Segment:
    """One segment as it was read. ``tail`` is what is at its end and is no batch, if anything is."""

    path: Path
    data: bytes
    header: Header
    batches: list[LogBatch]
    gaps: list[Gap]

    @property
    def last(self) -> int:
        """The last sequence number in it, or the one before its first if it is empty."""
        return self.batches[-1].last if self.batches else self.header.number - 1

    @property
    def tail(self) -> Gap | None:
        """The bytes at its end that are no batch."""
        return self.gaps[-1] if self.gaps and self.gaps[-1].end == len(self.data) else None

    def damage(self) -> Iterator[str]:
        """Name each place in it that is wrong, but for the tail."""
        for gap in self.gaps:
            if gap is not self.tail:
                yield (
                    f"{self.path}, offset {gap.offset}: {counted(gap.end - gap.offset, 'byte')} cannot be read, "
                    f"and whole entries follow at offset {gap.end}"
                )
        expected = self.header.number
        for batch in self.batches:
            if batch.first != expected and batch.offset not in {gap.end for gap in self.gaps}:
                yield f"{self.path}, offset {batch.offset}: entry {expected} should be here, and {batch.first} is"
            expected = batch.last + 1


def read_segment(path: Path, first: int) -> Segment:
    """Read a segment; its name says which entry it begins with."""
    data = read_whole(path)
    header = decode_header(data, SEGMENT, str(path))
    if header.number != first:
        raise StorageError(f"{path}, offset 0: the header says that it begins with entry {header.number}")
    segment = Segment(path, data, header, [], [])
    for found in read_batches(data, header):
        (segment.batches if isinstance(found, LogBatch) else segment.gaps).append(found)  # type: ignore[arg-type]
    return segment


def read_snapshot(path: Path, upto: int) -> tuple[Header, bytes]:
    """Read a snapshot; its name says what it stands for."""
    header, body = decode_snapshot(read_whole(path), str(path))
    if header.number != upto:
        raise StorageError(f"{path}, offset 0: the header says that it stands for entries up to {header.number}")
    return header, body


@dataclass(slots=True)
class Recovered:
    """What a folder holds. ``end`` is where the last segment goes on; what is behind it there is to be cut off."""

    snapshot: bytes | None = None
    upto: int = 0
    entries: list[bytes] = field(default_factory=list)
    last: int = 0
    log_bytes: int = 0
    path: Path | None = None
    header: Header | None = None
    end: int = 0
    needed: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def recover(folder: Path, identity: str) -> Recovered:
    """Read the newest whole snapshot and everything behind it; StorageError names what is in the way."""
    mark = read_mark(folder)
    listing = list_folder(folder)
    found = Recovered()
    unreadable = _take_snapshot(listing, identity, found)
    if not listing.segments and not listing.snapshots:
        if mark:
            raise StorageError(f"{folder}: entries up to {mark} were acknowledged, and there is no segment. {ADVICE}")
        return found
    chain = _needed_segments(folder, listing, found, unreadable)
    found.last = min(chain) - 1
    for first, path in chain.items():
        _take_segment(path, first, identity, found, is_last=first == max(chain))
    promised = max([mark or 0, *listing.snapshots])
    if promised > max(found.last, found.upto):
        raise StorageError(
            f"{found.path}, offset {found.end}: entries up to {promised} were acknowledged, and what can be read ends with "
            f"{max(found.last, found.upto)}{''.join(f'; {why}' for why in unreadable)}. {ADVICE}"
        )
    found.notes += [f"passed over a snapshot: {why}" for why in unreadable]
    if mark is None:
        found.notes.append(f"{folder / MARK_NAME} is missing or cannot be read")
    return found


def _take_snapshot(listing: Listing, identity: str, found: Recovered) -> list[str]:
    """Take the newest that can be read, and say why newer ones cannot."""
    unreadable = []
    for upto, path in reversed(listing.snapshots.items()):
        try:
            header, body = read_snapshot(path, upto)
        except StorageError as error:
            unreadable.append(str(error))
            continue
        check_identity(header, identity, path)
        found.snapshot, found.upto = body, upto
        found.needed.append(path)
        break
    return unreadable


def _needed_segments(folder: Path, listing: Listing, found: Recovered, unreadable: list[str]) -> dict[int, Path]:
    """The segment that holds the first entry behind the snapshot, and all later ones."""
    starts = [first for first in listing.segments if first <= found.upto + 1]
    if not starts:
        because = "".join(f", since {why}" for why in unreadable)
        raise StorageError(f"{folder}: the segment with entry {found.upto + 1} is missing; it is needed{because}. {ADVICE}")
    return {first: path for first, path in listing.segments.items() if first >= starts[-1]}


def _take_segment(path: Path, first: int, identity: str, found: Recovered, *, is_last: bool) -> None:
    if first != found.last + 1:
        raise StorageError(f"{path.parent}: a segment with entries {found.last + 1} to {first - 1} is missing. {ADVICE}")
    try:
        segment = read_segment(path, first)
    except StorageError as error:
        if isinstance(error.__cause__, OSError):
            raise  # The disk does not give it: whether it is damaged nobody knows.
        raise StorageError(f"{error}. {ADVICE}") from None
    check_identity(segment.header, identity, path)
    for damage in segment.damage():
        raise StorageError(f"{damage}. {ADVICE}")
    tail = segment.tail
    if tail and not is_last:
        raise StorageError(f"{path}, offset {tail.offset}: {counted(tail.end - tail.offset, 'byte')} cannot be read. {ADVICE}")
    if tail:
        found.notes.append(
            f"cut off {counted(tail.end - tail.offset, 'byte')} of a commit that was never complete: {path}, offset {tail.offset}"
        )
    behind = [batch for batch in segment.batches if batch.last > found.upto]
    for batch in behind:
        found.entries += batch.entries(segment.data)
    if behind:
        del found.entries[: max(0, found.upto + 1 - behind[0].first)]  # only the first batch of all can begin before it
        found.log_bytes += behind[-1].end - behind[0].offset
    found.path, found.header, found.last = path, segment.header, segment.last
    found.end = tail.offset if tail else len(segment.data)
    found.needed.append(path)


def check_identity(header: Header, identity: str, path: Path) -> None:
    """Refuse a file that is of another store."""
    if header.identity != identity:
        raise ConfigError(f"{path.parent} is the store of {header.identity!r}, not of {identity!r}")
