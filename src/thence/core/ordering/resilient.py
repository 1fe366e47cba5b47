"""The matrix ordering for messages that outlive any k members: whoever has one hands it on.

Source: daisy §3.4 (ii): only recipients are written to, and messages "cannot be delivered until it is known that they
were received by at least k more processes, in order to be able to survive k failures". Design note:
docs/concepts/orderings/resilient.md.

A message goes to its recipients, and if these are fewer than k also to further members, as a *copy* that they do not
deliver. All keep it, and say so to whoever gave it to them. It is delivered where ``matrix`` would deliver it, once it
and all that its sender sent before are held by k + 1 members who are not suspected. If its sender is suspected, those who have
it hand it on (``core.ordering.resilience.custody``).

Rules:

* One stamp for all: it holds what any recipient lacks of the sender's matrix. So whoever has a message can hand it on to
  anybody, and the first copy of it counts. Copies for others are not part of the matrix.
* All that a message depends on is held by enough before it is delivered. So no survivor waits for what nobody has: a message of
  a dead member that is lost, and all behind it, was delivered and accepted nowhere.
* A member delivers its own message at once, as everywhere: should it die, that was delivered by no survivor.

Option: ``copies``, which is k (default 1). 0 is the matrix ordering itself.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, ClassVar

import msgspec

from thence.core.ordering.base import (
    Ordering,
    Output,
    Predecessor,
    Securing,
    Survival,
    Traits,
    Wait,
    blocker,
    name_refusal,
    sender_of,
)
from thence.core.ordering.matrix_clock import MatrixStamp, MatrixState, UpdatesMatrix
from thence.core.ordering.pending import HeldFrame
from thence.core.ordering.resilience.custody import Custody, CustodyState, Out
from thence.core.ordering.resilience.stamps import (
    EarlierCopy,
    EarlierKept,
    EarlierSafe,
    ResilientEnough,
    ResilientHeld,
    ResilientMessage,
    check_enough,
    check_held,
    check_message,
    entry_of,
)
from thence.core.wire.messages import Envelope, Frame
from thence.core.wire.number_set import NumberSet
from thence.errors import FrameRefused, ImpossibleFrame, MalformedFrame, ReplayedFrame

MAX_COPIES = 64
"""The most copies that may be asked for."""


class ResilientOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many members may die without anything being lost that somebody else delivered, or that was accepted."""

    copies: Annotated[int, msgspec.Meta(ge=0, le=MAX_COPIES)] = 1


class ResilientState(msgspec.Struct):
    """The state of ``matrix``, who holds which message, and which frames came from each member."""

    matrix: MatrixState
    custody: CustodyState | None = None
    """None: it was stored by a version whose members handed nothing on."""
    seen: list[NumberSet] = []


