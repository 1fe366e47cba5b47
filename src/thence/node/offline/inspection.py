"""A store seen from outside: what is in it, whether it is whole, and its entries; also while a server uses it.

It exists for ``thence store``, and for those who start many servers and want to know first whether a topology fits the stores.
Nothing here changes a file or needs the lock.

Rules:

* Where recovery stops at the first damage, this goes on and names every place.
* While a server writes, the last bytes may be half of a commit, and a compaction may take files away between listing and
  reading. So damage in a store that is in use counts only if it is still there when one looks again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import NamedTuple

from thence.core.member.spill import Way
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.core.wire.records import Changed
from thence.errors import ConfigError, StorageError
from thence.node.directory.directory import read_state
from thence.node.messages.returns import read_returning
from thence.node.reconfiguration import check_version
from thence.storage import journal
from thence.storage.files import try_lock
from thence.storage.mailbox import Batch
from thence.storage.recovery import (
    LOCK_NAME,
    MARK_NAME,
    Listing,
    Segment,
    check_identity,
    list_folder,
    read_mark,
    read_segment,
    read_snapshot,
)
from thence.storage.segments import FORMAT_VERSION, SPILL, Gap, decode_header, read_batches
from thence.storage.spill import NOUNS, Entry, WaitingFrame, list_spill, read_entry, spill_path
from thence.storage.spill_files import SpillFile
from thence.words import counted

LOOKS = 3
"""How often one looks at a store that is in use before its damage is believed."""

LOOK_AGAIN_SECONDS = 0.1


@dataclass(slots=True)
class SegmentReport:
    """A segment: its entries are ``first`` to ``last``; ``last`` is the one before ``first`` if it is empty."""

    file: str
    first: int
    last: int
    bytes: int


@dataclass(slots=True)
class SnapshotReport:
    """A snapshot, which stands for every entry up to ``upto``."""

    file: str
    upto: int
    bytes: int


@dataclass(slots=True)
class SpillReport:
    """A file with the messages ``first`` to ``last`` of those that wait for a client, or frames for a peer."""

    file: str
    kind: str
    """``item`` or ``frame``."""
    owner: str
    first: int
    last: int
    bytes: int


@dataclass(slots=True)
class InspectionReport:
    """Everything that can be said of a store. It is whole if there is no damage."""

    folder: str
    identity: str | None = None
    """Whose it is; None: no file that says so can be read."""
    format: int = FORMAT_VERSION
    in_use_by: str | None = None
    durable: int | None = None
    snapshot: SnapshotReport | None = None
    segments: list[SegmentReport] = field(default_factory=list)
    spilled: list[SpillReport] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The last entry that can be read, as itself or in the snapshot."""
        return max(self.segments[-1].last if self.segments else 0, self.snapshot.upto if self.snapshot else 0)


def holder(folder: Path) -> str | None:
    """The process that uses the store, or None if nobody does."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        if try_lock(descriptor, shared=True):
            return None
        return os.read(descriptor, 20).decode("ascii", "replace").strip() or "(not known)"
    finally:
        os.close(descriptor)


def examine(folder: Path) -> InspectionReport:
    """Read all of a store."""
    for look in range(1, LOOKS + 1):
        try:
            report = _examine(folder)
        except FileNotFoundError:
            if look == LOOKS:
                raise
            continue
        if not report.damage or report.in_use_by is None or look == LOOKS:
            return report
        sleep(LOOK_AGAIN_SECONDS)
    raise AssertionError("the last look returns or raises")


def read_entries(folder: Path, trouble: list[str]) -> Iterator[tuple[int, bytes]]:
    """Give every entry that can be read, with its number; what cannot be read is added to ``trouble``."""
    expected = None
    for first, path in _listed(folder).segments.items():
        try:
            segment = read_segment(path, first)
        except FileNotFoundError:
            continue  # a compaction took it away: the snapshot stands for it
        except StorageError as error:
            trouble.append(str(error))
            continue
        trouble += segment.damage()
        if expected is not None and first > expected:
            trouble.append(f"{folder}: entries {expected} to {first - 1} are missing")
        expected = segment.last + 1
        for batch in segment.batches:
            yield from enumerate(batch.entries(segment.data), start=batch.first)


def read_spilled(folder: Path, trouble: list[str]) -> Iterator[tuple[str, int, Entry]]:
    """Give what is spilled and can be read: whom each entry is for, its number, and the entry."""
    for upto, path in reversed(_listed(folder).snapshots.items()):
        try:
            _, snapshot = read_snapshot(path, upto)
        except StorageError:
            continue
        for needed in needed_files(snapshot):
            for number, entry in read_spilled_file(folder, needed, trouble):
                yield needed.owner, number, entry
        return


class NeededFile(NamedTuple):
    """A file that a server's snapshot names, with what is in it, and for whom."""

    owner: str
    kind: type[Batch | WaitingFrame]
    file: SpillFile


