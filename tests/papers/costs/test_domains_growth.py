"""domains §3, §4 and §6: what order costs as servers are added, with and without domains. Rows M6, M7, M8, M10 and M11.

Real members over wires that lose nothing, counted in bytes: the model of the study ``domains-growth``, which has more and larger
sizes and modelled times. ``test_domains_servers.py`` counts on running servers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import linear_regression

import pytest

from thence.studies.models import domains_growth
from thence.trace.recorder import nowhere

PARAMETERS: Mapping[str, int | float] = {
    "tree_size": 4,
    "tree_branching": 3,
    "pings": 20,
    "passes": 1,
    "full_pings": 3,
    "hop_us": 200,
    "byte_ns": 1.0,
    "saved_byte_ns": 10.0,
}
SQUARES = (16, 25, 36, 64)
LONG = 1.5
"""If each server has written so many messages to each other one, stamps have ceased to grow."""


@cache
def measured(shape: str, servers: int, pattern: str, stamps: str, each: int = 20) -> Mapping[str, float]:
    """Return what a message costs in one run."""
    point: dict[str, str | int | float | bool] = {
        **PARAMETERS,
        "shape": shape,
        "servers": servers,
        "pattern": pattern,
        "stamps": stamps,
        "each": each,
    }
    return domains_growth.run(point, 1, nowhere)


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return how fast costs grow between the smallest and the largest size: 1 is linearly, 2 with the square."""
    return math.log(costs[-1] / costs[0]) / math.log(sizes[-1] / sizes[0])


@pytest.mark.parametrize("pattern", ["unicast", "broadcast"])
def test_m6_without_domains_whole_matrices_grow_with_the_square(pattern: str) -> None:
    """M6, Fig. 8 and 9: a round trip, and each recipient of a broadcast, cost two matrices of n² entries, and little else."""
    for servers in (9, 18, 36):
        cost = measured("flat", servers, pattern, "full")["control_bytes"]
        assert 2 * 4 * servers**2 < cost <= 2 * (4 * servers**2 + 8)


def test_m6_so_do_updates_where_everybody_writes_to_everybody() -> None:
    """M6, §3: "even if only modifications of the matrix are sent […] the message size is O(n²) in the worst case"."""
    sizes = (8, 16, 32)
    costs = [measured("flat", size, "uniform", "updates", round(LONG * size))["control_bytes"] for size in sizes]
    assert 1.7 < exponent(sizes, costs) < 2.3


def test_m7_with_domains_on_a_bus_whole_matrices_grow_with_the_servers() -> None:
    """M7, Fig. 11: three hops there and back, each with a matrix of n entries: 24 bytes more for every server."""
    for servers in SQUARES:
        found = measured("bus", servers, "unicast", "full")
        assert found["hops"] == 3
        assert 24 * servers < found["control_bytes"] <= 24 * servers + 6 * 8


def test_m7_so_do_updates() -> None:
    """M7, §4: on a bus with updates, everybody writing to everybody, an affine fit explains what a message costs."""
    costs = [measured("bus", servers, "uniform", "updates")["control_bytes"] for servers in SQUARES]
    slope, constant = linear_regression(SQUARES, costs)
    assert slope > 0
    for size, cost in zip(SQUARES, costs, strict=True):
        assert constant + slope * size == pytest.approx(cost, rel=0.1)
    assert 0.8 < exponent(SQUARES, costs) < 1.2


def test_m7_domains_cost_less_than_one() -> None:
    """M7, Fig. 12: in bytes with few servers already; how much time that is depends on the line."""
    for stamps in ("full", "updates"):
        assert 5 * measured("bus", 36, "uniform", stamps)["control_bytes"] < flat_36(stamps)["control_bytes"]


def flat_36(stamps: str) -> Mapping[str, float]:
    """Return what a message costs in one domain of 36 servers."""
    return measured("flat", 36, "uniform", stamps)


def test_m8_in_a_tree_of_fixed_domains_it_grows_with_the_logarithm() -> None:
    """M8, §6.2: three times as many servers, one level more: always about the same number of bytes more."""
    sizes = (13, 40, 121)
    costs = [measured("tree", servers, "unicast", "full")["farthest_bytes"] for servers in sizes]
    assert [domains_growth.tree_depth(servers, 4, 3) for servers in sizes] == [1, 2, 3]
    for depth, cost in enumerate(costs, start=1):
        # The longest way has 2d + 1 domains of s² entries, there and back.
        assert cost == pytest.approx(2 * 4 * (2 * depth + 1) * 16, rel=0.15)


def test_m8_a_bus_beats_a_tree_while_it_is_small() -> None:
    """M8, §6.2: "a tree may be less efficient than a bus in some cases": with 16 servers, and no longer with 144."""
    cost = {
        (shape, servers): measured(shape, servers, "unicast", "full")["control_bytes"]
        for shape in ("bus", "tree")
        for servers in (16, 144)
    }
    assert cost["bus", 16] < cost["tree", 16]
    assert cost["tree", 144] < cost["bus", 144]
    assert measured("bus", 144, "unicast", "full")["hops"] < measured("tree", 144, "unicast", "full")["hops"]


@pytest.mark.parametrize("shape", ["bus", "daisy", "tree"])
def test_m10_domains_with_updates_reduce_stamps_and_state(shape: str) -> None:
    """M10, §4: a fifth of what one domain costs with updates, and of what the same domains cost without."""
    ours = measured(shape, 36, "uniform", "updates")
    for other in (flat_36("updates"), measured(shape, 36, "uniform", "full")):
        assert 5 * ours["control_bytes"] < other["control_bytes"]
    assert 5 * ours["state_bytes"] < flat_36("updates")["state_bytes"]


@pytest.mark.parametrize("stamps", ["full", "updates"])
def test_m11_domains_write_less_to_disks_and_keep_less(stamps: str) -> None:
    """M11, §3: "high disk I/O activity to maintain a persistent image of the matrix": less than half, all servers together."""
    one, bus = flat_36(stamps), measured("bus", 36, "uniform", stamps)
    assert 2 * bus["disk_bytes"] < one["disk_bytes"]
    assert 5 * bus["state_bytes"] < one["state_bytes"]
    # A stamp is stored where it is received; beside it, a message takes some bytes wherever it is.
    assert one["control_bytes"] < one["disk_bytes"] < one["control_bytes"] + 100
