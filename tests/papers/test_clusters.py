"""clusters: a scalable scheme for causal message ordering. Rows C1 to C5; C6 and C7 are measured by the studies.

Point-to-point causal order by clusters, each with an agent, and clusters of agents above them. In our words: domains with
one relay each, in a hierarchy. The paper's own routing procedure, its five shapes of a route and its one requirement on
the relay are set beside the general machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.papers.builders import Group, Hierarchy, assert_order_kept, everywhere, hierarchy, random_plan, star
from thence.core.member.forward import Cascade, Forwarder
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.stability.safe_turn import Deliverable
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import RoutePlan, Routes
from thence.core.wire.messages import Envelope, Frame
from thence.sim.options import SimulationOptions
from thence.sim.search.explorer import Case, explore
from thence.sim.world import Happened, World

DELAYS = ("exponential:10ms", "uniform:1ms..30ms", "pareto:2ms,1.2")


def unicasts(seed: int, delay: str, messages: int = 60) -> SimulationOptions:
    return SimulationOptions(messages=messages, pattern="unicast", delay=delay, gap="exponential:2ms", replies=0.5, seed=seed)


# --- C1 ----------------------------------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(layers=st.integers(2, 4), seed=st.integers(0, 10**6), delay=st.sampled_from(DELAYS))
def test_c1_point_to_point_over_clusters_is_causal(layers: int, seed: int, delay: str) -> None:
    """C1, §III-A and §III-B: clusters of random sizes, any member as the agent, two to four layers, any delays.

    Deviation: clusters of one process are tried too, which Definition 1 allows and no figure shows.
    """
    chance = Random(seed)
    built = hierarchy(random_plan(chance, layers, 4 if layers == 2 else 3), everywhere("matrix"), chance)
    assert_order_kept(built.topology, unicasts(seed, delay))


# --- C2 ----------------------------------------------------------------------------------------------------------------


def printed_path(built: Hierarchy, source: str, target: str, layer: int = 1) -> Iterator[tuple[str, str]]:
    """Fig. 3's procedure MRP, line by line."""
    one, other = built.group_of(source, layer), built.group_of(target, layer)
    if one == other:
        yield source, target
    else:
        if source != one.relay:
            yield source, one.relay
        yield from printed_path(built, one.relay, other.relay, layer + 1)
        if target != other.relay:
            yield other.relay, target