def needed_files(snapshot: bytes | None) -> list[NeededFile]:
    """Return the files that a server's snapshot names."""
    if snapshot is None:
        return []
    try:
        read = journal.decode_snapshot(snapshot)
        state = read_state(read.directory, "the store")
    except StorageError:
        return []  # It is no server's: a store keeps whatever bytes it is given.
    messages = [NeededFile(client, Batch, file) for client, mailbox in state.mailboxes.items() for file in mailbox.spilled]
    orphans = read_returning(read.returning).orphans.values()
    messages += [NeededFile(orphan.client, Batch, file) for orphan in orphans for file in orphan.mailbox.spilled]
    return messages + [NeededFile(str(Way(*way)), WaitingFrame, file) for *way, files in read.spilled_frames for file in files]


def read_spilled_file(folder: Path, needed: NeededFile, trouble: list[str]) -> Iterator[tuple[int, Entry]]:
    """Give the entries of a file that can be read; what is wrong with it is added to ``trouble``."""
    owner, kind, file = needed
    path, noun = spill_path(folder, file.number), NOUNS[kind]
    try:
        data = path.read_bytes()
        header = decode_header(data, SPILL, str(path))
    except FileNotFoundError:
        trouble.append(f"{path} is missing: {noun}s {file.first} to {file.last} for {owner!r} were in it")
        return
    except StorageError as error:
        trouble.append(str(error))
        return
    if len(data) < file.end:
        trouble.append(f"{path}, offset {len(data)}: the file ends here, and {noun}s up to {file.last} take {file.end} bytes")
    expected: int | None = file.first
    for found in read_batches(data[: file.end], header):
        if isinstance(found, Gap):
            trouble.append(f"{path}, offset {found.offset}: {counted(found.end - found.offset, 'byte')} cannot be read")
            expected = None
            continue
        try:
            expected = found.first if expected is None else expected
            for written in found.entries(data):
                entry = read_entry(written, (owner, expected), kind, path, found.offset)
                yield expected, entry
                expected += entry.count
        except StorageError as error:
            trouble.append(str(error))
            expected = None
    if expected is not None and expected != file.last + 1:
        trouble.append(f"{path}: the {noun}s for {owner!r} end with {expected - 1}, and the snapshot says {file.last}")


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder")


def _listed(folder: Path) -> Listing:
    _check_folder(folder)
    listing = list_folder(folder)
    if not listing.segments and not listing.snapshots and not (folder / MARK_NAME).exists():
        raise ConfigError(f"{folder} is no store: it holds neither segments nor snapshots")
    return listing


def _is_unbegun(folder: Path, durable: int | None) -> bool:
    """Say whether nothing was ever stored; what is written first of all is an empty mark."""
    return not durable and ((folder / MARK_NAME).stat().st_size == 0 or durable == 0)


def _examine(folder: Path) -> InspectionReport:
    _check_folder(folder)
    report = InspectionReport(str(folder), in_use_by=holder(folder))
    report.durable = read_mark(folder)  # before the segments: what it promises must be in them
    listing = _listed(folder)
    if report.durable is None:
        report.notes.append(f"{folder / MARK_NAME} is missing or cannot be read")
    report.notes += [f"{path} was never finished" for path in listing.unfinished]
    identities: dict[str, Path] = {}
    _examine_spilled(folder, _examine_snapshots(listing, report, identities), report)
    upto = report.snapshot.upto if report.snapshot else 0
    start = max((first for first in listing.segments if first <= upto + 1), default=upto + 1)
    if not listing.segments and not listing.snapshots and _is_unbegun(folder, report.durable):
        report.notes.append(f"{folder} holds no segment yet: nothing was ever acknowledged, and the next start begins with one")
    elif start not in listing.segments:
        report.damage.append(f"{folder}: the segment with entry {upto + 1} is missing")
    report.notes += [f"{path} is left over from a compaction" for first, path in listing.segments.items() if first < start]
    _examine_segments({first: path for first, path in listing.segments.items() if first >= start}, report, identities)
    promised = max([report.durable or 0, *listing.snapshots])
    if promised > report.last:
        report.damage.append(
            f"{folder}: entries up to {promised} were acknowledged, and what can be read ends with {report.last}"
        )
    report.identity = next(iter(identities), None)
    report.damage += [f"{path} is of {other!r}, not of {report.identity!r}" for other, path in list(identities.items())[1:]]
    return report


