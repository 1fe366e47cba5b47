"""Every message carries the time, and all deliver in the order of time. Total, and causal, without a coordinator.

Source: gateways §1 and §2.3 (subgroups ordered by physical clocks), after Lamport 1978, whose rule makes it right whatever the
clocks say. Design note: docs/concepts/orderings/clocked.md.

A member's clock runs ahead of every time that it has seen, so what is sent after a delivery is later than what was
delivered. A message is stamped with that clock; equal times are put in order by the number of the sender. It is
delivered when every other member has been heard of with this time or a later one: whatever still comes is later then,
since channels are FIFO. Who is no recipient gets a marker, and everybody whose last word to a recipient was of an earlier
time sends it an acknowledgement; these are not acknowledged in turn.

Option ``clock``: ``logical`` (default) counts. ``hybrid`` also moves up to the member's own clock, whenever it sends and
whenever a frame comes in (hybrid logical clocks, Kulkarni et al. 2014, whose logical part is counted in nanoseconds here): what
is sent later comes later, as far as clocks agree. ``physical`` moves up only when a frame comes in; it is kept for stores that
were written with it. Clocks that are wrong break no order: they only decide who comes first. Option ``skew_ns``, with
``hybrid``: a frame from further ahead of our clock than this is not taken yet, so that one wrong clock does not move all others.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

import msgspec

from thence.core.ordering.base import ArrivalOrder, Ordering, Output, Paths, Timed, Traits
from thence.core.ordering.pending import HeldFrame
from thence.core.wire.messages import Envelope, Frame
from thence.errors import ConfigError, ImpossibleFrame, MalformedFrame, OverflowingFrame

MAX_TIME = 1 << 62
"""The latest time that a stamp may carry: in nanoseconds, more than a century from 1970 on."""


class ClockedStamp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=16):
    """The ``number``-th frame from its sender to its receiver; a message, or its marker, of this time, for ``to`` (None: all)."""

    number: int
    time: int
    to: tuple[int, ...] | None


class ClockedAcknowledgement(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=17):
    """The ``number``-th frame from its sender to its receiver: whatever comes behind it is later than ``time``."""

    number: int
    time: int


class ClockedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What moves the clock, and how far ahead of it others may be (0: as far as they like)."""

    clock: Literal["logical", "physical", "hybrid"] = "logical"
    skew_ns: Annotated[int, msgspec.Meta(ge=0)] = 0


class ClockedState(msgspec.Struct, rename={"said": "told"}):
    """The clock, how many frames went to and came from each member, and of which time the last ones were."""

    clock: int
    heard_at: int
    """When the last frame came in, for what waits."""
    own: int
    frames_out: list[int]
    said: list[int]
    frames_in: list[int]
    heard: list[int]


class AcknowledgedPaths(Paths):
    """A message goes straight to all, who acknowledge it to each other."""

    def first_hop(self, to: Collection[str] | None) -> list[str]:
        return self.others(to)


