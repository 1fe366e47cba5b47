"""daisy: rows D3. Groups split, merge and take members while messages are sent (§3.1.1).

In our words: versions of a fabric that follow each other (docs/how-to/reconfiguration.md). Deviation: the paper lets the members
of a group forward what is on its way to the new groups, and suppress what then comes twice; here nothing is on its way in a
group when it changes, and what its members sent meanwhile waits at them. What is promised is the same: nothing is lost and
nothing is delivered twice, and who is outside of the groups that change goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest

from thence.core.reconfig.border import Border, Crossing
from thence.core.reconfig.concern import Comparison, concerned_by
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.node.peers.peer import HEARTBEAT_S
from thence.sim.faults.reconfiguration import Changes, Trouble
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.trace.events import Event
from thence.trace.judge import judge

REQUIRED = ("well-formed", "creation", "duplication", "fifo", "causal", "completeness")

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


STANDBYS = (("S1", "T1"), ("S2", "T2"), ("S3", "T3"), ("L3", "L4"))
"""Who succeeds whom, where both are in the servers group."""
WHOLE = AckOptions(scheme="distributed", retransmission="nearest", whole=True)


def daisy(version: int, groups: Groups) -> Topology:
    """Return local groups with one causal server each, or one and its standby, and the servers group."""
    replicas = [pair for pair in STANDBYS if set(pair) <= set(groups["servers"])]
    homes = {name: group for group, members in groups.items() if group != "servers" for name in members}
    local = {name: homes[name] for pair in replicas for name in pair}
    acks = WHOLE if replicas else AckOptions()
    domains = [Domain(name, tuple(members), "vector", {}, acks) for name, members in groups.items()]
    return Topology("daisy", domains, replicas=replicas, local=local, version=version)


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
    verdict = judge(events, REQUIRED)
    assert not verdict.violations, verdict.violations[:3]
    assert run is not None
    assert run.counts["changes"] == 3
    assert result.network["duplicated"] > 0
    assert result.statistics.deliveries > 300
    standings = run.standings()
    assert {name for name, standing in standings.items() if standing.phase == "left"} == {"S3"}
    assert {standing.version for name, standing in standings.items() if name != "S3"} == {4}


ELECTED: Groups = {
    "left": ("L1", "L2", "S1"),
    "middle": ("L3", "L4"),
    "right": ("R1", "R2", "S2"),
    "servers": ("S1", "S2", "L3"),
}
"""As ``SPLIT``, and one of those who depart is the causal server of their group."""

JOINED: Groups = {
    "left": ("L1", "L2", "S1"),
    "right": ("R1", "R2", "S2", "L3", "L4"),
    "servers": ("S1", "S2"),
}


def with_standbys(groups: Groups) -> Groups:
    """Return the same groups, where each causal server has a standby: L4 for L3, with L5 in their group, or another one."""
    servers, found = groups["servers"], {}
    for name, members in groups.items():
        standbys = [standby for server, standby in STANDBYS if server in members and server in servers]
        others = ["L5"] if "L4" in members else []
        found[name] = tuple(dict.fromkeys([*members, *standbys, *others]))
    return found


EVERY_NS = 50_000_000
"""How often those outside send to each other, and to everybody."""

STUCK_NS = 4_000_000_000
"""How long one of those who depart is down while the others hold for it: longer than two heartbeats."""


class Outsiders:
    """Two processes outside of a change that send all the time, while one whom it concerns is down in the midst of it."""

    def __init__(self, old: Groups, new: Groups, outside: tuple[str, str], down: str) -> None:
        self.events: list[Event] = []
        options = SimulationOptions(
            messages=60, pattern="mixed", replies=0.4, gap="exponential:30ms", loss=0.05, durable=True, reliable=True, seed=3
        )
        versions = [daisy(1, old), daisy(2, new)]
        self.concerned = concerned_by(versions[0], versions[1])
        self.run = Simulation(options, self.events.append, where=Changes(versions, Trouble(0.0, 0.0)), max_events=1_000_000)
        self.outside, self.down = outside, down
        self.paused: set[str] = set()
        """Who has ever held."""
        self.began_ns = self.ended_ns = 0
        """When the first one held, and when the last one went on."""
        self.sent: list[int] = []
        """When those outside were accepted."""
        self.run.kernel.schedule(0, self._go_on)

    def _go_on(self) -> None:
        run, now = self.run, self.run.kernel.now
        paused = {name for name, node in run.nodes.items() if node.member.view.state.paused}
        if paused and not self.began_ns:
            self.began_ns = now
            run.failures.crash(run.nodes[self.down], STUCK_NS)
        self.paused |= paused
        if self.began_ns and not paused and not self.ended_ns and run.nodes[self.down].up:
            self.ended_ns = now
        one, other = self.outside
        self.sent += [now for to in ((other,), None) if run.nodes[one].submit(to, b"")]
        if not self.ended_ns or now < self.ended_ns + STUCK_NS / 4:
            run.kernel.schedule(EVERY_NS, self._go_on)

    def gaps_ns(self) -> list[int]:
        """Return for how long nothing was accepted, and nothing delivered, at those outside during the change."""
        one, other = self.outside
        delivered = [
            event.time
            for event in self.events
            if event.kind == "deliver" and event.process == other and (event.message or "").startswith(f"{one}:")
        ]
        gaps = []
        for times in (self.sent, [time for time in delivered if time is not None]):
            inside = [self.began_ns, *(time for time in times if self.began_ns <= time <= self.ended_ns), self.ended_ns]
            gaps.append(max(later - earlier for earlier, later in pairwise(inside)))
        return gaps


ENTERED: Groups = {**BEGIN, "left": ("L1", "L2", "L3", "N1", "L4", "S1")}
"""A group takes a member."""

OUTSIDE = [
    pytest.param(BEGIN, ELECTED, ("R1", "R2"), "L4", id="of a split"),
    pytest.param(ELECTED, JOINED, ("L1", "L2"), "R2", id="of a merge"),
    pytest.param(BEGIN, ENTERED, ("R1", "R2"), "L4", id="of one who comes in"),
    pytest.param(*map(with_standbys, (BEGIN, ENTERED)), ("R1", "R2"), "S1", id="of one who comes in, with standbys"),
    pytest.param(*map(with_standbys, (BEGIN, ELECTED)), ("R1", "R2"), "L4", id="of a split, with standbys"),
    pytest.param(*map(with_standbys, (BEGIN, ELECTED)), ("R1", "R2"), "S2", id="of a split, with standbys, at the border"),
    pytest.param(*map(with_standbys, (ELECTED, JOINED)), ("L1", "L2"), "R2", id="of a merge, with standbys"),
]


@pytest.mark.parametrize(("old", "new", "outside", "down"), OUTSIDE)
def test_d3_who_is_outside_of_a_change_never_holds(old: Groups, new: Groups, outside: tuple[str, str], down: str) -> None:
    """D3, §3.1.1: only those in groups that change stop, however long; the others are accepted and deliver all the while."""
    seen = Outsiders(old, new, outside, down)
    seen.run.run()
    verdict = judge(seen.events, REQUIRED)
    assert not verdict.violations, verdict.violations[:3]
    assert seen.run.reconfiguration is not None
    assert seen.run.reconfiguration.counts["changes"] == 1
    assert seen.ended_ns - seen.began_ns > STUCK_NS > 2e9 * HEARTBEAT_S
    assert seen.paused == set(seen.concerned)
    assert not seen.paused & set(outside)
    assert max(seen.gaps_ns()) < 2e9 * HEARTBEAT_S


def _caught(old: Groups, new: Groups, outside: tuple[str, str], down: str) -> bool:
    seen = Outsiders(old, new, outside, down)
    seen.run.run()
    held = bool(seen.paused & set(outside))
    return held or not judge(seen.events, REQUIRED).kept


@pytest.mark.parametrize(("old", "new", "outside", "down"), OUTSIDE)
@pytest.mark.parametrize("mistake", ["all hold", "what waited at the border is lost", "what waited overtakes"])
def test_d3_planted_mistakes_about_who_holds_are_caught(
    mistake: str, old: Groups, new: Groups, outside: tuple[str, str], down: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Border.open

    def reverse(border: Border) -> list[Crossing]:
        return opened(border)[::-1]

    if mistake == "all hold":
        monkeypatch.setattr(Comparison, "concerns", lambda *_: True)
    elif mistake == "what waited at the border is lost":
        monkeypatch.setattr(Border, "open", lambda border: opened(border)[1:])
    else:
        monkeypatch.setattr(Border, "open", reverse)
    assert _caught(old, new, outside, down)


def test_d3_a_change_is_made_while_a_server_elsewhere_is_down() -> None:
    """D3: who is outside may be down from before a split until one has come in, and goes on with the others when it is back."""
    events: list[Event] = []
    options = SimulationOptions(
        messages=200, pattern="mixed", replies=0.4, gap="exponential:20ms", loss=0.05, durable=True, reliable=True, seed=5
    )
    apart = {**JOINED, "right": ("R1", "R2", "S2"), "left": ("L1", "L2", "S1", "L3", "L4")}
    taken = {**apart, "left": (*apart["left"], "N1")}
    groups = [{**groups, "far": ("R2", "F")} for groups in (BEGIN, ELECTED, apart, taken)]
    versions = [daisy(number, group) for number, group in enumerate(groups, 1)]
    assert all("F" not in concerned_by(old, new) for old, new in pairwise(versions))
    simulation = Simulation(options, events.append, where=Changes(versions, Trouble(0.0, 0.0)), max_events=2_000_000)
    down_ns = 60_000_000_000
    simulation.kernel.schedule(1, simulation.failures.crash, simulation.nodes["F"], down_ns)
    simulation.run()
    run = simulation.reconfiguration
    assert run is not None
    assert (run.counts["changes"], run.counts["left out"]) == (3, 3)
    back = next(at for at, event in enumerate(events) if event.kind == "recover" and event.process == "F")
    views = [(at, event.process) for at, event in enumerate(events) if event.kind == "view"]
    assert all(at < back for at, process in views if process != "F"), "they did not wait for it"
    assert {standing.version for standing in run.standings().values()} == {4}
    verdict = judge(events, REQUIRED)
    assert not verdict.violations, verdict.violations[:3]
