"""One coordinator puts all messages of the domain into one order. Total, and causal.

Source: clusters §III-C (the centralised algorithm), gateways §2.3 (a controller). Design note:
docs/concepts/orderings/sequenced.md.

A member sends its message to the coordinator, numbered, so that the coordinator takes each member's messages in
order. The coordinator passes it on to the recipients only, numbering per recipient: nobody is left with a hole, and
any two recipients of the same two messages get them in the same order. Also the sender gets its own message back
that way.

Causal, because a message is sent after its causes were delivered, hence after the coordinator had ordered them.

Option: ``coordinator`` (default: the first member).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from thence.core.ordering.base import Ordering, Output, Paths, Traits
from thence.core.ordering.pending import HeldFrame
from thence.core.wire.messages import Envelope, Frame
from thence.errors import ConfigError, MalformedFrame, StrangerFrame


class SequencedRequest(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=7):
    """The sender's ``number``-th message, to be passed on to the members numbered ``to`` (None: all)."""

    number: int
    to: tuple[int, ...] | None


class SequencedOrder(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=8):
    """The ``number``-th message that the coordinator passes on to its receiver."""

    number: int


class SequencedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who decides the order."""

    coordinator: str | None = None


class SequencedState(msgspec.Struct, rename={"received": "taken"}):
    """Everybody's counts; ``received`` and ``passed_on`` are used by the coordinator only."""

    requested: int
    delivered: int
    received: list[int]
    passed_on: list[int]


class CoordinatedPaths(Paths):
    """Everything goes to the coordinator, and from there to all."""

    def __init__(self, me: str, members: Sequence[str], coordinator: str) -> None:
        """Start at ``me``."""
        super().__init__(me, members, direct=False)
        self._coordinator = coordinator
        self.gets_back = me != coordinator

    def first_hop(self, to: Collection[str] | None) -> list[str]:
        return [self._coordinator] if self.gets_back else self.others(to)

    def hands_on_to(self, peer: str) -> Collection[str]:
        return () if self.gets_back else [name for name in self.members if name not in (self.me, peer)]

    def hands_back_to(self, peer: str) -> bool:
        return not self.gets_back


class Sequenced(Ordering):
    """Total and causal order, given by the numbers of one coordinator."""

    traits = Traits(
        "sequenced",
        frozenset({"fifo", "causal", "total"}),
        (SequencedRequest, SequencedOrder),
        SequencedState,
        SequencedOptions,
        direct=False,
        passes_on=True,
        centralised=True,
        gated=True,
    )
    state: SequencedState

    def _start(self, options: SequencedOptions) -> None:
        name = self.members[0] if options.coordinator is None else options.coordinator
        if name not in self.index:
            raise ConfigError(f"sequenced: the coordinator {name!r} is not among the members {', '.join(self.members)}")
        self.coordinator = self.index[name]
        self.paths = CoordinatedPaths(self.me, self.members, name)
        count = len(self.members)
        self.state = SequencedState(0, 0, [0] * count, [0] * count)

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        out = Output([], [])
        recipients = self._recipients(to)
        if self.my_index == self.coordinator:
            self._pass_on(envelope, recipients, out)
            return out
        self.state.requested += 1
        stamp = SequencedRequest(self.state.requested, None if to is None else tuple(recipients))
        out.send.append((self.members[self.coordinator], Frame(stamp, envelope)))
        return out

    def _pass_on(self, envelope: Envelope, recipients: Collection[int], out: Output) -> None:
        self._number(envelope, recipients, self.state.passed_on, SequencedOrder, out)

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        stamp = frame.stamp
        if stamp.number < 1 or frame.envelope is None:
            raise MalformedFrame("needs a message and a number from 1")
        if isinstance(stamp, SequencedOrder):
            if sender != self.coordinator:
                raise StrangerFrame("only the coordinator passes on")
            return sender, stamp.number
        if self.my_index != self.coordinator:
            raise StrangerFrame("I am not the coordinator")
        if any(not 0 <= member < len(self.members) for member in stamp.to or ()):
            raise MalformedFrame(f"recipients {stamp.to} make no sense")
        return sender, stamp.number

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        if self.my_index == self.coordinator:
            self.state.received[held.stream] = held.number
            recipients = self._recipients(None) if held.frame.stamp.to is None else sorted(set(held.frame.stamp.to))
            self._pass_on(held.message, recipients, out)
        else:
            self.state.delivered = held.number
            out.deliver.append(held.frame)

    def _released(self, stream: int) -> int:
        return self.state.received[stream] if self.my_index == self.coordinator else self.state.delivered
