"""Routes: the one way there is, found again by force; and plans, followed hop by hop without any ordering.

The reference is a search over the drawing of processes, domains and links that knows nothing of routing tables.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fabrics import fabric_for
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.core.topology.routing import RoutePlan, Routes
from thence.errors import UsageError
from thence.studies.parts.figures import SHAPES, interconnect_fig4
from thence.studies.parts.shapes import hierarchy, linked

SEEDS = st.integers(0, 2**32)
MAX_COPIES = 5
"""How many times a message may come to one process before it is taken to go round for ever."""


def domains_between(topology: Topology, origin: str, target: str, links: frozenset[str] | None = None) -> list[str] | None:
    """Return the fewest domains that lead from one process to another: a search, breadth first."""
    usable = [link for link in topology.links.values() if links is None or link.name in links]
    carrying = {name: set(domain.members) for name, domain in topology.domains.items() if name not in topology.inner}
    queue = deque([[name] for name, members in carrying.items() if origin in members])
    seen = {way[0] for way in queue}
    while queue:
        way = queue.popleft()
        if target in carrying[way[-1]]:
            return way
        beside = {name for name, members in carrying.items() if members & carrying[way[-1]]}
        beside |= {link.far(way[-1]) for link in usable if way[-1] in link.between}
        for name in sorted(beside - seen):
            seen.add(name)
            queue.append([*way, name])
    return None


def visited(topology: Topology, way: list[str]) -> list[str]:
    """The domains of a route, in order; those that a link leads into count, also where the target is the relay itself."""
    domains: list[str] = []
    for before, place, after in zip(way[::2], way[1::2], way[2::2], strict=False):
        if place in topology.domains:
            assert {before, after} <= set(topology.domains[place].members)
            domains.append(place)
        else:
            link = topology.links[place]
            here, there = link.between if before in link.side(link.between[0]) else link.between[::-1]
            assert (before in link.side(here), after in link.side(there)) == (True, True)
            domains += [*([here] if domains[-1:] != [here] else []), there]
    return [name for at, name in enumerate(domains) if domains[at - 1 : at] != [name]]


def fabric_without_replicas(seed: int) -> Topology:
    """Return a random fabric in which each relay is alone, and so hands on by itself what goes through it."""
    return fabric_for(seed + (seed % 3 == 1), "fifo" if seed % 3 == 0 else "causal")


@given(SEEDS)
def test_a_route_is_the_one_way_there_is(seed: int) -> None:
    topology = fabric_without_replicas(seed)
    routes = Routes(topology)
    chance = Random(seed)
    for _ in range(10):
        origin, target = chance.choice(topology.processes), chance.choice(topology.processes)
        way = routes.path(origin, target)
        assert (way[0], way[-1]) == (origin, target)
        if origin != target:
            assert visited(topology, way) == domains_between(topology, origin, target)


def test_to_oneself_there_is_no_way_to_go() -> None:
    assert Routes(hierarchy(2, 2, 2)).path("p1-1", "p1-1") == ["p1-1"]


def test_a_route_may_cross_several_links() -> None:
    routes = Routes(linked(3, 3, 2, "chain"))
    assert routes.path("p1-3", "p3-3") == ["p1-3", "d1", "p1-1", "d1-d2", "p2-1", "d2-d3", "p3-1", "d3", "p3-3"]


def test_with_cycles_the_shortest_way_is_taken() -> None:
    ring = [Domain(f"D{at}", (f"p{at}", f"p{(at + 1) % 5}"), "matrix") for at in range(5)]
    routes = Routes(Topology("ring", ring, force=True))
    assert [len(routes.path("p0", f"p{at}")) // 2 for at in range(5)] == [0, 1, 2, 2, 1]


def test_what_is_inside_another_domain_is_not_on_the_way() -> None:
    routes = Routes(Topology("t", [Domain("B", ("a", "b"), "matrix"), Domain("A", ("a", "b", "c"), "matrix")]))
    assert routes.path("a", "b") == ["a", "A", "b"]


def test_who_is_not_there_cannot_be_reached() -> None:
    routes = Routes(hierarchy(2, 2, 2))
    with pytest.raises(UsageError, match="there is no process 'nobody' in fabric 'hierarchy'"):
        routes.path("p1-1", "nobody")


# --- plans ---------------------------------------------------------------------------------------------------------------


def follow(routes: Routes, origin: str, to: tuple[str, ...] | None) -> tuple[Counter[str], Counter[str]]:
    """Do what the plans say, at each process that a message comes to; return where it came to, and where it travelled."""
    topology = routes.topology
    came: Counter[str] = Counter()
    travelled: Counter[str] = Counter()
    todo: deque[tuple[str, str | None]] = deque([(origin, None)])
    while todo:
        at, by = todo.popleft()
        assert came[at] < MAX_COPIES, f"it goes round and round at {at}"
        if by is not None and by not in topology.links:
            came[at] += 1
        plan: RoutePlan = routes.plan(at, origin, to, by)
        assert by not in plan.into, "back where it came from"
        for domain, members in plan.into.items():
            travelled[domain] += 1
            everyone = topology.domains[domain].members
            assert set(members or ()) <= set(everyone)
            todo.extend((member, domain) for member in (everyone if members is None else members) if member != at)
        for name in plan.across:
            travelled[name] += 1
            link = topology.links[name]
            here = link.between[0] if at in link.side(link.between[0]) else link.between[1]
            assert at in routes.handlers(link, here, origin)
            todo.append((far_end(link, here, at), name))
            came[todo[-1][0]] += 1
    return came, travelled


def far_end(link: Link, here: str, relay: str) -> str:
    """Whoever passes a message on that crossed here: the far sequencer, or the partner of the relay that carried it."""
    if link.mode == "causal":
        return link.side(link.far(here))[0]
    side = link.between.index(here)
    return next(pair[1 - side] for pair in link.relays if pair[side] == relay)


@given(SEEDS)
def test_plans_reach_each_recipient_once_and_visit_no_other_domain(seed: int) -> None:
    topology = fabric_without_replicas(seed)
    routes = Routes(topology)
    chance = Random(seed)
    for _ in range(8):
        origin = chance.choice(topology.processes)
        to = tuple(chance.sample(topology.processes, chance.randint(1, min(6, len(topology.processes)))))
        came, travelled = follow(routes, origin, to)
        assert all(came[target] == 1 for target in to if target != origin)
        assert max(came.values(), default=1) == 1, "somebody got it twice"
        wanted = {name for target in to if target != origin for name in domains_between(topology, origin, target) or ()}
        # A domain whose only recipient is the relay that a link ends at need not be entered.
        assert {name for name in travelled if name in topology.domains} <= wanted
        assert max(travelled.values(), default=1) == 1, "a domain was entered twice"


@given(SEEDS)
def test_plans_for_everyone_reach_everyone_once(seed: int) -> None:
    topology = fabric_without_replicas(seed)
    routes = Routes(topology)
    origin = Random(seed).choice(topology.processes)
    came, travelled = follow(routes, origin, None)
    assert set(came) - {origin} == set(topology.processes) - {origin}
    assert set(travelled) == (set(topology.domains) - set(topology.inner)) | set(topology.links)
    assert set(travelled.values()) == {1}


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_one_in_which_everybody_can_be_reached(name: str) -> None:
    topology = SHAPES[name].make(**({"standbys": 0} if name == "daisy" else {}))  # Replicas get more than once.
    routes = Routes(topology)
    for origin in topology.processes[:6]:
        came, _ = follow(routes, origin, topology.processes)
        assert all(came[target] == 1 for target in topology.processes if target != origin)


def test_groups_without_recipients_are_not_visited() -> None:
    """Daisy §3.1: three groups and their servers. What stays in a group is seen in no other, and so on."""
    routes = Routes(hierarchy(2, 3, 3))
    assert set(follow(routes, "p1-2", ("p1-3",))[1]) == {"g1"}
    assert set(follow(routes, "p1-2", ("p1-3", "p2-2"))[1]) == {"g1", "top", "g2"}
    assert set(follow(routes, "p1-2", ("p2-1",))[1]) == {"g1", "top"}


@pytest.mark.parametrize(
    ("origin", "links"),
    [
        ("p", ["red-isp01-isp11", "red-isp01-isp21", "red-isp01-isp32"]),
        ("q", ["black-isp02-isp21", "black-isp21-isp12", "black-isp12-isp33"]),
        ("r", ["blue-isp03-isp31", "blue-isp31-isp21", "blue-isp31-isp12"]),
    ],
)
def test_where_fifo_is_promised_each_sender_has_its_own_ways(origin: str, links: list[str]) -> None:
    """Interconnect Fig. 4: a star, a chain and a tree at once."""
    topology = interconnect_fig4()
    came, travelled = follow(Routes(topology), origin, None)
    assert sorted(name for name in travelled if name in topology.links) == sorted(links)
    assert {came[name] for name in topology.processes if name != origin} == {1}
