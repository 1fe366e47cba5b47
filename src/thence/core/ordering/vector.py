"""Causal broadcast with vector stamps; multicast by filtering.

Source: daisy §2 and §3.1 [Birman, Schiper, Stephenson 1991]. Design note: docs/orderings/vector.md.

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

from thence.core.messages import Envelope, Frame
from thence.core.ordering.base import Ordering, Output
from thence.core.ordering.holding import Held
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
    """See the module's text."""

    name = "vector"
    gated = True
    one_stamp = True
    interchangeable = True
    guarantees = frozenset({"fifo", "causal"})
    stamps = (VectorStamp, FullVectorStamp)
    Options = VectorOptions
    State = VectorState
    state: VectorState

    def _start(self, options: VectorOptions) -> None:
        self._full = options.stamps == "full"
        self.state = VectorState([0] * len(self.members), {})

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        recipients = set(self._recipients(to))
        state, mine = self.state, self.my_index
        state.delivered[mine] += 1
        stamp: VectorStamp | FullVectorStamp
        if self._full:
            stamp = FullVectorStamp(tuple(state.delivered))
        else:
            stamp = VectorStamp(state.delivered[mine], tuple(x for pair in sorted(state.direct.items()) for x in pair))
            state.direct = {}
        frame = Frame(stamp, envelope)
        marker = Frame(stamp, None)
        out = Output([], [frame] if mine in recipients else [])
        for member, name in enumerate(self.members):
            if member != mine:
                out.send.append((name, frame if member in recipients else marker))
        return out

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        stamp = frame.stamp
        if isinstance(stamp, FullVectorStamp) != self._full:
            raise MalformedFrame(f"{self._describe(self.members[sender], frame)}: the other kind of stamp is agreed on here")
        if self._full:
            number = self._check_full(sender, frame)
        else:
            number = self._check_changed(sender, frame)
        if number < 1:
            raise MalformedFrame(f"{self._describe(self.members[sender], frame)}: numbers start at 1, not {number}")
        return sender, number

    def _check_full(self, sender: int, frame: Frame[Any]) -> int:
        clock: tuple[int, ...] = frame.stamp.clock
        if len(clock) != len(self.members) or min(clock) < 0:
            raise MalformedFrame(f"{self._describe(self.members[sender], frame)}: not a clock of {len(self.members)} members")
        self._check_mine(sender, frame, clock[self.my_index])
        return clock[sender]

    def _check_changed(self, sender: int, frame: Frame[Any]) -> int:
        after: tuple[int, ...] = frame.stamp.after
        members = after[::2]
        if len(after) % 2 or any(not 0 <= member < len(self.members) or member == sender for member in members):
            raise MalformedFrame(f"{self._describe(self.members[sender], frame)}: dependencies {after} make no sense")
        if after and (min(after[1::2]) < 1 or len(set(members)) != len(members)):
            raise MalformedFrame(f"{self._describe(self.members[sender], frame)}: dependencies {after} make no sense")
        if self.my_index in members:
            self._check_mine(sender, frame, after[2 * members.index(self.my_index) + 1])
        number: int = frame.stamp.number
        return number

    def _check_mine(self, sender: int, frame: Frame[Any], number: int) -> None:
        sent = self.state.delivered[self.my_index]
        if number > sent:
            raise ImpossibleFrame(
                f"{self._describe(self.members[sender], frame)}: it depends on my message {number}, but I have sent {sent}"
            )

    def _missing(self, held: Held[Any]) -> tuple[int, int] | None:
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

    def _missing_full(self, held: Held[Any]) -> tuple[int, int] | None:
        delivered = self.state.delivered
        clock = held.frame.stamp.clock
        for member in range(held.cursor, len(clock)):
            if delivered[member] < clock[member] and member != held.sender:
                held.cursor = member
                return member, clock[member]
        return None

    def _release(self, held: Held[Any], out: Output) -> None:
        state = self.state
        state.delivered[held.sender] = held.number
        if held.frame.envelope is not None:
            out.deliver.append(held.frame)
            # A marker is nothing that we have seen, so nothing that we send afterwards is caused by it.
            if not self._full:
                self._depend_on(held)

    def _depend_on(self, held: Held[Any]) -> None:
        """My next message depends on this one, and through it on what this one depends on."""
        direct = self.state.direct
        after = held.frame.stamp.after
        for at in range(0, len(after), 2):
            if direct.get(after[at], after[at + 1] + 1) <= after[at + 1]:
                del direct[after[at]]
        direct[held.sender] = held.number

    def _released(self, stream: int) -> int:
        return self.state.delivered[stream]
