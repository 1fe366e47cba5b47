"""Orderings with a bug planted in each, for the explorer and the judge to find.

Each is a real ordering with one rule broken, as small a subclass as can be. ``PLANTED`` says which property it breaks, in
which case the explorer has to find it, and how long the shortest run is. ``HARMLESS`` holds changes that look like bugs
and only cost concurrency: nothing may be found there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from thence.core.ordering import ArrivalOrder, Ordering, Output
from thence.core.ordering.clocked import Clocked
from thence.core.ordering.fifo import Fifo
from thence.core.ordering.flood import Flood, FloodStamp, FloodState
from thence.core.ordering.grouped import Grouped, GroupedGlobal
from thence.core.ordering.matrix import Matrix, MatrixOptions
from thence.core.ordering.matrix_clock import MatrixStamp, UpdatesMatrix
from thence.core.ordering.pending import HeldFrame
from thence.core.ordering.relayed import Relayed
from thence.core.ordering.sequenced import Sequenced, SequencedOrder
from thence.core.ordering.unordered import Unordered
from thence.core.ordering.vector import Vector
from thence.core.wire.messages import Envelope, Frame
from thence.errors import ReplayedFrame

SINGLES: Final = {"groups": [["A"], ["B"], ["C"]]}


class Impatient(Fifo):
    """Does not wait for the message before."""

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        return None


class BareMaximum(Unordered):
    """Takes whatever has a lower number than the highest seen for a replay, and drops it."""

    def accept(self, peer: str, frame: Frame[Any], now: int) -> Output:
        highest = max((self.state.delivered[self.index[peer]].upto, *self.state.delivered[self.index[peer]].beyond))
        try:
            return super().accept(peer, frame, now) if frame.stamp.number > highest else Output([], [])
        except ReplayedFrame:
            return Output([], [])


# --- vector ------------------------------------------------------------------------------------------------------------


class Careless(Vector):
    """Keeps the order of each sender and ignores what it depended on."""

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        before = held.number - 1
        return None if self.state.delivered[held.sender] == before else (held.sender, before)


class Disordered(Vector):
    """Waits for dependencies, but not for the sender's own message before."""

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        missing = super()._missing(held)
        return None if missing and missing[0] == held.sender else missing


class OneDependency(Vector):
    """Takes each delivery to cover all that was delivered before it."""

    def _depend_on(self, held: HeldFrame[Any]) -> None:
        self.state.direct = {held.sender: held.number}


class PrunesNewer(Vector):
    """Takes a delivery that depends on a member's message to cover all later ones of that member too."""

    def _depend_on(self, held: HeldFrame[Any]) -> None:
        for covered in held.frame.stamp.after[::2]:
            self.state.direct.pop(covered, None)
        self.state.direct[held.sender] = held.number


class WithoutMarkers(Vector):
    """Tells those who are no recipients nothing, which leaves them with a hole."""

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        out = super().send(envelope, to)
        return Output([(peer, frame) for peer, frame in out.send if frame.envelope], out.deliver)


class Indiscreet(Vector):
    """Writes to everybody, whoever the message is for."""

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        return super().send(envelope, None)


# --- matrix ------------------------------------------------------------------------------------------------------------


class PrintedClock(UpdatesMatrix):
    """As App. A of domains is printed: the position moves before the entries beyond it are selected, so there are none."""

    def updates_for(self, column: int) -> tuple[int, ...]:
        self._positions[column] = self._changes
        return super().updates_for(column)


class LateStartClock(UpdatesMatrix):
    """As the authors' own program: a position starts where the state is at the first send, not at the beginning."""

    def count_sent(self, columns: Any) -> None:
        self._positions = [position or self._changes for position in self._positions]
        super().count_sent(columns)


class OnePositionClock(UpdatesMatrix):
    """What was told to one counts as told to all."""

    def updates_for(self, column: int) -> tuple[int, ...]:
        found = super().updates_for(column)
        self._positions = [self._changes] * len(self._positions)
        return found


