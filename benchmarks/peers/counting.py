"""What every side does alike: counting what comes, timing it, and saying how fast it was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

BURST = 256
"""How many messages a sender posts before it lets the loop turn."""
WARM_UP_PINGS = 300


class Part(NamedTuple):
    """What one process saw: its own clock is everybody's."""

    deliveries: int
    began: float
    ended: float


class Inbox:
    """Counts messages, and knows when all have come."""

    def __init__(self, expected: int, body_bytes: int) -> None:
        """Wait for ``expected`` messages."""
        self.count = 0
        self.expected = expected
        self.last = 0.0
        self._bytes = 0
        self._body_bytes = body_bytes
        self._all: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def add(self, count: int, body_bytes: int) -> None:
        """Some have come."""
        self.count += count
        self._bytes += body_bytes
        if self.count >= self.expected and not self._all.done():
            self.last = time.monotonic()
            self._all.set_result(None)

    async def all(self) -> None:
        """Wait for the last one; refuse more, or others, than were sent."""
        await self._all
        if self.count != self.expected or self._bytes != self.expected * self._body_bytes:
            raise AssertionError(f"{self.count} messages of {self._bytes} bytes in all; expected {self.expected}")


def rate(parts: Iterable[Part]) -> float:
    """Deliveries per second of all processes together, from the first send to the last delivery."""
    parts = list(parts)
    seconds = max(part.ended for part in parts) - min(part.began for part in parts)
    return sum(part.deliveries for part in parts) / seconds


class Pings:
    """Times of round trips, one after the other."""

    def __init__(self, count: int) -> None:
        """Take so many, behind those that only warm up."""
        self._left = count + WARM_UP_PINGS
        self._times: list[float] = []
        self._sent = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def sent(self) -> None:
        """A ping goes out."""
        self._sent = time.perf_counter()

    def back(self) -> bool:
        """It is back; return whether another one is to go out."""
        self._times.append(time.perf_counter() - self._sent)
        self._left -= 1
        if not self._left:
            self.done.set_result(None)
        return self._left > 0

    def times(self) -> list[float]:
        """Return the sorted times, in seconds."""
        return sorted(self._times[WARM_UP_PINGS:])


def percentile(times: Sequence[float], percent: float) -> float:
    """Return the value of sorted times at or below which so many percent of them lie."""
    return times[min(len(times) - 1, int(len(times) * percent / 100))]
