"""Mistakes for the claims of clusters."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, Final

from tests.papers import test_clusters
from tests.papers.costs import test_clusters_agents, test_clusters_headers, test_clusters_loads
from tests.papers.mistakes.daisy import ToEverybody
from tests.papers.mistakes.mistake import Mistake, instead, ordering
from tests.support.papers.builders import everywhere
from tests.support.planted import planted_fabric, planted_stamps
from tests.support.planted.planted_orderings import AnyRequest
from thence.core.ordering import Output
from thence.core.ordering.matrix_clock import FullMatrix
from thence.core.ordering.pending import HeldFrame
from thence.core.ordering.sequenced import Sequenced, SequencedRequest
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Envelope
from thence.sim.options import SimulationOptions
from thence.studies.parts import linked_systems

_path = Routes.path


def _there_and_back(self: Routes, origin: str, target: str) -> list[str]:
    """A message visits the first process of its domain before it goes its way."""
    way = _path(self, origin, target)
    first = self.topology.domains[way[1]].members[0]
    return way if first in way else [origin, way[1], first, *way[1:]]


class AsksTwice(Sequenced):
    """Every request goes to the coordinator twice, which drops the second."""

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        output = super().send(envelope, to)
        asks = [pair for pair in output.send if isinstance(pair[1].stamp, SequencedRequest)]
        return Output([*output.send, *asks], output.deliver)


def _only_the_senders_own(_: Any, held: HeldFrame[Any]) -> None:
    """Wait for nothing but what the channel keeps in order."""


def _without_bandwidth(**options: Any) -> SimulationOptions:
    """A line takes no time for what it carries."""
    return SimulationOptions(**{**options, "bandwidth_bytes_per_s": None})


MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake(
        "C1",
        "relays forward on arrival",
        partial(planted_fabric.in_place, planted_fabric.ForwardsOnArrival),
        test_clusters.test_c1_point_to_point_over_clusters_is_causal,
        {"layers": 2, "seed": 1, "delay": "exponential:10ms"},
    ),
    Mistake(
        "C2",
        "a message visits the first process of its domain on its way",
        instead(Routes, "path", _there_and_back),
        test_clusters.test_c2_the_printed_procedure_gives_the_route,
        {"plan": [3, 2], "seed": 0},
    ),
    Mistake(
        "C3",
        "a coordinator takes requests as they come",
        ordering("sequenced", AnyRequest),
        test_clusters.test_c3_every_mix,
        {"mix": ("sequenced", "matrix", "matrix", "sequenced")},
    ),
    Mistake(
        "C3",
        "whole matrices are not waited for",
        instead(FullMatrix, "missing", _only_the_senders_own),
        test_clusters.test_c3_one_algorithm_in_every_cluster,
        {"choose": everywhere("matrix", stamps="full"), "layers": 2, "seed": 1},
    ),
    Mistake(
        "C4",
        "what is released at once is forwarded last first",
        partial(planted_fabric.in_place, planted_fabric.ForwardsInReverse),
        test_clusters.test_c4_with_delivery_order_there_is_no_violation,
    ),
    Mistake(
        "C5",
        "relays forward on arrival",
        partial(planted_fabric.in_place, planted_fabric.ForwardsOnArrival),
        test_clusters.test_c5_the_five_shapes_of_a_route,
        {"name": "d", "ordering": "matrix"},
    ),
    Mistake(
        "C6",
        "a stamp holds a row more than there are members",
        planted_stamps.a_row_more,
        test_clusters_headers.test_c6_with_two_layers_of_root_n_clusters_it_grows_with_the_sites,
        {"sites": 16},
    ),
    Mistake(
        "C7",
        "every request goes to the coordinator twice",
        ordering("sequenced", AsksTwice),
        test_clusters_loads.test_c7_with_three_layers_the_corrected_rates_arrive,
    ),
    Mistake(
        "C7",
        "a coordinator passes messages on to its whole cluster",
        ordering("sequenced", ToEverybody),
        test_clusters_agents.test_c7_fig_7_with_agents_that_are_sites,
        {"b": 8},
    ),
    Mistake(
        "C8",
        "whole matrices weigh nothing on the line",
        instead(linked_systems, "SimulationOptions", _without_bandwidth),
        test_clusters_agents.test_c8_where_the_gain_ends,
        {"delay_us": 1_000, "bytes_per_s": test_clusters_agents.SLOW, "quickest": test_clusters_agents.THREE},
    ),
)
