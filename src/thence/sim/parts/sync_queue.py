"""What a process stores, what has to wait until that is durable, and the alarm that wakes the process.

Rules:

* What waits happens in the order in which it was put here, after a sync that began behind its records.
* Records that come while the disk is busy share the next sync.
* A crash ends a *life*. What was put here in an earlier life does not happen, and its alarm does not ring.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from thence.sim.disk import Disk
from thence.sim.kernel import Kernel, Timer

COMPACT_EVERY = 256
"""How many records the disk collects before a snapshot replaces them."""


class SyncQueue:
    """A disk, and what follows from what it has not synced."""

    def __init__(self, disk: Disk, kernel: Kernel, snapshot: Callable[[], object]) -> None:
        """Store on ``disk``; ``snapshot`` gives what stands for all records."""
        self.disk = disk
        self.life = 0
        self._kernel = kernel
        self._snapshot = snapshot
        self.waiting: deque[Callable[[], object]] = deque()
        """What has to wait for the disk."""
        self._syncing = False

    @property
    def idle(self) -> bool:
        """Whether nothing is being stored."""
        return not self.waiting and not self._syncing

    def store(self, records: Iterable[object], then: Callable[[], object]) -> None:
        """Write ``records``, and do ``then`` when they and all before them are durable; at once if they are."""
        written = self.disk.end
        for record in records:
            self.disk.append(record)
        if self.disk.end == written and not self.waiting:
            then()
            return
        self.waiting.append(then)
        if not self._syncing:
            self._sync()

    def drop(self) -> None:
        """End this life: nothing that waits happens."""
        self.life += 1
        self.waiting.clear()
        self._syncing = False

    def crash(self) -> None:
        """End this life, and lose what is not synced."""
        self.drop()
        self.disk.crash()

    def _sync(self) -> None:
        self._syncing = True
        token = self.disk.begin_sync()
        self._kernel.schedule(self.disk.sync_delay_ns(), self._synced, self.life, token, len(self.waiting))

    def _synced(self, life: int, token: int, count: int) -> None:
        if life != self.life:
            return
        self.disk.complete_sync(token)
        for _ in range(count):
            self.waiting.popleft()()
            if life != self.life:
                return
        self._syncing = False  # Not before: what follows may have to be stored, and needs the next sync.
        if len(self.disk.records()) >= COMPACT_EVERY and not self.waiting:
            self.disk.compact(self._snapshot())
        if self.waiting:
            self._sync()


class Alarm:
    """Wakes a process at the earliest time that it asked for: one timer. It belongs to the life in which it was set."""

    def __init__(self, kernel: Kernel, queue: SyncQueue, ring: Callable[[], None]) -> None:
        """Call ``ring``, unless the life of ``queue`` in which it was asked for is over."""
        self._kernel = kernel
        self._queue = queue
        self._ring = ring
        self._timer: Timer | None = None
        self._at = 0

    def set(self, at_ns: int | None) -> None:
        """Ring at this time, or earlier if that was asked for before; None: no news."""
        if at_ns is None or (self._timer is not None and self._at <= at_ns):
            return
        if self._timer is not None:
            self._kernel.cancel(self._timer)
        self._at = at_ns
        self._timer = self._kernel.timer(max(0, at_ns - self._kernel.now), self._fire, self._queue.life)

    def forget(self) -> None:
        """Go on as if nothing had been asked for."""
        self._timer = None

    def _fire(self, life: int) -> None:
        if life == self._queue.life:
            self._timer = None
            self._ring()
