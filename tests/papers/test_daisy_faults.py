"""daisy §2.3, §3.1.3 and §4: crash and omission. Rows D5 and D9.

Figure 2: p_a sends m1 to p_b, which is lost, then m2 to p_c, and dies; p_c sends m3 to p_b. m3 depends on m1, which nobody can
give to p_b any more: a persistent causal hole. The paper's remedy is that every message goes to all members of a local group, and
that whoever has it passes it on. In our words: ``confirmation`` is ``distributed``, ``nearest`` and ``whole``.

A causal server that dies is replaced, in the paper, by another member of its group, elected and told what is not stable. Here
its successor has seen everything itself, and nobody is elected (docs/concepts/takeover.md). In the daisy as documented
(tests/papers/topologies/daisy.toml) causal servers send, are written to and relay at once, and anybody may die.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.papers.mistakes.mistake import ordering
from tests.support.papers.survivors import dead_in, still_waiting, wrong_among
from tests.support.planted.planted_resilient import PLANTED
from tests.support.planted.planted_takeover import NO_HOLDER, PLANTED_LOCAL, Planted, in_place
from thence.core.member.contract import Arrived, Submit, Suspicion, Timer
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.core.transport.ack_all import copies
from thence.core.transport.channel import WINDOW
from thence.core.wire.messages import Packet
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.studies.parts import shapes
from thence.trace.events import Event
from thence.trace.judge import judge

OURS = AckOptions(scheme="distributed", retransmission="nearest", whole=True)
SECOND = 1_000_000_000
PATIENCE_NS = 60 * SECOND
"""Far longer than anybody waits before it repeats or asks."""

GROUP = ("p_a", "p_b", "p_c")


class Played:
    """Some processes, with a network that takes what it is told to."""

    def __init__(self, where: Topology) -> None:
        self.members = {name: Member(name, where, MemberOptions(durable=False)) for name in where.processes}
        self.delivered: dict[str, list[str]] = {name: [] for name in self.members}
        self.wakes: dict[str, int | None] = dict.fromkeys(self.members)
        self.now = 0

    def step(self, name: str, step_input: Any) -> list[tuple[str, str, Packet[Any]]]:
        """Let somebody do something; return what it sends, as (from, to, packet)."""
        ready = self.members[name].step(step_input, self.now)
        self.delivered[name] += [str(delivery.envelope.id) for delivery in ready.deliver]
        self.wakes[name] = ready.wake
        return [(name, peer, packet) for peer, packet in ready.send]

    def carry(self, packets: list[tuple[str, str, Packet[Any]]], *alive: str) -> None:
        """Carry packets among the living, and whatever follows, until all is quiet; what is for others is lost."""
        for source, target, packet in packets:
            if target in alive:
                packets += self.step(target, Arrived(source, packet))

    def wait(self, *alive: str) -> None:
        """Let time go by for the living."""
        end = self.now + PATIENCE_NS
        while due := [(wake, name) for name in alive if (wake := self.wakes[name]) is not None and wake <= end]:
            self.now, name = max(self.now, min(due)[0]), min(due)[1]
            self.carry(self.step(name, Timer()), *alive)


class Fig2(Played):
    """The three processes of the figure."""

    def __init__(self, ordering: str, confirmation: AckOptions, group: tuple[str, ...] = GROUP) -> None:
        super().__init__(Topology.flat(Domain("g", group, ordering, {}, confirmation)))

    def play(self) -> list[str]:
        """Play the figure, wait, and return what p_b has delivered."""
        first = self.step("p_a", Submit(("p_b",), b"m1"))
        self.carry([packet for packet in first if packet[1] == "p_c"], "p_c")  # What was for p_b is lost.
        self.carry(self.step("p_a", Submit(("p_c",), b"m2")), "p_c")
        assert self.delivered["p_c"] == ["p_a:2"]
        # p_a is dead from here on.
        self.carry(self.step("p_c", Submit(("p_b",), b"m3")), "p_b", "p_c")
        assert self.delivered["p_b"] == []
        self.wait("p_b", "p_c")
        return self.delivered["p_b"]


@pytest.mark.parametrize(
    ("ordering", "confirmation"),
    [
        ("matrix", AckOptions()),
        ("vector", AckOptions()),
        ("vector", AckOptions(scheme="distributed")),
        ("vector", AckOptions(scheme="distributed", retransmission="nearest")),
    ],
)
def test_d5_fig_2_blocks_a_plain_protocol(ordering: str, confirmation: AckOptions) -> None:
    """D5, §2.3: acknowledgements between two processes do not help; nor does asking others, if they have only a marker."""
    figure = Fig2(ordering, confirmation)
    assert figure.play() == []
    assert "p_c:1" in [str(wait.message) for wait in figure.members["p_b"].attachment.waiting()]


def test_d5_fig_2_does_not_block_ours() -> None:
    """D5, §3.1.3: p_c has m1, though it was not for it, and gives it to p_b."""
    figure = Fig2("vector", OURS)
    assert figure.play() == ["p_a:1", "p_c:1"]
    assert figure.delivered["p_c"] == ["p_a:2"]


TOPOLOGIES: Final = Path(__file__).parent / "topologies"
DOCUMENTED: Final = parse((TOPOLOGIES / "daisy.toml").read_text(encoding="utf-8"))
RECIPIENTS: Final = parse((TOPOLOGIES / "daisy-recipients.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", DOCUMENTED.domains)
def test_d5_fig_2_does_not_block_the_daisy_as_documented(name: str) -> None:
    domain = DOCUMENTED.domains[name]
    assert isinstance(domain.ordering, str)
    assert Fig2(domain.ordering, domain.acks).play() == ["p_a:1", "p_c:1"]


def test_d5_a_causal_server_is_an_ordinary_sender_and_others_of_its_group_succeed_it() -> None:
    assert DOCUMENTED.senders == DOCUMENTED.processes
    for group in DOCUMENTED.replicas:
        assert DOCUMENTED.takes_over_at_once(group)
        assert set(group) < set(DOCUMENTED.domains[DOCUMENTED.local[group[0]]].members)


def test_d5_one_member_after_the_other_succeeds_the_causal_server() -> None:
    """D5, §3.1.3: of a group of four all but one are standbys; three die, the causal server first, and the last one is it."""
    where = shapes.daisy(2, 4, standbys=2)
    *mortal, last = where.replicas[0]
    mortal += [name for name in where.domains[where.local[last]].members if name not in where.replicas[0]]
    assert len(mortal) == 3
    options = SimulationOptions(
        messages=300, pattern="mixed", replies=0.5, gap="exponential:100ms", loss=0.1, durable=True, reliable=True, body_bytes=4
    )
    events: list[Event] = []
    simulation = Simulation(options, events.append, where=where, max_events=300_000)
    simulation.failures.dead.update(dict.fromkeys(mortal))
    died_ns = [at * 4 * SECOND for at in range(1, len(mortal) + 1)]
    for name, at in zip(mortal, died_ns, strict=True):
        simulation.kernel.schedule(at, simulation.failures.die, simulation.nodes[name])
    simulation.run()
    assert dead_in(simulation) == mortal
    assert wrong_among(events, mortal) == []
    assert still_waiting(simulation) == 0
    sent = {event.message: event.process for event in events if event.kind == "send" and (event.time or 0) > died_ns[-1]}
    crossed = {
        (sent[event.message] == last, event.process == last)
        for event in events
        if event.kind == "deliver" and event.message in sent and (sent[event.message] == last) != (event.process == last)
    }
    assert crossed == {(True, False), (False, True)}, "into the other group and out of it, when there is only one left"


def a_server_dies_after_it_sent() -> tuple[list[str], list[str]]:
    """Let the causal server n0 send to its own group and another one, and die; all frames to its own group are lost.

    Then somebody in the other group writes to one in its own. Return what these two have delivered.
    """
    played = Played(DOCUMENTED)
    alive = tuple(name for name in DOCUMENTED.processes if name != "n0")
    sent = played.step("n0", Submit(("n2", "s2"), b"m"))
    played.carry([packet for packet in sent if packet[2].domain == "servers"], *alive)
    for name in alive:
        if set(DOCUMENTED.homes[name]) & set(DOCUMENTED.homes["n0"]):
            played.carry(played.step(name, Suspicion("n0", True)), *alive)
    played.carry(played.step("s2", Submit(("n2",), b"answer")), *alive)
    played.wait(*alive)
    return played.delivered["s2"], played.delivered["n2"]


def test_d5_what_a_causal_server_sends_leaves_its_group_when_another_one_has_it() -> None:
    """Otherwise its death would leave a message beyond that its own group lacks, and all that depends on it would wait."""
    assert a_server_dies_after_it_sent() == ([], ["s2:1"])
    with in_place(NO_HOLDER):
        assert a_server_dies_after_it_sent() == (["n0:1"], [])


def test_d5_fig_2_does_not_block_ours_where_another_one_is_dead_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its absence keeps everybody's copies: the limit for these is reached by another one's messages before the figure begins."""
    monkeypatch.setattr(copies, "MAX_COPIES", 50)
    alive = (*GROUP, "busy")
    figure = Fig2("vector", OURS, (*alive, "dead"))
    for name in alive:
        figure.carry(figure.step(name, Suspicion("dead", True)), *alive)
    for _ in range(WINDOW + 100):
        figure.now += SECOND // 1000
        figure.carry(figure.step("busy", Submit(("dead",), b"x")), *alive)
    assert figure.play() == ["p_a:1", "p_c:1"]


