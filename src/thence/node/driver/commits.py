"""How entries become durable: commits in a thread of their own, and snapshots that take the place of the log.

Rules:

* Entries that are appended while a commit is under way share the next one, so the price of a sync is paid once for all of them.
* A full disk stops everything that would have to be stored, and nothing else. The same entries are tried again until there is
  room. Any other failure of the store ends the commits: what is on disk is right, and what is in memory may not be.
* A snapshot takes the place of the log when the log has grown by as much as the last snapshot took, so that its cost per
  message stays the same whatever waits. While much waits that is on its way out it is left for later, as long as the log is
  quick to read; and for want of room as long as there is room for the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

from thence.errors import StoreFull
from thence.runtime.counters import COMMIT_ENTRIES, COMMIT_SECONDS, Histogram
from thence.storage.files import failure
from thence.storage.store import MemoryStore, Store

COMPACT_BYTES: Final = 64 * 1024 * 1024
"""How far the log grows at least before a snapshot takes its place."""

COMMIT_BYTES: Final = 4 * 1024 * 1024
"""About how much one commit takes: what has to wait for the one under way, such as the next packets, does not wait long."""

LOG_PER_BACKLOG: Final = 4
"""How many times as long as what waits the log should be before a snapshot takes its place: most of it is then gone."""

MAX_REPLAYED: Final = 100_000
"""How many entries the log has before a snapshot takes its place anyway: a start takes about 20 µs for each."""

LOOKS_PER_COMPACTION: Final = 4
"""How often that is looked at while the log grows by ``COMPACT_BYTES``."""

FULL_DISK_RETRY_S: Final = 1.0
"""How long to wait before a full disk is tried again."""

COMPACT_AFTER_REFUSALS: Final = 10
"""After how many refusals for want of room a snapshot is tried, however short the log is: others may need less than the last."""

log = logging.getLogger("thence.driver")


class Upkeep(Protocol):
    """What commits and snapshots need from the node."""

    def stored(self, durable: int) -> None:
        """All entries up to this one are durable."""

    def waiting_bytes(self) -> int:
        """Return about how much of what has come in would be in a snapshot now."""

    def snapshot(self) -> bytes:
        """Return everything at this moment, for the store."""

    async def before_compaction(self) -> None:
        """Do what must be done before the log loses what the snapshot stands for."""

    def compacted(self) -> None:
        """The last snapshot is durable: nobody needs any more what only those before it needed."""

    def failed(self, error: Exception) -> None:
        """The store cannot go on."""


class Commits:
    """Makes the entries of a store durable, and replaces its log by snapshots."""

    def __init__(self, store: Store | MemoryStore, perform: Callable[[int], None]) -> None:
        """``perform`` does what follows from the entries up to a number, which are durable then."""
        self.store = store
        self.stalled = ""
        """Why nothing can be stored at the moment."""
        self.count = 0
        self.seconds = Histogram(COMMIT_SECONDS)
        self.entries = Histogram(COMMIT_ENTRIES)
        self.since: float | None = None
        """When the commit that is under way began, by the clock of ``time.monotonic``."""
        self.closed = False
        self.task: asyncio.Task[None] | None = None
        """The commits that are under way."""
        self.thread = ThreadPoolExecutor(1, "thence-store")
        self._perform = perform
        self._upkeep: Upkeep
        self._loop = asyncio.get_running_loop()
        # A store that may not hold much must be made short all the more often.
        self._compact_every = COMPACT_BYTES if store.limit_bytes is None else min(COMPACT_BYTES, store.limit_bytes // 4)
        self._compact_at = self._compact_every
        self._snapshot_of = 0
        """The last entry that a snapshot of ours stands for."""
        self._compact_soon = False
        self._refused = 0
        """How often in succession the store had no room."""

    def attach(self, upkeep: Upkeep) -> None:
        """Begin to tell ``upkeep``; nothing is committed before."""
        self._upkeep = upkeep

    def fail(self, error: Exception) -> None:
        """Stop for good: nothing may be acknowledged after an error."""
        self.closed = True
        self._upkeep.failed(error)

    def compact_soon(self) -> None:
        """Make a snapshot, though the log may be short: something else is kept only for the sake of the last one."""
        self._compact_soon = True
        self.begin()

    def begin(self) -> None:
        """Make durable what was appended, soon."""
        if self.task is None and not self.closed:
            self.task = self._loop.create_task(self._commit_all())

    async def _commit_all(self) -> None:
        try:
            while (self._compact_soon or self.store.durable < self.store.appended) and not self.closed:
                await self._commit_once()
                due = self.store.bytes_since_snapshot >= self._compact_at and not self._left_for_later()
                if due or self._compact_soon or self._refused >= COMPACT_AFTER_REFUSALS:
                    self._compact_soon, self._refused = False, 0
                    await self.compact()
        except OSError as error:
            self.fail(failure(error, "using", self._path_of(error)))
        except Exception as error:  # noqa: BLE001  Whatever it is, nothing may be acknowledged after it.
            self.fail(error)
        finally:
            self.task = None

    def _path_of(self, error: OSError) -> Path:
        """Return what was in use when the system failed, as well as that is known."""
        folder = "the store" if isinstance(self.store, MemoryStore) else self.store.folder
        return Path(error.filename if isinstance(error.filename, str) else folder)

    async def _commit_once(self, *, over_limit: bool = False) -> None:
        began, before = time.monotonic(), self.store.durable
        self.since = began
        try:
            durable = await self._loop.run_in_executor(self.thread, self.store.commit, COMMIT_BYTES, over_limit)
        except StoreFull as error:
            self.stalled = str(error)
            self._refused += 1
            self.since = None
            await asyncio.sleep(FULL_DISK_RETRY_S)
            return
        self.stalled = ""
        self._refused = 0
        self.since = None
        self.count += 1
        self.seconds.note(time.monotonic() - began)
        self.entries.note(durable - before)
        self._perform(durable)
        self._upkeep.stored(durable)

    def _left_for_later(self) -> bool:
        """Whether a snapshot would have to write too much of what is in the log again."""
        grown, limit = self.store.bytes_since_snapshot, self.store.limit_bytes
        if self.store.appended - self._snapshot_of >= MAX_REPLAYED or (limit is not None and grown >= limit // 2):
            return False
        if grown >= LOG_PER_BACKLOG * self._upkeep.waiting_bytes():
            return False
        self._compact_at = grown + self._compact_every // LOOKS_PER_COMPACTION
        return True

    async def compact(self) -> None:
        """Let a snapshot take the place of the log."""
        snapshot, upto = self._upkeep.snapshot(), self.store.appended
        while self.store.durable < upto:
            await self._commit_once(over_limit=True)
        try:
            await self._upkeep.before_compaction()
            await self._loop.run_in_executor(self.thread, self.store.compact, snapshot, upto)
        except StoreFull as error:
            log.warning("the log is not made short: %s", error)
            self._compact_at = self.store.bytes_since_snapshot + max(self._compact_every, len(snapshot))
            return
        self._compact_at = max(self._compact_every, len(snapshot))
        self._snapshot_of = upto
        self._upkeep.compacted()

    async def close(self) -> None:
        """Make durable what was taken, and stop."""
        try:
            async with asyncio.timeout(2 * FULL_DISK_RETRY_S):
                while self.task is not None:
                    await asyncio.wait([self.task])
        except TimeoutError:
            pass  # A full disk: what is not stored was not acknowledged either.
        if self.task is None and self.store.bytes_since_snapshot and not self.closed:
            await self.compact()  # A short log, for a quick start.
        self.closed = True
        if self.task is not None:
            self.task.cancel()
        self.thread.shutdown()
        self.store.close()
