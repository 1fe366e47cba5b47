"""The model of clusters-cost: the same for a seed, right where it can be said by hand, and near its formulas."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest

from thence.errors import ConfigError
from thence.studies.models.clusters_cost import ClusterShape, corrected_load, printed_load, run, tree
from thence.trace.events import Event

POINT: dict[str, Any] = {"layout": "three-layers", "sites": 16, "b": 2, "smallest": 4, "messages": 600, "headers": 2}
TWO_TO_FIVE_LAYERS = [ClusterShape(b, layers, size) for b in (2, 3, 4) for layers in (2, 3, 4, 5) for size in (2, 5)]


def measured(seed: int = 1, **changed: Any) -> dict[str, float]:
    return run({**POINT, **changed}, seed, lambda _: None)


def test_one_seed_one_result() -> None:
    traces: list[list[Event]] = [[], [], []]
    found = [run(POINT, seed, trace.append) for seed, trace in zip((7, 7, 8), traces, strict=True)]
    assert found[0] == found[1] != found[2]
    assert traces[0] == traces[1] != traces[2]


def counted(shape: ClusterShape, layer: int) -> float:
    """Every site writes to every site once: return what arrives at the first coordinator of the layer, for a rate of 1."""
    size = [1, *(shape.below(at) for at in range(1, shape.layers + 1))]
    arrivals = 0
    for source, target in product(range(shape.sites), repeat=2):
        below = (source < size[layer], target < size[layer])
        apart_before = layer == 1 or source // size[layer - 1] != target // size[layer - 1]
        arrivals += (below[0] and apart_before) + (below[1] and not below[0])
    return arrivals / shape.sites


@pytest.mark.parametrize("shape", [shape for shape in TWO_TO_FIVE_LAYERS if shape.sites <= 100], ids=str)
def test_the_corrected_formula_counts_all_pairs(shape: ClusterShape) -> None:
    for layer in range(1, shape.layers + 1):
        assert corrected_load(shape, layer) == pytest.approx(counted(shape, layer))


@pytest.mark.parametrize("shape", TWO_TO_FIVE_LAYERS, ids=str)
def test_printed_and_corrected_agree_on_two_layers_only(shape: ClusterShape) -> None:
    loads = [(printed_load(shape, layer), corrected_load(shape, layer)) for layer in range(1, shape.layers + 1)]
    if shape.layers == 2:
        assert all(printed == pytest.approx(corrected) for printed, corrected in loads)
    else:
        assert all(printed < 0.999 * corrected for printed, corrected in loads)


def test_agents_that_are_sites_are_counted_with_two_layers() -> None:
    """C7, Fig. 7: beside the version with a coordinator of its own in every cluster."""
    found = measured(layout="two-layers", sites=64, b=8, messages=1_000)
    assert found["agent"] == pytest.approx(found["bottom_printed"], rel=0.04)
    assert found["agent_top"] == pytest.approx(found["top_printed"], rel=0.04)
    assert math.isnan(measured()["agent"])


def test_the_printed_formula_by_hand() -> None:
    """§IV-B, b = 2 and three layers: L(n) = (4-1)(2-1)/8 of everything, R(n, 2) = (4-1)/8, S(n, k) = L(n)/2^(3-k)."""
    shape = ClusterShape(2, 3, 4)
    assert printed_load(shape, 3) == 16 * 3 / 8
    assert printed_load(shape, 2) == 16 * 3 / 8 + 16 * 3 / 16
    assert printed_load(shape, 1) == 16 / 4 + 16 * 3 / 32
    assert corrected_load(shape, 3) == 16 / 2


def test_half_of_all_messages_cross_the_top() -> None:
    found = measured(messages=3_000)
    assert found["top"] == pytest.approx(8, rel=0.06)
    assert found["top_printed"] == 6
    assert found["second"] == pytest.approx(found["second_corrected"], rel=0.06)
    # One of 16 messages is to oneself and never leaves its site.
    assert found["bottom"] == pytest.approx(found["bottom_corrected"] - 4 / 16, rel=0.04)


def test_one_cluster() -> None:
    found = measured(layout="flat")
    assert (found["layers"], found["top"], found["top_printed"], found["bottom"]) == (1, 16, 16, 16)
    assert found["matrix_bytes"] == found["formula_bytes"] == 4 * 16**2
    assert math.isnan(found["second"])


@pytest.mark.parametrize(
    ("layout", "sites", "b", "layers", "entries"),
    [
        ("square-root", 16, 0, 2, 3 * 16),
        ("two-layers", 16, 2, 2, 2 * 8**2 + 2**2),
        ("three-layers", 16, 2, 3, 2 * (4**2 + 2**2) + 2**2),
        ("deep", 16, 4, 2, 2 * 4**2 + 4**2),
        ("deep", 64, 4, 3, 2 * (4**2 + 4**2) + 4**2),
        ("four-layers", 54, 3, 4, 2 * (2**2 + 2 * 3**2) + 3**2),
    ],
)
def test_matrices_on_the_longest_route(layout: str, sites: int, b: int, layers: int, entries: int) -> None:
    found = measured(layout=layout, sites=sites, b=b, messages=20)
    assert found["layers"] == layers
    assert found["matrix_bytes"] == found["formula_bytes"] == 4 * entries
    hops = 2 * layers - 1
    assert 5 * hops <= found["header_bytes"] - found["matrix_bytes"] <= 9 * hops


def test_coordinators_are_processes_of_their_own() -> None:
    built = tree(ClusterShape(2, 3, 4), "sequenced", coordinators=True)
    assert [len(leaders) for leaders in built.leaders] == [4, 2, 1]
    assert not set(built.sites) & {leader for leaders in built.leaders for leader in leaders}
    assert built.topology.domains["g2-1"].members == ("c1-1", "c1-2", "c2-1")
    assert tree(ClusterShape(2, 3, 4), "matrix", coordinators=False).topology.domains["g2-2"].members == ("s9", "s13")


def test_what_does_not_come_out_even_is_refused() -> None:
    for sites, b in ((16, 3), (4, 2), (16, 1)):
        with pytest.raises(ConfigError, match=f"{sites} sites do not make 3 layers of {b} parts"):
            measured(sites=sites, b=b)
