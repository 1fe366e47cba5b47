"""When an ack goes out, and when what is not acknowledged is tried again. Every kind of ack is timed by this.

An ack goes with the next packet, alone after a while, or at once (``AckTimer``). Who waits for an ack repeats a frame, a question
or a request less and less often, for ever (``Attempt``). A channel keeps its own wait, since it looks at it with every packet.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

KeyT = TypeVar("KeyT")

RESEND_AT_MOST_NS = 5_000_000_000
"""The longest wait between two attempts."""

ACK_BYTES = 64 * 1024
"""How many bytes acks wait for at most: a quarter of the smallest window, so that waiting never holds up the sender."""


class AckTimer:
    """The wait of the acks to one peer for a packet that takes them along."""

    def __init__(self, within_ns: int) -> None:
        """Let acks wait up to ``within_ns``."""
        self.within_ns = within_ns
        self.at: int | None = None
        """When acks go out alone; None: there is nothing to acknowledge."""

    def start(self, now: int) -> None:
        """Note that there is something to acknowledge."""
        if self.at is None:
            self.at = now + self.within_ns

    def hurry(self) -> None:
        """Acknowledge at the next opportunity."""
        self.at = 0

    def is_due(self, now: int) -> bool:
        """Return whether acks go out now even if nothing else does."""
        return self.at is not None and now >= self.at


class ReceivedAcks(AckTimer):
    """Acks of frames that were received: they wait for a time, or until so many frames or bytes came."""

    def __init__(self, within_ns: int, every: int) -> None:
        """Let acks wait up to ``within_ns``, or for ``every`` frames."""
        super().__init__(within_ns)
        self.every = every
        self.frames = 0
        """How many frames came since we last acknowledged."""
        self.bytes = 0
        """How many bytes came since then."""

    def came(self, now: int) -> None:
        """Note that frames came, which are counted already."""
        if self.frames >= self.every or self.bytes >= ACK_BYTES:
            self.at = now
        elif self.at is None:
            self.at = now + self.within_ns

    def is_due(self, now: int) -> bool:
        return super().is_due(now) or self.frames >= self.every

    def sent(self) -> None:
        """Note that all frames were acknowledged."""
        self.frames, self.bytes, self.at = 0, 0, None


class Attempt(msgspec.Struct):
    """When to try again, how long to wait then, and how many attempts there were."""

    due: int
    wait_ns: int
    count: int = 0

    @classmethod
    def after(cls, now: int, wait_ns: int) -> Attempt:
        """Return the first attempt, after this wait; the next one waits twice as long."""
        return cls(now + wait_ns, 2 * wait_ns)

    def again(self, now: int) -> None:
        """Count an attempt."""
        self.count += 1
        self.due = now + self.wait_ns
        self.wait_ns = min(2 * self.wait_ns, RESEND_AT_MOST_NS)


class Attempts(Generic[KeyT]):
    """What is tried again until it succeeds, less and less often."""

    def __init__(self) -> None:
        """Nothing is tried yet."""
        self.table: dict[KeyT, Attempt] = {}
        self.wake_at: int | None = None
        """When the first attempt is due. It may be too early."""

    def start(self, key: KeyT, due: int, wait_ns: int) -> Attempt:
        """Try something at ``due``, unless it is tried already; return its attempt."""
        if self.wake_at is None or due < self.wake_at:
            self.wake_at = due
        return self.table.setdefault(key, Attempt(due, wait_ns))

    def hurry(self) -> None:
        """Try everything at once."""
        for attempt in self.table.values():
            attempt.due = 0

    def find_wake(self) -> None:
        """Find out anew when the first attempt is due."""
        self.wake_at = min([attempt.due for attempt in self.table.values()], default=None)