def daisy(groups: int, *, levels: int) -> Topology:
    """Return groups of two processes with two causal servers each, a servers group, and with three levels a second such part."""
    parts = "ab" if levels == 3 else "a"
    text, top = ['name = "daisy"'], []
    for part in parts:
        servers = []
        for number in range(1, groups + 1):
            own = [f"{part}{number}s1", f"{part}{number}s2"]
            servers += own
            text.append(f"[domains.{part}{number}]\nmembers = {[f'{part}{number}p1', f'{part}{number}p2', *own]}")
            text.append(f"[[relays]]\nreplicas = {own}")
        hyper = [f"{part}h1", f"{part}h2"] if levels == 3 else []
        top += hyper
        text.append(f"[domains.{part}servers]\nmembers = {[*servers, *hyper]}")
        text += [f"[[relays]]\nreplicas = {hyper}"] if hyper else []
    text += [f"[domains.top]\nmembers = {top}"] if top else []
    return parse("\n".join(text).replace("'", '"'))


def with_deaths(seed: int, topology: Topology = DOCUMENTED) -> tuple[Simulation, list[Event]]:
    """Let anybody die, also causal servers that send, while messages are lost and others crash or are suspected wrongly."""
    options = SimulationOptions(
        messages=120,
        pattern="mixed",
        recipients=3,
        replies=0.5,
        gap="exponential:40ms",
        delay="exponential:5ms",
        loss=0.1,
        duplication=0.05,
        crashes=2,
        suspicions=6,
        deaths=4,
        body_bytes=4,
        seed=seed,
    )
    events: list[Event] = []
    simulation = Simulation(options, events.append, where=topology)
    simulation.run()
    return simulation, events


