"""clusters §IV-A: what a header costs, counted on the stamps that travel. Row C6.

The study ``clusters-cost`` measures the same at more sizes, with whole stamps.
"""

from __future__ import annotations

from itertools import pairwise
from math import isqrt

import pytest

from thence.studies.models.clusters_cost import ENTRY_BYTES, ClusterShape, header


def measured(*shapes: ClusterShape) -> list[float]:
    """Return the bytes of the matrices of a message, on the longest route, for each shape; stamps have a few bytes more."""
    found = []
    for shape in shapes:
        total, matrices = header(shape, 2, 1)
        hops = 2 * shape.layers - 1
        assert matrices < total <= matrices + 16 * hops
        found.append(matrices)
    return found


@pytest.mark.parametrize("sites", [4, 16, 64])
def test_c6_in_one_cluster_a_header_grows_with_the_square_of_the_sites(sites: int) -> None:
    """C6, §IV-A: c n² bytes: twice as many sites, four times the header."""
    one, twice = measured(ClusterShape(1, 1, sites), ClusterShape(1, 1, 2 * sites))
    assert one == ENTRY_BYTES * sites**2
    assert twice == 4 * one


@pytest.mark.parametrize("sites", [16, 64, 144])
def test_c6_with_two_layers_of_root_n_clusters_it_grows_with_the_sites(sites: int) -> None:
    """C6, §IV-A: two clusters of √n and the one of the √n agents: 3 c n bytes."""
    assert measured(ClusterShape(isqrt(sites), 2, isqrt(sites))) == [3 * ENTRY_BYTES * sites]


def test_c6_with_more_layers_it_grows_with_the_logarithm() -> None:
    """C6, §IV-A: three times as many sites, one layer more: always the same number of bytes more, 2 c b²."""
    sizes = measured(*(ClusterShape(3, layers, 3) for layers in (2, 3, 4, 5)))
    assert [later - earlier for earlier, later in pairwise(sizes)] == [2 * ENTRY_BYTES * 9] * 3
