"""daisy: the hierarchical daisy architecture for causal delivery. Rows D1, D2, D6 and D7; the others need crashes or studies.

Local groups with one causal server each, a servers group, and above it hyper-servers. In our words: domains that run
``vector``, with one relay each, in a hierarchy.

Deviation throughout: a process of a group for which a message is not meant gets a marker, a stamp without the message,
where the paper sends the whole message to be discarded. The control information is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.mortal import play
from tests.support.papers import daisy_study
from tests.support.papers.builders import Hierarchy, Plan, assert_order_kept, everywhere, hierarchy, random_plan
from thence.core.failover import early_payloads
from thence.core.failover.early_payloads import Bodies, BodyAhead
from thence.core.member.forward import Cascade, Forwarder
from thence.core.member.receive import Receiver
from thence.core.ordering.vector import FullVectorStamp
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.stability.safe_turn import Deliverable
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import RoutePlan as Route
from thence.core.topology.routing import Routes
from thence.core.transport.base import Incoming
from thence.core.wire.messages import Envelope, Frame, Packet, control_bytes
from thence.sim.options import SimulationOptions
from thence.sim.search.explorer import Case, explore
from thence.sim.world import World
from thence.studies.models.daisy_options import OptionCost

Sent = tuple[str, Frame[object]]
"""A frame, and the domain that it went through."""


def multicasts(seed: int, recipients: int, delay: str) -> SimulationOptions:
    return SimulationOptions(
        messages=50, pattern="multicast", recipients=recipients, delay=delay, gap="exponential:3ms", replies=0.5, seed=seed
    )


def carried(world: World, sender: str, to: tuple[str, ...] | None) -> tuple[World, list[Sent]]:
    """Send one message and let all arrive; return every frame that went out."""
    world, happened = world.send(sender, to)
    sent: list[Sent] = [(place, frame) for _, place, frame in happened.flights]
    while not world.quiet:
        source, target = next(pair for pair, flights in world.flights.items() if flights)
        world, happened = world.arrive(source, target)
        sent += [(place, frame) for _, place, frame in happened.flights]
    return world, sent


# --- D1 ----------------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=5),
    seed=st.integers(0, 10**6),
    recipients=st.integers(1, 8),
    delay=st.sampled_from(["exponential:10ms", "uniform:1ms..30ms", "pareto:2ms,1.2"]),
    stamps=st.sampled_from(["full", "changed"]),
)
def test_d1_causal_multicast_to_any_subset(sizes: list[Plan], seed: int, recipients: int, delay: str, stamps: str) -> None:
    """D1, §3.1: local groups of any size with one causal server each, and the servers group; any subset as recipients."""
    built = hierarchy(sizes, everywhere("vector", stamps=stamps), Random(seed))
    assert_order_kept(built.topology, multicasts(seed, recipients, delay))


def groups_to_visit(built: Hierarchy, sender: str, to: set[str]) -> set[str]:
    """Return where a message has to go, by the paper's rule alone: recipients' groups, the sender's, and the servers' between."""
    *local, servers = built.groups
    home = built.group_of(sender, 1)
    abroad = to - set(home.members)
    visited = {group.name for group in local if (to - {sender, group.relay}) & set(group.members) and group != home}
    if abroad:
        visited.add(servers.name)
    if (to & set(home.members)) - {sender} or (abroad and sender != home.relay):
        visited.add(home.name)
    return visited


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(2, 4), min_size=3, max_size=4),
    seed=st.integers(0, 10**6),
)
def test_d1_groups_without_recipients_are_not_visited(sizes: list[Plan], seed: int) -> None:
    """D1, §3.1 and §3.3: one broadcast in each group with recipients, in the sender's, and in the servers group; no other frame.

    Deviation: where a causal server is the only recipient of its group it has the message from the servers group already,
    so its group is not visited, and a server's own message for others is not broadcast in its group.
    """
    chance = Random(seed)
    built = hierarchy(sizes, everywhere("vector"), chance)
    sender, *others = chance.sample(built.topology.processes, len(built.topology.processes))
    to = others[: chance.randint(1, len(others))]
    _, sent = carried(World.of(built.topology), sender, tuple(to))
    visited = groups_to_visit(built, sender, set(to))
    counted = {group.name: sum(place == group.name for place, _ in sent) for group in built.groups}
    expected = {group.name: (len(group.members) - 1) * (group.name in visited) for group in built.groups}
    assert counted == expected


# --- D2 ----------------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), recipients=st.integers(1, 10))
@pytest.mark.parametrize("levels", [3, 4])
def test_d2_hyper_servers(levels: int, seed: int, recipients: int) -> None:
    """D2, §3.2: daisies joined by hyper-servers, three levels, and once more on top of that, four."""
    chance = Random(seed)
    built = hierarchy(random_plan(chance, levels), everywhere("vector"), chance)
    assert max(group.layer for group in built.groups) == levels
    assert_order_kept(built.topology, multicasts(seed, recipients, "exponential:10ms"))


# --- D6 ----------------------------------------------------------------------------------------------------------------

SIXTY: Plan = [[5, 5, 5, 5]] * 3
"""§5.1: "three hyper-servers, four causal servers, and each local group contains four processes": with its server, five."""


def broadcasts(topology: Topology, count: int) -> list[Sent]:
    """Return all frames of so many broadcasts, by senders all over the fabric."""
    world = World.of(topology)
    sent: list[Sent] = []
    names = topology.processes
    for number in range(count):
        world, frames = carried(world, names[number * 17 % len(names)], None)
        sent += frames
    return sent


def test_d6_five_integers_for_sixty_processes() -> None:
    """D6, §3.3 and §5.1: a vector of at most 5 integers on every frame, 20 bytes of 32 bits; flat it is 60 integers.

    Deviation: who a message is for is not in the stamp. Flat, the paper adds 60 bits for that; here a frame without the
    message says so to its receiver, which is the same bit.
    """
    built = hierarchy(SIXTY, everywhere("vector", stamps="full"))
    assert len(built.topology.processes) == 60
    assert sorted(len(group.members) for group in built.groups) == [3, 4, 4, 4, *[5] * 12]
    sizes = {}
    for place, frame in broadcasts(built.topology, 6):
        assert isinstance(frame.stamp, FullVectorStamp)
        sizes[place] = len(frame.stamp.clock)
    assert sizes == {group.name: len(group.members) for group in built.groups}
    assert max(sizes.values()) == 5
    flat = Topology.flat(Domain("flat", built.topology.processes, "vector", {"stamps": "full"}))
    lengths = {len(frame.stamp.clock) for _, frame in broadcasts(flat, 2) if isinstance(frame.stamp, FullVectorStamp)}
    assert lengths == {60}
    world, sent = carried(World.of(flat), "p1", ("p2", "p40"))
    assert sum(frame.envelope is not None for _, frame in sent) == 2
    assert len(sent) == 59, "one bit for each of the others"
    assert world.quiet


def test_d6_what_stamps_really_cost() -> None:
    """D6: bytes as they are written, under load. ``changed`` stamps name direct predecessors only, so flat costs less too.

    As written, an integer below 128 takes one byte, so five integers are far from 20 bytes until counts are large.
    """
    options = SimulationOptions(messages=120, pattern="broadcast", gap="exponential:5ms", replies=0.0, seed=1)
    daisy = {
        stamps: bytes_per_frame(hierarchy(SIXTY, everywhere("vector", stamps=stamps)).topology, options) for stamps in STAMPS
    }
    names = hierarchy(SIXTY, everywhere("vector")).topology.processes
    flat = {
        stamps: bytes_per_frame(Topology.flat(Domain("flat", names, "vector", {"stamps": stamps})), options) for stamps in STAMPS
    }
    assert daisy["full"] < 10, daisy
    assert flat["full"] > 60, flat
    assert daisy["changed"] < flat["changed"] < flat["full"], (daisy, flat)
    largest = FullVectorStamp((2**32 - 1,) * 5)
    assert control_bytes(largest) <= 5 * 5 + 3, "five integers of 32 bits, each with a byte that says how long it is"


STAMPS = ("full", "changed")


def bytes_per_frame(topology: Topology, options: SimulationOptions) -> float:
    result, _ = assert_order_kept(topology, options)
    return result.statistics.control_bytes / result.statistics.frames


# --- D7 ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def costs() -> dict[str, OptionCost]:
    return daisy_study.costs()


def test_d7_the_page_shows_what_is_measured(costs: dict[str, OptionCost]) -> None:
    """D7: the table of docs/research/configurations.md is what ``python -m tests.support.papers.daisy_study`` prints."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "research" / "configurations.md").read_text(encoding="utf-8")
    assert daisy_study.table(costs) in page


