"""Exactly once between two members, over a network that loses, repeats, delays and cuts.

One channel joins two members of one domain. It numbers what goes out, keeps it until it is acknowledged and sends
it again when that takes too long; on the way in it lets each number through once.

Rules:

* A frame is acknowledged by the packet that follows its ``Received`` record to disk, never earlier (``core.member.member``).
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
from thence.core.ordering import ArrivalOrder
from thence.core.topology.ack_options import AT_ONCE, RESEND_AFTER_NS, AckOptions
from thence.core.transport.acks import RESEND_AT_MOST_NS, ReceivedAcks
from thence.core.transport.spill_queue import Elsewhere, Numbered, SpillRoom, cut_block
from thence.core.transport.window import FIRST_WINDOW_BYTES, PACKET_BYTES, WINDOW_BYTES, FlightWindow
from thence.core.wire.messages import Frame, Packet
from thence.core.wire.number_set import NumberSet
from thence.errors import ImpossibleFrame, MalformedFrame, UsageError
from thence.words import counted

StampT = TypeVar("StampT")

WINDOW = 1024
"""How many frames may be on their way without an acknowledgement."""


RESEND_BURST = 64
"""How many frames one attempt repeats: the oldest ones, since they are what the other side lacks."""

ACK_EVERY = 16
"""How many frames an ack waits for at most where the domain leaves that to us."""


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


class ChannelState(msgspec.Struct, Generic[StampT], rename={"received": "taken"}):
    """Everything about a channel that a restart must find again."""

    last_number: int = 0
    queue: dict[int, Frame[StampT]] = msgspec.field(default_factory=dict)
    """What is not acknowledged, by number, in order."""
    received: NumberSet = msgspec.field(default_factory=NumberSet)
    elsewhere: Elsewhere[StampT] | None = None
    """What is too much for memory, and all that waits behind it; then the queue ends before it."""

    @property
    def reach(self) -> int:
        """The last number that can be sent without asking for it."""
        return self.last_number if self.elsewhere is None else self.elsewhere.first - 1

    def lacks(self, number: int) -> bool:
        """Return whether the peer has not acknowledged this frame of ours."""
        return number in self.queue or self.reach < number <= self.last_number


class Inbound:
    """What comes in from the peer: each number once, and in order where that is needed."""

    def __init__(self, arrival: ArrivalOrder) -> None:
        """Nothing has come yet."""
        self._fifo = arrival is not ArrivalOrder.ANY
        self.early: dict[int, Frame[Any]] = {}
        """Frames before their turn, unacknowledged."""
        self._early_bytes = 0
        self.repeated = 0
        """How many frames came more than once."""

    def fresh(self, packet: Packet[Any], received: NumberSet, acks: ReceivedAcks, now: int) -> list[tuple[int, Frame[Any]]]:
        """Return the frames to take now, in order, and count what is to be acknowledged."""
        early, fifo = self.early, self._fifo
        fresh: list[tuple[int, Frame[Any]]] = []
        expected = received.upto + 1
        for number, frame in zip(packet.numbers, packet.frames, strict=True):
            acks.frames += 1
            acks.bytes += frame.weight
            if number < expected or number in received.beyond or number in early:
                self.repeated += 1
                acks.at = now
            elif number > received.upto + WINDOW:
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


class Channel:
    """One member's end of the conversation with one other member of a domain."""

    def __init__(
        self,
        arrival: ArrivalOrder,
        resend_after_ns: int = RESEND_AFTER_NS,
        acks: AckOptions = AT_ONCE,
        pace: Pace = UNHURRIED,
    ) -> None:
        """Start a channel on which nothing has happened yet."""
        self.state: ChannelState[Any] = ChannelState()
        self._pace = pace
        self.inbound = Inbound(arrival)
        at_once = pace.ack_within_ns and acks.after_messages == 1
        self.acks = ReceivedAcks(pace.ack_within_ns, ACK_EVERY) if at_once else ReceivedAcks(acks.after_ns, acks.after_messages)
        self.window = FlightWindow(pace.least_window_bytes)
        self.resend_after_ns = resend_after_ns
        self.wait_ns = resend_after_ns
        """How long the next attempt waits."""
        self.sent_upto = 0
        """Up to which number we have sent since we started; what lies behind is due at once."""
        self.gone_upto = 0
        """Nothing up to this number is in the queue any more."""
        self.queued_bytes = 0
        """How many bytes are not acknowledged, sent or not, as far as they are here."""
        self.unsent_bytes = 0
        """How many of the queued bytes we have not sent."""
        self.behind_bytes = 0
        """How many of the queued bytes wait behind what is elsewhere."""
        self._acked_early = 0
        """The highest number that was acknowledged out of turn: up to here the queue may have holes."""
        self.resend_at: int | None = None
        self.more = False
        """Whether the last packet was full, and there may be another one to send."""
        self.resent = 0

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
        self.gone_upto = next(iter(state.queue), self.state.reach + 1) - 1
        self.behind_bytes = sum(frame.weight for frame in state.elsewhere.behind.values()) if state.elsewhere is not None else 0
        self.queued_bytes = self.unsent_bytes = sum(frame.weight for frame in state.queue.values()) + self.behind_bytes
        holes = [number for number in range(self.gone_upto + 1, self.state.reach + 1) if number not in state.queue]
        self._acked_early = max(holes, default=0)

    def connected(self) -> None:
        """The way to the peer is new: whatever was on it is lost, so all that is not acknowledged is due at once."""
        self.sent_upto = 0
        self.unsent_bytes = self.queued_bytes
        self.wait_ns = self.resend_after_ns
        self.resend_at = None
        self.window = FlightWindow(self._pace.least_window_bytes)

    def check(self, peer: str, packet: Packet[Any]) -> None:
        """Refuse a packet whose numbers cannot be, before anything changes."""
        if len(packet.numbers) != len(packet.frames):
            raise MalformedFrame(
                f"a packet from {peer!r} with {counted(len(packet.frames), 'frame')} and {counted(len(packet.numbers), 'number')}"
            )
        highest = max(packet.acked, *packet.acked_beyond) if packet.acked_beyond else packet.acked
        if highest > self.state.last_number:
            raise ImpossibleFrame(f"a packet from {peer!r} that acknowledges frame {highest} of {self.state.last_number}")

    def arrived(self, packet: Packet[Any], now: int) -> list[tuple[int, Frame[Any]]]:
        """Note what the peer has taken; return the frames to take now, in order. The caller notes each that it
        accepts in ``state.received``."""
        if packet.acked > self.gone_upto or packet.acked_beyond:
            self._acknowledged(packet, now)
        if not packet.frames:
            return []
        fresh = self.inbound.fresh(packet, self.state.received, self.acks, now)
        self.acks.came(now)
        return fresh

    def _acknowledged(self, packet: Packet[Any], now: int) -> None:
        queue, upto = self.state.queue, packet.acked
        if 0 < self.window.timed <= upto:
            self.window.acked(now)
        if upto == self.state.last_number:  # As most often where there is little to do.
            self.all_acked(now)
            return
        before, first = len(queue), self._oldest()
        for number in (*range(first, upto + 1), *packet.acked_beyond):
            frame = queue.pop(number, None)
            if frame is not None:
                self._landed(number, frame)
        if packet.acked_beyond:
            self._acked_early = max(self._acked_early, *packet.acked_beyond)
        if self.state.elsewhere is not None and upto >= self.state.elsewhere.first:
            self._acked_elsewhere(self.state.elsewhere, upto)
            before = len(queue) + 1  # Which is progress, too.
        if len(queue) < before:
            self.wait_ns = self.resend_after_ns
            if not queue:
                self.resend_at = None
            elif self._oldest() != first:
                self.resend_at = now + self.wait_ns

    def all_acked(self, now: int) -> None:
        """The peer has taken everything that we ever sent."""
        self.state.queue.clear()
        self.state.elsewhere, self.behind_bytes = None, 0
        self.gone_upto, self.queued_bytes, self.unsent_bytes, self.resend_at = self.state.last_number, 0, 0, None
        self.wait_ns = self.resend_after_ns
        if self.window.timed:
            self.window.acked(now)

    def _oldest(self) -> int:
        """Return the number of the oldest frame in the queue, or the next number if there is none.

        Asking the table itself for its first key would step over all that was removed before it, each time.
        """
        queue, last = self.state.queue, self.state.reach
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
        queue, last, received = state.queue, state.last_number, state.received
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
                self.resend_at = now + self.wait_ns
        elif self.acks.at is None or now < self.acks.at:
            return None
        self.acks.sent()
        return Packet(domain, frames, numbers, received.upto, tuple(sorted(received.beyond)[:WINDOW]) if received.beyond else ())

    # What is elsewhere (``core.transport.spill_queue``).

    @property
    def here(self) -> int:
        """How many frames are not acknowledged and in memory."""
        elsewhere = self.state.elsewhere
        return len(self.state.queue) + (len(elsewhere.behind) if elsewhere is not None else 0)

    @property
    def queued(self) -> int:
        """How many are not acknowledged, wherever they are."""
        return len(self.state.queue) + self.state.last_number - self.state.reach

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
        room, elsewhere = self._pace.spill, self.state.elsewhere
        if not self.crowded or room is None:
            return []
        frames = self.state.queue if elsewhere is None else elsewhere.behind
        numbers = range(self._first_to_spill, self.state.last_number + 1)
        return cut_block(((number, frames[number]) for number in numbers), room.block_frames, room.block_bytes)

    @property
    def _first_to_spill(self) -> int:
        elsewhere = self.state.elsewhere
        return max(self.sent_upto, self.gone_upto, self._acked_early) + 1 if elsewhere is None else elsewhere.last + 1

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
        reach = self.state.reach
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

    def _acked_elsewhere(self, elsewhere: Elsewhere[Any], upto: int) -> None:
        """The peer has frames that are elsewhere: it got them before we were stopped and came back."""
        elsewhere.first = min(upto, elsewhere.last) + 1
        if elsewhere.first > elsewhere.last:
            self._all_here(elsewhere)
            for number in range(elsewhere.last + 1, upto + 1):
                self._landed(number, self.state.queue.pop(number))

    @property
    def progress(self) -> Progress:
        """How far we are with the peer."""
        received, acked = self.state.received, self._oldest() - 1
        return Progress(self.state.last_number, acked, received.upto, received.highest, max(acked, self._acked_early))

    def _due(self, now: int) -> list[int]:
        """Return the numbers to send now: again what took too long, and whatever is new and fits the window."""
        queue, last = self.state.queue, self.state.reach
        oldest = self._oldest()
        numbers: list[int] = []
        if self.resend_at is not None and now >= self.resend_at:
            sent = (number for number in range(oldest, self.sent_upto + 1) if number in queue)
            numbers += islice(sent, RESEND_BURST)
            self.resent += len(numbers)
            self.window.sent_again()
            self.wait_ns = min(2 * self.wait_ns, RESEND_AT_MOST_NS)
            self.resend_at = now + self.wait_ns
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
