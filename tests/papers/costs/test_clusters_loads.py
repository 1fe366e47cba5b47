"""clusters §IV-B, Fig. 7: what arrives at coordinators. Row C7.

Counted in short runs in which every coordinator is a process of its own, as the paper has the top one. The study
``clusters-cost`` has more sizes, and the formula as it is printed.
"""

from __future__ import annotations

import pytest

from thence.studies.models.clusters_cost import ClusterShape, corrected_load, loads, printed_load
from thence.trace.recorder import nowhere

MESSAGES = 1_200


@pytest.mark.parametrize("shape", [ClusterShape(1, 1, 12), ClusterShape(2, 2, 8), ClusterShape(4, 2, 4), ClusterShape(8, 2, 2)])
def test_c7_with_one_and_two_layers_the_printed_rates_arrive(shape: ClusterShape) -> None:
    """C7, §IV-B: L(n) at the top, and R(n, 1) + S(n, 1) at the lowest layer."""
    found = loads(shape, MESSAGES, 1, nowhere)
    assert found == pytest.approx([printed_load(shape, layer) for layer in range(1, shape.layers + 1)], rel=0.08)


def test_c7_fig_7_more_clusters_mean_more_at_the_top_and_less_below() -> None:
    """C7, Fig. 7: as b increases, the load of the top coordinator does, and that of the others decreases."""
    few, many = (loads(shape, MESSAGES, 1, nowhere) for shape in (ClusterShape(2, 2, 8), ClusterShape(8, 2, 2)))
    assert many[-1] > 1.5 * few[-1]
    assert many[0] < 0.5 * few[0]


def test_c7_with_three_layers_the_corrected_rates_arrive() -> None:
    """C7, §IV-B: at the top the printed rate is too small by a third; what follows from the same assumptions arrives."""
    shape = ClusterShape(2, 3, 4)
    found = loads(shape, MESSAGES, 1, nowhere)
    assert found == pytest.approx([corrected_load(shape, layer) for layer in (1, 2, 3)], rel=0.08)
    assert found[-1] > 1.25 * printed_load(shape, 3)