def test_d7_recipients_only(costs: dict[str, OptionCost]) -> None:
    """D7, §3.4 (ii): fewer frames than a broadcast in each group, for a matrix of m² integers instead of a vector of m."""
    daisy, matrix = costs["daisy"], costs["recipients only"]
    assert matrix.frames < 0.6 * daisy.frames
    assert matrix.frame_control_bytes > 4 * daisy.frame_control_bytes
    assert matrix.delay_ms < daisy.delay_ms, "there is less to wait for"
    assert costs["recipients only, updates"].frame_control_bytes < matrix.frame_control_bytes, "what changed is less than all"


def test_d7_with_copies(costs: dict[str, OptionCost]) -> None:
    """D7, §3.4 (ii): to survive k failures a message waits for k more who have it: longer delays and more frames with each k.

    And fewer bytes than where everybody gets all of every message, which survives deaths too.
    """
    plain, one, two = (costs[f"recipients only, {what}"] for what in ("updates", "1 copy", "2 copies"))
    assert plain.delay_ms < one.delay_ms < two.delay_ms
    assert plain.frames < one.frames < two.frames
    assert two.delay_ms > 1.8 * plain.delay_ms, "out, back and out again in every group"
    assert one.frames < costs["daisy"].frames
    assert one.bytes < 0.6 * costs["daisy, whole"].bytes, "which survives deaths by giving everybody everything"
    assert two.bytes < costs["daisy, whole"].bytes


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), copies=st.integers(0, 2), recipients=st.integers(1, 6))
def test_d7_copies_in_every_group(seed: int, copies: int, recipients: int) -> None:
    """D7, §3.4 (ii), "all these ideas can also be implemented at higher levels": ``resilient`` in every group of two levels."""
    chance = Random(seed)
    built = hierarchy(random_plan(chance, 2, 4), everywhere("resilient", copies=copies), chance)
    assert_order_kept(built.topology, multicasts(seed, recipients, "exponential:10ms"))


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_d7_any_k_members_may_die(copies: int) -> None:
    """D7, D9, §3.4 (ii): k deaths, with omissions and wrong suspicions.

    What a survivor sent or delivered, or what was accepted, comes to all surviving recipients, once and in causal order.
    """
    for seed in range(80):
        run = play("resilient", ("a", "b", "c", "d", "e", "f")[: 2 + seed % 5], copies, seed, one_after_the_other=seed % 2 == 0)
        assert run.missing() + run.broken() == [], seed


