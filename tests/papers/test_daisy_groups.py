"""daisy: rows D3. Groups split, merge and take members while messages are sent (§3.1.1).

In our words: versions of a fabric that follow each other (docs/how-to/reconfiguration.md). Deviation: the paper lets the members
of a group forward what is on its way to the new groups, and suppress what then comes twice; here nothing is on its way when a
group changes, and what was sent meanwhile waits at its sender. What is promised is the same: nothing is lost and nothing is
delivered twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.sim.faults.reconfiguration import Changes, Trouble
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.trace.events import Event
from thence.trace.judge import judge

Groups = Mapping[str, Sequence[str]]

BEGIN: Groups = {
    "left": ("L1", "L2", "L3", "L4", "S1"),
    "right": ("R1", "R2", "S2"),
    "servers": ("S1", "S2"),
}
SPLIT: Groups = {
    "left": ("L1", "L2", "S1"),
    "middle": ("L3", "L4", "S3"),
    "right": ("R1", "R2", "S2"),
    "servers": ("S1", "S2", "S3"),
}
MERGED: Groups = {
    "left": ("L1", "L2", "S1"),
    "right": ("R1", "R2", "L3", "L4", "S2"),
    "servers": ("S1", "S2"),
}
TAKEN: Groups = {**MERGED, "right": ("R1", "R2", "L3", "L4", "N1", "S2")}


def daisy(version: int, groups: Groups) -> Topology:
    """Return local groups with one causal server each, and the servers group."""
    return Topology("daisy", [Domain(name, tuple(members), "vector") for name, members in groups.items()], version=version)


@pytest.mark.parametrize("seed", range(12))
def test_d3_groups_split_merge_and_take_members_while_messages_are_sent(seed: int) -> None:
    """D3, §3.1.1: nothing is lost, nothing is delivered twice, and order is kept across all of it, under every fault."""
    versions = [daisy(number + 1, groups) for number, groups in enumerate((BEGIN, SPLIT, MERGED, TAKEN))]
    options = SimulationOptions(
        messages=120,
        pattern="mixed",
        replies=0.4,
        gap="exponential:6ms",
        loss=0.1,
        duplication=0.2,
        reordering=0.1,
        partitions=1,
        crashes=3,
        seed=seed,
    )
    events: list[Event] = []
    changes = Changes(versions, Trouble(loss=0.02, death=0.05))
    simulation = Simulation(options, events.append, where=changes, max_events=3_000_000)
    result, run = simulation.run(), simulation.reconfiguration
    verdict = judge(events, ["well-formed", "creation", "duplication", "fifo", "causal", "completeness"])
    assert not verdict.violations, verdict.violations[:3]
    assert run is not None
    assert run.counts["changes"] == 3
    assert result.network["duplicated"] > 0
    assert result.statistics.deliveries > 300
    standings = run.standings()
    assert {name for name, standing in standings.items() if standing.phase == "left"} == {"S3"}
    assert {standing.version for name, standing in standings.items() if name != "S3"} == {4}
