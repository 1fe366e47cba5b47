"""The matrix ordering, with nothing delivered before enough others keep a copy of it.

Source: daisy §3.4 (ii): only recipients are written to, and messages "cannot be delivered until it is known that they
were received by at least k more processes, in order to be able to survive k failures". Design note:
docs/concepts/orderings/resilient.md.

A message goes to its recipients, stamped as in ``matrix``. If these are too few, it also goes to further members,
as a *copy*: they keep it and do not deliver it. Whoever gets it says so to the sender at once, before it can deliver
anything. When enough have said so, the sender acks it, and only then it is delivered.

Rules:

* Enough are k + 1 members beside the sender, or all where there are fewer: whoever delivers is one of them, so k
  more have it. Where the sender alone delivers, k others are enough.
* A sender acks in the order in which it sent. So whatever is delivered anywhere, all that happened before it is
  kept by enough others too: a crash of k members leaves no hole that somebody waits for in vain (daisy Fig. 2). The
  paper does not ask for this, and without it such a run blocks.
* A copy is numbered and ordered like a message, so there is one stream per pair of members. It is dropped when it is
  acknowledged, since by then every recipient has the message.

Option: ``copies``, which is k (default 1). 0 is the matrix ordering itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Annotated, Any

import msgspec

from thence.core.ordering.base import Ordering, Output, Predecessor, Traits, Wait
from thence.core.ordering.matrix_clock import MatrixStamp, MatrixState, UpdatesMatrix
from thence.core.ordering.pending import HeldFrame
from thence.core.wire.messages import Envelope, Frame
from thence.core.wire.number_set import NumberSet
from thence.errors import ImpossibleFrame, MalformedFrame, ReplayedFrame

MAX_COPIES = 64
"""The most copies that may be asked for."""


class ResilientCopy(MatrixStamp, frozen=True, array_like=True, gc=False, tag=13):
    """As a matrix stamp, on a message that its receiver keeps and does not deliver."""


class ResilientKept(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=14):
    """I keep your ``number``-th message to me."""

    number: int


class ResilientSafe(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=15):
    """My ``number``-th message to you is kept by enough others."""

    number: int


class ResilientOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many others must keep a message before somebody delivers it."""

    copies: Annotated[int, msgspec.Meta(ge=0, le=MAX_COPIES)] = 1


class UnackedMessage(msgspec.Struct, array_like=True):
    """A message of ours that is not acknowledged yet."""

    envelope: Envelope
    ours_too: bool
    """Whether we ourselves are to deliver it."""
    holders: list[tuple[int, int]]
    """Who gets it, and its number in our stream to them."""
    left: int
    """How many have still to say that they keep it."""


class ResilientState(msgspec.Struct):
    """The state of ``matrix``, what each member acknowledged, what each keeps of ours, and what we have not acknowledged."""

    matrix: MatrixState
    safe: list[int]
    kept: list[NumberSet]
    unsafe: list[UnackedMessage]