class Clocked(Timed, Ordering):
    """Total and causal order by the times in the stamps, without a coordinator."""

    traits = Traits(
        "clocked",
        frozenset({"fifo", "causal", "total"}),
        (ClockedStamp, ClockedAcknowledgement),
        ClockedState,
        ClockedOptions,
        arrival=ArrivalOrder.FIFO,
        direct=False,
        marks=True,
    )
    state: ClockedState

    def _start(self, options: ClockedOptions) -> None:
        count = len(self.members)
        self._physical, self._hybrid, self._skew_ns = options.clock != "logical", options.clock == "hybrid", options.skew_ns
        if self._skew_ns and not self._hybrid:
            raise ConfigError(f"clocked: skew_ns is for clock = 'hybrid', not {options.clock!r}")
        self.paths = AcknowledgedPaths(self.me, self.members, direct=False)
        self.state = ClockedState(0, 0, 0, [0] * count, [0] * count, [0] * count, [0] * count)

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        recipients = set(self._recipients(to))
        listed = None if to is None else tuple(sorted(recipients))
        state, mine = self.state, self.my_index
        state.clock = max(state.clock + 1, min(self.now, MAX_TIME // 2) if self._hybrid else 0)
        out = Output([], [])
        for member in range(len(self.members)):
            if member != mine:
                stamp = ClockedStamp(self._next_to(member), state.clock, listed)
                out.send.append((self.members[member], Frame(stamp, envelope if member in recipients else None)))
        if mine in recipients:
            state.own += 1
            held = HeldFrame(mine, mine, state.own, Frame(ClockedStamp(state.own, state.clock, listed), envelope), state.heard_at)
            self._deliver_or_hold(held, out)
        return out

    def _next_to(self, member: int) -> int:
        """Count a frame to ``member``, which tells it our time."""
        self.state.frames_out[member] += 1
        self.state.said[member] = self.state.clock
        return self.state.frames_out[member]

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        stamp = frame.stamp
        if min(stamp.number, stamp.time) < 1:
            raise MalformedFrame("numbers and times start at 1")
        if isinstance(stamp, ClockedStamp):
            if any(not 0 <= member < len(self.members) for member in stamp.to or ()):
                raise MalformedFrame(f"recipients {stamp.to} make no sense")
            if (stamp.to is None or self.my_index in stamp.to) == (frame.envelope is None):
                raise MalformedFrame("a message for others, or a marker of one for me")
        elif frame.envelope is not None:
            raise MalformedFrame("an acknowledgement with a message")
        seen = self.state.frames_in[sender]
        if stamp.number > seen + 1:
            raise ImpossibleFrame(f"frame {stamp.number} of a FIFO channel after frame {seen}")
        if stamp.number == seen + 1 and not self.state.heard[sender] < stamp.time <= MAX_TIME:
            raise ImpossibleFrame(f"the time {stamp.time} after {self.state.heard[sender]}")
        if stamp.number == seen + 1 and frame.envelope and self.pending.full and not self.pending.awaits(sender, stamp.number):
            raise OverflowingFrame(f"{self.pending.why_full}")
        return sender, stamp.number

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        if self._skew_ns and held.frame.stamp.time > held.since + self._skew_ns:
            ahead = held.frame.stamp.time - held.since
            raise OverflowingFrame(f"{ahead} ns ahead of our clock; skew_ns is {self._skew_ns}. Set the clocks right")
        return None  # Channels are FIFO: what comes in may always be looked at; whether it is its turn, _unheard says.

    def _unheard(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        """Return the next frame of a member whose last word was of an earlier time than ``held``."""
        state = self.state
        for member in range(held.cursor, len(self.members)):
            if member not in (self.my_index, held.sender) and state.heard[member] < held.frame.stamp.time:
                held.cursor = member
                return member, state.frames_in[member] + 1
        return None

    def _release_all(self, held: HeldFrame[Any], out: Output) -> None:
        """Take the frame's time, and deliver what waited for it, in the order of time."""
        self._hear(held, out)
        waiting = self.pending.take(held.stream, held.number)
        fresh = [held] if held.frame.envelope is not None else []
        for one in sorted([*waiting, *fresh], key=lambda one: (one.frame.stamp.time, one.sender)):
            self._deliver_or_hold(one, out)

    def _hear(self, held: HeldFrame[Any], out: Output) -> None:
        state, stamp, mine = self.state, held.frame.stamp, self.my_index
        state.frames_in[held.sender] = held.number
        state.heard[held.sender] = stamp.time
        state.heard_at = held.since
        state.clock = max(state.clock, stamp.time, min(held.since, MAX_TIME // 2) if self._physical else 0)
        if isinstance(stamp, ClockedAcknowledgement):
            return
        recipients = range(len(self.members)) if stamp.to is None else stamp.to
        for member in recipients:
            if member != mine and state.said[member] < stamp.time:
                acknowledgement = ClockedAcknowledgement(self._next_to(member), state.clock)
                out.send.append((self.members[member], Frame(acknowledgement, None)))

    def _deliver_or_hold(self, held: HeldFrame[Any], out: Output) -> None:
        unheard = self._unheard(held)
        if unheard is None:
            out.deliver.append(held.frame)
        else:
            self.pending.hold(held, unheard)

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        self._release_all(held, out)

    def _released(self, stream: int) -> int:
        return self.state.frames_in[stream]
