"""Shapes: their sizes by the formulas of the papers, what each is made of, and that traffic over each of them keeps its order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.topology.toml import parse, write
from thence.errors import ConfigError
from thence.sim.options import Pattern, SimulationOptions
from thence.sim.simulation import simulate
from thence.studies.parts.figures import CLUSTERS_FIG6, SHAPES, clusters_fig2, clusters_fig6, daisy_fig5
from thence.studies.parts.shapes import bus, chain, daisy, fabric, flat, hierarchy, linked, star, tree
from thence.trace.judge import judge

ALWAYS = {"well-formed", "creation", "duplication", "completeness"}


def sizes(topology: Topology) -> list[int]:
    return sorted(len(domain.members) for domain in topology.domains.values())


def counts(topology: Topology) -> tuple[int, int, int, int]:
    """Processes, domains, relays, links."""
    return len(topology.processes), len(topology.domains), len(topology.relays), len(topology.links)


def longest(topology: Topology) -> int:
    routes = Routes(topology)
    return max(len(routes.path(one, other)) // 2 for one in topology.processes for other in topology.processes)


@given(depth=st.integers(1, 3), k=st.integers(2, 3), s=st.integers(4, 5))
def test_a_tree_has_as_many_servers_as_the_formula(depth: int, k: int, s: int) -> None:
    """Domains §6.2: n = 1 + (s - 1)(k^(d + 1) - 1)/(k - 1); our text of the paper has lost the superscript."""
    topology = tree(depth + 1, k, s)
    assert len(topology.processes) == 1 + (s - 1) * (k ** (depth + 1) - 1) // (k - 1)
    assert set(sizes(topology)) == {s}
    assert longest(topology) <= 2 * depth + 1


def test_a_tree_may_have_a_branch_at_every_process_but_the_first() -> None:
    assert counts(tree(2, 3, 4)) == (13, 4, 3, 0)
    with pytest.raises(ConfigError, match="branching 4: at most 3 domains can hang below one of 4"):
        tree(2, 4, 4)


@given(domains=st.integers(2, 6), size=st.integers(1, 5))
def test_a_bus_and_a_daisy_have_one_relay_for_each_domain(domains: int, size: int) -> None:
    for topology, backbone in ((bus(domains, size), "bus"), (daisy(domains, size, standbys=0), "servers")):
        assert len(topology.processes) == domains * size
        assert len(topology.domains[backbone].members) == domains
        assert longest(topology) == (3 if size > 1 else 1)


def test_a_daisy_has_a_standby_for_each_causal_server_unless_told_otherwise() -> None:
    topology = daisy(3, 4)
    assert topology.replicas == (("p1-1", "p1-2"), ("p2-1", "p2-2"), ("p3-1", "p3-2"))
    assert topology.senders == topology.processes
    assert all(topology.takes_over_at_once(group) for group in topology.replicas)
    assert parse(write(topology)).fingerprint == topology.fingerprint
    assert longest(daisy(2, 8, standbys=3)) == 3
    with pytest.raises(ConfigError, match="standbys 1: of a group of 2 its server and somebody else are none"):
        daisy(4, 2)


@given(levels=st.integers(1, 4), branching=st.integers(2, 3), size=st.integers(1, 3))
def test_a_hierarchy_is_one_of_definition_1(levels: int, branching: int, size: int) -> None:
    """Clusters, Definition 1: the agents of all groups of a level are the processes of the next; each is in one group there."""
    topology = hierarchy(levels, branching, size)
    assert len(topology.processes) == size * branching ** (levels - 1)
    assert len(topology.domains) == sum(branching**level for level in range(levels))
    assert sizes(topology) == sorted(
        [size] * branching ** (levels - 1) + [branching] * (len(topology.domains) - branching ** (levels - 1))
    )
    if size > 1:
        assert longest(topology) == 2 * levels - 1


def test_a_process_may_be_on_all_levels() -> None:
    """Clusters Fig. 2: R takes part in three clusters, one on each layer."""
    assert clusters_fig2().homes["R"] == ("top", "g1", "g1-1")


@pytest.mark.parametrize("case", CLUSTERS_FIG6)
def test_the_five_routes_of_clusters(case: str) -> None:
    """Clusters Fig. 6: where the ways from X to Y, from X to Xi and from Xi to Y meet."""
    routes = Routes(clusters_fig6(case))
    through = {pair: routes.path(*pair)[2:-1:2] for pair in (("X", "Y"), ("X", "Xi"), ("Xi", "Y"))}
    expected = {
        "a": ([["Xi"], [], []]),
        "b": ([[], ["Y"], []]),
        "c": ([[], [], ["X"]]),
        "d": ([["W"], ["W"], ["W"]]),
        "e": ([["W1", "W3"], ["W1", "W2"], ["W2", "W3"]]),
    }
    assert list(through.values()) == expected[case]


def test_sixty_processes_in_three_levels() -> None:
    """Daisy §5.1: three hyper-servers, four causal servers to a daisy, groups of four processes and their server."""
    topology = daisy_fig5()
    assert counts(topology) == (60, 1 + 3 + 12, 12, 0)
    assert sizes(topology) == [3, 4, 4, 4, *[5] * 12]


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (flat(5), (5, 1, 0, 0)),
        (chain(4, 3), (9, 4, 3, 0)),
        (star(4, 3), (9, 4, 1, 0)),
        (linked(4, 3, 2, "star"), (12, 4, 0, 3)),
        (linked(4, 3, 2, "chain"), (12, 4, 0, 3)),
        (linked(7, 3, 3, "tree"), (21, 7, 0, 6)),
    ],
)
def test_others_have_their_size(topology: Topology, expected: tuple[int, int, int, int]) -> None:
    assert counts(topology) == expected


def test_links_join_as_they_are_told() -> None:
    ends = {joined: [link.between for link in linked(5, 2, 1, joined).links.values()] for joined in ("star", "chain", "tree")}
    assert ends == {
        "star": [("d1", "d2"), ("d1", "d3"), ("d1", "d4"), ("d1", "d5")],
        "chain": [("d1", "d2"), ("d2", "d3"), ("d3", "d4"), ("d4", "d5")],
        "tree": [("d1", "d2"), ("d1", "d3"), ("d2", "d4"), ("d2", "d5")],
    }


def test_each_level_has_its_ordering() -> None:
    made = hierarchy(3, 2, 2, ("sequenced", "vector", "matrix"))
    assert {name: domain.ordering for name, domain in made.domains.items()} == {
        "top": "matrix",
        **dict.fromkeys(("g1", "g2"), "vector"),
        **dict.fromkeys(("g1-1", "g1-2", "g2-1", "g2-2"), "sequenced"),
    }
    assert [domain.ordering for domain in tree(3, 1, 2, ("fifo", "matrix")).domains.values()] == ["matrix", "matrix", "fifo"]
    assert [domain.ordering for domain in chain(3, 2, ("vector", "matrix")).domains.values()] == ["vector", "matrix", "vector"]


def test_a_shape_promises_what_its_parts_keep() -> None:
    assert [bus(2, 2, ordering).promise for ordering in ("matrix", "fifo", "unordered", ("fifo", "matrix"))] == [
        "causal",
        "fifo",
        "nothing",
        "fifo",
    ]
    assert flat(3, "sequenced").promise == "total"
    assert linked(2, 2, 2, mode="fifo").promise == "fifo"
    assert fabric("one", flat(2).domains.values()).promise == "causal"


@pytest.mark.parametrize(
    ("make", "arguments", "says"),
    [
        (flat, {"processes": 0}, "processes 0: must be at least 1"),
        (bus, {"domains": 1}, "branching 1: must be at least 2"),
        (bus, {"size": 0}, "size 0: must be at least 1"),
        (hierarchy, {"levels": 0}, "levels 0: must be at least 1"),
        (hierarchy, {"levels": 3, "branching": (2,)}, "branching: 1 number for 3 levels"),
        (tree, {"size": 1}, "size 1: must be at least 2"),
        (chain, {"size": 1}, "size 1: must be at least 2"),
        (star, {"domains": 0}, "domains 0: must be at least 1"),
        (linked, {"size": 2, "pairs": 3}, "pairs 3: a domain of 2 has no more than 2 relays"),
        (linked, {"joined": "ring"}, "joined ring: must be one of star, chain, tree"),
        (flat, {"processes": 10**7}, "10,000,000 processes in 1 domains; MAX_PROCESSES is 1,000,000"),
        (hierarchy, {"levels": 60}, "MAX_PROCESSES is 1,000,000"),
        (tree, {"levels": 60}, "MAX_PROCESSES is 1,000,000"),
    ],
)
def test_sizes_that_make_no_fabric_are_refused_by_name(make: Any, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make(**arguments)
    assert says in str(refused.value)


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_described_and_can_be_written(name: str) -> None:
    shape = SHAPES[name]
    topology = shape.make()
    assert shape.about.endswith(".")
    again = parse(write(topology))
    assert (again.domains, again.links, again.promise) == (topology.domains, topology.links, topology.promise)


@pytest.mark.parametrize("pattern", ["unicast", "multicast", "broadcast"])
@pytest.mark.parametrize("name", SHAPES)
def test_traffic_over_a_shape_keeps_what_the_shape_promises(name: str, pattern: Pattern) -> None:
    topology = SHAPES[name].make()
    options = SimulationOptions(messages=60, pattern=pattern, recipients=3, gap="exponential:3ms", replies=0.7, seed=3)
    result, events = simulate(options, topology)
    assert judge(events, ALWAYS | topology.guarantees).violations == []
    assert result.waiting == 0
    assert result.statistics.deliveries == sum(len(event.to or ()) for event in events if event.kind == "send")