class Resilient(Ordering):
    """The matrix ordering, with nothing delivered before enough other members keep a copy of it."""

    traits = Traits(
        "resilient",
        frozenset({"fifo", "causal"}),
        (MatrixStamp, ResilientCopy, ResilientKept, ResilientSafe),
        ResilientState,
        ResilientOptions,
        direct=False,
        keeps_sent=True,
        gated=True,
    )

    def _start(self, options: ResilientOptions) -> None:
        self._copies = options.copies
        self.clock = UpdatesMatrix(self.members, self.my_index)
        self._safe = [0] * len(self.members)
        self._kept = [NumberSet() for _ in self.members]
        self._remember([])

    def _remember(self, unsafe: list[UnackedMessage]) -> None:
        """Take these for our messages that are not acknowledged yet, oldest first."""
        self._unsafe = deque(unsafe)
        self._awaited = {place: message for message in unsafe for place in message.holders}

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        recipients = self._recipients(to)
        others = [member for member in recipients if member != self.my_index]
        enough = min(self._copies + bool(others), len(self.members) - 1) if self._copies else 0
        stores = self._further(recipients, enough - len(others))
        holders = others + stores
        out = Output([], [])
        clock = self.clock
        clock.count_sent(holders)
        numbers = [clock.value(self.my_index, member) for member in holders]
        for member, number in zip(holders, numbers, strict=True):
            kind = ResilientCopy if member in stores else MatrixStamp
            out.send.append((self.members[member], Frame(kind(number, clock.updates_for(member)), envelope)))
        places = list(zip(holders, numbers, strict=True)) if enough else []
        message = UnackedMessage(envelope, len(others) < len(recipients), places, enough)
        self._unsafe.append(message)
        self._awaited.update(dict.fromkeys(places, message))
        self._ack(out)
        return out

    def _further(self, recipients: Collection[int], count: int) -> list[int]:
        """Return so many members who keep a copy: those who come next after us, so that the work is shared out."""
        size = len(self.members)
        ring = ((self.my_index + step) % size for step in range(1, size))
        free = [member for member in ring if member not in recipients]
        return free[: max(0, count)]

    def _ack(self, out: Output) -> None:
        """Ack the oldest of our messages, as far as enough others keep them."""
        while self._unsafe and self._unsafe[0].left <= 0:
            message = self._unsafe.popleft()
            for place in message.holders:
                self._awaited.pop(place, None)
            if message.ours_too:
                out.deliver.append(Frame(MatrixStamp(0, ()), message.envelope))
            out.send.extend((self.members[member], Frame(ResilientSafe(number), None)) for member, number in message.holders)

    def accept(self, peer: str, frame: Frame[Any], now: int) -> Output:
        out = super().accept(peer, frame, now)
        if self._copies and isinstance(frame.stamp, MatrixStamp):
            out.send.append((peer, Frame(ResilientKept(frame.stamp.number), None)))
        return out

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        stamp = frame.stamp
        if isinstance(stamp, MatrixStamp):
            if stamp.number < 1 or frame.envelope is None:
                raise MalformedFrame("needs a message and a number from 1")
            self.clock.check(sender, stamp)
            return sender, stamp.number
        if stamp.number < 1 or frame.envelope is not None or not self._copies:
            raise MalformedFrame("needs a number from 1, no message, and copies")
        if isinstance(stamp, ResilientSafe):
            return len(self.members) + sender, stamp.number
        sent = self.clock.value(self.my_index, sender)
        if stamp.number > sent:
            raise ImpossibleFrame(f"it keeps my message {stamp.number}, but I have sent {sent}")
        if stamp.number in self._kept[sender]:
            raise ReplayedFrame(f"that it keeps number {stamp.number} was accepted before")
        return 2 * len(self.members) + sender, stamp.number

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        stamp = held.frame.stamp
        if isinstance(stamp, ResilientKept):
            return None
        acks, safe = len(self.members) + held.sender, self._safe[held.sender]
        if isinstance(stamp, ResilientSafe):
            return None if safe == held.number - 1 else (acks, held.number - 1)
        missing = self.clock.missing(held)
        if missing is None and self._copies and safe < held.number:
            return acks, held.number
        return missing

    def _beyond_limit(self, held: HeldFrame[Any], missing: tuple[int, int]) -> bool:
        # Only its ack is missing, and that may be waiting for us to take it. There is at most one per member.
        return isinstance(held.frame.stamp, MatrixStamp) and missing[0] >= len(self.members)

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        stamp = held.frame.stamp
        if isinstance(stamp, ResilientSafe):
            self._safe[held.sender] = held.number
        elif isinstance(stamp, ResilientKept):
            self._kept[held.sender].add(held.number)
            message = self._awaited.get((held.sender, held.number))
            if message is not None:
                message.left -= 1
                self._ack(out)
        else:
            self.clock.release(held)
            if not isinstance(stamp, ResilientCopy):
                out.deliver.append(held.frame)

    def _released(self, stream: int) -> int:
        kind, member = divmod(stream, len(self.members))
        return (self.clock.delivered[member], self._safe[member], 0)[kind]

    def _stream_name(self, stream: int) -> str:
        name = self.members[stream % len(self.members)]
        return name if stream < len(self.members) else f"acks of {name}"

    def waiting(self) -> list[Wait]:
        """List every message that waits here; our own unacknowledged ones first, for a copy somewhere or an earlier one of
        ours."""
        ours = []
        before = Predecessor(self.me, 0)
        for message in self._unsafe:
            lacking = (place for place in message.holders if place[1] not in self._kept[place[0]])
            member, number = next(lacking, (None, 0))
            missing = before if member is None or message.left <= 0 else Predecessor(f"copies at {self.members[member]}", number)
            ours.append(Wait(message.envelope.id, self.me, missing, 0))
            before = Predecessor(*message.envelope.id)
        return ours + super().waiting()

    @property
    def state(self) -> ResilientState:
        """What a snapshot holds."""
        return ResilientState(self.clock.save(), self._safe, self._kept, list(self._unsafe))

    @state.setter
    def state(self, state: ResilientState) -> None:
        clock = UpdatesMatrix(self.members, self.my_index)
        clock.load(state.matrix)
        self.clock, self._safe, self._kept = clock, state.safe, state.kept
        self._remember(state.unsafe)