class Resilient(Ordering, Securing):
    """The matrix ordering for messages that outlive any k members."""

    traits = Traits(
        "resilient",
        frozenset({"fifo", "causal"}),
        (MatrixStamp, ResilientMessage, ResilientHeld, ResilientEnough, EarlierCopy, EarlierKept, EarlierSafe),
        ResilientState,
        ResilientOptions,
        direct=False,
        keeps_sent=True,
        secures=True,
        gated=True,
    )

    custody_type: ClassVar[type[Custody]] = Custody
    """What sees to copies; another one is for planted mistakes."""

    def _start(self, options: ResilientOptions) -> None:
        self._copies = options.copies
        self.clock = UpdatesMatrix(self.members, self.my_index)
        self.custody = self.custody_type(self.my_index, len(self.members), self._copies)
        self._seen = [NumberSet() for _ in self.members]
        self.survival = HolderSurvival(self)

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        recipients = self._recipients(to)
        others = [member for member in recipients if member != self.my_index]
        out = Output([], [])
        if len(others) < len(recipients):
            out.deliver.append(Frame(MatrixStamp(0, ()), envelope))
        clock = self.clock
        clock.count_sent(others)
        if not self._copies:
            for member in others:
                stamp = MatrixStamp(clock.value(self.my_index, member), clock.updates_for(member))
                out.send.append((self.members[member], Frame(stamp, envelope)))
            out.secured = [envelope]
            return out
        everybody = len(others) == len(self.members) - 1
        said: Out = []
        self.custody.send(envelope, None if everybody else tuple(others), clock.updates_for_all(others), said)
        return self.follow(said, out)

    def follow(self, said: Out, out: Output) -> Output:
        """Do what follows from what has become known; return all that is to be done."""
        custody = self.custody
        while custody.advanced:
            stream = next(iter(custody.advanced))
            del custody.advanced[stream]
            waits = len(self.members) + stream, self.clock.delivered[stream] + 1
            for held in self.pending.freed(*waits, self._missing):
                self._release_all(held, out)
        out.secured += custody.secured
        custody.secured = []
        out.send += [(self.members[member], frame) for member, frame in said]
        return out

    def accept(self, peer: str, frame: Frame[Any], now: int) -> Output:
        if isinstance(frame.stamp, MatrixStamp):
            return super().accept(peer, frame, now)
        try:
            return self._take(sender_of(self, peer, frame), frame, now)
        except FrameRefused as error:
            name_refusal(self, peer, frame, error)
            raise

    def _take(self, sender: int, frame: Frame[Any], now: int) -> Output:
        """Take a frame of this ordering's own kinds, or refuse it before anything changes."""
        stamp = frame.stamp
        if isinstance(stamp, EarlierKept | EarlierSafe):
            return Output([], [])  # It says nothing that anybody needs.
        stream, number = self._check(sender, frame)
        custody, said, out = self.custody, list[Any](), Output([], [])
        held, had, missing = None, False, None
        if isinstance(stamp, ResilientMessage) and stream < len(self.members):
            had = number <= self.clock.delivered[stream] or (stream, number) in self.pending.held
            if not had:
                held = HeldFrame(stream, stream, number, frame, now)
                missing = blocker(self, held)
        self._seen[sender].add(stamp.number)
        if isinstance(stamp, ResilientHeld):
            custody.answered(sender, (stamp.stream, stamp.sequence), said)
        elif isinstance(stamp, ResilientEnough):
            custody.learn(sender, stamp.stream, stamp.upto, stamp.ranges, said)
            custody.forget(sender, stamp.stream, stamp.done, said)
        elif isinstance(stamp, ResilientMessage) and frame.envelope is not None:
            custody.learn(sender, stamp.stream, stamp.safe, (), said)
            custody.take(sender, stamp, frame.envelope, said, had=had)
            custody.forget(sender, stamp.stream, stamp.done, said)
        if held is not None:
            if missing is not None and missing[0] >= len(self.members) and self._is_safe(held):
                missing = None if self.pending.gate is None else self.pending.gate.missing(frame)
            if missing is None:
                self._release_all(held, out)
            else:
                self.pending.hold(held, missing)
        return self.follow(said, out)

    def _is_safe(self, held: HeldFrame[Any]) -> bool:
        """Return whether enough hold a message, and all that its sender sent before."""
        sequence: int = held.frame.stamp.sequence
        return self.custody.enough[held.stream].upto >= sequence

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        stamp, members, mine = frame.stamp, len(self.members), self.my_index
        if isinstance(stamp, MatrixStamp):
            if stamp.number < 1 or frame.envelope is None:
                raise MalformedFrame("needs a message and a number from 1")
            self.clock.check(sender, stamp)
            return sender, stamp.number
        if not self._copies or isinstance(stamp, ResilientMessage) != (frame.envelope is not None):
            raise MalformedFrame("needs copies, and a message if it is one")
        if isinstance(stamp, ResilientMessage):
            check_message(stamp, members)
            self.clock.check_for_all(stamp.updates)
        elif isinstance(stamp, ResilientHeld):
            check_held(stamp, sender, members)
        else:
            check_enough(stamp, members, self.custody.enough[stamp.stream % members].upto)
        self._check_of_ours(stamp)
        if stamp.number in self._seen[sender]:
            raise ReplayedFrame(f"number {stamp.number} was accepted before")
        if not isinstance(stamp, ResilientMessage) or (stamp.to is not None and mine not in stamp.to):
            return 2 * members + sender, stamp.number
        number = entry_of(stamp.updates, stamp.stream * members + mine)
        if not number:
            raise MalformedFrame("does not say which of its sender's messages to me it is")
        return stamp.stream, number

    def _check_of_ours(self, stamp: ResilientMessage | ResilientHeld | ResilientEnough) -> None:
        """Refuse what somebody says of messages of ours that we have not sent, or a message of ours that comes back."""
        if stamp.stream != self.my_index:
            return
        if isinstance(stamp, ResilientMessage):
            raise ImpossibleFrame("it is a message of mine")
        named = (stamp.sequence,) if isinstance(stamp, ResilientHeld) else (stamp.upto, *stamp.ranges, *stamp.done)
        if max(named) > self.custody.sent:
            raise ImpossibleFrame(f"it speaks of my message {max(named)}, but I have sent {self.custody.sent}")

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        if isinstance(held.frame.stamp, MatrixStamp):
            return self.clock.missing(held)
        missing = self.clock.missing_for_all(held)
        if missing is None and not self._is_safe(held):
            return len(self.members) + held.stream, held.number
        return missing

    def _beyond_limit(self, held: HeldFrame[Any], missing: tuple[int, int]) -> bool:
        # Only others who hold it are missing, and they may wait for us to take it. There is at most one per member.
        return missing[0] >= len(self.members)

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        self.clock.release(held)
        if not isinstance(held.frame.stamp, EarlierCopy):
            out.deliver.append(held.frame)

    def _released(self, stream: int) -> int:
        return self.clock.delivered[stream % len(self.members)]

    def _stream_name(self, stream: int) -> str:
        name = self.members[stream % len(self.members)]
        return name if stream < len(self.members) else f"acks of {name}"

    def waiting(self) -> list[Wait]:
        """List every message that waits here; our own ones first that are not accepted, for somebody who should hold them."""
        ours = []
        before = Predecessor(self.me, 0)
        for kept, lacking in self.custody.unsecured():
            missing = before if lacking is None else Predecessor(f"copies at {self.members[lacking]}", kept.stamp.sequence)
            ours.append(Wait(kept.envelope.id, self.me, missing, 0))
            before = Predecessor(*kept.envelope.id)
        return ours + super().waiting()

    @property
    def state(self) -> ResilientState:
        """What a snapshot holds."""
        return ResilientState(self.clock.save(), self.custody.save(), self._seen)

    @state.setter
    def state(self, state: ResilientState) -> None:
        clock = UpdatesMatrix(self.members, self.my_index)
        clock.load(state.matrix)
        self.clock, self._seen, self.survival = clock, state.seen, HolderSurvival(self)
        self.custody = self.custody_type(self.my_index, len(self.members), self._copies)
        if state.custody is not None:
            self.custody.load(state.custody)
        else:  # What waits for acks waits for nothing any more.
            self._seen = [NumberSet() for _ in self.members]
            self.custody.advanced = dict.fromkeys(range(len(self.members)))


class HolderSurvival(Survival):
    """How a message of the resilient ordering outlives its sender."""

    def __init__(self, ordering: Resilient) -> None:
        """Look after the messages that ``ordering`` holds."""
        self._ordering = ordering

    @property
    def suspected(self) -> Collection[str]:
        return [self._ordering.members[member] for member in self._ordering.custody.suspected]

    def suspect(self, peer: str, suspected: bool) -> Output:
        ordering, said = self._ordering, list[Any]()
        ordering.custody.suspect(ordering.index[peer], suspected, said)
        return ordering.follow(said, Output([], []))

    def unsecured(self) -> list[Envelope]:
        return [kept.envelope for kept, _ in self._ordering.custody.unsecured()]

    def first_sender(self, peer: str, frame: Frame[Any]) -> str:
        stream, members = frame.stamp.stream if isinstance(frame.stamp, ResilientMessage) else -1, self._ordering.members
        return members[stream] if 0 <= stream < len(members) else peer