def _examine_snapshots(listing: Listing, report: InspectionReport, identities: dict[str, Path]) -> bytes | None:
    """Return the snapshot that counts."""
    newest = None
    for upto, path in reversed(listing.snapshots.items()):
        if report.snapshot:
            report.notes.append(f"{path} is left over from a compaction")
            continue
        try:
            header, body = read_snapshot(path, upto)
        except StorageError as error:
            report.damage.append(str(error))
            continue
        identities.setdefault(header.identity, path)
        report.snapshot = SnapshotReport(path.name, upto, len(body))
        newest = body
    return newest


def _examine_spilled(folder: Path, snapshot: bytes | None, report: InspectionReport) -> None:
    for needed in needed_files(snapshot):
        owner, kind, file = needed
        path = spill_path(folder, file.number)
        for _ in read_spilled_file(folder, needed, report.damage):
            pass
        report.spilled.append(SpillReport(path.name, NOUNS[kind], owner, file.first, file.last, file.end))
    names = {row.file for row in report.spilled}
    why = "is being written, or was" if report.in_use_by else "was"
    report.notes += [
        f"{path} {why} written after the snapshot, or was read to its end; the next start deletes it"
        for path in list_spill(folder).values()
        if path.name not in names
    ]


def _examine_segments(needed: dict[int, Path], report: InspectionReport, identities: dict[str, Path]) -> None:
    expected = None
    for first, path in needed.items():
        try:
            segment = read_segment(path, first)
        except StorageError as error:
            report.damage.append(str(error))
            expected = None  # how far it went cannot be known
            continue
        if expected is not None and first != expected:
            report.damage.append(f"{path.parent}: a segment with entries {expected} to {first - 1} is missing")
        identities.setdefault(segment.header.identity, path)
        report.damage += segment.damage()
        report.segments.append(SegmentReport(path.name, first, segment.last, len(segment.data)))
        _examine_tail(segment, report, is_last=first == max(needed))
        expected = segment.last + 1


def _examine_tail(segment: Segment, report: InspectionReport, *, is_last: bool) -> None:
    tail = segment.tail
    if tail is None:
        return
    what = f"{segment.path}, offset {tail.offset}: {counted(tail.end - tail.offset, 'byte')}"
    if not is_last or segment.last < (report.durable or 0):
        report.damage.append(f"{what} cannot be read")
    elif report.in_use_by:
        report.notes.append(f"{what} are being written")
    else:
        report.notes.append(f"{what} are of a commit that was never complete; the next start cuts them off")


def check_stores(topology: Topology, data: Path) -> None:
    """Refuse a topology with which a server could not go on from its store, in the folder of its name in ``data``.

    What a store does not tell is no reason to refuse: its server will say what is wrong with it.
    """
    for name in topology.processes:
        if (data / name).is_dir():
            _check_store(topology, name, data / name)


def _check_store(topology: Topology, name: str, folder: Path) -> None:
    try:
        stored = _stored(folder, f"{topology.name}/{name}")
    except (OSError, StorageError):
        return
    if stored is not None:
        check_version(topology, stored, name)


def _stored(folder: Path, identity: str) -> Topology | None:
    """Return the topology that is in force in a store; None: it does not tell."""
    listing = list_folder(folder)
    text, upto, following = "", 0, ""
    for number, path in list(listing.snapshots.items())[-1:]:
        header, written = read_snapshot(path, number)
        check_identity(header, identity, path)
        text, upto = journal.decode_snapshot(written).topology, number
    for first, path in list(listing.segments.items())[:1]:
        check_identity(read_segment(path, first).header, identity, path)
    for number, entry in read_entries(folder, []):
        for record in journal.decode_entry(entry) if number > upto else ():
            if isinstance(record, journal.Opened):
                text = record.topology
            elif isinstance(record, Changed) and record.phase == "holding":
                following = record.text
            elif isinstance(record, Changed) and record.phase == "switched":
                text = following  # Nothing, if the snapshot was made while it held.
    return parse(text, f"the topology stored in {folder}", force=True) if text else None