def test_d7_star(costs: dict[str, OptionCost]) -> None:
    """D7, §3.4 (iii): through the server: fewer frames and one integer a frame in the local groups, for one hop more."""
    daisy, star = costs["daisy"], costs["star"]
    assert star.frames < daisy.frames
    assert star.frame_control_bytes < daisy.frame_control_bytes
    assert star.control_bytes < 0.6 * daisy.control_bytes
    assert star.local_delay_ms > 1.2 * daisy.local_delay_ms


class Early(Receiver):
    """daisy §3.4 (i) without the "complex rules" that it leaves open: what arrives is forwarded at once, deliverable or not."""

    def take(self, place: DomainPlace | LinkPlace, incoming: Incoming, now: int, *, stored: bool = False) -> Deliverable:
        here, envelope = self._attachment, incoming.frame.envelope
        if envelope is not None:
            plan = here.routes.plan(here.name, envelope.origin, envelope.to, place.name)
            Forwarder.carry_out(self._forwarder, plan, envelope, Cascade())
        return super().take(place, incoming, now, stored=stored)


class NotAgain(Forwarder):
    """What was forwarded at once is not forwarded when it is deliverable."""

    def carry_out(self, plan: Route, envelope: Envelope, cascade: Cascade) -> None:
        if envelope.origin == self._attachment.name:
            super().carry_out(plan, envelope, cascade)


@contextmanager
def forwarding_early() -> Iterator[None]:
    """Let members forward what arrives at once."""
    parts = "thence.core.member.member"
    with mock.patch(f"{parts}.Receiver", Early), mock.patch(f"{parts}.Forwarder", NotAgain):
        yield


CHAIN = Topology("chain", [Domain("local", ("X", "S"), "vector"), Domain("servers", ("S", "Z"), "vector")])
"""A process, its causal server, and another server."""


def test_d7_forwarding_early_alone_breaks_order() -> None:
    """D7, §3.4 (i): the rule as far as it is printed; the explorer finds a shortest run that breaks order
    (docs/research/errata.md)."""
    with forwarding_early():
        found = explore(Case(CHAIN, 2, "unicast", frozenset({"causal"})))
    assert found.broken == "causal"
    assert len(found.actions) == 4, "two messages from X to Z; S gets the second first and forwards it; Z delivers it"
    assert explore(Case(CHAIN, 3, "unicast")).broken is None


def test_d7_forwarding_early_is_unsafe_also_where_the_next_group_lacks_nothing() -> None:
    """D7, §3.4 (i): X writes to S, then to Z. Z lacks nothing and may deliver; but its answer overtakes X's first message at S.

    So holding messages at their receivers is not enough: the server itself must hold what comes back, by stamps of a group
    that the answer has never been in.
    """
    with forwarding_early():
        world, _ = World.of(CHAIN).send("X", ("S",))
        world, _ = world.send("X", ("Z",))
        world, forwarded = world.arrive("X", "S", 1)
        assert forwarded.delivered == ()
        world, early = world.arrive("S", "Z", 0)
        assert [str(delivery.envelope.id) for delivery in early.delivered] == ["X:2"]
        world, _ = world.send("Z", ("S",))
        _, answered = world.arrive("Z", "S")
    assert [str(delivery.envelope.id) for delivery in answered.delivered] == ["Z:1"], "while X:1, its cause, has not come"


