"""FIFO: what one member sends to another is delivered in the order in which it was sent.

Source: interconnect §2 and §3 (the FIFO systems that Thm 1 joins). Design note: docs/concepts/orderings/fifo.md.

The stamp is one number: how many messages this sender has sent to this receiver. Multicast to any subset costs
nothing extra, since every receiver has its own count and is never left with a hole.

Not causal: A sends to C, then to B; B sends to C. C may get B's message first. The explorer finds that by itself.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from thence.core.ordering.base import NoOptions, Ordering, Output, Traits
from thence.core.ordering.pending import HeldFrame
from thence.core.wire.messages import Envelope, Frame
from thence.errors import MalformedFrame


class FifoStamp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """This is the ``number``-th message from its sender to its receiver."""

    number: int


class FifoState(msgspec.Struct):
    """Per member: how many messages went to it, and how many from it have been delivered."""

    sent: list[int]
    delivered: list[int]


class Fifo(Ordering):
    """Delivers what one member sends to another in the order in which it was sent."""

    traits = Traits("fifo", frozenset({"fifo"}), (FifoStamp,), FifoState, interchangeable=True)
    state: FifoState

    def _start(self, options: NoOptions) -> None:
        count = len(self.members)
        self.state = FifoState([0] * count, [0] * count)

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        out = Output([], [])
        self._number(envelope, self._recipients(to), self.state.sent, FifoStamp, out)
        return out

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        if frame.stamp.number < 1 or frame.envelope is None:
            raise MalformedFrame("needs a message and a number from 1")
        return sender, frame.stamp.number

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        self.state.delivered[held.stream] = held.number
        out.deliver.append(held.frame)

    def _released(self, stream: int) -> int:
        return self.state.delivered[stream]
