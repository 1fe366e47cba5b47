"""Exactly once between two members, over a network that loses, repeats, delays and cuts.

One channel joins two members of one domain. It numbers what goes out, keeps it until it is acknowledged and sends
it again when that takes too long; on the way in it lets each number through once.

Rules:

* A frame is acknowledged by the packet that follows its ``Taken`` record to disk, never earlier (``core.member``).
* Numbers that came in are kept exactly (``NumberSet``). Where the ordering needs FIFO arrival, early frames are
  kept aside, unacknowledged, until the hole before them is filled: after a crash they simply come again.
* At most ``WINDOW`` frames, and ``WINDOW_BYTES`` of them unless it is a single one, are unacknowledged on their way; what lies
  behind waits in the queue, which the member bounds.
* A confirmation may wait (``core.confirmation``): for so many frames, for so long after the first of them, or for a frame that
  goes the same way. What comes a second time is confirmed at once, since its sender has not heard that it came.
* Sending again backs off from ``RESEND_AFTER_NS`` to ``RESEND_AT_MOST_NS``, for ever: a link is never given up
  here. The wait is for the oldest frame: others that are acknowledged meanwhile do not put it off.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from thence.core.confirmation import AT_ONCE, ConfirmationOptions
from thence.core.messages import Frame, Packet
from thence.core.numbers import NumberSet
from thence.core.ordering import Arrival
from thence.errors import ImpossibleFrame, MalformedFrame

StampT = TypeVar("StampT")

WINDOW = 1024
"""How many frames may be on their way without an acknowledgement."""

WINDOW_BYTES = 4 * 1024 * 1024
"""How many bytes may be: whoever carries packets must be able to hold that much for each peer."""

RESEND_AFTER_NS = 200_000_000
"""How long to wait for an acknowledgement at first."""

RESEND_AT_MOST_NS = 5_000_000_000
"""The longest wait between two attempts."""

RESEND_BURST = 64
"""How many frames one attempt repeats: the oldest ones, since they are what the other side lacks."""


class ChannelState(msgspec.Struct, Generic[StampT]):
    """Everything about a channel that a restart must find again."""

    last_number: int = 0
    queue: dict[int, Frame[StampT]] = msgspec.field(default_factory=dict)
    """What is not acknowledged, by number, in order."""
    taken: NumberSet = msgspec.field(default_factory=NumberSet)


class Channel:
    """One member's end of the conversation with one other member of a domain."""

    def __init__(
        self, arrival: Arrival, resend_after_ns: int = RESEND_AFTER_NS, confirmation: ConfirmationOptions = AT_ONCE
    ) -> None:
        """Start a channel on which nothing has happened yet."""
        self.state: ChannelState[Any] = ChannelState()
        self._arrival = arrival
        self._early: dict[int, Frame[Any]] = {}
        self._resend_after_ns = resend_after_ns
        self._confirmation = confirmation
        self._patience_ns = resend_after_ns
        self._sent_upto = 0
        """Up to which number we have sent since we started; what lies behind is due at once."""
        self._gone_upto = 0
        """Nothing up to this number is in the queue any more."""
        self.queued_bytes = 0
        """How many bytes are not acknowledged, sent or not."""
        self._flying_bytes = 0
        """How many of these we have sent."""
        self.resend_at: int | None = None
        self._unconfirmed = 0
        """How many frames came since we last confirmed."""
        self._confirm_at: int | None = None
        self.resent = 0
        self.repeated = 0

    def push(self, frame: Frame[Any]) -> None:
        """Queue a frame to be sent."""
        state = self.state
        state.last_number += 1
        state.queue[state.last_number] = frame
        self.queued_bytes += frame.weight

    def load(self, state: ChannelState[Any]) -> None:
        """Go on from what was saved."""
        self.state = state
        self._gone_upto = next(iter(state.queue), state.last_number + 1) - 1
        self.queued_bytes = sum(frame.weight for frame in state.queue.values())

    def connected(self) -> None:
        """The way to the peer is new: whatever was on it is lost, so all that is not acknowledged is due at once."""
        self._sent_upto = 0
        self._flying_bytes = 0
        self._patience_ns = self._resend_after_ns
        self.resend_at = None

    def check(self, peer: str, packet: Packet[Any]) -> None:
        """Refuse a packet whose numbers cannot be, before anything changes."""
        if len(packet.numbers) != len(packet.frames):
            raise MalformedFrame(f"a packet from {peer!r} with {len(packet.frames)} frames and {len(packet.numbers)} numbers")
        highest = max(packet.taken, *packet.taken_beyond) if packet.taken_beyond else packet.taken
        if highest > self.state.last_number:
            raise ImpossibleFrame(f"a packet from {peer!r} that acknowledges frame {highest} of {self.state.last_number}")

    def arrived(self, packet: Packet[Any], now: int) -> list[tuple[int, Frame[Any]]]:
        """Note what the peer has taken; return the frames to take now, in order. The caller confirms each by ``take``."""
        self._acknowledged(packet, now)
        fresh: list[tuple[int, Frame[Any]]] = []
        if packet.frames:
            self._unconfirmed += len(packet.frames)
            if self._confirm_at is None:
                self._confirm_at = now + self._confirmation.after_ns
        for number, frame in zip(packet.numbers, packet.frames, strict=True):
            if self.had(number):
                self.repeated += 1
                self._confirm_at = now
            elif number > self.state.taken.upto + WINDOW:
                continue  # Nobody who keeps to the window sends this; it would make us remember holes without bound.
            elif self._arrival is Arrival.ANY:
                fresh.append((number, frame))
            else:
                self._early[number] = frame
        if self._early:
            expected = self.state.taken.upto + 1
            while expected in self._early:
                fresh.append((expected, self._early.pop(expected)))
                expected += 1
        return fresh

    def had(self, number: int) -> bool:
        """Return whether a frame with this number is here already, taken or before its turn."""
        return number in self.state.taken or number in self._early

    def take(self, number: int) -> bool:
        """Note that a frame was accepted; return whether that is news."""
        return self.state.taken.add(number)

    def _acknowledged(self, packet: Packet[Any], now: int) -> None:
        queue = self.state.queue
        before, first = len(queue), self._oldest()
        for number in (*range(first, packet.taken + 1), *packet.taken_beyond):
            frame = queue.pop(number, None)
            if frame is not None:
                self._landed(number, frame)
        if len(queue) < before:
            self._patience_ns = self._resend_after_ns
            if not queue:
                self.resend_at = None
            elif self._oldest() != first:
                self.resend_at = now + self._patience_ns

    def _oldest(self) -> int:
        """Return the number of the oldest frame in the queue, or the next number if there is none.

        Asking the table itself for its first key would step over all that was removed before it, each time.
        """
        queue, last = self.state.queue, self.state.last_number
        while self._gone_upto < last and self._gone_upto + 1 not in queue:
            self._gone_upto += 1
        return self._gone_upto + 1

    def _landed(self, number: int, frame: Frame[Any]) -> None:
        self.queued_bytes -= frame.weight
        if number <= self._sent_upto:
            self._flying_bytes -= frame.weight

    def collect(self, domain: str, now: int) -> Packet[Any] | None:
        """Return the packet to send now, if there is anything to say."""
        numbers = self._due(now)
        if not numbers and not self._confirms(now):
            return None
        self._unconfirmed = 0
        self._confirm_at = None
        queue, taken = self.state.queue, self.state.taken
        if numbers and self.resend_at is None:
            self.resend_at = now + self._patience_ns
        return Packet(
            domain,
            tuple(queue[number] for number in numbers),
            tuple(numbers),
            taken.upto,
            tuple(sorted(taken.beyond)[:WINDOW]) if taken.beyond else (),
        )

    @property
    def wake_at(self) -> int | None:
        """When there will be something to do, if nothing comes in before."""
        if self.resend_at is None:
            return self._confirm_at
        if self._confirm_at is None:
            return self.resend_at
        return min(self.resend_at, self._confirm_at)

    def _confirms(self, now: int) -> bool:
        """Return whether what came in is to be confirmed now, also if nothing else is sent."""
        if self._confirm_at is None:
            return False
        return now >= self._confirm_at or self._unconfirmed >= self._confirmation.after_messages

    def _due(self, now: int) -> list[int]:
        """Return the numbers to send now: again what took too long, and whatever is new and fits the window."""
        queue = self.state.queue
        if not queue:
            return []
        oldest = self._oldest()
        numbers: list[int] = []
        if self.resend_at is not None and now >= self.resend_at:
            sent = (number for number in range(oldest, self._sent_upto + 1) if number in queue)
            numbers += islice(sent, RESEND_BURST)
            self.resent += len(numbers)
            self._patience_ns = min(2 * self._patience_ns, RESEND_AT_MOST_NS)
            self.resend_at = now + self._patience_ns
        first_new = max(self._sent_upto + 1, oldest)
        last_new = min(self.state.last_number, oldest + WINDOW - 1)
        for number in range(first_new, last_new + 1):
            frame = queue.get(number)
            if frame is not None:  # Numbers that were taken out of turn are gone from the queue already.
                if self._flying_bytes and self._flying_bytes + frame.weight > WINDOW_BYTES:
                    break
                self._flying_bytes += frame.weight
                numbers.append(number)
            self._sent_upto = number
        return numbers