class OwnNewsClock(UpdatesMatrix):
    """Tells what it sent itself and nothing of what it heard from others."""

    def updates_for(self, column: int) -> tuple[int, ...]:
        found = super().updates_for(column)
        pairs = zip(found[::2], found[1::2], strict=True)
        return tuple(x for key, value in pairs if key // self._count == self._me for x in (key, value))


class _WithClock(Matrix):
    Clock: type[UpdatesMatrix]

    def _start(self, options: MatrixOptions) -> None:
        super()._start(options)
        self.clock = self.Clock(self.members, self.my_index)


class AsPrinted(_WithClock):
    """See its clock."""

    Clock = PrintedClock


class LateStart(_WithClock):
    """See its clock."""

    Clock = LateStartClock


class OnePosition(_WithClock):
    """See its clock."""

    Clock = OnePositionClock


class OwnNews(_WithClock):
    """See its clock."""

    Clock = OwnNewsClock


class OneByOne(Matrix):
    """Sends a multicast as so many unicasts: the first recipient does not know of the others."""

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        parts = [super(OneByOne, self).send(envelope, (self.members[member],)) for member in self._recipients(to)]
        return Output([pair for part in parts for pair in part.send], [frame for part in parts for frame in part.deliver])


class LearnsOnArrival(Matrix):
    """Takes over the matrix of a message that still has to wait. Harmless: it only makes others wait for more."""

    def accept(self, peer: str, frame: Frame[Any], now: int) -> Output:
        out = super().accept(peer, frame, now)
        if isinstance(frame.stamp, MatrixStamp) and isinstance(self.clock, UpdatesMatrix):
            self.clock.learn(frame.stamp.updates, self.index[peer])
        return out


# --- clocked -----------------------------------------------------------------------------------------------------------


class Untimely(Clocked):
    """Delivers what comes at once, whatever time the others may still send."""

    def _unheard(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        return None


class Untied(Clocked):
    """Delivers messages of the same time in the order in which they came."""

    def _release_all(self, held: HeldFrame[Any], out: Output) -> None:
        self._hear(held, out)
        waiting = self.pending.take(held.stream, held.number)
        for one in [*waiting, held]:
            if one.frame.envelope is not None:
                self._deliver_or_hold(one, out)


class Silent(Clocked):
    """Acknowledges nothing."""

    def _hear(self, held: HeldFrame[Any], out: Output) -> None:
        super()._hear(held, Output([], []))


# --- sequenced ---------------------------------------------------------------------------------------------------------


class AnyRequest(Sequenced):
    """The coordinator takes requests as they come."""

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        return None if self.my_index == self.coordinator else super()._missing(held)


class OneNumbering(Sequenced):
    """The coordinator numbers all messages alike, also for those who do not get all of them."""

    def _pass_on(self, envelope: Envelope, recipients: Collection[int], out: Output) -> None:
        number = max(self.state.passed_on)
        self.state.passed_on = [number] * len(self.members)
        super()._pass_on(envelope, recipients, out)


class OwnFirst(Sequenced):
    """A sender delivers its own message at once and has it passed on to the others only."""

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        if self.my_index == self.coordinator or (to is not None and self.me not in to):
            return super().send(envelope, to)
        out = super().send(envelope, [name for name in (self.members if to is None else to) if name != self.me])
        out.deliver.append(Frame(SequencedOrder(1), envelope))
        return out


# --- grouped -----------------------------------------------------------------------------------------------------------


class WithoutHolding(Grouped):
    """Gateways pass on what comes, as in §4 of gateways, which has no rule for holding."""

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        missing = super()._missing(held)
        return None if isinstance(held.frame.stamp, GroupedGlobal) and missing and missing[0] != held.stream else missing


class WithoutGatewayMarkers(Grouped):
    """Gateways that have no recipients are told nothing."""

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        out = super().send(envelope, to)
        return Output([(peer, frame) for peer, frame in out.send if frame.envelope], out.deliver)


class Unlearned(Grouped):
    """What was delivered leaves no trace in the vector."""

    def _learn(self, clock: tuple[int, ...]) -> None:
        pass


# --- flood -------------------------------------------------------------------------------------------------------------


class DeadEnd(Flood):
    """Delivers, but does not forward what it got from others."""

    def _forward(self, frame: Frame[FloodStamp], came_from: int, out: Output) -> None:
        if came_from == self.my_index:
            super()._forward(frame, came_from, out)


class LateState(FloodState):
    """What is still to be forwarded."""

    late: list[tuple[int, Frame[FloodStamp]]] = msgspec.field(default_factory=list)


class Late(Flood):
    """Forwards with the next frame that comes in, so that its own messages overtake what it forwards."""

    traits = Flood.traits._replace(state=LateState)
    state: LateState

    def _start(self, options: Any) -> None:
        super()._start(options)
        self.state = LateState(self.state.seen, self.state.hops_out, self.state.hops_in)

    def _forward(self, frame: Frame[FloodStamp], came_from: int, out: Output) -> None:
        if came_from == self.my_index:
            super()._forward(frame, came_from, out)
        else:
            self.state.late.append((came_from, frame))

    def accept(self, peer: str, frame: Frame[Any], now: int) -> Output:
        late, self.state.late = self.state.late, []
        forwarded = Output([], [])
        for came_from, waiting in late:
            super()._forward(waiting, came_from, forwarded)
        out = super().accept(peer, frame, now)
        return Output(forwarded.send + out.send, out.deliver)


class EveryCopy(Flood):
    """Delivers each copy, not only the first."""

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        first = held.frame.stamp.number > self.state.seen[held.frame.stamp.origin]
        super()._release(held, out)
        if not first:
            out.deliver.append(held.frame)


class AnyLink(Flood):
    """Runs over links that are not FIFO and takes the highest number for all that was seen."""

    traits = Flood.traits._replace(arrival=ArrivalOrder.ANY)

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        return sender, self.state.hops_in[sender] + 1


class Planted(NamedTuple):
    """An ordering with a bug, where to look for it, which property it breaks, and the length of the shortest such run."""

    ordering: type[Ordering]
    pattern: str
    messages: int
    property: str
    actions: int
    options: Mapping[str, Any] = {}


# --- relayed -----------------------------------------------------------------------------------------------------------


class WithoutFacts(Relayed):
    """Waits for the one before of the same relay, and for no cause."""

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        before = held.frame.stamp.before
        return (held.sender, before) if self.state.released[held.sender] < before else None


class OnlyOwnFacts(Relayed):
    """Tells a relay only what was for that one, so that it cannot tell others."""

    def _facts_for(self, member: int, vector: Sequence[int]) -> tuple[int, ...]:
        found = super()._facts_for(member, vector)
        kept = [at for at in range(0, len(found), 2) if found[at] % (self.everyone + 1) in (member, self.everyone)]
        return tuple(x for at in kept for x in found[at : at + 2])


class ShownTooEarly(Relayed):
    """Takes a relay that was shown something of a stream for one that was shown all of it."""

    def _facts_for(self, member: int, vector: Sequence[int]) -> tuple[int, ...]:
        return super()._facts_for(member, vector) if not self.state.shown[member] else ()


class GatewayOrder(Relayed):
    """Takes all that a relay has released for a cause of what it sends on, as gateways §3 warns."""

    def vector_of(self, envelope: Envelope) -> list[int]:
        return super().vector_of(envelope.with_vector(None))


class MergedOrder(Relayed):
    """Passes on with the vector into which a gateway has merged all that it got, as gateways §4 is printed."""

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        super()._release(held, out)
        merged = self.vector_of(held.message.with_vector(None))
        pairs = tuple(x for stream, number in enumerate(merged) if number for x in (stream, number))
        out.deliver[-1] = Frame(msgspec.structs.replace(held.frame.stamp, vector=pairs), held.message.with_vector(pairs))


PLANTED: Final = (
    Planted(WithoutFacts, "unicast", 3, "causal", 5),
    Planted(OnlyOwnFacts, "unicast", 3, "causal", 5),
    Planted(ShownTooEarly, "unicast", 4, "causal", 7),
    Planted(Impatient, "unicast", 2, "fifo", 3),
    Planted(BareMaximum, "unicast", 2, "completeness", 4),
    Planted(Careless, "unicast", 3, "causal", 6),
    Planted(Disordered, "broadcast", 2, "fifo", 3),
    Planted(OneDependency, "broadcast", 3, "causal", 6),
    Planted(PrunesNewer, "broadcast", 4, "causal", 9),
    Planted(WithoutMarkers, "unicast", 2, "completeness", 3),
    Planted(Indiscreet, "unicast", 1, "creation", 1),
    Planted(AsPrinted, "unicast", 3, "causal", 5),
    Planted(LateStart, "unicast", 3, "causal", 5),
    Planted(OnePosition, "unicast", 3, "causal", 5),
    Planted(OwnNews, "unicast", 3, "causal", 5),
    Planted(OneByOne, "multicast", 2, "causal", 4),
    Planted(Untimely, "broadcast", 2, "total", 4),
    Planted(Untied, "broadcast", 2, "total", 6),
    Planted(Silent, "broadcast", 1, "completeness", 3),
    Planted(AnyRequest, "unicast", 2, "fifo", 3),
    Planted(OneNumbering, "unicast", 2, "completeness", 4),
    Planted(OwnFirst, "broadcast", 2, "total", 4),
    Planted(WithoutHolding, "unicast", 3, "causal", 6, SINGLES),
    Planted(WithoutGatewayMarkers, "unicast", 2, "completeness", 4, SINGLES),
    Planted(Unlearned, "broadcast", 2, "causal", 4, SINGLES),
    Planted(DeadEnd, "broadcast", 2, "causal", 4),
    Planted(Late, "broadcast", 2, "causal", 4),
    Planted(EveryCopy, "broadcast", 1, "duplication", 4),
    Planted(AnyLink, "broadcast", 2, "fifo", 3),
)

HARMLESS: Final = (Planted(LearnsOnArrival, "multicast", 3, "", 0), Planted(GatewayOrder, "unicast", 3, "", 0))
