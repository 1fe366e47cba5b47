"""Causal unicast and multicast to any subset, with a matrix of who sent how much to whom.

Source: clusters §II (RST) and domains §3 and App. A (Updates). Design note: docs/concepts/orderings/matrix.md.

Only recipients are written to. A message carries its sender's matrix, itself included. It is delivered at j when it
is the next one from its sender to j and when, for every other member k, what the matrix says was sent from k to j
has been delivered.

Stamps, by the option ``stamps``:

* ``updates`` (default) carries what changed since the sender's last message to the same member (see
  ``core.ordering.matrix_clock`` for what is wrong in App. A as printed). Entries that are left out were in an earlier message of
  the same sender, which is delivered first, or came from the receiver itself. So this needs no FIFO channel either.
* ``full`` carries all n² entries.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import msgspec

from thence.core.ordering.base import Ordering, Output, Traits
from thence.core.ordering.matrix_clock import (
    FullMatrix,
    FullMatrixStamp,
    MatrixClock,
    MatrixStamp,
    MatrixState,
    UpdatesMatrix,
)
from thence.core.ordering.matrix_entries import PackedMatrixStamp
from thence.core.ordering.pending import HeldFrame
from thence.core.wire.messages import Envelope, Frame
from thence.errors import MalformedFrame


class MatrixOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a stamp is written."""

    stamps: Literal["updates", "full"] = "updates"


class Matrix(Ordering):
    """Causal unicast and multicast with a matrix of who sent how much to whom."""

    traits = Traits(
        "matrix",
        frozenset({"fifo", "causal"}),
        (MatrixStamp, FullMatrixStamp, PackedMatrixStamp),
        MatrixState,
        MatrixOptions,
        gated=True,
        interchangeable=True,
    )

    def _start(self, options: MatrixOptions) -> None:
        kind = UpdatesMatrix if options.stamps == "updates" else FullMatrix
        self.clock: MatrixClock = kind(self.members, self.my_index)
        plain = type(self) is Matrix and options.stamps == "updates"
        self._senders = {name: number for name, number in self.index.items() if name != self.me} if plain else {}
        """Whose frames may go the short way."""

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        recipients = self._recipients(to)
        clock, mine = self.clock, self.my_index
        others = [member for member in recipients if member != mine]
        # All recipients are counted first: each must know of the others, or what it sends them next could overtake this.
        clock.count_sent(others)
        send = [(self.members[member], Frame(clock.stamp_for(member), envelope)) for member in others]
        return Output(send, [Frame(MatrixStamp(0, ()), envelope)] if len(others) < len(recipients) else [])

    def accept(self, peer: str, frame: Frame[Any], now: int) -> Output:
        """As with every ordering; what is in its turn while nothing waits goes a short way."""
        sender, pending = self._senders.get(peer), self.pending
        if sender is None or pending.held or pending.gate is not None or frame.envelope is None:
            return super().accept(peer, frame, now)
        if self.clock.deliver_next(sender, frame.stamp):
            return Output([], [frame])
        return super().accept(peer, frame, now)

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        if frame.stamp.number < 1 or frame.envelope is None:
            raise MalformedFrame("needs a message and a number from 1")
        self.clock.check(sender, frame.stamp)
        return sender, frame.stamp.number

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        return self.clock.missing(held)

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        self.clock.release(held)
        out.deliver.append(held.frame)

    def _released(self, stream: int) -> int:
        return self.clock.delivered[stream]

    @property
    def state(self) -> MatrixState:
        """What a snapshot holds."""
        return self.clock.save()

    @state.setter
    def state(self, state: MatrixState) -> None:
        clock = type(self.clock)(self.members, self.my_index)
        clock.load(state)
        self.clock = clock