@pytest.mark.parametrize(
    "plan", [[3, 2], [4, 3, 2], [[3, 2], [2, 4]], [[2, 2], [3, 3, 2], [2, 2]], [[[2, 2], [2, 2]], [[2, 3], [2, 2]]]], ids=str
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_c2_the_printed_procedure_gives_the_route(plan: Any, seed: int) -> None:
    """C2, Fig. 3: on two, three and four layers MRP and the general router take the same way, for all pairs."""
    built = hierarchy(plan, everywhere("matrix"), Random(seed) if seed else None)
    routes = Routes(built.topology)
    processes = built.topology.processes
    longest = 0
    for source, target in product(processes, repeat=2):
        if source != target:
            way = routes.path(source, target)[::2]
            assert list(pairwise(way)) == list(printed_path(built, source, target))
            longest = max(longest, len(way) - 1)
    top = max(group.layer for group in built.groups)
    assert longest == 2 * top - 1, "up to the top, across, and down again"


# --- C3 ----------------------------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), layers=st.integers(2, 3))
@pytest.mark.parametrize("choose", [everywhere("matrix"), everywhere("matrix", stamps="full"), star], ids=["rst", "full", "star"])
def test_c3_one_algorithm_in_every_cluster(choose: Any, seed: int, layers: int) -> None:
    """C3, §III-C: the matrix algorithm in every cluster, or a coordinator in every cluster, which is its agent.

    Deviation: the top layer has no agent; as the paper suggests, a process of it is nominated.
    """
    chance = Random(seed)
    built = hierarchy(random_plan(chance, layers), choose, chance)
    assert_order_kept(built.topology, unicasts(seed, "exponential:10ms"))


@pytest.mark.parametrize("mix", list(product(("matrix", "sequenced"), repeat=4)), ids="-".join)
def test_c3_every_mix(mix: tuple[str, ...]) -> None:
    """C3, §III-C, "use different approaches for each cluster": all sixteen mixes on three clusters and their agents."""

    def choose(group: Group) -> Any:
        ordering = mix[names.index(group.name)]
        return star(group) if ordering == "sequenced" else ordering

    names = ["g1-1", "g1-2", "g1-3", "g2-1"]
    for seed in range(4):
        built = hierarchy([3, 2, 3], choose, Random(seed))
        assert [domain.ordering for domain in built.topology.domains.values()] == list(mix)
        assert_order_kept(built.topology, unicasts(seed, DELAYS[seed % 3]))


# --- C4 ----------------------------------------------------------------------------------------------------------------


class Backwards(Forwarder):
    """A planted mistake: what becomes deliverable in one step is delivered in order, but forwarded in the reverse order."""

    _later: list[tuple[RoutePlan, Envelope]]

    def drain(self, cascade: Cascade) -> Deliverable:
        self._later = []
        deliver = super().drain(cascade)
        for plan, envelope in reversed(self._later):
            echoes = Cascade()
            super().carry_out(plan, envelope, echoes)
            super().drain(echoes)
        return deliver

    def carry_out(self, plan: RoutePlan, envelope: Envelope, cascade: Cascade) -> None:
        if envelope.origin == self._attachment.name:
            super().carry_out(plan, envelope, cascade)
        else:
            self._later.append((plan, envelope))


RELAYED = Topology("relayed", [Domain("B", ("X", "Y"), "matrix"), Domain("C", ("Y", "Z"), "matrix")])


def test_c4_a_relay_must_forward_in_delivery_order() -> None:
    """C4, §III-A "relaying must be done in FIFO order": without it the explorer finds the shortest violating run by itself."""
    with mock.patch("thence.core.member.member.Forwarder", Backwards):
        found = explore(Case(RELAYED, 2, "unicast", frozenset({"causal"})))
    assert found.broken == "causal"
    sends = [action for action in found.actions if not action.target]
    assert [(send.source, send.to) for send in sends] == [("X", ("Z",)), ("X", ("Z",))]
    assert len(found.actions) == 5, "two sends, the later one overtakes, the earlier one arrives, and Z gets the later one"


def test_c4_with_delivery_order_there_is_no_violation() -> None:
    """C4, §III-D, Replay Property: the same case and one message more, with the relay as it is: every run is tried."""
    for messages in (2, 3):
        assert explore(Case(RELAYED, messages, "unicast")).broken is None


class PerDirection(Forwarder):
    """As §III-A and §III-B ask: FIFO for each pair of clusters. One direction, from cluster 1 to Y's, is just slow today."""

    slow: tuple[Envelope, ...] = ()
    """Delivered here, in order, and still to be relayed, in order."""

    def follow(self, place: DomainPlace | LinkPlace, frame: Frame[Any], cascade: Cascade) -> None:
        envelope, here = frame.envelope, self._attachment
        if envelope is not None and place.name == "1" and envelope.to == ("Y",) and len(here.topology.homes[here.name]) > 1:
            self.slow = (*self.slow, envelope)
        else:
            super().follow(place, frame, cascade)


@pytest.mark.parametrize(
    ("name", "relay", "after"),
    [("d", "W", (("W", "Xi"), "m'", ("Xi", "W"))), ("a", "Xi", ("m'",))],
    ids=["another direction", "an own message"],
)
def test_c4_fifo_per_direction_is_not_enough(name: str, relay: str, after: tuple[Any, ...]) -> None:
    """C4, §III-B "along the same direction in FIFO order": m waits in its direction while mi and m' pass in others.

    Deviation: a relay forwards in delivery order over all directions, and before its own application's next message. Both
    places where the proof of Theorem 1 needs more than FIFO per direction are run: (d), "thus W sends m before mi", and (a).
    """
    with mock.patch("thence.core.member.member.Forwarder", PerDirection):
        world, _ = World.of(shape(name)).send("X", ("Y",))
    world, _ = world.send("X", ("Xi",))
    for step in (("X", relay), ("X", relay), *after):
        world, _ = world.send("Xi", ("Y",)) if step == "m'" else world.arrive(*step)
    _, happened = world.arrive(relay, "Y")
    assert at_y(happened) == ("Xi:1",)
    forwarder = world.members[relay].forwarder
    assert isinstance(forwarder, PerDirection)
    assert [str(envelope.id) for envelope in forwarder.slow] == ["X:1"], "its cause, which Y still lacks"


# --- C5 ----------------------------------------------------------------------------------------------------------------

SHAPES: dict[str, dict[str, tuple[str, ...]]] = {
    "a": {"1": ("X", "Xi"), "2": ("Xi", "Y")},
    "b": {"1": ("X", "Y"), "2": ("Y", "Xi")},
    "c": {"1": ("Xi", "X"), "2": ("X", "Y")},
    "d": {"1": ("X", "W"), "2": ("W", "Xi"), "3": ("W", "Y")},
    "e": {"1": ("X", "W1"), "2": ("W1", "W2", "W3"), "3": ("W2", "Xi"), "4": ("W3", "Y")},
}
"""Fig. 6: X sends m to Y and mi to Xi, which then sends m' to Y; W are agents. Each line is a cluster."""

WAYS = {
    "a": ("X Xi Y", "X Xi", "Xi Y"),
    "b": ("X Y", "X Y Xi", "Xi Y"),
    "c": ("X Y", "X Xi", "Xi X Y"),
    "d": ("X W Y", "X W Xi", "Xi W Y"),
    "e": ("X W1 W3 Y", "X W1 W2 Xi", "Xi W2 W3 Y"),
}
"""The routes of m, mi and m' as the figure draws them."""


def shape(name: str, ordering: str = "matrix") -> Topology:
    return Topology(name, [Domain(cluster, members, ordering) for cluster, members in SHAPES[name].items()])


def runs(world: World, sent: int, got: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Give what Y delivers, for every order in which the frames of m, mi and m' may arrive. m' is sent right after mi came."""
    flights = [(source, target, at) for source, target in world.flights for at, _ in world.may_arrive(source, target)]
    if not flights:
        assert sent == 3, "mi never came"
        yield got
        return
    for source, target, at in flights:
        after, happened = world.arrive(source, target, at)
        assert happened.refused == ()
        number = sent
        if happened.member == "Xi" and happened.delivered:
            after, _ = after.send("Xi", ("Y",))
            number += 1
        yield from runs(after, number, (*got, *at_y(happened)))


def at_y(happened: Happened) -> tuple[str, ...]:
    return tuple(str(delivery.envelope.id) for delivery in happened.delivered) if happened.member == "Y" else ()


@pytest.mark.parametrize("ordering", ["matrix", "sequenced", "vector"])
@pytest.mark.parametrize("name", SHAPES)
def test_c5_the_five_shapes_of_a_route(name: str, ordering: str) -> None:
    """C5, Theorem 1 and Fig. 6: m, mi and m' over each shape, in every order of arrival: Y always delivers m before m'.

    Deviation: the paper proves it for any algorithm per cluster; here it is run with three of them.
    """
    topology = shape(name, ordering)
    routes = Routes(topology)
    assert tuple(" ".join(routes.path(*pair)[::2]) for pair in (("X", "Y"), ("X", "Xi"), ("Xi", "Y"))) == WAYS[name]
    world, _ = World.of(topology).send("X", ("Y",))
    world, _ = world.send("X", ("Xi",))
    tried = list(runs(world, 2, ()))
    assert tried
    assert set(tried) == {("X:1", "Xi:1")}


@pytest.mark.parametrize("name", SHAPES)
def test_c5_whoever_sends_what(name: str) -> None:
    """C5: any three unicasts by anybody over the shape, every run; two over (e), where three are too many: see the test above."""
    found = explore(Case(shape(name), 2 if name == "e" else 3, "unicast"))
    assert found.broken is None
    assert found.steps > 1_000


def test_c5_the_shapes_tell_a_bad_relay() -> None:
    """The test of the five shapes has teeth: where the relay turns the order round, shape (d) shows it."""
    with mock.patch("thence.core.member.member.Forwarder", Backwards):
        found = explore(Case(shape("d"), 3, "unicast", frozenset({"causal"})))
    assert found.broken == "causal"
