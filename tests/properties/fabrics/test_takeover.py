"""Replicas of relays under all faults at once, among them deaths for good and wrong suspicions; judged from the trace."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from unittest import mock

import pytest

from benchmarks.takeover import LINK, TWIN
from tests.support.papers.survivors import dead_in, still_waiting, wrong_among
from tests.support.planted.planted_takeover import PLANTED, PLANTED_AT_LINKS, Planted, in_place
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.sim.statistics import Statistics
from thence.trace.events import Event
from thence.trace.verdict import Violation

SEEDS = 8
"""For each fabric; ``make campaign`` makes many more, of random fabrics with replicas."""

ROW: Final = """
name = "row"
[domains.west]
members = ["w1", "w2", "rw1", "rw2"]
[domains.between]
members = ["rw1", "rw2", "re1", "re2", "re3"]
[domains.east]
members = ["e1", "e2", "re1", "re2", "re3"]
[[relays]]
replicas = ["rw1", "rw2"]
[[relays]]
replicas = ["re1", "re2", "re3"]
"""

HUB: Final = """
name = "hub"
[domains.A]
members = ["a1", "h1", "h2"]
[domains.B]
members = ["b1", "h1", "h2"]
[domains.C]
members = ["c1", "s", "h1", "h2"]
[domains.E]
members = ["e1", "s"]
[[relays]]
replicas = ["h1", "h2"]
"""

LINKS: Final = """
name = "links"
[domains.A]
members = ["x1", "x2", "a1", "a2", "a3"]
[domains.B]
members = ["y1", "b1", "b2"]
[domains.C]
members = ["z1", "z2", "c1"]
[[links]]
between = ["A", "B"]
relays = [["a1", "b1"], ["a2", "b2"], ["a3", "b1"]]
takeover = true
[[links]]
between = ["C", "A"]
relays = [["c1", "a1"], ["c1", "a2"], ["c1", "a3"]]
takeover = true
"""
"""Two links with three relays in the middle that stand for one; at one end there are two, at the other a single one."""

FABRICS: Final = {text.split('"')[1]: text for text in (TWIN, ROW, HUB, LINK, LINKS)}


class Outcome(NamedTuple):
    """What a run came to among those who are left."""

    statistics: Statistics
    wrong: list[Violation]
    waiting: int


def run(topology: Topology, seed: int, **changes: Any) -> Outcome:
    options: dict[str, Any] = {
        "messages": 100,
        "pattern": "mixed",
        "replies": 0.6,
        "gap": "exponential:2ms",
        "loss": 0.05,
        "duplication": 0.05,
        "reordering": 0.1,
        "crashes": 3,
        "suspicions": 6,
        "deaths": 2,
        "partitions": 1,
        "body_bytes": 5,
    }
    events: list[Event] = []
    simulation = Simulation(SimulationOptions(**options | changes, seed=seed), events.append, where=topology)
    simulation.run()
    return Outcome(simulation.statistics, wrong_among(events, dead_in(simulation)), still_waiting(simulation))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", FABRICS)
def test_a_relay_that_dies_is_not_missed(name: str, seed: int) -> None:
    result = run(parse(FABRICS[name]), seed)
    assert result.wrong == []
    assert result.waiting == 0
    assert result.statistics.repeated_deliveries == 0
    assert result.statistics.suspicions > 6  # The dead are suspected, beside the wrong ones.


@pytest.mark.parametrize("planted", PLANTED, ids=[planted.name for planted in PLANTED])
def test_random_runs_find_what_was_planted(planted: Planted) -> None:
    topology = parse(TWIN.replace('"r2"]\n[domains.D]', '"r2"]\nordering = "matrix"\n[domains.D]'))
    with in_place(planted):
        assert any(run(topology, seed, deaths=0, suspicions=20, gap="exponential:5ms").wrong for seed in range(20))


@pytest.mark.parametrize("planted", PLANTED_AT_LINKS, ids=[planted.name for planted in PLANTED_AT_LINKS])
def test_random_runs_find_what_was_planted_at_a_link(planted: Planted) -> None:
    topology = parse(LINK.replace('"ra2"]\n[domains.D]', '"ra2"]\nordering = "matrix"\n[domains.D]'))
    assert topology.domains["A"].ordering == "matrix"  # Where messages go to some only, beside the link, where they go to all.
    with in_place(planted):
        assert any(_is_broken(topology, seed) for seed in range(20))


def _is_broken(topology: Topology, seed: int) -> bool:
    result = run(topology, seed, deaths=0, suspicions=20, gap="exponential:5ms")
    return bool(result.wrong or result.waiting or result.statistics.refused)


def test_who_only_has_a_marker_cannot_pass_a_message_on() -> None:
    """What made the rule that replicas hand whole messages to all members: with markers, some runs stand still after a death."""
    marked = parse(TWIN.replace('"r2"]\n[', '"r2"]\nconfirmation = { scheme = "distributed", retransmission = "nearest" }\n['))
    assert not marked.takes_over_at_once(("r1", "r2"))
    with mock.patch("thence.sim.faults.failures.mortal", return_value=["r1", "r2"]):
        assert any(run(marked, seed, messages=200, deaths=1).waiting for seed in (29, 31, 42))
    assert not any(run(parse(TWIN), seed, messages=200, deaths=1).waiting for seed in (29, 31, 42))
