"""File operations for the store: durable when they return, and errors that say what the store may do next.

Rules:

* A write that fails for want of room is ``StoreFull``: nothing counts as written, and the same may be tried again.
* A sync that fails is never repeated. The system may have dropped the pages that it could not write and call the next
  sync of the same file a success; only what is read back from the disk by a new process can be believed.
* A file gets its name when it is whole and synced, and the folder is synced after that: under its name there is never half
  a file.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from thence.errors import ConfigError, StorageError, StoreFull

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
BROKEN = frozenset({errno.EIO, errno.ENXIO, errno.ENODEV, errno.EROFS, getattr(errno, "EUCLEAN", errno.EIO)})
"""What a disk says that does not work, or that the system has given up on."""

BROKEN_ADVICE = "The disk does not work: look at the system's log. When it does again, start on the same data, which is read anew"

UNFINISHED = ".tmp"
"""What the name of a file ends with before it is whole."""

FILE_MODE = 0o600  # messages are nobody else's business
PUBLIC_MODE = 0o666  # for what holds none: as the user's mask has it


def write_all(descriptor: int, data: bytes, offset: int, path: Path) -> None:
    """Write at ``offset``, all of it; StoreFull if there is no room."""
    view = memoryview(data)
    try:
        while view:
            written = os.pwrite(descriptor, view, offset)
            view = view[written:]
            offset += written
    except OSError as error:
        raise failure(error, "writing", path) from error


def sync_data(descriptor: int, path: Path) -> None:
    """Make what was written durable; an error means that the process must stop."""
    try:
        if hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)
    except OSError as error:
        raise _sync_failed(error, path) from error


def cut(descriptor: int, size: int, path: Path) -> None:
    """Make a file as short as it was, durably: what was behind must not come back when later files are there already."""
    try:
        os.ftruncate(descriptor, size)
    except OSError as error:
        raise StorageError(f"cutting {path} back to {size} bytes failed: {error.strerror or error}") from error
    sync_data(descriptor, path)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise failure(error, "opening", folder) from error
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise _sync_failed(error, folder) from error
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder if it is not there, and those that it is in."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ConfigError(f"{folder} is no folder") from None
    except NotADirectoryError:
        raise ConfigError(f"{folder} cannot be a folder: something that it would be in is none") from None
    except OSError as error:
        raise failure(error, "making", folder) from error


def write_unfinished(path: Path, data: bytes, mode: int = FILE_MODE) -> Path:
    """Write and sync a file under its unfinished name; if that fails, it is gone again."""
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    except OSError as error:
        raise failure(error, "creating", unfinished) from error
    try:
        write_all(descriptor, data, 0, unfinished)
        sync_data(descriptor, unfinished)
    except StorageError:
        with suppress(OSError):
            unfinished.unlink()
        raise
    finally:
        os.close(descriptor)
    return unfinished


def name_finished(unfinished: Path, path: Path) -> None:
    """Give a whole file its name, durably."""
    try:
        unfinished.rename(path)
    except OSError as error:
        raise failure(error, "naming", path) from error
    sync_folder(path.parent)


def read_whole(path: Path) -> bytes:
    """Read a file; StorageError names it if the disk does not give it."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise failure(error, "reading", path) from error


def read_at(descriptor: int, size: int, offset: int, path: Path) -> bytes:
    """Read a part of an open file; StorageError names it if the disk does not give it."""
    try:
        return os.pread(descriptor, size, offset)
    except OSError as error:
        raise failure(error, f"reading {size} bytes at offset {offset} of", path) from error


def read_from_disk(path: Path) -> bytes:
    """Read a file that is synced, past what memory holds of it where the system lets us say so."""
    with path.open("rb") as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read()


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock of an open file if nobody holds it."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def failure(error: OSError, doing: str, path: Path) -> StorageError:
    """Return what an error of the system means for the store."""
    kind = StoreFull if error.errno in FULL else StorageError
    advice = f". {BROKEN_ADVICE}" if error.errno in BROKEN else ""
    return kind(f"{doing} {path} failed: {error.strerror or error}{advice}")


def _sync_failed(error: OSError, path: Path) -> StorageError:
    why = error.strerror or error
    return StorageError(f"fsync failed on {path}: {why}; this process stores nothing more. {BROKEN_ADVICE}")
