"""Bodies that go ahead change nothing but when they travel: everything is delivered once, in order, whole, whatever happens.

First with real members whose arrivals, losses, repetitions, timers and crashes are chosen one by one; then over an exact network
with every frame moved by itself, as the explorer does.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.bag import ACTIONS, Bag
from thence.core.failover.early_payloads import Bodies
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.core.wire.messages import Envelope, Packet
from thence.sim.world import World

FABRICS = {
    "vector": ("vector", "vector", AckOptions()),
    "distributed": ("matrix", "vector", AckOptions(scheme="distributed", retransmission="nearest")),
    "sequenced": ("vector", "sequenced", AckOptions(after_messages=4, after_ns=20_000_000)),
    "clocked": ("clocked", "clocked", AckOptions()),
    "flood": ("matrix", "flood", AckOptions()),
    "grouped": ("sequenced", "grouped", AckOptions()),
}


def fabric(name: str) -> Topology:
    """Return a local group, a group of servers behind it, and a domain that is linked with that."""
    local, servers, acks = FABRICS[name]
    domains = [
        Domain("local", ("x", "y", "s"), local, forward_early=0),
        Domain("servers", ("s", "t", "u"), servers, {}, acks, 0),
        Domain("far", ("v", "w"), "vector", forward_early=0),
    ]
    return Topology(name, domains, [Link("L", ("servers", "far"), (("u", "v"),))])


every_fabric = pytest.mark.parametrize("name", FABRICS)
choices = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 9999)), max_size=100)


def held(bag: Bag) -> int:
    """Return how many messages wait for their bodies."""
    places = [place for member in bag.members.values() for place in member.attachment.places.values()]
    return sum(len(store.held) for place in places for store in place.bodies.stores.values())


@every_fabric
@given(schedule=choices)
def test_everything_once_in_order_and_whole(name: str, schedule: list[tuple[str, int]]) -> None:
    bag = Bag(fabric(name))
    for kind, number in schedule:
        bag.play(kind, number)
    bag.settle()
    assert bag.violations() == {}
    assert held(bag) == 0


@every_fabric
def test_bodies_do_go_ahead(name: str) -> None:
    with mock.patch.object(Bodies, "came", autospec=True, side_effect=Bodies.came) as came:
        for seed in range(40):
            play(Bag(fabric(name)), seed)
    assert came.call_count > 10


def play(bag: Bag, seed: int) -> Bag:
    chance = Random(seed)
    for _ in range(100):
        bag.play(chance.choice(ACTIONS), chance.randrange(9999))
    bag.settle()
    return bag


# --- mistakes --------------------------------------------------------------------------------------------------------------


class DeliversWithoutBody(Bodies):
    """Hands on a message though its body is not here."""

    def complete(self, peer: str, packet: Packet[Any], had: Iterable[bool]) -> Packet[Any]:
        return super().complete(peer, packet, [True] * len(packet.frames))


class TakesAnyBody(Bodies):
    """Takes the first body of a peer for the one that is wanted."""

    def complete(self, peer: str, packet: Packet[Any], had: Iterable[bool]) -> Packet[Any]:
        store = self._store(peer)
        body = next(iter(store.bodies.values()), None)
        for frame in packet.frames:
            if frame.envelope is not None and frame.bodiless and body is not None:
                store.bodies[frame.envelope.id] = body
        return super().complete(peer, packet, had)


class RepeatsWithoutBody(Bodies):
    """Leaves the body out also when a frame is repeated."""

    def _without_bodies(self, peer: str, packet: Packet[Any]) -> Packet[Any]:
        gone: dict[Any, int] = self.__dict__.setdefault("gone", {})
        gone.update(self.sent.get(peer, {}))
        self.sent[peer] = dict(gone)
        return super()._without_bodies(peer, packet)


class ForgetsWhoWaits(Bodies):
    """Keeps a body that comes after its message, and does not look who waits for it."""

    def came(self, peer: str, packet: Packet[Any]) -> Any:
        for frame in packet.frames:
            if frame.envelope is not None:
                self._store(peer).put(frame.envelope)
        return iter(())


class LeavesOutTheOthersBody(Bodies):
    """Leaves out a body for everybody, though it went ahead to one only."""

    def send(self, peers: Iterable[str], envelope: Envelope) -> None:
        super().send(list(peers)[:1], envelope)
        for sent in self.sent.values():
            sent.setdefault(envelope.id, 0)
        for peer in ("t", "u", "w"):
            self.sent.setdefault(peer, {})[envelope.id] = 0


# Over channels whatever is lost comes again, whole, so that some mistakes only cost time there.
MISTAKES = (DeliversWithoutBody, TakesAnyBody, RepeatsWithoutBody)
EXACT_MISTAKES = (DeliversWithoutBody, TakesAnyBody, ForgetsWhoWaits, LeavesOutTheOthersBody)


def fails(kind: type[Bodies], name: str, seed: int) -> bool:
    with mock.patch("thence.core.places.place.Bodies", kind):
        try:
            return bool(play(Bag(fabric(name)), seed).violations())
        except AssertionError:
            return True


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: str(mistake.__name__))
def test_a_planted_mistake_is_found(mistake: type[Bodies]) -> None:
    assert any(fails(mistake, name, seed) for seed in range(40) for name in ("vector", "clocked"))
    assert not any(fails(Bodies, name, seed) for seed in range(5) for name in ("vector", "clocked"))


# --- an exact network --------------------------------------------------------------------------------------------------------


def walk(name: str, seed: int) -> bool:
    """Send and move frames at random until nothing is on its way; return whether all was delivered, whole."""
    chance = Random(seed)
    world = World.of(fabric(name))
    wanted: dict[tuple[str, str], bytes] = {}
    for at in range(6):
        sender = chance.choice(world.topology.processes)
        to = tuple(chance.sample(world.topology.processes, chance.randint(1, 4)))
        body = f"the {at}-th message".encode()
        world, happened = world.send(sender, to, body)
        assert happened.submitted is not None
        wanted |= {(member, str(happened.submitted.id)): body for member in to if member != sender}
    while not world.quiet:
        source, target = chance.choice([way for way, flights in world.flights.items() if flights])
        place, _ = chance.choice(world.may_arrive(source, target))
        if chance.random() < 0.1:
            world = world.restart(target)
        world, happened = world.arrive(source, target, place)
        if happened.refused:
            return False
        for delivery in happened.delivered:
            if wanted.pop((target, str(delivery.envelope.id)), None) != delivery.envelope.body:
                return False
    return not wanted


@every_fabric
def test_over_an_exact_network_nothing_is_lost(name: str) -> None:
    assert all(walk(name, seed) for seed in range(60))


@pytest.mark.parametrize("mistake", EXACT_MISTAKES, ids=lambda mistake: str(mistake.__name__))
def test_a_mistake_is_found_over_an_exact_network(mistake: type[Bodies]) -> None:
    with mock.patch("thence.core.places.place.Bodies", mistake):
        assert not all(walk(name, seed) for name in ("vector", "sequenced") for seed in range(60))
