"""The model of domains-growth: known small cases, the paper's formula, and the same numbers for the same seed."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from thence.studies.models import domains_growth as model
from thence.studies.parts import layouts
from thence.trace.events import Event
from thence.trace.judge import judge

PARAMETERS: dict[str, Any] = {
    "tree_size": 4,
    "tree_branching": 2,
    "pings": 10,
    "passes": 1,
    "full_pings": 3,
    "hop_us": 200,
    "byte_ns": 1.0,
    "saved_byte_ns": 10.0,
    "each": 10,
}


def measure(
    shape: str, servers: int, pattern: str = "unicast", stamps: str = "full", seed: int = 1, **others: Any
) -> tuple[dict[str, float], list[Event]]:
    events: list[Event] = []
    point = {**PARAMETERS, "shape": shape, "servers": servers, "pattern": pattern, "stamps": stamps, **others}
    return model.run(point, seed, events.append), events


@pytest.mark.parametrize("stamps", ["full", "updates"])
@pytest.mark.parametrize("pattern", ["unicast", "broadcast", "uniform"])
@pytest.mark.parametrize("shape", ["flat", "bus", "daisy", "tree"])
def test_runs_are_causal_and_the_same_for_the_same_seed(shape: str, pattern: str, stamps: str) -> None:
    measures, events = measure(shape, 27, pattern, stamps)
    assert judge(events).kept
    assert repr((measures, events)) == repr(measure(shape, 27, pattern, stamps))


def test_another_seed_asks_others() -> None:
    assert measure("tree", 40, seed=1)[1] != measure("tree", 40, seed=2)[1]


def test_a_flat_round_trip_is_two_whole_matrices() -> None:
    measures, _ = measure("flat", 30)
    assert measures["hops"] == 1
    assert 2 * 4 * 30**2 < measures["control_bytes"] <= 2 * (4 * 30**2 + 8)
    assert measures["formula_bytes"] == 2 * 4 * 30**2
    assert measures["time_ms"] == pytest.approx(2 * 0.2 + measures["control_bytes"] / 1e6)


def test_on_a_bus_there_are_three_hops_of_the_roots_square() -> None:
    measures, _ = measure("bus", 36)
    assert measures["hops"] == 3
    assert measures["formula_bytes"] == 2 * 3 * 4 * 36
    assert measures["farthest_bytes"] == pytest.approx(measures["formula_bytes"], rel=0.05)


def test_no_way_in_a_tree_is_dearer_than_the_formula_and_its_envelopes() -> None:
    servers = 22  # A full tree of three levels: 1 + 3 (2^3 - 1).
    assert len(layouts.tree(servers, 4, 2).domains) == 7
    measures, _ = measure("tree", servers)
    assert model.tree_depth(servers, 4, 2) == 2
    assert measures["formula_bytes"] == 2 * 4 * 5 * 16
    assert measures["farthest_bytes"] <= measures["formula_bytes"] * 70 / 64
    assert measures["hops"] <= 5


def test_a_broadcast_is_one_message_to_each_and_an_answer() -> None:
    measures, events = measure("flat", 12, "broadcast")
    assert sum(event.kind == "send" for event in events) == 12
    assert measures["whole_bytes"] == pytest.approx(11 * measures["control_bytes"])
    assert math.isnan(measures["time_ms"])


def test_uniform_traffic_is_so_many_messages_and_all_of_them_are_stored() -> None:
    measures, events = measure("flat", 12, "uniform")
    assert sum(event.kind == "send" for event in events) == 12 * 10
    assert measures["control_bytes"] == 4 * 12**2 + 6
    # Written twice, once by its sender and once, with its stamp, by its receiver.
    assert measures["control_bytes"] + 20 < measures["disk_bytes"] < measures["control_bytes"] + 80
    assert 4 * 12**2 < measures["state_bytes"] < 4 * 12**2 + 200


def test_updates_make_stamps_grow_with_what_is_said() -> None:
    few, many = (measure("flat", 30, "uniform", "updates", each=each)[0] for each in (2, 20))
    assert few["control_bytes"] < many["control_bytes"] / 2
    assert few["state_bytes"] < many["state_bytes"] / 2


def test_who_is_asked_shares_no_domain_with_who_asks() -> None:
    topology = layouts.even(2, 25)
    for seed in range(5):
        asks, asked = model.who(topology, Random(seed))
        assert len(asked) == 16
        assert all(topology.homes[name] != topology.homes[asks] and len(topology.homes[name]) == 1 for name in asked)


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
@pytest.mark.parametrize("servers", [25, 60, 101])
def test_every_shape_has_exactly_as_many_servers_as_asked_for(levels: int, servers: int) -> None:
    assert len(layouts.even(levels, servers).processes) == servers
    assert len(layouts.tree(servers, 5, 2).processes) == servers
    sizes = [len(group) for group in layouts.shares(layouts.names_of(servers), 7)]
    assert sum(sizes) == servers
    assert max(sizes) - min(sizes) <= 1
