"""Causal broadcast with vector stamps; multicast by filtering.

Source: daisy §2 and §3.1 [Birman, Schiper, Stephenson 1991]. Design note: docs/concepts/orderings/vector.md.

Every message goes to every member; those that are no recipients get a marker without the body, so that their clocks
stay whole. A message is delivered when all that its sender had delivered before sending it has been delivered here.

Stamps, by the option ``stamps``:

* ``changed`` (default) names only the *direct* dependencies: what the sender delivered since its own previous
  message and what no other of these covers. All else follows: the previous message of the same sender comes first
  anyway, and whatever a dependency covers comes before that dependency. This needs no FIFO channel, since the
  receiver goes through each sender's messages in order.
* ``full`` is the paper's stamp, one integer per member, for comparison.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import msgspec

from thence.core.ordering.base import Ordering, Output, Traits
from thence.core.ordering.pending import HeldFrame
from thence.core.wire.messages import Envelope, Frame
from thence.errors import ImpossibleFrame, MalformedFrame


class VectorStamp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """The sender's ``number``-th message, behind (member, number), (member, number), …, flattened."""

    number: int
    after: tuple[int, ...]


class FullVectorStamp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """How many messages of each member the sender has delivered, this one included."""

    clock: tuple[int, ...]


class VectorOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a stamp is written."""

    stamps: Literal["changed", "full"] = "changed"


class VectorState(msgspec.Struct):
    """What was delivered from each member, and which of it my next message depends on directly."""

    delivered: list[int]
    direct: dict[int, int]


class Vector(Ordering):
    """Causal broadcast with vector stamps; members that a message is not for get a marker."""

    traits = Traits(
        "vector",
        frozenset({"fifo", "causal"}),
        (VectorStamp, FullVectorStamp),
        VectorState,
        VectorOptions,
        one_stamp=True,
        marks=True,
        gated=True,
        interchangeable=True,
    )
    state: VectorState

    def _start(self, options: VectorOptions) -> None:
        self._full = options.stamps == "full"
        self.names = frozenset(self.members)
        self.others = [member for member in self.members if member != self.me]
        plain = type(self) is Vector and not self._full
        self.senders = {name: number for name, number in self.index.items() if name != self.me} if plain else {}
        """Whose frames may go the short way."""
        self.state = VectorState([0] * len(self.members), {})

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        if to is not None and not self.names.issuperset(to):
            self._recipients(to)  # Which refuses whoever is no member.
        state, mine = self.state, self.my_index
        state.delivered[mine] += 1
        stamp: VectorStamp | FullVectorStamp
        if self._full:
            stamp = FullVectorStamp(tuple(state.delivered))
        else:
            stamp = VectorStamp(state.delivered[mine], self._dependencies())
        frame = Frame(stamp, envelope)
        if to is None:
            return Output([(name, frame) for name in self.others], [frame])
        marker = Frame(stamp, None)
        recipients = set(to)
        deliver = [frame] if self.me in recipients else []
        return Output([(name, frame if name in recipients else marker) for name in self.others], deliver)

    def _dependencies(self) -> tuple[int, ...]:
        """Return what my next message depends on directly, and begin anew."""
        direct = self.state.direct
        if not direct:
            return ()
        self.state.direct = {}
        if len(direct) == 1:
            (after,) = direct.items()
            return after
        return tuple([x for pair in sorted(direct.items()) for x in pair])

    def accept(self, peer: str, frame: Frame[Any], now: int) -> Output:
        """As with every ordering; what is in its turn, which is most of what a quick network brings, goes a short way."""
        if self.deliver_next(peer, frame):
            return Output([], [] if frame.envelope is None else [frame])
        return super().accept(peer, frame, now)

    def deliver_next(self, peer: str, frame: Frame[Any]) -> bool:
        """Count a frame as delivered if it comes right behind the last one of its sender, and one other at most, which is here.

        Return whether it was. Whoever builds on this ordering, and all else, goes the long way.
        """
        stamp, sender, state, pending = frame.stamp, self.senders.get(peer), self.state, self.pending
        if sender is None or type(stamp) is not VectorStamp or pending.held or pending.gate is not None:
            return False
        number, after, delivered = stamp.number, stamp.after, state.delivered
        if number != delivered[sender] + 1:
            return False
        if after:
            if len(after) != 2:
                return False
            member, needed = after
            if member == sender or not 0 <= member < len(delivered) or not 1 <= needed <= delivered[member]:
                return False
            if frame.envelope is not None and state.direct and state.direct.get(member, needed + 1) <= needed:
                del state.direct[member]
        delivered[sender] = number
        if frame.envelope is not None:
            state.direct[sender] = number
        return True

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        stamp = frame.stamp
        if isinstance(stamp, FullVectorStamp) != self._full:
            raise MalformedFrame("the other kind of stamp is agreed on here")
        if self._full:
            number = self._check_full(sender, stamp.clock)
        else:
            number = self._check_changed(sender, stamp)
        if number < 1:
            raise MalformedFrame(f"numbers start at 1, not {number}")
        return sender, number

    def _check_full(self, sender: int, clock: tuple[int, ...]) -> int:
        if len(clock) != len(self.members) or min(clock) < 0:
            raise MalformedFrame(f"not a clock of {len(self.members)} members")
        self._check_mine(clock[self.my_index])
        return clock[sender]

    def _check_changed(self, sender: int, stamp: VectorStamp) -> int:
        after = stamp.after
        members = after[::2]
        if len(after) % 2 or any(not 0 <= member < len(self.members) or member == sender for member in members):
            raise MalformedFrame(f"dependencies {after} make no sense")
        if after and (min(after[1::2]) < 1 or len(set(members)) != len(members)):
            raise MalformedFrame(f"dependencies {after} make no sense")
        if self.my_index in members:
            self._check_mine(after[2 * members.index(self.my_index) + 1])
        return stamp.number

    def _check_mine(self, number: int) -> None:
        sent = self.state.delivered[self.my_index]
        if number > sent:
            raise ImpossibleFrame(f"it depends on my message {number}, but I have sent {sent}")

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        delivered = self.state.delivered
        before = held.number - 1
        if delivered[held.sender] != before:
            return held.sender, before
        if self._full:
            return self._missing_full(held)
        after = held.frame.stamp.after
        for at in range(held.cursor, len(after), 2):
            if delivered[after[at]] < after[at + 1]:
                held.cursor = at
                return after[at], after[at + 1]
        return None

    def _missing_full(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        delivered = self.state.delivered
        clock = held.frame.stamp.clock
        for member in range(held.cursor, len(clock)):
            if delivered[member] < clock[member] and member != held.sender:
                held.cursor = member
                return member, clock[member]
        return None

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        state = self.state
        state.delivered[held.sender] = held.number
        if held.frame.envelope is not None:
            out.deliver.append(held.frame)
            # A marker is nothing that we have seen, so nothing that we send afterwards is caused by it.
            if not self._full:
                self._depend_on(held)

    def _depend_on(self, held: HeldFrame[Any]) -> None:
        """My next message depends on this one, and through it on what this one depends on."""
        direct = self.state.direct
        after = held.frame.stamp.after
        for at in range(0, len(after), 2):
            if direct.get(after[at], after[at + 1] + 1) <= after[at + 1]:
                del direct[after[at]]
        direct[held.sender] = held.number

    def _released(self, stream: int) -> int:
        return self.state.delivered[stream]