@pytest.mark.parametrize("seed", range(6))
def test_d9_any_process_of_the_daisy_as_documented_may_die(seed: int) -> None:
    """D9, Thm 4.1, 4.4, 4.5, and D5: of survivors' messages nothing is missing, doubled, out of order or waiting at survivors.

    What a dead one sent and another one delivered reaches all of them, too.
    """
    simulation, events = with_deaths(seed)
    dead = dead_in(simulation)
    assert dead
    assert wrong_among(events, dead) == []
    assert still_waiting(simulation) == 0


def test_d9_causal_servers_and_others_die_in_these_runs() -> None:
    dead = {name for seed in range(6) for name in dead_in(with_deaths(seed)[0])}
    assert dead & set(DOCUMENTED.relays)
    assert dead - set(DOCUMENTED.relays)


@pytest.mark.parametrize("seed", range(6))
def test_d7_d9_any_process_of_the_recipients_only_daisy_may_die(seed: int) -> None:
    """D7, §3.4 (ii), and D9: the same where messages go to recipients only, and one more of each group keeps them."""
    simulation, events = with_deaths(seed, RECIPIENTS)
    dead = dead_in(simulation)
    assert dead
    assert wrong_among(events, dead) == []
    assert still_waiting(simulation) == 0


def test_d7_d9_random_deaths_find_who_keeps_a_message_to_himself() -> None:
    """D7: without handing on, survivors wait for ever, also in the whole daisy."""
    with ordering("resilient", PLANTED["NotHandedOn"])():
        assert sum(still_waiting(run) + len(wrong_among(events, dead_in(run))) for run, events in recipients_runs()) > 0


def recipients_runs() -> list[tuple[Simulation, list[Event]]]:
    """Return some runs of the recipients-only daisy with deaths."""
    return [with_deaths(seed, RECIPIENTS) for seed in range(6)]


def test_d9_relays_and_others_die_in_these_runs() -> None:
    dead = {name for run, _ in recipients_runs() for name in dead_in(run)}
    assert dead & set(RECIPIENTS.relays)
    assert dead - set(RECIPIENTS.relays)


@pytest.mark.parametrize("planted", PLANTED_LOCAL, ids=[planted.name for planted in PLANTED_LOCAL])
def test_d9_random_deaths_find_what_was_planted(planted: Planted) -> None:
    with in_place(planted):
        assert any(wrong_among(events, dead_in(run)) for run, events in map(with_deaths, range(2)))


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_d5_d9_safe_live_and_reliable_under_crash_and_omission(seed: int, levels: int) -> None:
    """D9, Thm 4.1, 4.4, 4.5, and D5, §3.1.3: causal servers and hyper-servers die for good, messages are lost, others crash.

    Safe: in causal order. Live: nothing waits for ever. Reliable: everybody who is left gets everything, once.
    """
    options = SimulationOptions(
        messages=80,
        pattern="mixed",
        recipients=4,
        replies=0.5,
        gap="exponential:3ms",
        delay="exponential:5ms",
        loss=0.1,
        duplication=0.05,
        crashes=3,
        suspicions=4,
        deaths=4,
        body_bytes=4,
        seed=seed,
    )
    events: list[Event] = []
    simulation = Simulation(options, events.append, where=daisy(2, levels=levels))
    result = simulation.run()
    verdict = judge(events)
    assert verdict.kept, verdict.violations[:3]
    assert result.waiting == 0
    assert any(node.dead for node in simulation.nodes.values())
    assert result.network["lost"] > 50
