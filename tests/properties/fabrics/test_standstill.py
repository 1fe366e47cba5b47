"""Members that are full of what goes one way still take what goes the other: tiny limits, heavy traffic, and everything arrives.

Before ``core.member.admission`` said so, each of these fabrics stood still for ever. So did rings, and relays with replicas, for
longer: ``tests.properties.fabrics.standstill_search`` looks for more of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.properties.fabrics.standstill_search import found
from tests.support import fabrics
from thence.core.failover import replicas
from thence.core.member import admission, limits
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.errors import InternalError
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.trace.events import Event
from thence.trace.judge import judge
from thence.trace.verdict import DEFAULT_REQUIRED

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
RING = """
name = "ring"
stability = {stability}
domains.R = {{ members = ["r1", "r2", "r3", "r4", "r5", "r6"], ordering = {{ name = "flood", links = "ring" }} }}
domains.A.members = ["r1", "a1"]
domains.D.members = ["r4", "d1"]
"""
FLAT_RING = """
name = "ring"
domains.R = { members = ["r1", "r2", "r3", "r4", "r5"], ordering = { name = "flood", links = "ring" } }
"""
FOUND = (16, 44, 53, 59, 67, 81, 89, 93, 148, 220, 226)
"""Random fabrics with rings or replicas that stood still by tiny limits."""
FOUND_BY_ECHOES = ((5, 1, 1), (44, 3, 2), (48, 1, 2), (56, 1, 1), (79, 3, 1), (86, 1, 1), (97, 3, 1), (104, 1, 2))
"""Random fabrics that stood still where so much may be queued, and so much may come back to a relay."""


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
    yield pytest.param(parse(TWIN), "MAX_QUEUED_HARD", SMALL, id="replicas")
    yield pytest.param(parse(TWIN), "MAX_KEPT", 3, id="replicas-kept")
    yield pytest.param(parse(FLAT_RING), "MAX_QUEUED_HARD", 2, id="flat-ring")
    yield pytest.param(parse(RING.format(stability="false")), "MAX_QUEUED_HARD", SMALL, id="ring")
    yield pytest.param(parse(RING.format(stability="true")), "MAX_QUEUED_HARD", SMALL, id="ring-stability")
    yield pytest.param(parse(LINKED.format(takeover="false")), "MAX_QUEUED_HARD", SMALL, id="link")
    yield pytest.param(parse(LINKED.format(takeover="true")), "MAX_QUEUED_HARD", SMALL, id="link-takeover")
    fifo = parse('promise = "fifo"\n' + LINKED.format(takeover='true\nmode = "fifo"'))
    yield pytest.param(fifo, "MAX_QUEUED_HARD", SMALL, id="fifo-link-takeover")
    yield pytest.param(fifo, "MAX_KEPT", 3, id="fifo-link-kept")


@pytest.mark.parametrize(("topology", "limit", "most"), list(rows()))
def test_what_goes_one_way_does_not_hold_up_what_goes_the_other(
    topology: Topology, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, limit, most)
    monkeypatch.setattr(limits, limit, most, raising=False)  # Bytes are computed where the limits are.
    monkeypatch.setattr(replicas, limit, most, raising=False)
    events: list[Event] = []
    options = SimulationOptions(
        messages=300, pattern="mixed", gap="exponential:100us", delay="exponential:5ms", replies=0.2, reliable=True, seed=3
    )
    run = Simulation(options, events.append, where=topology, max_events=MAX_EVENTS)
    result = run.run()
    required = [name for name in DEFAULT_REQUIRED if name != "causal" or "causal" in topology.guarantees]
    assert not judge(events, required).violations
    assert not result.waiting
    assert run.statistics.refused, "the limit was never reached"


@pytest.mark.parametrize("seed", FOUND)
def test_rings_and_replicas_at_several_tiny_limits_do_not_stand_still(seed: int) -> None:
    assert [found(seed, limit) for limit in (1, 3)] == ["", ""]


@pytest.mark.parametrize(("seed", "limit", "echoes"), FOUND_BY_ECHOES)
def test_nobody_waits_for_what_comes_back(seed: int, limit: int, echoes: int) -> None:
    assert found(seed, limit, echoes) == ""


@pytest.mark.parametrize("ordering", ["sequenced", "grouped", "clocked", "resilient"])
def test_nothing_is_refused_for_what_comes_back(ordering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_ECHOES", 1)
    events: list[Event] = []
    options = SimulationOptions(messages=100, gap="exponential:100us", delay="exponential:5ms", reliable=True, seed=3)
    run = Simulation(options, events.append, where=row(ordering), max_events=MAX_EVENTS)
    assert not run.run().waiting
    assert not judge(events).violations
    assert not run.statistics.refused


def test_random_fabrics_with_tiny_limits_and_faults_do_not_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_QUEUED_HARD", SMALL)
    monkeypatch.setattr(admission, "MAX_ECHOES", SMALL)
    monkeypatch.setattr(admission, "MAX_KEPT", SMALL)
    refused = 0
    for seed in range(SEEDS):
        try:
            outcome = fabrics.run_one(seed, reliable=True, deaths=0)
        except InternalError as error:
            pytest.fail(f"seed {seed}: {error}")
        refused += outcome.broken.pop("refused", 0)
        assert not outcome.broken, f"seed {seed}: {outcome.broken}"
    assert refused > 100
