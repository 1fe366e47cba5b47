"""Members that are full of what goes one way still take what goes the other: tiny limits, heavy traffic, and everything arrives.

Before ``core/limits.py`` said so, each of these fabrics stood still for ever.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import fabrics
from thence.core import limits
from thence.core.topology import Topology
from thence.core.topology_text import parse
from thence.errors import InternalError
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.trace.events import Event
from thence.trace.judge import judge

MAX_EVENTS = 200_000
SMALL = 8
SEEDS = 60

ROW = """
name = "row"
stability = {stability}
domains.B = {{ members = ["b1", "b2", "x"], ordering = "{ordering}", delivery = "{delivery}" }}
domains.A = {{ members = ["x", "y"], ordering = "{ordering}", delivery = "{delivery}" }}
domains.D = {{ members = ["y", "d1", "d2"], ordering = "{ordering}", delivery = "{delivery}" }}
"""
TWIN = """
name = "twin"
domains.A.members = ["a1", "a2", "r1", "r2"]
domains.D.members = ["d1", "d2", "r1", "r2"]
[[relays]]
replicas = ["r1", "r2"]
"""
LINKED = """
name = "linked"
domains.A = {{ members = ["a1", "a2", "a3"], ordering = "vector" }}
domains.D = {{ members = ["d1", "d2", "d3"], ordering = "vector" }}
[[links]]
between = ["A", "D"]
relays = [["a1", "d1"], ["a2", "d2"]]
takeover = {takeover}
"""


def row(ordering: str, *, delivery: str = "at once", stability: bool = False) -> Topology:
    """Return three domains in a row."""
    return parse(ROW.format(ordering=ordering, delivery=delivery, stability="true" if stability else "false"))


def rows() -> Iterator[object]:
    """Give fabrics and what is small there."""
    for ordering in fabrics.CAUSAL:
        yield pytest.param(row(ordering), "MAX_QUEUED_HARD", SMALL, id=f"row-{ordering}")
    yield pytest.param(row("vector", delivery="safe"), "MAX_QUEUED_HARD", SMALL, id="row-safe")
    yield pytest.param(row("vector", delivery="notify"), "MAX_QUEUED_HARD", SMALL, id="row-notify")
    yield pytest.param(row("vector", stability=True), "MAX_QUEUED_HARD", SMALL, id="row-stability")
    yield pytest.param(row("matrix"), "MAX_QUEUED_BYTES_HARD", 1_000, id="row-bytes")
    yield pytest.param(row("sequenced"), "MAX_ECHOES", 4, id="row-echoes")
    yield pytest.param(parse(TWIN), "MAX_QUEUED_HARD", SMALL, id="replicas")
    yield pytest.param(parse(TWIN), "MAX_KEPT", 3, id="replicas-kept")
    yield pytest.param(parse(LINKED.format(takeover="false")), "MAX_QUEUED_HARD", SMALL, id="link")
    yield pytest.param(parse(LINKED.format(takeover="true")), "MAX_QUEUED_HARD", SMALL, id="link-takeover")


@pytest.mark.parametrize(("topology", "limit", "most"), list(rows()))
def test_what_goes_one_way_does_not_hold_up_what_goes_the_other(
    topology: Topology, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, limit, most)
    events: list[Event] = []
    options = SimulationOptions(
        messages=300, pattern="mixed", gap="exponential:100us", delay="exponential:5ms", replies=0.2, reliable=True, seed=3
    )
    run = Simulation(options, events.append, where=topology, max_events=MAX_EVENTS)
    result = run.run()
    assert not judge(events).violations
    assert not result.waiting
    assert run.statistics.refused, "the limit was never reached"


def in_rings(topology: Topology) -> bool:
    """Return whether members of a domain hand on what they get in a circle, in which they can still wait for each other."""
    return any(domain.options.get("links") == "ring" for domain in topology.domains.values())


def test_random_fabrics_with_tiny_limits_and_faults_do_not_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_QUEUED_HARD", SMALL)
    monkeypatch.setattr(limits, "MAX_ECHOES", SMALL)
    refused = 0
    for seed in range(SEEDS):
        topology = fabrics.fabric_for(seed, fabrics.promise_for(seed))
        if topology.replicas or in_rings(topology):
            continue
        try:
            outcome = fabrics.run_one(seed, reliable=True, deaths=0)
        except InternalError as error:
            pytest.fail(f"seed {seed}: {error}")
        refused += outcome.broken.pop("refused", 0)
        assert not outcome.broken, f"seed {seed}: {outcome.broken}"
    assert refused > 100
