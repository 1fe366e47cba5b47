"""Wakes a process at the earliest time that it asked for."""

from __future__ import annotations

from collections.abc import Callable

from thence.sim.kernel import Kernel, Timer
from thence.sim.parts.sync_queue import SyncQueue


class Alarm:
    """One timer. It belongs to the life in which it was set."""

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
