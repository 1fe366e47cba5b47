"""The three ways to put a vector on what a gateway passes on, and a count of how often each orders what is concurrent.

It exists to count what the repair of gateways §4 is good for: orders that nobody asked for, and waits for them.

Rules:

* ``Grouped`` itself: a message keeps its own vector (gateways §4, repaired).
* ``MergedVectors``: as §4 is printed, a gateway passes on with the vector into which it has merged all that it passed on before.
* ``GatewayClock``: what §3 warns of, a vector clock among the gateways: a message comes after all that its gateway has relayed.

All three run under the same holding rule, so all keep causal order; what differs is what they order and wait for in vain.
Happens-before is computed here from sends and deliveries alone.

Source: gateways §3, §4 and Fig. 8; docs/concepts/orderings/grouped.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations, permutations
from typing import Any, NamedTuple

import msgspec

from thence.core.member.contract import Delivery
from thence.core.ordering import Ordering, Output
from thence.core.ordering.grouped import Grouped, GroupedGlobal
from thence.core.ordering.pending import HeldFrame
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.wire.messages import Envelope, Frame
from thence.sim.laws import Exponential, Law
from thence.sim.node import SimulatedNode
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.trace.events import Event
from thence.trace.recorder import Sink, kept

Clock = tuple[int, ...]


class MergedVectors(Grouped):
    """§4 as printed: the gateway takes a global message's vector into its own, and passes the message on with that one.

    Nobody takes over the entry of its own subgroup from a message (``k ≠ j``); the gateway's is its count (``vc_j := VC_j``).
    """

    def _learn(self, clock: tuple[int, ...]) -> None:
        entries = [clock[at : at + 2] for at in range(0, len(clock), 2) if clock[at] != self.my_group]
        super()._learn(tuple(number for entry in entries for number in entry))

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        stamp, state = held.frame.stamp, self.state
        if isinstance(stamp, GroupedGlobal) and held.frame.envelope is not None:
            state.released[self.group_of[held.sender]] = held.number
            state.known = [max(mine, theirs) for mine, theirs in zip(state.known, stamp.clock, strict=True)]
            state.known[self.my_group] = state.released[self.my_group]
            self._pass_on(held.frame.envelope, stamp.to, state.known, out)
        else:
            super()._release(held, out)


class GatewayClock(Grouped):
    """A vector clock among the gateways: what a gateway sends comes after all that it has relayed, whoever has seen it.

    A marker is no message: a gateway that gets one has relayed nothing.
    """

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        super()._release(held, out)
        stamp = held.frame.stamp
        if isinstance(stamp, GroupedGlobal) and held.frame.envelope is not None:
            self.state.known = [max(mine, theirs) for mine, theirs in zip(self.state.known, stamp.clock, strict=True)]

    def _order(self, envelope: Envelope, to: tuple[int, ...] | None, vector: list[int], out: Output) -> None:
        super()._order(envelope, to, [max(mine, theirs) for mine, theirs in zip(self.state.known, vector, strict=True)], out)


def before(one: Clock, other: Clock) -> bool:
    """Return whether the vectors say that the first comes before the second: §4's ordering rule."""
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


class Causes:
    """Which messages happened before which, from a trace."""

    def __init__(self, events: Iterable[Event]) -> None:
        """Go through the events, which must come in the order in which they happened."""
        self.of: dict[str, frozenset[str]] = {}
        past: dict[str, frozenset[str]] = {}
        for event in events:
            message, known = str(event.message), past.get(event.process, frozenset())
            if event.kind == "send":
                self.of[message] = known
                past[event.process] = known | {message}
            else:
                past[event.process] = known | self.of[message] | {message}

    def concurrent(self, one: str, other: str) -> bool:
        """Return whether neither happened before the other."""
        return one not in self.of[other] and other not in self.of[one]


class VectorFindings(NamedTuple):
    """What a run showed."""

    concurrent: int
    """Pairs of global messages of different subgroups, delivered at one process, that are concurrent."""
    falsely_ordered: int
    """How many of them the vectors put into an order."""
    overlooked: int
    """Pairs of global messages, delivered at one process, that are causes of one another and not ordered by the vectors."""
    waits: int
    """How many global messages had to wait at a gateway for one of another subgroup."""
    arrived: int
    """How many global messages, or markers of them, came to a gateway."""
    delay_ms: float
    """From sending to delivering, on average."""
    concurrent_at_home: int
    """Pairs of global messages of one subgroup, delivered at one process, that are concurrent."""
    falsely_ordered_at_home: int
    """How many of them the vectors put into an order."""


class Waits:
    """How many global messages came to a gateway, and how many of them had to wait for one of another subgroup."""

    def __init__(self) -> None:
        """None so far."""
        self.arrived = 0
        self.waited = 0


