"""A copy of a store, made while a server uses it, and a store made of such a copy. docs/how-to/operations.md says what that is
worth.

Rules:

* Copying needs no lock and no help of the server: files are only ever appended to, and get their names when they are whole. A
  copy is the newest snapshot and the log behind it up to some entry: at least all that was durable when copying began.
* A snapshot may take files away meanwhile. Then everything is copied again, at most ``ATTEMPTS`` times.
* A copy gets its name when it is whole, synced and checked. Nothing is ever written over.
* A store that comes from a copy says so (``restored``), with a number drawn for it: the server may have forgotten what clients
  know, and those who were connected before are told (``server.server``). Peers are told, too,
  and notice by themselves whether that makes a difference (``node.peers.epochs``).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from thence.errors import ConfigError, StorageError, StoreFull
from thence.node.offline.inspection import InspectionReport, examine
from thence.storage import files
from thence.storage.recovery import LOCK_NAME, MARK_NAME, list_folder, read_mark, read_segment, read_snapshot
from thence.storage.segments import encode_mark

ATTEMPTS: Final = 10
"""How often a copy is begun anew because a compaction took files away."""

RESTORED_NAME: Final = "restored"
RESTORED_BYTES: Final = 7
"""How long the number of a restored store is: small enough to be added to others."""


class Copied(NamedTuple):
    """What a copy holds."""

    identity: str
    last: int
    """The number of its last entry."""
    bytes: int


def backup(source: Path, target: Path) -> Copied:
    """Copy the store in ``source``, which may be in use, to ``target``, which must not be there."""
    examined = examine(source)
    if examined.damage:
        raise StorageError(f"{source} is damaged, so there is nothing to copy: {examined.damage[0]}")
    with _begin(target) as unfinished:
        return _copied_at_last(source, unfinished)


def _copied_at_last(source: Path, unfinished: Path) -> Copied:
    """Copy again and again until nothing was taken away meanwhile."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _copy(source, unfinished)
            return _checked(unfinished)
        except StoreFull:
            raise
        except (FileNotFoundError, StorageError) as error:
            if attempt == ATTEMPTS:
                raise StorageError(f"{source} could not be copied whole in {ATTEMPTS} attempts: {error}") from None
            shutil.rmtree(unfinished)
            unfinished.mkdir()
    raise AssertionError("the last attempt returns or raises")


def restore(source: Path, target: Path) -> Copied:
    """Make a store in ``target``, which must not be there or be empty, of a copy in ``source``."""
    report = examine(source)
    if report.in_use_by is not None:
        raise StorageError(f"{source} is in use by process {report.in_use_by}: it is no copy, but a store")
    if report.damage:
        raise StorageError(f"the copy in {source} is damaged: {report.damage[0]}")
    if target.is_dir() and not any(target.iterdir()):
        target.rmdir()
    with _begin(target) as unfinished:
        _copy(source, unfinished)
        (unfinished / RESTORED_NAME).unlink(missing_ok=True)  # It may be a copy of a store that was restored, too.
        _write(unfinished / RESTORED_NAME, f"{os.urandom(RESTORED_BYTES).hex()}\n".encode())
        return _checked(unfinished)


def read_restored(folder: Path) -> int:
    """Return the number of the restoring that a store comes from; 0: it is no copy."""
    path = folder / RESTORED_NAME
    try:
        return int(path.read_text(encoding="ascii"), 16)
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from None


@contextmanager
def _begin(target: Path) -> Iterator[Path]:
    """Give a folder to write into. It gets its name at the end, or is gone if something goes wrong."""
    if target.exists():
        raise ConfigError(f"{target} is there already; nothing is written over")
    unfinished = target.with_name(target.name + files.UNFINISHED)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        yield unfinished
        files.name_finished(unfinished, target)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _copy(source: Path, target: Path) -> None:
    """Copy the snapshot that counts, the log behind it, and what else there is; FileNotFoundError if something goes away."""
    promised = read_mark(source) or 0
    listing = list_folder(source)
    known = {*listing.segments.values(), *listing.snapshots.values()}
    upto = max(listing.snapshots, default=0)
    if upto:
        read_snapshot(listing.snapshots[upto], upto)  # Whole, or else the copy would be of no use.
        _write(target / listing.snapshots[upto].name, listing.snapshots[upto].read_bytes())
    starts = [first for first in listing.segments if first <= upto + 1]
    if not starts:
        raise FileNotFoundError(f"the segment behind {upto}")
    last = upto
    for first, path in listing.segments.items():
        if first >= starts[-1]:
            segment = read_segment(path, first)
            end = segment.tail.offset if segment.tail is not None else len(segment.data)
            _write(target / path.name, segment.data[:end])
            last = max(last, segment.last)
    for path in sorted(source.iterdir()):
        ours = path.name not in (LOCK_NAME, MARK_NAME) and path.suffix != files.UNFINISHED and path not in known
        if ours and not path.is_dir():  # A store may be the root of a disk, where the system has a folder of its own.
            _write(target / path.name, path.read_bytes())
    if last < promised:
        raise StorageError(f"{source}: entries up to {promised} were acknowledged, and what can be read ends with {last}")
    _write(target / MARK_NAME, encode_mark(last))


def _write(path: Path, data: bytes) -> None:
    files.name_finished(files.write_unfinished(path, data), path)


def _checked(folder: Path) -> Copied:
    report: InspectionReport = examine(folder)
    if report.damage:
        raise StorageError(f"the copy is not whole: {report.damage[0]}")
    size = sum(path.stat().st_size for path in folder.iterdir())
    return Copied(report.identity or "", report.last, size)
