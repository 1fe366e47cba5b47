"""The model of all-together: every architecture delivers everything, in order, and costs what can be said beforehand."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from thence.studies.models import all_together as model
from thence.trace.events import Event
from thence.trace.judge import judge

PARAMETERS: dict[str, Any] = {
    "messages_60": 80,
    "messages_250": 20,
    "rate_per_s": 1_000,
    "share": 0.9,
    "body_bytes": 100,
    "lan_delay": "exponential:2ms",
    "wan_delay": "exponential:10ms",
    "lan_bytes_per_s": 12_500_000,
    "wan_bytes_per_s": 1_250_000,
}
NOT_CAUSAL = "interconnect"
"""Fig. 5 as printed promises FIFO order only."""


def point(architecture: str, traffic: str = "uniform", processes: int = 60) -> dict[str, Any]:
    return {**PARAMETERS, "architecture": architecture, "traffic": traffic, "processes": processes}


def measure(architecture: str, traffic: str = "uniform", seed: int = 1) -> tuple[dict[str, float], list[Event]]:
    events: list[Event] = []
    return model.run(point(architecture, traffic), seed, events.append), events


@pytest.mark.parametrize("traffic", ["uniform", "local", "hot"])
@pytest.mark.parametrize("architecture", model.ARCHITECTURES)
def test_runs_keep_their_order_and_are_the_same_for_the_same_seed(architecture: str, traffic: str) -> None:
    measures, events = measure(architecture, traffic)
    found = judge(events).properties
    expected = {"causal"} if architecture == NOT_CAUSAL else set()
    assert {name for name, count in found.items() if count and name != "total"} <= expected
    assert repr((measures, events)) == repr(measure(architecture, traffic))


def test_one_seed_is_the_same_traffic_everywhere() -> None:
    def sends(architecture: str) -> list[tuple[str, object, object]]:
        return [(event.process, event.to, event.time) for event in measure(architecture)[1] if event.kind == "send"]

    assert sends("flat") == sends("domains") == sends("gateways") != []


def test_a_flat_group_sends_to_everybody_and_two_levels_to_three_at_most() -> None:
    assert measure("flat")[0]["frames"] == 59
    assert 1 < measure("domains")[0]["frames"] <= 3
    assert measure("domains")[0]["frames"] == measure("clusters-matrix")[0]["frames"]


def test_whom_no_message_is_for_is_left_out_without_a_change() -> None:
    few = {**point("flat"), "messages_60": 4}
    measures = model.run(few, 1, lambda _: None)
    assert measures["frames"] == 59
    # Everybody gets each message once; nobody sends anything on.
    assert measures["busiest_frames"] == 1


def test_traffic_is_as_it_is_called() -> None:
    sites = model.sites_of(60)
    site_of = {name: at for at, site in enumerate(sites) for name in site}
    many = {**PARAMETERS, "messages_60": 2_000, "processes": 60}
    local = list(model.traffic({**many, "traffic": "local"}, sites, Random(1)))
    share = sum(site_of[sender] == site_of[target] for _, sender, target in local) / len(local)
    assert share == pytest.approx(0.9 + 0.1 * 9 / 59, abs=0.03)
    hot = [target for _, _, target in model.traffic({**many, "traffic": "hot"}, sites, Random(1))]
    assert hot.count(sites[0][-1]) / len(hot) == pytest.approx(0.89, abs=0.03)
    assert all(sender != target for _, sender, target in local)


def test_near_and_far_are_a_matter_of_sites() -> None:
    sites = model.sites_of(60)
    network = model.network(point("flat"), sites)
    near, far = (sites[0][0], sites[0][1]), (sites[0][0], sites[1][0])
    assert str(network.link_delays.get(near, network.delay)) == "exponential:2ms"
    assert str(network.link_delays.get(far, network.delay)) == "exponential:10ms"
    assert network.link_bandwidths_bytes_per_s.get(near) == 12_500_000
    assert network.link_bandwidths_bytes_per_s.get(far) is None
