"""clusters §IV-B and §V: what agents handle that are sites themselves, and layers against hops. Rows C7 and C8.

``test_clusters_loads.py`` has coordinators of their own; the study ``clusters-layers`` has more hierarchies and lines.
"""

from __future__ import annotations

from functools import cache

import pytest

from thence.studies.models import clusters_cost
from thence.studies.models.clusters_cost import ClusterShape, Journey, printed_load
from thence.trace.recorder import nowhere

SITES = 64
MESSAGES = 1_000
FLAT, TWO, THREE = ClusterShape(1, 1, SITES), ClusterShape(8, 2, 8), ClusterShape(4, 3, 4)
SLOW, FAST = 125_000, 125_000_000
"""Bytes per second of lines of 1 Mbit/s and 1 Gbit/s."""


@cache
def agents(b: int) -> tuple[float, float]:
    """Return what an agent that is a site handles in one of b clusters, and the extra coordinator on top."""
    return clusters_cost.agent_load(ClusterShape(b, 2, SITES // b), MESSAGES, 1)


@pytest.mark.parametrize("b", [2, 4, 8, 16])
def test_c7_fig_7_with_agents_that_are_sites(b: int) -> None:
    """C7, §IV-B: L(n) at the extra coordinator above them, R(n, 1) + S(n, 1) at each agent, in units of one site's rate."""
    shape = ClusterShape(b, 2, SITES // b)
    agent, top = agents(b)
    assert agent == pytest.approx(printed_load(shape, 1), rel=0.03)
    assert top == pytest.approx(printed_load(shape, 2), rel=0.06)


@pytest.mark.parametrize("b", [2, 8])
def test_c7_coordinators_of_their_own_take_the_same(b: int) -> None:
    """C7: beside it the version with a further process as coordinator in every cluster."""
    bottom, top = clusters_cost.loads(ClusterShape(b, 2, SITES // b), MESSAGES, 1, nowhere)
    assert (bottom, top) == pytest.approx(agents(b), rel=0.02)


def test_c7_the_top_coordinator_gets_more_as_clusters_get_more_and_the_others_less() -> None:
    """C7, Fig. 7: "as b increases, the processing load on the layer-two coordinator increases while […] others decrease"."""
    loads = [agents(b) for b in (2, 4, 8, 16)]
    assert [top for _, top in loads] == sorted(top for _, top in loads)
    assert [agent for agent, _ in loads] == sorted((agent for agent, _ in loads), reverse=True)


@cache
def journey(shape: ClusterShape, delay_us: int, bytes_per_s: int) -> Journey:
    """Return what a message takes between two sites."""
    return clusters_cost.journey(shape, delay_us, bytes_per_s, 30, 1)


def test_c8_more_layers_mean_more_hops_and_smaller_headers() -> None:
    """C8, §V: a message visits more agents, and all its headers together are smaller."""
    found = [journey(shape, 1_000, SLOW) for shape in (FLAT, TWO, THREE)]
    assert [one.hops for one in found] == sorted(one.hops for one in found)
    assert found[0].header_bytes > 10 * found[1].header_bytes > 20 * found[2].header_bytes


@pytest.mark.parametrize(
    ("delay_us", "bytes_per_s", "quickest"),
    [(1_000, SLOW, THREE), (10_000, SLOW, TWO), (1_000, FAST, FLAT)],
    ids=["short and slow", "long and slow", "fast"],
)
def test_c8_where_the_gain_ends(delay_us: int, bytes_per_s: int, quickest: ClusterShape) -> None:
    """C8, §V: headers outweigh hops on slow lines only, and the longer a line, the fewer layers."""
    delays = {shape: journey(shape, delay_us, bytes_per_s).delay_ms for shape in (FLAT, TWO, THREE)}
    assert min(delays, key=lambda shape: delays[shape]) == quickest
