"""The loop around ``member.step`` in a running program. The simulator's ``node`` is the other caller of ``step``.

It does with a ``Ready`` what the contract says, in that order: first the store, then the network and what was accepted, then
deliveries. Steps that come while the store is busy share its next commit, so the price of a sync is paid once for all of them.

Rules:

* What follows from a step happens when its records are durable, and in the order of the steps: a packet may confirm what an
  earlier step took.
* A full disk stops everything that would have to be stored, and nothing else: what comes in is not taken, so that others keep
  it and send it again. The same entries are tried again until there is room.
* Any other failure of the store ends the driver: what is on disk is right, and what is in memory may not be.
* A snapshot takes the place of the log when the log has grown by as much as the last snapshot took, so that its cost per
  message stays the same whatever waits. While much waits that is on its way out it is left for later, as long as the log is
  quick to read; and for want of room as long as there is room for the log.
* A step is only made if what it writes can be appended: once the member has made it, it cannot be taken back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol

from thence.core.contract import Delivery, Input, Ready, Timer
from thence.core.member import Member
from thence.core.messages import Envelope, Packet
from thence.errors import Busy, FrameRefused, StorageError, StoreFull
from thence.runtime.counting import COMMIT_ENTRIES, COMMIT_SECONDS, Histogram
from thence.runtime.files import failure
from thence.runtime.journal import Written, encode_entry
from thence.runtime.store import MAX_BUFFERED_BYTES, MAX_ENTRY_BYTES, MemoryStore, Store

COMPACT_BYTES: Final = 64 * 1024 * 1024
"""How far the log grows at least before a snapshot takes its place."""

COMMIT_BYTES: Final = 4 * 1024 * 1024
"""About how much one commit takes: what has to wait for the one under way, such as the next packets, does not wait long."""

LOG_PER_BACKLOG: Final = 4
"""How many times as long as what waits the log should be before a snapshot takes its place: most of it is then gone,"""

MAX_REPLAYED: Final = 100_000
"""unless it has so many entries: a start takes about 20 µs for each."""

LOOKS_PER_COMPACTION: Final = 4
"""How often that is looked at while the log grows by ``COMPACT_BYTES``."""

FULL_DISK_RETRY_S: Final = 1.0
"""How long to wait before a full disk is tried again."""

COMPACT_AFTER_REFUSALS: Final = 10
"""After how many refusals for want of room a snapshot is tried, however short the log is: others may need less than the last."""

MAX_PENDING_STEPS: Final = 50_000
"""How many steps may wait for the store before nothing more is taken."""

NEVER_NS: Final = 2**63
"""A time that does not come."""

MAX_PENDING_BYTES: Final = (MAX_BUFFERED_BYTES - MAX_ENTRY_BYTES) // 2
"""How many bytes may: one more step of any size fits behind them, and then many small records that nobody can refuse."""

log = logging.getLogger("thence.driver")


class Actions(Protocol):
    """What the driver needs to have done."""

    @property
    def records(self) -> bool:
        """Whether it wants to be told of steps where nothing has to be durable."""

    def stepped(self, sequence: int, ready: Ready) -> None:
        """The member has made a step; what follows from it happens when the entry with this number is durable."""

    def transmit(self, peer: str, packet: Packet[Any]) -> None:
        """Send a packet."""

    def accepted(self, envelope: Envelope) -> None:
        """A message of ours is durable."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Messages for us, in order."""

    def stable(self, upto: int) -> None:
        """All have our messages up to this number."""

    def safe(self, upto: int) -> None:
        """All deliveries up to this position are safe."""

    def refused(self, refusal: FrameRefused) -> None:
        """A frame was not taken; for the log."""

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


class Clock:
    """Nanoseconds since 1970 that never go back while the program runs."""

    def __init__(self) -> None:
        """Start with the time of the system."""
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        """Return the time."""
        return time.monotonic_ns() + self._offset


