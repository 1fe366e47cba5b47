"""The durable store of a server: an append log with one sync per commit, and snapshots that make it short again.

It exists so that whatever was acknowledged is found again after a crash. The entries and snapshots are bytes; what they mean
is the driver's business. docs/reference/store.md says what is promised, what was measured, and why it is a log.

Rules:

* ``append`` is cheap and promises nothing. When ``commit`` has returned n, every entry up to n survives a crash.
* ``append`` may be called by one thread while another one is in ``commit`` or ``compact``; these two never run at once.
* A full disk loses nothing: the entries stay in memory, and the next ``commit`` tries the same again.
* A sync that failed is the end of this process's use of the store. Whoever opens it next reads what is really there.
* One process at a time: a lock that the system gives back when its holder dies, however it dies.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from thence.errors import Busy, ConfigError, StorageError, StoreFull, UsageError
from thence.storage import files
from thence.storage.recovery import LOCK_NAME, MARK_NAME, list_folder, recover, segment_path, snapshot_path
from thence.storage.segments import (
    MARKER_BYTES,
    MAX_IDENTITY_BYTES,
    SEGMENT,
    decode_snapshot,
    encode_batch,
    encode_header,
    encode_mark,
    encode_snapshot,
)

MAX_ENTRY_BYTES = 65 * 2**20
"""The largest entry: a record of the largest size, and what is around it."""

MAX_BUFFERED_BYTES = 128 * 2**20
"""How many bytes may wait for a commit before ``append`` is refused as busy; so this is also the largest batch."""

MAX_SEGMENT_BYTES = 64 * 2**20
"""From this size on a new segment is begun; only a batch that is larger by itself makes a larger one."""

MAX_SNAPSHOT_BYTES = 2**31
"""The largest snapshot."""

LOCK_WAIT_SECONDS = 0.2
"""How long ``open`` tries to get the lock: somebody may only be looking whether it is held."""


@dataclass(slots=True)
class _Segment:
    """The segment that is written to. Up to ``end`` it is durable."""

    path: Path
    marker: bytes = b""
    end: int = 0
    descriptor: int = -1


class Store:
    """A folder with a log and a snapshot. Make it with ``open``."""

    def __init__(self, folder: Path, identity: str, lock_descriptor: int, limit_bytes: int | None) -> None:
        """Hold the folder whose lock this process has got; ``open`` does the rest."""
        self.folder = folder
        self.identity = identity
        self.limit_bytes = limit_bytes
        self.snapshot: bytes | None = None
        self.entries: list[bytes] = []
        self.recovered_note = ""
        self.bytes_since_snapshot = 0
        self._lock_descriptor = lock_descriptor
        self._mark_descriptor = -1
        self._segment = _Segment(folder)
        self._must_begin_segment = True
        self._older_bytes = 0  # of all files but the segment that is being written
        self._durable = 0
        self._failed: str | None = None
        # The thread that appends and the one that commits share a deque and need no lock: of these, each has one writer.
        self._buffer: deque[bytes] = deque()  # appended to by the one, taken from by the other
        self._appended = 0
        self._appended_bytes = 0
        self._done_bytes = 0  # of what was appended: durable
        self._unwritten: list[bytes] = []  # taken from the buffer by the thread that commits, and not durable yet

    @classmethod
    def open(cls, folder: Path, identity: str, *, limit_bytes: int | None = None) -> Store:
        """Lock the folder, make it if need be, and read what is in it.

        ``identity`` names fabric and server. ``limit_bytes`` bounds what the folder may hold; snapshots, and what is committed
        right before one, are written all the same, since they are what makes room.
        """
        if len(identity.encode()) > MAX_IDENTITY_BYTES:
            raise ConfigError(f"an identity of {len(identity.encode())} bytes; MAX_IDENTITY_BYTES is {MAX_IDENTITY_BYTES}")
        if not folder.is_dir():
            files.make_folder(folder)
            files.sync_folder(folder.parent)
        try:
            store = cls(folder, identity, _take_lock(folder), limit_bytes)
            try:
                store._recover()
            except BaseException:
                store._close_descriptors()
                raise
        except OSError as error:
            raise files.failure(error, "opening the store in", folder) from error
        return store

    @property
    def durable(self) -> int:
        """The last sequence number that survives a crash."""
        return self._durable

    @property
    def appended(self) -> int:
        """The last sequence number that was given."""
        return self._appended

    @property
    def buffered_bytes(self) -> int:
        """How much was appended and is not durable yet."""
        return self._appended_bytes - self._done_bytes

    @property
    def held_bytes(self) -> int:
        """How much the folder holds: log and snapshot, as ``limit_bytes`` counts."""
        return self._older_bytes + self._segment.end

    def take_recovered(self) -> tuple[bytes | None, list[bytes]]:
        """Hand over what recovery found, and keep it no longer."""
        size = self.snapshot, self.entries
        self.snapshot, self.entries = None, []
        return size

    def append(self, entry: bytes) -> int:
        """Put an entry into the buffer and return its sequence number; ``commit`` makes it durable."""
        size = len(entry)
        if size > MAX_ENTRY_BYTES:
            raise UsageError(f"an entry of {size} bytes; MAX_ENTRY_BYTES is {MAX_ENTRY_BYTES}")
        if self._failed:
            raise StorageError(self._failed)
        waiting = self.buffered_bytes
        if waiting + size > MAX_BUFFERED_BYTES:
            raise Busy(f"{waiting} bytes wait for a commit; MAX_BUFFERED_BYTES is {MAX_BUFFERED_BYTES}")
        self._appended_bytes += size
        self._appended += 1
        self._buffer.append(entry)
        return self._appended

    def commit(self, most_bytes: int = MAX_BUFFERED_BYTES, over_limit: bool = False) -> int:
        """Write and sync everything appended so far, and return the last durable sequence number. Blocks.

        If that is more than ``most_bytes``, about so many of them; the next call goes on.
        ``over_limit``: also if ``limit_bytes`` does not allow it, for whoever makes the log short right after it.
        StoreFull: nothing was stored, and the next call tries the same entries again. Any other StorageError: stop.
        """
        if self._failed:
            raise StorageError(self._failed)
        self._take_buffer(most_bytes)
        if self._unwritten:
            self._write_batch(over_limit)
            self._done_with(len(self._unwritten))
            self._write_mark()
        return self._durable

    def compact(self, snapshot: bytes, upto: int) -> None:
        """Put a snapshot in the place of every entry up to and including ``upto``, wholly or not at all. Blocks.

        It may stand for entries that were not committed: it is durable, and says what they say.
        """
        if self._failed:
            raise StorageError(self._failed)
        if len(snapshot) > MAX_SNAPSHOT_BYTES:
            raise StoreFull(f"a snapshot of {len(snapshot)} bytes; MAX_SNAPSHOT_BYTES is {MAX_SNAPSHOT_BYTES}")
        newest = max(list_folder(self.folder).snapshots, default=0)
        if not newest <= upto <= self._appended:
            raise UsageError(f"cannot compact up to {upto}: the last snapshot is of {newest}, the last entry {self._appended}")
        self._write_snapshot(snapshot, upto)
        self._take_buffer()
        self._done_with(max(0, upto - self._durable))
        self._write_mark()
        self.bytes_since_snapshot = 0
        self._must_begin_segment = True
        self._begin_segment()
        self._delete_unneeded(upto)

    def close(self) -> None:
        """Give the lock back. Entries that were not committed are gone."""
        if self._failed is None:
            # Now even after a power failure the last batch cannot be taken for a torn one.
            with suppress(OSError):
                os.fsync(self._mark_descriptor)
        self._close_descriptors()
        self._failed = f"the store in {self.folder} is closed"

    # --- writing -----------------------------------------------------------------------------------------------------

    def _take_buffer(self, most_bytes: int = MAX_BUFFERED_BYTES) -> None:
        size, buffer, unwritten = sum(map(len, self._unwritten)), self._buffer, self._unwritten
        for _ in range(len(buffer)):  # More may come in meanwhile, from another thread.
            if size >= most_bytes:
                break
            entry = buffer.popleft()
            size += len(entry)
            unwritten.append(entry)

    def _done_with(self, count: int) -> None:
        """The first ``count`` unwritten entries are durable."""
        self._done_bytes += sum(map(len, self._unwritten[:count]))
        del self._unwritten[:count]
        self._durable += count

    def _write_batch(self, over_limit: bool) -> None:
        size = sum(map(len, self._unwritten))
        if self._must_begin_segment or self._segment.end + size > MAX_SEGMENT_BYTES:
            self._begin_segment()
        segment = self._segment
        batch = encode_batch(segment.marker, self._durable + 1, self._unwritten)
        held = self._older_bytes + self._segment.end
        if self.limit_bytes is not None and held + len(batch) > self.limit_bytes and not over_limit:
            raise StoreFull(f"{self.folder} holds {held} bytes; {len(batch)} more are over the limit of {self.limit_bytes}")
        try:
            with self._last_chance():
                files.write_all(segment.descriptor, batch, segment.end, segment.path)
        except StoreFull:
            self._cut_back()
            raise
        with self._last_chance():
            files.sync_data(segment.descriptor, segment.path)
        segment.end += len(batch)
        self.bytes_since_snapshot += len(batch)

    @contextmanager
    def _last_chance(self) -> Iterator[None]:
        """Use the store no more after any failure in the block but a full disk."""
        try:
            yield
        except StoreFull:
            raise
        except StorageError as error:
            self._failed = str(error)
            # Leave no bytes behind that perhaps only memory holds: the next start would believe them.
            with suppress(OSError):
                os.ftruncate(self._segment.descriptor, self._segment.end)
            raise

    def _cut_back(self) -> None:
        with self._last_chance():
            files.cut(self._segment.descriptor, self._segment.end, self._segment.path)

    def _write_mark(self) -> None:
        """Note how far everything is durable. It is not synced: it only ever says less than is true."""
        with suppress(OSError):
            os.pwrite(self._mark_descriptor, encode_mark(self._durable), 0)

    def _begin_segment(self) -> None:
        """Go on in a new segment. What fails here for want of room is tried again by the next commit."""
        path = segment_path(self.folder, self._durable + 1)
        if self._segment.path == path:
            self._must_begin_segment = False  # nothing has been written into this one
            return
        marker = os.urandom(MARKER_BYTES)
        header = encode_header(SEGMENT, self.identity, marker, self._durable + 1)
        with self._last_chance():
            files.name_finished(files.write_unfinished(path, header), path)
        if self._segment.descriptor >= 0:
            os.close(self._segment.descriptor)
            self._older_bytes += self._segment.end
        self._segment = _Segment(path, marker, len(header), os.open(path, os.O_RDWR))
        self._must_begin_segment = False

    def _write_snapshot(self, snapshot: bytes, upto: int) -> None:
        path = snapshot_path(self.folder, upto)
        with self._last_chance():
            unfinished = files.write_unfinished(path, encode_snapshot(self.identity, upto, snapshot))
        if not _comes_back(unfinished, snapshot):
            unfinished.unlink()
            raise StorageError(f"{unfinished} does not come back as it was written; the snapshot before it stays")
        with self._last_chance():
            files.name_finished(unfinished, path)

    def _delete_unneeded(self, upto: int) -> None:
        """Delete what the snapshot stands for: older snapshots, and segments that hold nothing behind it."""
        listing = list_folder(self.folder)
        starts = [first for first in listing.segments if first <= upto + 1]
        unneeded = [path for number, path in listing.snapshots.items() if number < upto]
        unneeded += [path for first, path in listing.segments.items() if first < max(starts)]
        for path in (*listing.unfinished, *unneeded):
            path.unlink()
        kept = (*listing.segments.values(), *listing.snapshots.values())
        self._older_bytes = sum(path.stat().st_size for path in kept if path not in unneeded and path != self._segment.path)

    # --- opening and closing -----------------------------------------------------------------------------------------

    def _recover(self) -> None:
        found = recover(self.folder, self.identity)
        self.snapshot, self.entries = found.snapshot, found.entries
        self.recovered_note = "; ".join(found.notes)
        self.bytes_since_snapshot = found.log_bytes
        self._durable = self._appended = max(found.last, found.upto)
        self._mark_descriptor = os.open(self.folder / MARK_NAME, os.O_RDWR | os.O_CREAT, files.FILE_MODE)
        if found.path is not None and found.header is not None:
            self._segment = _Segment(found.path, found.header.marker, found.end, os.open(found.path, os.O_RDWR))
            # This syncs, too: what a killed process had written may be in memory only, and from now on counts as durable.
            self._cut_back()
            self._must_begin_segment = found.last < found.upto
        if self._must_begin_segment:
            self._begin_segment()
        self._delete_unneeded(found.upto)
        os.ftruncate(self._mark_descriptor, 0)
        self._write_mark()
        os.fsync(self._mark_descriptor)
        files.sync_folder(self.folder)

    def _close_descriptors(self) -> None:
        for descriptor in (self._segment.descriptor, self._mark_descriptor, self._lock_descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._segment.descriptor = self._mark_descriptor = self._lock_descriptor = -1


def _comes_back(path: Path, snapshot: bytes) -> bool:
    try:
        return decode_snapshot(files.read_from_disk(path), str(path))[1] == snapshot
    except (StorageError, OSError):
        return False


def _take_lock(folder: Path) -> int:
    """Lock the folder for this process; StorageError names the one that has it."""
    path = folder / LOCK_NAME
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, files.FILE_MODE)
    deadline = monotonic() + LOCK_WAIT_SECONDS
    while not files.try_lock(descriptor):
        if monotonic() >= deadline:
            holder = path.read_text(encoding="ascii").strip()
            os.close(descriptor)
            raise StorageError(f"{folder} is in use by process {holder or '(not known)'}")
        sleep(LOCK_WAIT_SECONDS / 20)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


class MemoryStore:
    """The same, and nothing is kept: for servers that may forget."""

    def __init__(self) -> None:
        """Begin with nothing, as every time."""
        self.snapshot: bytes | None = None
        self.entries: list[bytes] = []
        self.recovered_note = ""
        self.bytes_since_snapshot = 0
        self.buffered_bytes = 0
        self.held_bytes = 0
        self.limit_bytes: int | None = None
        self._appended = 0

    @property
    def durable(self) -> int:
        """As good as durable: everything."""
        return self._appended

    @property
    def appended(self) -> int:
        """The last sequence number that was given."""
        return self._appended

    def take_recovered(self) -> tuple[bytes | None, list[bytes]]:
        """Hand over that there is nothing."""
        return None, []

    def append(self, entry: bytes) -> int:
        """Count the entry."""
        if len(entry) > MAX_ENTRY_BYTES:
            raise UsageError(f"an entry of {len(entry)} bytes; MAX_ENTRY_BYTES is {MAX_ENTRY_BYTES}")
        self._appended += 1
        return self._appended

    def commit(self, most_bytes: int = MAX_BUFFERED_BYTES, over_limit: bool = False) -> int:
        """Return the last sequence number: there is nothing to wait for."""
        return self._appended

    def compact(self, snapshot: bytes, upto: int) -> None:
        """Forget the snapshot, too."""

    def close(self) -> None:
        """Nothing to give back."""
