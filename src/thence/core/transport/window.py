"""How many bytes may be on their way to a peer: as few as keep the line busy.

What is on its way lies somewhere: in buffers of the system, and before the peer until it gets round to it. Beyond what the line
itself holds, more of it only makes everything wait longer, and between two processes of one machine it falls out of the caches
of the processor on its way (docs/research/benchmarks.md). On a long line too little of it leaves the line empty. So the window
begins small and follows the round trip.

Rules:

* A round trip is judged by one frame that is sent while no other is being timed, at most every ``TIME_EVERY_NS``. Nothing is
  judged by a frame that was sent again: nobody knows which copy was acknowledged.
* The shortest round trip since the way was new is what the line takes by itself. A round that took less than ``QUEUED_TIMES`` as
  long met no queue worth the name: where the window held something back in it, the window doubles. A round that took longer
  spent its time in a queue: the window halves.
* It stays between what it is at first and ``WINDOW_BYTES``. Time is an argument, as everywhere here.
* Where an ack waits for a disk the round trip says nothing about the line, and the window is ``WINDOW_BYTES`` from the
  beginning.
"""

from __future__ import annotations

WINDOW_BYTES = 16 * 1024 * 1024
"""How many bytes may be on their way at most: while a disk is busy with some of them the next ones come in."""

PACKET_BYTES = 4 * 1024 * 1024
"""From this size on a packet takes no more frames: whoever carries packets must be able to hold one for each peer."""

FIRST_WINDOW_BYTES = 256 * 1024
"""How many may be at first, and at least, where nobody waits for a disk."""

TIME_EVERY_NS = 1_000_000
"""How often a round trip is timed at most: where they are quick, that is often enough."""

QUEUED_TIMES = 2
"""From so many times the shortest round trip on, most of a round trip is waiting."""


class FlightWindow:
    """How many bytes may be in flight to one peer, by the round trips to it."""

    def __init__(self, least_bytes: int = FIRST_WINDOW_BYTES) -> None:
        """Start with a way that nothing is known of."""
        self.bytes = self._least_bytes = least_bytes
        self.limited = False
        """Whether it has held something back since the frame that is timed now."""
        self.timed = 0
        """The number of the frame that is timed; 0: none is."""
        self.next_at = 0
        """When the next one may be."""
        self._began = 0
        self._shortest_ns = 0

    def sent(self, number: int, now: int) -> None:
        """Time this frame, which goes out for the first time; only while no other is timed."""
        self.timed, self._began = number, now
        self.next_at = now + TIME_EVERY_NS

    def sent_again(self) -> None:
        """Something was repeated: what is timed now says nothing."""
        self.timed = 0
        self.limited = False

    def acked(self, now: int) -> None:
        """Note that the frame that is timed was acknowledged."""
        took_ns = now - self._began
        self.timed = 0
        if not self._shortest_ns or took_ns < self._shortest_ns:
            self._shortest_ns = took_ns
        if took_ns >= QUEUED_TIMES * self._shortest_ns:
            self.bytes = max(self.bytes // 2, self._least_bytes)
        elif self.limited:
            self.bytes = min(2 * self.bytes, WINDOW_BYTES)
        self.limited = False