class Driver:
    """See the module's text."""

    def __init__(self, member: Member, store: Store | MemoryStore, actions: Actions, clock: Clock) -> None:
        """Drive ``member``, which has been restored. ``start`` makes it work."""
        self.member = member
        self.store = store
        self._now = clock.now
        self.stalled = ""
        """Why nothing is taken at the moment."""
        self.commits = 0
        self.commit_seconds = Histogram(COMMIT_SECONDS)
        self.commit_entries = Histogram(COMMIT_ENTRIES)
        self.committing_since: float | None = None
        """When the commit that is under way began, by the clock of ``time.monotonic``."""
        self.steps = 0
        self.stepped_at = 0
        """When the last step was made."""
        self.after_step: Callable[[], None] | None = None
        """Called behind each step, when what follows from it is seen to: the member may want something of the disk
        (``core.overflow``)."""
        self._actions = actions
        self._volatile = isinstance(store, MemoryStore)
        self._at_once = self._volatile and not actions.records
        """Whether nothing has to be durable or told: then nothing has to wait either."""
        self._pending: deque[tuple[int, Ready | Callable[[], None]]] = deque()
        """What follows from entries that are not durable yet, by their numbers."""
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "thence-store")
        self._committing: asyncio.Task[None] | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at = NEVER_NS
        # A store that may not hold much must be made short all the more often.
        self._compact_every = COMPACT_BYTES if store.limit_bytes is None else min(COMPACT_BYTES, store.limit_bytes // 4)
        self._compact_at = self._compact_every
        self._snapshot_of = 0
        """The last entry that a snapshot of ours stands for."""
        # What waits is committed right before a snapshot, whatever the limit says: it must not be far over it.
        limit = store.limit_bytes
        self._most_pending_bytes = MAX_PENDING_BYTES if limit is None else min(MAX_PENDING_BYTES, limit // 8)
        self._compact_soon = False
        self._refused = 0
        """How often in succession the store had no room."""
        self._closed = False

    # Inputs.

    @property
    def full(self) -> str:
        """Why no more input is taken now, if so."""
        if self.stalled:
            return self.stalled
        if self.store.buffered_bytes >= self._most_pending_bytes:
            return f"{self.store.buffered_bytes} bytes wait for the store"
        return f"{len(self._pending)} steps wait for the store" if len(self._pending) >= MAX_PENDING_STEPS else ""

    def step(self, step_input: Input, also: Sequence[Written] = (), then: Callable[[], None] | None = None) -> Ready:
        """Step, and see to what follows. A submission that cannot be taken raises ``Busy``.

        ``also`` is stored in the same entry, behind what the member has to store; ``then`` is called behind what follows from it.
        """
        if self._closed:
            raise Busy("the server is stopping")
        self.steps += 1
        self.stepped_at = now = self._now()
        ready = self.member.step(step_input, now)
        if ready.refused:
            for refusal in ready.refused:
                self._actions.refused(refusal)
        if ready.wake is not None and ready.wake < self._wake_at:
            self._set_wake(ready.wake)
        if self._at_once:
            self._perform(ready)
        else:
            self._store(ready, also)
        if then is not None:
            self.when_durable(then)
        if self.after_step is not None:
            self._look_after()
        return ready

    def _look_after(self) -> None:
        try:
            if self.after_step is not None:
                self.after_step()
        except StorageError as error:
            self._closed = True
            self._actions.failed(error)

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call ``then`` when everything that was written so far is durable and has had its consequences."""
        if self._volatile or (not self._pending and self.store.durable >= self.store.appended):
            then()
        else:
            self._pending.append((self.store.appended, then))

    def write(self, records: Sequence[Written], then: Callable[[], None] | None = None) -> None:
        """Store what is not the member's. ``then`` is called when it is durable, in its turn among what follows from steps."""
        if self._closed:
            return
        if self._volatile:
            if then is not None:
                then()
            return
        self.store.append(encode_entry(records))
        if then is not None:
            self._pending.append((self.store.appended, then))
        self._commit()

    def _store(self, ready: Ready, also: Sequence[Written] = ()) -> None:
        if self._volatile:
            self._actions.stepped(0, ready)
            self._perform(ready)
            self._actions.stored(0)
            return
        if ready.persist:
            self.store.append(encode_entry((*ready.persist, *also) if also else ready.persist))
        self._actions.stepped(self.store.appended, ready)
        if ready.persist or self._pending:
            if ready.persist or ready.send or ready.deliver or ready.stable or ready.safe:
                self._pending.append((self.store.appended, ready))
            self._commit()
        else:
            self._perform(ready)

    def _perform(self, ready: Ready) -> None:
        actions = self._actions
        if ready.send:
            for peer, packet in ready.send:
                actions.transmit(peer, packet)
        if ready.accepted:
            for envelope in ready.accepted:
                actions.accepted(envelope)
        if ready.deliver:
            actions.deliver(ready.deliver)
        if ready.stable:
            actions.stable(ready.stable)
        if ready.safe:
            actions.safe(ready.safe)

    # The store.

    def compact_soon(self) -> None:
        """Make a snapshot, though the log may be short: something else is kept only for the sake of the last one."""
        self._compact_soon = True
        self._commit()

    def _commit(self) -> None:
        if self._committing is None and not self._closed:
            self._committing = self._loop.create_task(self._commit_all())

    async def _commit_all(self) -> None:
        try:
            while (self._compact_soon or self.store.durable < self.store.appended) and not self._closed:
                await self._commit_once()
                due = self.store.bytes_since_snapshot >= self._compact_at and not self._left_for_later()
                if due or self._compact_soon or self._refused >= COMPACT_AFTER_REFUSALS:
                    self._compact_soon, self._refused = False, 0
                    await self._compact()
        except OSError as error:
            self._closed = True
            self._actions.failed(failure(error, "using", self._path_of(error)))
        except Exception as error:  # noqa: BLE001  Whatever it is, nothing may be acknowledged after it.
            self._closed = True
            self._actions.failed(error)
        finally:
            self._committing = None

    def _path_of(self, error: OSError) -> Path:
        """Return what was in use when the system failed, as well as that is known."""
        folder = "the store" if isinstance(self.store, MemoryStore) else self.store.folder
        return Path(error.filename if isinstance(error.filename, str) else folder)

    async def _commit_once(self, *, over_limit: bool = False) -> None:
        began, before = time.monotonic(), self.store.durable
        self.committing_since = began
        try:
            durable = await self._loop.run_in_executor(self._thread, self.store.commit, COMMIT_BYTES, over_limit)
        except StoreFull as error:
            self.stalled = str(error)
            self._refused += 1
            self.committing_since = None
            await asyncio.sleep(FULL_DISK_RETRY_S)
            return
        self.stalled = ""
        self._refused = 0
        self.committing_since = None
        self.commits += 1
        self.commit_seconds.note(time.monotonic() - began)
        self.commit_entries.note(durable - before)
        pending = self._pending
        while pending and pending[0][0] <= durable:
            _, what = pending.popleft()
            if isinstance(what, Ready):
                self._perform(what)
            else:
                what()
        self._actions.stored(durable)

    def _left_for_later(self) -> bool:
        """Whether a snapshot would have to write too much of what is in the log again."""
        grown, limit = self.store.bytes_since_snapshot, self.store.limit_bytes
        if self.store.appended - self._snapshot_of >= MAX_REPLAYED or (limit is not None and grown >= limit // 2):
            return False
        if grown >= LOG_PER_BACKLOG * self._actions.waiting_bytes():
            return False
        self._compact_at = grown + self._compact_every // LOOKS_PER_COMPACTION
        return True

    async def _compact(self) -> None:
        snapshot, upto = self._actions.snapshot(), self.store.appended
        while self.store.durable < upto:
            await self._commit_once(over_limit=True)
        try:
            await self._actions.before_compaction()
            await self._loop.run_in_executor(self._thread, self.store.compact, snapshot, upto)
        except StoreFull as error:
            log.warning("the log is not made short: %s", error)
            self._compact_at = self.store.bytes_since_snapshot + max(self._compact_every, len(snapshot))
            return
        self._compact_at = max(self._compact_every, len(snapshot))
        self._snapshot_of = upto
        self._actions.compacted()

    # Time.

    def _set_wake(self, wake: int) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake_at = wake
        self._wake = self._loop.call_later(max(0.0, (wake - self._now()) / 1e9), self._woken)

    def _woken(self) -> None:
        self._wake = None
        self._wake_at = NEVER_NS
        if not self._closed:
            self.step(Timer())

    # The end.

    async def close(self) -> None:
        """Make durable what was taken, and stop."""
        try:
            async with asyncio.timeout(2 * FULL_DISK_RETRY_S):
                while self._committing is not None:
                    await asyncio.wait([self._committing])
        except TimeoutError:
            pass  # A full disk: what is not stored was not acknowledged either.
        if self._committing is None and self.store.bytes_since_snapshot:
            await self._compact()  # A short log, for a quick start.
        self._closed = True
        if self._wake is not None:
            self._wake.cancel()
        if self._committing is not None:
            self._committing.cancel()
        self._thread.shutdown()
        self.store.close()
