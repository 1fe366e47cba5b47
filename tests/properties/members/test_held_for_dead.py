"""Members that ack to everybody and hold each other for dead, rightly and wrongly, for longer than the window lasts.

The window is a small one here, so that it is passed many times in each run; running servers pass the real one
(``tests/integration/faults/test_takeover.py``).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.properties.members.test_confirmation import WAYS, fabric
from thence.core.transport.ack_all import missing, own_stream
from thence.core.transport.ack_all.own_stream import OwnStream
from thence.sim.node import SimulatedNode
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.studies.parts.site_groups import kept
from thence.trace.events import Event
from thence.trace.judge import judge

WINDOW = 16
NAMES = ("p1", "p2", "p3", "p4")
MS = 1_000_000
DISTRIBUTED = [way for way in WAYS if WAYS[way][1].scheme == "distributed"]
every_way = pytest.mark.parametrize("way", DISTRIBUTED)


@pytest.fixture(autouse=True)
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (missing, own_stream):
        monkeypatch.setattr(module, "WINDOW", WINDOW)


def simulation(way: str, names: tuple[str, ...], events: list[Event], **options: Any) -> Simulation:
    usual: dict[str, Any] = {"messages": 400, "pattern": "mixed", "gap": "exponential:3ms", "reliable": True}
    return Simulation(SimulationOptions(**usual | options), events.append, where=fabric(way, names), max_events=2_000_000)


def assert_all_came(simulated: Simulation, events: list[Event]) -> None:
    """Run to the end: all came once and in order, and nobody keeps anything."""
    result = simulated.run()
    assert not any(judge(events).properties.values()), simulated.options.replay()
    assert (result.waiting, result.statistics.refused, result.statistics.repeated_deliveries) == (0, 0, 0)
    assert [kept(node.member.attachment.domains["d"].transport) for node in simulated.nodes.values()] == [0] * len(
        simulated.nodes
    )


@every_way
@pytest.mark.parametrize("seed", range(3))
def test_who_is_down_for_long_does_not_hold_up_the_others_and_gets_everything(way: str, seed: int) -> None:
    events: list[Event] = []
    simulated = simulation(way, NAMES, events, pattern="broadcast", durable=True, seed=seed)
    simulated.kernel.schedule(100 * MS, simulated.failures.crash, simulated.nodes["p4"], 5_000 * MS)
    came: Counter[str] = Counter()

    def look() -> None:
        assert not simulated.nodes["p4"].up
        came.update(str(event.process) for event in events if event.kind == "deliver")

    simulated.kernel.schedule(5_000 * MS, look)
    assert_all_came(simulated, events)
    # Those who are up have all that they sent each other, far more than the window of each.
    assert min(came[name] for name in NAMES[:3]) > 3 * 4 * WINDOW
    assert came["p4"] < 4 * WINDOW


@every_way
@pytest.mark.parametrize("seed", range(3))
def test_wrong_suspicions_cuts_crashes_and_losses_do_no_harm(way: str, seed: int) -> None:
    events: list[Event] = []
    faults: dict[str, Any] = {"loss": 0.1, "duplication": 0.1, "reordering": 0.2, "partitions": 2, "crashes": 3}
    simulated = simulation(way, NAMES[: 2 + seed], events, suspicions=20, seed=seed, **faults)
    assert_all_came(simulated, events)
    assert simulated.statistics.suspicions >= 20


@every_way
def test_who_is_held_for_dead_for_ever_though_it_is_there_gets_everything(way: str) -> None:
    events: list[Event] = []
    simulated = simulation(way, NAMES, events, loss=0.1)
    for name in NAMES[:3]:
        simulated.kernel.schedule(50 * MS, SimulatedNode.suspect, simulated.nodes[name], "p4", True)
    assert_all_came(simulated, events)


def test_a_planted_mistake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody catches up: what lies beyond the window of one that was away is left to chance."""

    def forget(self: OwnStream, *_: object) -> None:
        for member in [member for member in self.behind if member not in self.suspected]:
            del self.behind[member]
            self._awaited_upto = 0

    monkeypatch.setattr(OwnStream, "catch_up", forget)
    with pytest.raises(AssertionError):
        test_wrong_suspicions_cuts_crashes_and_losses_do_no_harm("distributed", 0)