def counting_waits(kind: type[Grouped]) -> tuple[type[Ordering], Waits]:
    """Return the ordering with a counter of the messages that wait for one of another subgroup."""
    waits = Waits()

    class WaitCounter(kind):  # type: ignore[misc, valid-type]
        def accept(self, peer: str, frame: Frame[Any], now: int) -> Output:
            if isinstance(frame.stamp, GroupedGlobal):
                sender = self.index[peer]
                stream, number = self._check(sender, frame)
                missing = self._missing(HeldFrame(sender, stream, number, frame, now))
                waits.arrived += 1
                waits.waited += missing is not None and missing[0] != stream
            output: Output = super().accept(peer, frame, now)
            return output

    return WaitCounter, waits


class Setup(msgspec.Struct, frozen=True):
    """What to run: so many processes in so many subgroups."""

    processes: int = 12
    subgroups: int = 4
    messages: int = 60
    recipients: int = 4
    loss: float = 0.0
    """The share of frames that get lost; if ``local_ms`` is given, of those between subgroups."""
    local_ms: int = 0
    """The delay within a subgroup, where nothing gets lost; 0: all delays are exponential, of 10 ms on average."""
    wide_ms: int = 0
    """The delay between gateways."""


def watch(kind: type[Grouped], wanted: Setup, seed: int, sink: Sink) -> VectorFindings:
    """Run a group and look at the vectors of what is delivered."""
    names = [f"p{number}" for number in range(wanted.processes)]
    size = wanted.processes // wanted.subgroups
    groups = [names[at : at + size] for at in range(0, len(names), size)]
    ordering, waits = counting_waits(kind)
    options = SimulationOptions(
        messages=wanted.messages,
        pattern="multicast",
        recipients=wanted.recipients,
        gap="exponential:4ms",
        replies=0.5,
        loss=wanted.loss,
        seed=seed,
    )
    events, keep = kept(sink)
    home = {name: number for number, group in enumerate(groups) for name in group}
    delays: dict[tuple[str, str], Law] = {}
    losses: dict[tuple[str, str], float] = {}
    if wanted.local_ms:
        losses = {(one, other): 0.0 for one, other in permutations(names, 2) if home[one] == home[other]}
        mean_ms = {True: wanted.local_ms, False: wanted.wide_ms}
        delays = {
            (one, other): Exponential(mean_ms[home[one] == home[other]] * 1_000_000) for one, other in permutations(names, 2)
        }
    where = Topology.flat(Domain("d", tuple(names), ordering, {"groups": groups}))
    simulation = Simulation(options, keep, where=where, delays=delays, losses=losses)
    stamps: dict[str, dict[str, Any]] = {name: {} for name in names}
    for node in simulation.nodes.values():
        node.on_deliver = _noting(stamps[node.name], node.on_deliver)
    simulation.run()
    concurrent, falsely, overlooked, *at_home = _pairs(events, stamps.values(), home)
    took = simulation.statistics.delays_ns
    return VectorFindings(concurrent, falsely, overlooked, waits.waited, waits.arrived, sum(took) / len(took) / 1e6, *at_home)


OnDeliver = Callable[[SimulatedNode, Delivery], None]


def _noting(stamps: dict[str, Any], then: OnDeliver | None) -> OnDeliver:
    """Return what notes the stamp with which each message is delivered, and goes on as before."""

    def note(node: SimulatedNode, delivery: Delivery) -> None:
        stamps[str(delivery.envelope.id)] = delivery.frame.stamp
        if then is not None:
            then(node, delivery)

    return note


def _pairs(events: list[Event], noted: Iterable[Mapping[str, Any]], home: Mapping[str, int]) -> tuple[int, ...]:
    """Count the pairs that are concurrent, those of them that are ordered all the same, and causes that are not ordered; and
    the first two again of pairs from one subgroup, which are not among the former."""
    causes = Causes(events)
    global_messages = {
        str(event.message): home[event.process]
        for event in events
        if event.kind == "send" and {home[name] for name in event.to or ()} != {home[event.process]}
    }
    subgroups = len(set(home.values()))
    overlooked = 0
    concurrent, falsely = [0, 0], [0, 0]
    for stamps in noted:
        clocks = {message: dense(stamp.clock, subgroups) for message, stamp in stamps.items() if message in global_messages}
        for one, other in combinations(clocks, 2):
            ordered = before(clocks[one], clocks[other]) or before(clocks[other], clocks[one])
            if not causes.concurrent(one, other):
                overlooked += not ordered
            else:
                at_home = global_messages[one] == global_messages[other]
                concurrent[at_home] += 1
                falsely[at_home] += ordered
    return concurrent[0], falsely[0], overlooked, concurrent[1], falsely[1]


def dense(pairs: Clock, count: int) -> Clock:
    """Return all entries of a vector that was written as (subgroup, number), … without those that are 0."""
    entries = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return tuple(entries.get(group, 0) for group in range(count))