class Broken(Bodies):
    """The repaired form, with its repair left out: a message without its body is handed on as it is."""

    def complete(self, peer: str, packet: Packet[Any], had: Iterable[bool]) -> Packet[Any]:
        return super().complete(peer, packet, [True] * len(packet.frames))


def early_chain(local: str, servers: str) -> Topology:
    """Return the chain whose server sends bodies ahead."""
    return Topology("chain", [Domain("local", ("X", "S"), local, forward_early=0), Domain("servers", ("S", "Z"), servers)])


def test_d7_forwarding_bodies_early_keeps_order() -> None:
    """D7, §3.4 (i), repaired: the body goes ahead, its place in the order later. Every run of the chain, and with a mistake."""
    for local, servers, messages in (("vector", "vector", 3), ("matrix", "sequenced", 2), ("clocked", "matrix", 2)):
        assert explore(Case(early_chain(local, servers), messages, "unicast")).broken is None
    with mock.patch("thence.core.places.place.Bodies", Broken):
        broken = explore(Case(early_chain("vector", "vector"), 2, "unicast"))
    assert (broken.broken, len(broken.actions)) == ("creation", 5), "to S, to Z; S gets the second first; Z, without its body"


def test_d7_forwarding_bodies_early_step_by_step() -> None:
    """D7, §3.4 (i), repaired: what Z gets early it does not see, so it cannot answer it; later on only its place travels."""
    world, _ = World.of(early_chain("vector", "vector")).send("X", ("Z",), b"one")
    world, _ = world.send("X", ("Z",), b"two")
    world, forwarded = world.arrive("X", "S", 1)
    assert [frame.stamp for _, _, frame in forwarded.flights] == [BodyAhead()]
    world, early = world.arrive("S", "Z")
    assert early.delivered == ()
    world, released = world.arrive("X", "S")
    assert [(frame.envelope and frame.envelope.body, frame.bodiless) for _, _, frame in released.flights] == [
        (b"one", False),
        (b"", True),
    ]
    world, _ = world.arrive("S", "Z")
    _, last = world.arrive("S", "Z")
    assert [delivery.envelope.body for delivery in last.delivered] == [b"two"]


def test_d7_what_forwarding_bodies_early_gains_and_costs() -> None:
    """D7, §3.4 (i), repaired: over a slow line, some of the time for which a message waits; with 300 bytes (§5.1), nothing."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "research" / "configurations.md").read_text(encoding="utf-8")
    found = daisy_study.bodies_ahead()
    assert daisy_study.table_of_lines(found) in page, "python -m tests.support.papers.daisy_study"
    gains = {name: 1 - early.delay_ms / plain.delay_ms for name, (plain, early) in found.items()}
    assert abs(gains["fast line"]) < 0.01
    assert gains["note, then large"] > 0.05
    assert gains["note, then large, lossy"] > 0.03
    for plain, early in found.values():
        assert 1 < early.frames / plain.frames < 1.06, "a frame more for each body that goes ahead"
        assert early.bytes / plain.bytes < 1.01, "no body travels twice"


def test_d7_more_bodies_ahead_cost_more_than_they_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why ``MAX_AHEAD`` is small: on a line that is full, what comes first waits behind the bodies of what comes later."""
    plain = daisy_study.mean_cost("plain", "full line")
    monkeypatch.setattr(early_payloads, "MAX_AHEAD", 256)
    assert daisy_study.mean_cost("early", "full line").delay_ms > 1.02 * plain.delay_ms


def test_d7_what_forwarding_early_could_gain_and_would_cost() -> None:
    """D7, §3.4 (i): a bound on what it can gain, by an oracle, and the price of one vector for each group on the way."""
    for load, at_least, at_most in ((1, 0.05, 0.25), (5, 0.25, 0.45)):
        gain = 1 - daisy_study.mean_cost("oracle", "even", load).delay_ms / daisy_study.mean_cost("plain", "even", load).delay_ms
        assert at_least < gain < at_most, f"{load}: {gain:.2f}"
    built = hierarchy(SIXTY, everywhere("vector"))
    routes = Routes(built.topology)
    ways = [routes.path("p7", target)[1::2] for target in built.topology.processes if target != "p7"]
    sizes = {group.name: len(group.members) for group in built.groups}
    assert max(sum(sizes[domain] for domain in way) for way in ways) == 5 + 4 + 3 + 4 + 5
