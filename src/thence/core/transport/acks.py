"""When an ack goes out: with the next packet, alone after a while, or at once. Every kind of ack is timed by this."""

from __future__ import annotations

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
        """How many frames came since we last acknowledged,"""
        self.bytes = 0
        """and how many bytes."""

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
