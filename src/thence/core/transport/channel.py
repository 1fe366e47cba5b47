"""Exactly once between two members, over a network that loses, repeats, delays and cuts.

One channel joins two members of one domain. It numbers what goes out, keeps it until it is acknowledged and sends
it again when that takes too long; on the way in it lets each number through once.

Rules:

* A frame is acknowledged by the packet that follows its ``Taken`` record to disk, never earlier (``core.member.member``).
* Numbers that came in are kept exactly (``NumberSet``). Where the ordering needs FIFO arrival, early frames are
  kept aside, unacknowledged, until the hole before them is filled: after a crash they simply come again. So do those for which
  there is no room: nobody who keeps to the window sends more than ``WINDOW_BYTES`` of them, or a single one.
* At most ``WINDOW`` frames, and as many bytes of them as the window allows (``core.transport.window``) unless it is a single one,
  are unacknowledged on their way; what lies behind waits in the queue, which the member bounds.
* An ack may wait: as the domain says (``core.topology.ack_options``) or, where it says nothing, as long as whoever runs
  the member allows (``ack_within_ns``), for a frame that goes the same way. It does so for at most ``ACK_EVERY`` frames
  and ``ACK_BYTES``. What comes a second time is acknowledged at once, since its sender has not heard that it came.
* What is too much for memory may be *elsewhere*, if whoever runs the member takes it (``core.transport.spill_queue``): frames
  that we have not sent, one number after the other, behind those that may be on their way. What comes later waits behind them,
  and in their turn they are asked for.
* Sending again backs off from ``RESEND_AFTER_NS`` to ``RESEND_AT_MOST_NS``, for ever: a link is never given up
  here. The wait is for the oldest frame: others that are acknowledged meanwhile do not put it off.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from thence.core.epochs.progress import Progress
from thence.core.ordering import Arrival
from thence.core.topology.ack_options import AT_ONCE, RESEND_AFTER_NS, ConfirmationOptions
from thence.core.transport.spill_queue import Elsewhere, Numbered, SpillRoom, cut_block
from thence.core.transport.window import FIRST_WINDOW_BYTES, PACKET_BYTES, WINDOW_BYTES, Window
from thence.core.wire.messages import Frame, Packet
from thence.core.wire.number_set import NumberSet
from thence.errors import ImpossibleFrame, MalformedFrame, UsageError
from thence.words import counted

StampT = TypeVar("StampT")

WINDOW = 1024
"""How many frames may be on their way without an acknowledgement."""


RESEND_AT_MOST_NS = 5_000_000_000
"""The longest wait between two attempts."""

RESEND_BURST = 64
"""How many frames one attempt repeats: the oldest ones, since they are what the other side lacks."""

ACK_EVERY = 16
"""How many frames an ack waits for at most where the domain leaves that to us."""

ACK_BYTES = 64 * 1024
"""How many bytes: a quarter of the smallest window, so that waiting never holds up the sender."""


class Pace(NamedTuple):
    """How a channel takes its time, beside what its domain says."""

    ack_within_ns: int = 0
    """How long an ack may wait for a frame that goes the same way."""
    least_window_bytes: int = FIRST_WINDOW_BYTES
    """How many bytes may be on their way at any time."""
    spill: SpillRoom | None = None
    """How much may wait here before more of it goes elsewhere; None: nothing does."""


UNHURRIED = Pace()
"""Acks as the domain says, and begins with a small window."""


class ChannelState(msgspec.Struct, Generic[StampT]):
    """Everything about a channel that a restart must find again."""

    last_number: int = 0
    queue: dict[int, Frame[StampT]] = msgspec.field(default_factory=dict)
    """What is not acknowledged, by number, in order."""
    taken: NumberSet = msgspec.field(default_factory=NumberSet)
    elsewhere: Elsewhere[StampT] | None = None
    """What is too much for memory, and all that waits behind it; then the queue ends before it."""


class Channel:
    """One member's end of the conversation with one other member of a domain."""

    def __init__(
        self,
        arrival: Arrival,
        resend_after_ns: int = RESEND_AFTER_NS,
        confirmation: ConfirmationOptions = AT_ONCE,
        pace: Pace = UNHURRIED,
    ) -> None:
        """Start a channel on which nothing has happened yet."""
        self.state: ChannelState[Any] = ChannelState()
        self._pace = pace
        self.window = Window(pace.least_window_bytes)
        self._arrival = arrival
        self.early: dict[int, Frame[Any]] = {}
        self._early_bytes = 0
        self.resend_after_ns = resend_after_ns
        self.ack_every, self.ack_after_ns = confirmation.after_messages, confirmation.after_ns
        if pace.ack_within_ns and self.ack_every == 1:
            self.ack_every, self.ack_after_ns = ACK_EVERY, pace.ack_within_ns
        self.patience_ns = resend_after_ns
        self.sent_upto = 0
        """Up to which number we have sent since we started; what lies behind is due at once."""
        self.gone_upto = 0
        """Nothing up to this number is in the queue any more."""
        self.queued_bytes = 0
        """How many bytes are not acknowledged, sent or not, as far as they are here."""
        self.unsent_bytes = 0
        """How many of these we have not sent,"""
        self.behind_bytes = 0
        """and how many wait behind what is elsewhere."""
        self._taken_early = 0
        """The highest number that was acknowledged out of turn: up to here the queue may have holes."""
        self.resend_at: int | None = None
        self.ack_at: int | None = None
        """When what came in is acknowledged, if nothing else is sent before."""
        self.unconfirmed = 0
        """How many frames came since we last acknowledged,"""
        self.unconfirmed_bytes = 0
        """and how many bytes."""
        self.more = False
        """Whether the last packet was full, and there may be another one to send."""
        self.resent = 0
        self.repeated = 0

    def push(self, frame: Frame[Any], weight: int | None = None) -> None:
        """Queue a frame to be sent; ``weight`` is its own, if that is known already."""
        state = self.state
        state.last_number += 1
        if weight is None:
            weight = frame.weight
        if state.elsewhere is None:
            state.queue[state.last_number] = frame
        else:
            state.elsewhere.behind[state.last_number] = frame
            self.behind_bytes += weight
        self.queued_bytes += weight
        self.unsent_bytes += weight

    def load(self, state: ChannelState[Any]) -> None:
        """Go on from what was saved."""
        self.state = state
        self.gone_upto = next(iter(state.queue), self._reach + 1) - 1
        self.behind_bytes = sum(frame.weight for frame in state.elsewhere.behind.values()) if state.elsewhere is not None else 0
        self.queued_bytes = self.unsent_bytes = sum(frame.weight for frame in state.queue.values()) + self.behind_bytes
        holes = [number for number in range(self.gone_upto + 1, self._reach + 1) if number not in state.queue]
        self._taken_early = max(holes, default=0)

    def connected(self) -> None:
        """The way to the peer is new: whatever was on it is lost, so all that is not acknowledged is due at once."""
        self.sent_upto = 0
        self.unsent_bytes = self.queued_bytes
        self.patience_ns = self.resend_after_ns
        self.resend_at = None
        self.window = Window(self._pace.least_window_bytes)

    def check(self, peer: str, packet: Packet[Any]) -> None:
        """Refuse a packet whose numbers cannot be, before anything changes."""
        if len(packet.numbers) != len(packet.frames):
            raise MalformedFrame(
                f"a packet from {peer!r} with {counted(len(packet.frames), 'frame')} and {counted(len(packet.numbers), 'number')}"
            )
        highest = max(packet.taken, *packet.taken_beyond) if packet.taken_beyond else packet.taken
        if highest > self.state.last_number:
            raise ImpossibleFrame(f"a packet from {peer!r} that acknowledges frame {highest} of {self.state.last_number}")

    def arrived(self, packet: Packet[Any], now: int) -> list[tuple[int, Frame[Any]]]:
        """Note what the peer has taken; return the frames to take now, in order. The caller acks each by ``take``."""
        if packet.taken > self.gone_upto or packet.taken_beyond:
            self._acknowledged(packet, now)
        if not packet.frames:
            return []
        fresh = self._fresh(packet, now)
        if self.unconfirmed >= self.ack_every or self.unconfirmed_bytes >= ACK_BYTES:
            self.ack_at = now
        elif self.ack_at is None:
            self.ack_at = now + self.ack_after_ns
        return fresh

    def _fresh(self, packet: Packet[Any], now: int) -> list[tuple[int, Frame[Any]]]:
        taken, early, fifo = self.state.taken, self.early, self._arrival is not Arrival.ANY
        fresh: list[tuple[int, Frame[Any]]] = []
        expected = taken.upto + 1
        for number, frame in zip(packet.numbers, packet.frames, strict=True):
            self.unconfirmed += 1
            self.unconfirmed_bytes += frame.weight
            if number < expected or number in taken.beyond or number in early:
                self.repeated += 1
                self.ack_at = now
            elif number > taken.upto + WINDOW:
                continue  # Nobody who keeps to the window sends this; it would make us remember holes without bound.
            elif not fifo:
                fresh.append((number, frame))
            elif number == expected:
                fresh.append((number, frame))
                expected += 1
            elif self._early_bytes < WINDOW_BYTES:
                early[number] = frame
                self._early_bytes += frame.weight
            while early and expected in early:
                fresh.append((expected, early.pop(expected)))
                self._early_bytes -= fresh[-1][1].weight
                expected += 1
        return fresh

    def had(self, number: int) -> bool:
        """Return whether a frame with this number is here already, taken or before its turn."""
        return number in self.state.taken or number in self.early

    def take(self, number: int) -> bool:
        """Note that a frame was accepted; return whether that is news."""
        return self.state.taken.add(number)

    def _acknowledged(self, packet: Packet[Any], now: int) -> None:
        queue, upto = self.state.queue, packet.taken
        if 0 < self.window.timed <= upto:
            self.window.confirmed(now)
        if upto == self.state.last_number:  # As most often where there is little to do.
            self.all_taken(now)
            return
        before, first = len(queue), self._oldest()
        for number in (*range(first, upto + 1), *packet.taken_beyond):
            frame = queue.pop(number, None)
            if frame is not None:
                self._landed(number, frame)
        if packet.taken_beyond:
            self._taken_early = max(self._taken_early, *packet.taken_beyond)
        if self.state.elsewhere is not None and upto >= self.state.elsewhere.first:
            self._taken_elsewhere(self.state.elsewhere, upto)
            before = len(queue) + 1  # Which is progress, too.
        if len(queue) < before:
            self.patience_ns = self.resend_after_ns
            if not queue:
                self.resend_at = None
            elif self._oldest() != first:
                self.resend_at = now + self.patience_ns

    def all_taken(self, now: int) -> None:
        """The peer has taken everything that we ever sent."""
        self.state.queue.clear()
        self.state.elsewhere, self.behind_bytes = None, 0
        self.gone_upto, self.queued_bytes, self.unsent_bytes, self.resend_at = self.state.last_number, 0, 0, None
        self.patience_ns = self.resend_after_ns
        if self.window.timed:
            self.window.confirmed(now)

    def _oldest(self) -> int:
        """Return the number of the oldest frame in the queue, or the next number if there is none.

        Asking the table itself for its first key would step over all that was removed before it, each time.
        """
        queue, last = self.state.queue, self._reach
        while self.gone_upto < last and self.gone_upto + 1 not in queue:
            self.gone_upto += 1
        return self.gone_upto + 1

    def _landed(self, number: int, frame: Frame[Any]) -> None:
        self.queued_bytes -= frame.weight
        if number > self.sent_upto:
            self.unsent_bytes -= frame.weight

    def collect(self, domain: str, now: int) -> Packet[Any] | None:
        """Return the packet to send now, if there is anything to say; ``more`` says whether to ask again."""
        self.more = False
        state = self.state
        queue, last, taken = state.queue, state.last_number, state.taken
        numbers: tuple[int, ...] = ()
        frames: tuple[Frame[Any], ...] = ()
        if self.resend_at is None and self.sent_upto + 1 == last and len(queue) == 1 and last in queue:
            # One new frame and nothing else, as most often where there is little to do.
            numbers, frames = (last,), (queue[last],)
            self.sent_upto, self.unsent_bytes = last, 0
            if now >= self.window.next_at:
                self.window.sent(last, now)
        elif queue and (self.sent_upto < last or (self.resend_at is not None and now >= self.resend_at)):
            numbers = tuple(self._due(now))
            frames = tuple([queue[number] for number in numbers])
        if numbers:
            if self.resend_at is None:
                self.resend_at = now + self.patience_ns
        elif self.ack_at is None or now < self.ack_at:
            return None
        self.unconfirmed = self.unconfirmed_bytes = 0
        self.ack_at = None
        return Packet(domain, frames, numbers, taken.upto, tuple(sorted(taken.beyond)[:WINDOW]) if taken.beyond else ())

    # What is elsewhere (``core.transport.spill_queue``).

    @property
    def _reach(self) -> int:
        """The last number that can be sent without asking for it."""
        elsewhere = self.state.elsewhere
        return self.state.last_number if elsewhere is None else elsewhere.first - 1

    @property
    def here(self) -> int:
        """How many frames are not acknowledged and in memory."""
        elsewhere = self.state.elsewhere
        return len(self.state.queue) + (len(elsewhere.behind) if elsewhere is not None else 0)

    @property
    def queued(self) -> int:
        """How many are not acknowledged, wherever they are."""
        return len(self.state.queue) + self.state.last_number - self._reach

    def lacks(self, number: int) -> bool:
        """Return whether the peer has not acknowledged this frame of ours."""
        return number in self.state.queue or self._reach < number <= self.state.last_number

    @property
    def crowded(self) -> bool:
        """Whether some of what waits here should go elsewhere."""
        room, elsewhere = self._pace.spill, self.state.elsewhere
        if room is None:
            return False
        if elsewhere is not None:
            return len(elsewhere.behind) >= room.block_frames or self.behind_bytes >= room.block_bytes
        unsent = self.state.last_number - max(self.sent_upto, self.gone_upto)
        return unsent >= room.frames or (self.unsent_bytes >= room.bytes and unsent > 0)

    def block_to_spill(self) -> Numbered:
        """Return the next frames that should go elsewhere, if any should: none of them have been sent."""
        if not self.crowded or self._pace.spill is None:
            return []
        elsewhere = self.state.elsewhere
        frames = self.state.queue if elsewhere is None else elsewhere.behind
        return cut_block(frames, self._first_to_spill, self.state.last_number, self._pace.spill)

    @property
    def _first_to_spill(self) -> int:
        elsewhere = self.state.elsewhere
        return max(self.sent_upto, self.gone_upto, self._taken_early) + 1 if elsewhere is None else elsewhere.last + 1

    def spilled(self, upto: int) -> None:
        """The next frames up to a number are elsewhere now."""
        state, first = self.state, self._first_to_spill
        if not first <= upto <= state.last_number:
            raise UsageError(f"frames up to {upto} are said to be elsewhere, and the next one is {first} of {state.last_number}")
        if state.elsewhere is None:
            behind = {number: frame for number, frame in state.queue.items() if number >= first}
            state.queue = {number: frame for number, frame in state.queue.items() if number < first}
            state.elsewhere = Elsewhere(first, first - 1, behind)
            self.behind_bytes = sum(frame.weight for frame in behind.values())
        for number in range(first, upto + 1):
            weight = state.elsewhere.behind.pop(number).weight
            self.queued_bytes -= weight
            self.unsent_bytes -= weight
            self.behind_bytes -= weight
        state.elsewhere.last = upto

    @property
    def wanted(self) -> bool:
        """Whether the next frame that could be sent is elsewhere."""
        reach = self._reach
        if self.state.elsewhere is None or max(self.sent_upto, self._oldest() - 1) < reach:
            return False
        return reach + 1 < self._oldest() + WINDOW and self.queued_bytes - self.unsent_bytes < self.window.bytes

    def fetched(self, frames: Numbered) -> None:
        """The next frames of those elsewhere are here again."""
        state, elsewhere = self.state, self.state.elsewhere
        if elsewhere is None or not frames or frames[-1][0] > elsewhere.last:
            raise UsageError("frames are said to be here again that were not elsewhere")
        for number, frame in frames:
            if number != elsewhere.first:
                raise UsageError(f"frame {number} is said to be here again, and the next one elsewhere is {elsewhere.first}")
            state.queue[number] = frame
            self.queued_bytes += frame.weight
            self.unsent_bytes += frame.weight
            elsewhere.first += 1
        if elsewhere.first > elsewhere.last:
            self._all_here(elsewhere)

    def _all_here(self, elsewhere: Elsewhere[Any]) -> None:
        self.state.queue |= elsewhere.behind
        self.state.elsewhere, self.behind_bytes = None, 0

    def _taken_elsewhere(self, elsewhere: Elsewhere[Any], upto: int) -> None:
        """The peer has frames that are elsewhere: it got them before we were stopped and came back."""
        elsewhere.first = min(upto, elsewhere.last) + 1
        if elsewhere.first > elsewhere.last:
            self._all_here(elsewhere)
            for number in range(elsewhere.last + 1, upto + 1):
                self._landed(number, self.state.queue.pop(number))

    @property
    def progress(self) -> Progress:
        """How far we are with the peer."""
        taken, confirmed = self.state.taken, self._oldest() - 1
        highest = max(taken.beyond, default=taken.upto)
        return Progress(self.state.last_number, confirmed, taken.upto, highest, max(confirmed, self._taken_early))

    @property
    def wake_at(self) -> int | None:
        """When there will be something to do, if nothing comes in before."""
        if self.resend_at is None:
            return self.ack_at
        if self.ack_at is None:
            return self.resend_at
        return min(self.resend_at, self.ack_at)

    def _due(self, now: int) -> list[int]:
        """Return the numbers to send now: again what took too long, and whatever is new and fits the window."""
        queue, last = self.state.queue, self._reach
        oldest = self._oldest()
        numbers: list[int] = []
        if self.resend_at is not None and now >= self.resend_at:
            sent = (number for number in range(oldest, self.sent_upto + 1) if number in queue)
            numbers += islice(sent, RESEND_BURST)
            self.resent += len(numbers)
            self.window.sent_again()
            self.patience_ns = min(2 * self.patience_ns, RESEND_AT_MOST_NS)
            self.resend_at = now + self.patience_ns
        first_new = max(self.sent_upto + 1, oldest)
        last_new = min(last, oldest + WINDOW - 1)
        if last_new == last and self.queued_bytes <= min(self.window.bytes, PACKET_BYTES):
            # Numbers that were taken out of turn are gone from the queue already.
            numbers += [number for number in range(first_new, last + 1) if number in queue]
            self.sent_upto, self.unsent_bytes = last, self.behind_bytes
        else:
            numbers += self._fitting(first_new, last_new)
        if numbers and numbers[-1] >= first_new and now >= self.window.next_at and not self.window.timed:
            self.window.sent(numbers[-1], now)
        return numbers

    def _fitting(self, first: int, last: int) -> list[int]:
        """Return which of these numbers fit the window, and count them as sent."""
        numbers: list[int] = []
        queue, window = self.state.queue, self.window
        flying = before = self.queued_bytes - self.unsent_bytes
        for number in range(first, last + 1):
            frame = queue.get(number)
            if frame is not None:
                weight = frame.weight
                if flying and flying + weight > window.bytes:
                    window.limited = True
                    break
                if numbers and flying - before + weight > PACKET_BYTES:
                    self.more = True
                    break
                flying += weight
                self.unsent_bytes -= weight
                numbers.append(number)
            self.sent_upto = number
        return numbers
