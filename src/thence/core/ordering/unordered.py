"""No order at all: each message is delivered as it arrives, once. The baseline that the others are measured against.

Design note: docs/concepts/orderings/unordered.md. The stamp is the same one number as in ``fifo``, but nothing waits for it;
it only tells a replay from a first copy. What was delivered is kept as "all up to n, and these beyond", never as a
bare maximum: a maximum would take a message that was overtaken for a replay and lose it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from thence.core.ordering.base import NoOptions, Ordering, Output, Traits
from thence.core.ordering.pending import HeldFrame
from thence.core.wire.messages import Envelope, Frame
from thence.core.wire.number_set import NumberSet
from thence.errors import MalformedFrame, ReplayedFrame


class UnorderedStamp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6):
    """This is the ``number``-th message from its sender to its receiver."""

    number: int


class UnorderedState(msgspec.Struct):
    """Per member: how many messages went to it, and which ones from it have been delivered."""

    sent: list[int]
    delivered: list[NumberSet]


class Unordered(Ordering):
    """Delivers each message once, as it arrives."""

    traits = Traits("unordered", frozenset(), (UnorderedStamp,), UnorderedState, interchangeable=True)
    state: UnorderedState

    def _start(self, options: NoOptions) -> None:
        self.state = UnorderedState([0] * len(self.members), [NumberSet() for _ in self.members])

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        out = Output([], [])
        self._number(envelope, self._recipients(to), self.state.sent, UnorderedStamp, out)
        return out

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        number: int = frame.stamp.number
        if number < 1 or frame.envelope is None:
            raise MalformedFrame("needs a message and a number from 1")
        if number in self.state.delivered[sender]:
            raise ReplayedFrame(f"number {number} was accepted before")
        return sender, number

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        return None

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        self.state.delivered[held.sender].add(held.number)
        out.deliver.append(held.frame)

    def _released(self, stream: int) -> int:
        return self.state.delivered[stream].upto
