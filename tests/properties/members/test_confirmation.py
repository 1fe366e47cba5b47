"""However a domain acks and whatever the network does, everything comes exactly once, and in the end nobody keeps anything.

First with arrivals, losses, repetitions, timers and crashes of real members chosen one by one; then in the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.bag import ACTIONS, Bag
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.transport.ack_all.claims import Claim, claimed_beyond
from thence.core.transport.ack_all.state import Drafts
from thence.core.transport.ack_all.transport import AckAll
from thence.core.transport.base import Frames, Incoming, Packets
from thence.core.wire.messages import Packet
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.studies.parts.site_groups import kept
from thence.trace.events import Event
from thence.trace.judge import judge

NAMES = ("a", "b", "c", "d", "e")
MS = 1_000_000
DELAYED: dict[str, Any] = {"after_messages": 4, "after_ns": 30 * MS}
NEAREST = AckOptions(scheme="distributed", retransmission="nearest")
WAYS = {
    "centralised": ("sequenced", AckOptions(scheme="centralised")),
    "centralised-delayed": ("sequenced", AckOptions(scheme="centralised", **DELAYED)),
    "decentralised": ("vector", AckOptions()),
    "decentralised-delayed": ("vector", AckOptions(**DELAYED)),
    "fifo-delayed": ("clocked", AckOptions(**DELAYED)),
    "distributed": ("vector", AckOptions(scheme="distributed")),
    "distributed-delayed": ("vector", AckOptions(scheme="distributed", **DELAYED)),
    "nearest": ("vector", NEAREST),
    "nearest-delayed": ("vector", AckOptions(scheme="distributed", retransmission="nearest", **DELAYED)),
    "in pairs": ("vector", NEAREST),
    "in pairs-delayed": ("vector", AckOptions(scheme="distributed", retransmission="nearest", **DELAYED)),
}
every_way = pytest.mark.parametrize("way", WAYS)

choices = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 9999)), max_size=80)


def bag_of(way: str, count: int, max_held: int = 100) -> Bag:
    """Return so many members of a domain that acks so."""
    return Bag(fabric(way, NAMES[:count]), max_held)


def fabric(way: str, names: tuple[str, ...]) -> Topology:
    """Return the domain; in pairs, the members take sides in turn, and of an odd number the first one is in two pairs."""
    ordering, acks = WAYS[way]
    near, far = names[::2], names[1::2]
    pairs = tuple(zip(near, (*far, far[0]), strict=False)) if "pairs" in way else ()
    return Topology.flat(Domain("d", names, ordering, acks=acks, pairs=pairs))


def broken(bag: Bag) -> dict[str, int]:
    """Return what the judge finds, and how much is kept for nothing."""
    left = sum(kept(member.attachment.domains["d"].transport) for member in bag.members.values())
    return bag.violations() | ({"kept": left} if left else {})


@every_way
@given(count=st.integers(2, 5), schedule=choices)
def test_exactly_once_in_order_and_nothing_is_kept(way: str, count: int, schedule: list[tuple[str, int]]) -> None:
    bag = bag_of(way, count)
    for kind, number in schedule:
        bag.play(kind, number)
    bag.settle()
    assert broken(bag) == {}
    assert [member.attachment.queued() for member in bag.members.values()] == [
        dict.fromkeys(other, 0) for other in others(bag.names)
    ]


def others(names: Sequence[str]) -> list[list[str]]:
    return [[name for name in names if name != me] for me in names]


@pytest.mark.parametrize("way", ["distributed", "distributed-delayed", "nearest", "in pairs"])
@given(schedule=choices)
def test_what_does_not_fit_comes_again(way: str, schedule: list[tuple[str, int]]) -> None:
    """A frame that overflows is not acknowledged to anybody."""
    bag = bag_of(way, 4, max_held=1)
    for kind, number in schedule:
        bag.play(kind, number)
    bag.settle()
    assert broken(bag) == {}


# --- these schedules have teeth --------------------------------------------------------------------------------------------


class NeverAgain(AckAll):
    """Never repeats by itself: what everybody lost stays lost."""

    def collect(self, now: int) -> Packets:
        for attempt in self.own.attempts.table.values():
            attempt.due = now + 10**18
        return super().collect(now)


class TakesCopies(AckAll):
    """Hands every copy to the ordering."""

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        super().frames_in(peer, packet, now)
        return [Incoming(peer, number, frame) for number, frame in zip(packet.numbers, packet.frames, strict=True)]


class OneIsEnough(AckAll):
    """Drops a message as soon as one destination has it."""

    def _learn(self, source: int, claim: Claim) -> None:
        if claim[0] == self.group.mine:
            for number in {*range(1, claim[1] + 1), *claimed_beyond(claim)} & self.state.queue.keys():
                self.state.queue[number].lacking = {source: None}
        super()._learn(source, claim)


class BareMaximum(AckAll):
    """Acks up to the highest number that has come, holes or not."""

    def _claims(self) -> tuple[Claim, ...]:
        return tuple((claim[0], claim[-1]) for claim in super()._claims())


class NeverAnswers(AckAll):
    """Does not answer who wants to know what it has, or sends what it had before."""

    def _answer(self, now: int, drafts: Drafts) -> None:
        self._to_answer = {}


class NeverTold(AckAll):
    """Keeps copies and does not ask who has them."""

    def collect(self, now: int) -> Packets:
        self.copies.probe = None
        return super().collect(now)


class ClaimsOnArrival(AckAll):
    """Acks what has arrived, though it was not taken."""

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        fresh = super().frames_in(peer, packet, now)
        for incoming in fresh:
            self.state.received[self.group.numbers[incoming.peer]].add(incoming.number)
        return fresh


class RepeatsToAnybody(AckAll):
    """Forgets for whom a message is that it keeps for others."""

    def take(self, incoming: Incoming) -> None:
        super().take(msgspec.structs.replace(incoming, to=None))


class ForgetsWhatItTook(AckAll):
    """After a restart it does not know what it had taken."""

    def load(self, saved: Any) -> None:
        super().load(saved)
        for taken in self.state.received:
            taken.upto, taken.beyond = 0, {}


class SendsMarkers(AckAll):
    """Takes every message for one to all."""

    def push(self, frames: Frames) -> None:
        whole = next((frame.envelope for _, frame in frames if frame.envelope is not None), None)
        super().push([(peer, msgspec.structs.replace(frame, envelope=whole)) for peer, frame in frames])


class CarriesAsItsOwn(AckAll):
    """Hands on what others sent as if it were its own."""

    def collect(self, now: int) -> Packets:
        targets, copies, mine = self.onward.targets, self.state.copies, self.group.mine
        copies[mine] = {number: copies[stream][number] for stream, number in targets}
        self.onward.targets = {(mine, number): going for (_, number), going in targets.items()}
        packets = super().collect(now)
        copies[mine] = {}
        return packets


MISTAKES = (
    NeverAgain,
    TakesCopies,
    OneIsEnough,
    BareMaximum,
    NeverAnswers,
    NeverTold,
    ClaimsOnArrival,
    RepeatsToAnybody,
    ForgetsWhatItTook,
    SendsMarkers,
    CarriesAsItsOwn,
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: str(mistake.__name__))
def test_a_planted_mistake_is_found(mistake: type[AckAll]) -> None:
    assert any(_fails(mistake, way, seed) for seed in range(60) for way in ("nearest", "distributed-delayed", "in pairs"))


@pytest.mark.parametrize("way", ["nearest", "distributed-delayed", "in pairs"])
def test_without_a_mistake_nothing_is_found(way: str) -> None:
    assert not any(_fails(AckAll, way, seed) for seed in range(60))


def _fails(kind: type[AckAll], way: str, seed: int) -> bool:
    chance = Random(seed)
    kinds = ACTIONS if seed % 2 else "saaalllllx"
    with mock.patch("thence.core.places.place.AckAll", kind):
        bag = bag_of(way, 4, max_held=2)
        try:
            for _ in range(80):
                bag.play(chance.choice(kinds), chance.randrange(9999))
            bag.settle()
        except AssertionError:
            return True
        return bool(broken(bag))


# --- in the simulator ------------------------------------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("seed", range(4))
def test_in_the_simulator_with_every_fault(way: str, seed: int) -> None:
    names = tuple(f"p{number}" for number in range(3 + seed))
    options = SimulationOptions(
        messages=60, pattern="mixed", gap="exponential:3ms", loss=0.2, duplication=0.2, reordering=0.2,
        partitions=seed % 3, crashes=seed % 4, seed=seed,
    )  # fmt: skip
    events: list[Event] = []
    simulation = Simulation(options, events.append, where=fabric(way, names), max_events=100_000)
    result = simulation.run()
    assert not any(judge(events).properties.values()), options.replay()
    assert (result.waiting, result.statistics.refused, result.statistics.repeated_deliveries) == (0, 0, 0)
    assert [kept(node.member.attachment.domains["d"].transport) for node in simulation.nodes.values()] == [0] * len(names)
