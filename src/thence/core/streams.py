"""What a member that confirms to everybody keeps of each stream, and what it is about to send. See ``core.distributed``."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from thence.core.channel import RESEND_AT_MOST_NS
from thence.core.claims import Carried
from thence.core.messages import Envelope, Frame, weight_of
from thence.core.numbers import NumberSet
from thence.core.window import PACKET_BYTES

StampT = TypeVar("StampT")


class Message(msgspec.Struct, Generic[StampT], frozen=True, array_like=True, gc=False):
    """A message of a stream as it is kept: for whom it is (None: all), and what it says, unless we only got its marker."""

    stamp: StampT
    envelope: Envelope | None
    to: tuple[int, ...] | None

    @property
    def weight(self) -> int:
        """About how many bytes it takes, for limits."""
        return weight_of(self.envelope)

    def frame_for(self, member: int) -> Frame[StampT] | None:
        """Return what this member is to get, if we have it."""
        if self.to is not None and member not in self.to:
            return Frame(self.stamp, None)
        return None if self.envelope is None else Frame(self.stamp, self.envelope)


class Unconfirmed(msgspec.Struct, Generic[StampT], array_like=True):
    """A message of ours that some have not confirmed."""

    message: Message[StampT]
    lacking: dict[int, None]


class DistributedState(msgspec.Struct, Generic[StampT], array_like=True):
    """Everything that a restart must find again. Lists have an entry for each member."""

    last_number: int
    queue: dict[int, Unconfirmed[StampT]]
    """What is not confirmed by all, by number, in order."""
    taken: list[NumberSet]
    known: list[dict[int, NumberSet]]
    """What each member has said that it has of each stream: of ours, and with ``nearest`` of all."""
    copies: list[dict[int, Message[StampT]]]
    """With ``nearest``: messages of each stream that we may have to repeat."""


class Attempt(msgspec.Struct):
    """When to try again, how long to wait then, and how many attempts there were."""

    due: int
    patience_ns: int
    count: int = 0

    def again(self, now: int) -> None:
        """Count an attempt."""
        self.count += 1
        self.due = now + self.patience_ns
        self.patience_ns = min(2 * self.patience_ns, RESEND_AT_MOST_NS)


class Letter:
    """What one member is to be sent."""

    def __init__(self) -> None:
        self.carried: list[Carried] = []
        self.requests: list[tuple[int, ...]] = []
        self.wanted = False


def parts(carried: list[Carried]) -> list[list[Carried]]:
    """Return frames in parts of ``PACKET_BYTES``, or one frame, each; of none one part that is empty."""
    found: list[list[Carried]] = [[]]
    weight = 0
    for one in carried:
        more = one[2].weight
        if found[-1] and weight + more > PACKET_BYTES:
            found.append([])
            weight = 0
        found[-1].append(one)
        weight += more
    return found
