"""interconnect §7: uniform delivery across systems. Row I6.

"An IS process does not report the uniform delivery of a message broadcast in its system until it gets a uniform confirmation from
all other IS processes to which it previously forwarded m." Here ``delivery = "safe"`` delivers a message when everybody in all
systems has it (docs/concepts/stability.md). Note 2, "the message can be delivered as soon as it is received and complies with the
intended order semantics. Later on a uniform/safe notification is delivered to the receiver process", is ``delivery = "notify"``.
"""

from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.support.stable_runs import run
from thence.core.member.contract import Arrived, Restored, Submit, Timer
from thence.core.member.member import Member
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.core.wire.messages import Packet
from thence.core.wire.records import Record
from thence.sim.options import SimulationOptions

MS = 1_000_000
Mode = Literal["causal", "fifo"]
S0, S1 = ("p", "q", "r0", "r1"), ("t", "u", "w0", "w1")


def systems(delivery: Any, mode: Mode = "causal", **options: Any) -> Topology:
    """Two systems, joined by two pairs of relays."""
    domains = [Domain("S0", S0, "vector", delivery=delivery), Domain("S1", S1, "matrix", delivery=delivery)]
    link = Link("l", ("S0", "S1"), (("r0", "w0"), ("r1", "w1")), mode)
    return Topology("two", domains, [link], promise=mode, **options)


class Run:
    """The members of a fabric, their disks, and what is on its way between them; nothing moves by itself."""

    def __init__(self, fabric: Topology) -> None:
        self.fabric, self.now = fabric, 0
        self.members = {name: Member(name, fabric) for name in fabric.processes}
        self.records: dict[str, list[Record]] = {name: [] for name in fabric.processes}
        self.flying: list[tuple[str, str, Packet[Any]]] = []
        self.delivered: dict[str, dict[int, bytes]] = {name: {} for name in fabric.processes}
        self.told = dict.fromkeys(fabric.processes, 0)

    def step(self, name: str, step_input: Any) -> None:
        ready = self.members[name].step(step_input, self.now)
        self.records[name] += ready.persist
        self.flying += [(name, peer, packet) for peer, packet in ready.send]
        self.delivered[name] |= {delivery.position: delivery.envelope.body for delivery in ready.deliver}
        self.told[name] = max(ready.safe, self.told[name])

    def carry(self, *cut_off: str, most: int = 1 << 30, rounds: int = 30) -> None:
        """Let so many packets arrive, and time pass; between those cut off and the others everything is lost."""
        for _ in range(rounds):
            while self.flying and most:
                most -= 1
                source, target, packet = self.flying.pop(0)
                if (source in cut_off) == (target in cut_off):
                    self.step(target, Arrived(source, packet))
            if not most:
                return
            self.now += 300 * MS
            for name in self.members:
                self.step(name, Timer())

    def crash(self, name: str) -> None:
        """Let a process die with what it was sent, and come back with its disk."""
        self.flying = [flight for flight in self.flying if name not in flight[:2]]
        self.members[name] = Member(name, self.fabric)
        self.step(name, Restored(None, self.records[name], 0))


@pytest.mark.parametrize("mode", ["causal", "fifo"])
def test_i6_with_one_system_cut_off_nobody_delivers_and_everybody_does_when_it_is_back(mode: Mode) -> None:
    """I6, §7: all of S0 has p's message, the relay has forwarded it, and S1 has not got it: nobody delivers it."""
    two = Run(systems("safe", mode))
    two.step("p", Submit(None, b"m"))
    two.carry(*S1)
    assert not any(two.delivered.values())
    two.carry("u")  # All but one of S1 have it: still nobody.
    assert not any(two.delivered.values())
    two.carry()
    assert all(delivered == {1: b"m"} for delivered in two.delivered.values())


def row(delivery: Any) -> Topology:
    """Three systems in a row; neighbours share a relay, and no link is between."""
    members = {"S0": ("p", "q", "r"), "S1": ("r", "t", "w"), "S2": ("w", "x", "z")}
    orderings = ("vector", "matrix", "vector")
    systems = zip(members.items(), orderings, strict=True)
    return Topology("row", [Domain(name, who, ordering, delivery=delivery) for (name, who), ordering in systems])


def test_i6_in_a_row_of_systems_nobody_delivers_before_the_last_process_of_the_last_has_it() -> None:
    """I6, §7: r reports p's message uniform in S0 when w has reported S1's, and w when all of S2 have it. z is cut off."""
    three = Run(row("safe"))
    three.step("p", Submit(None, b"m"))
    three.carry("z")
    assert not any(three.delivered.values())
    three.carry()
    assert all(delivered == {1: b"m"} for delivered in three.delivered.values())


def test_i6_note_2_in_a_row_of_systems_nobody_is_told_before_the_last_process_of_the_last_has_it() -> None:
    """I6, §7, note 2: everybody but z delivers at once, and nobody is told until z has it, too."""
    three = Run(row("notify"))
    three.step("p", Submit(None, b"m"))
    three.carry("z")
    assert [name for name, delivered in three.delivered.items() if not delivered] == ["z"]
    assert not any(three.told.values())
    three.carry()
    assert three.told == dict.fromkeys(three.fabric.processes, 1)


@pytest.mark.parametrize("mode", ["causal", "fifo"])
def test_i6_note_2_with_one_system_cut_off_all_deliver_and_nobody_is_told_until_it_is_back(mode: Mode) -> None:
    """I6, §7, note 2: S0 delivers at once, and its relay gets no confirmation from S1, so that nobody is told."""
    two = Run(systems("notify", mode))
    two.step("p", Submit(None, b"m"))
    two.carry(*S1)
    assert [name for name, delivered in two.delivered.items() if delivered] == list(S0)
    assert not any(two.told.values())
    two.carry("u")
    assert [name for name, delivered in two.delivered.items() if not delivered] == ["u"]
    assert not any(two.told.values())
    two.carry()
    assert two.told == dict.fromkeys((*S0, *S1), 1)


def test_i6_a_relay_forwards_at_once_what_it_does_not_deliver_yet() -> None:
    """I6: so uniform delivery costs the way there and back, not one for each system."""
    two = Run(systems("safe"))
    two.step("p", Submit(None, b"m"))
    [(_, _, packet)] = [flight for flight in two.flying if flight[1] == "r0"]
    two.flying = []
    two.step("r0", Arrived("p", packet))
    assert "w0" in [target for _, target, _ in two.flying]
    assert not two.delivered["r0"]


@pytest.mark.parametrize("delivery", ["safe", "notify"])
@pytest.mark.parametrize("relay", ["r0", "w0", "w1"], ids=["forwards", "receives and broadcasts", "receives and hands over"])
def test_i6_whenever_a_relay_dies_nobody_is_told_too_early_and_nothing_is_lost_or_comes_twice(relay: str, delivery: str) -> None:
    """I6, §7, "two different scenarios": it dies before it broadcast what it received, or after; and comes back with its disk."""
    for moment in range(0, 80, 3):
        two = Run(systems(delivery))
        for body in (b"1", b"2"):
            two.step("p", Submit(None, body))
        two.carry("u", most=moment)
        two.crash(relay)
        two.carry("u", rounds=12)
        assert not any(two.told.values()), moment
        assert delivery == "notify" or not any(two.delivered.values()), moment
        two.carry(rounds=40)
        assert all(list(delivered.values()) == [b"1", b"2"] for delivered in two.delivered.values()), moment
        assert delivery == "safe" or set(two.told.values()) == {2}, moment


FAULTS: dict[str, Any] = {"crashes": 6, "loss": 0.1, "duplication": 0.1, "reordering": 0.1, "partitions": 1}


@pytest.mark.parametrize("seed", range(6))
def test_i6_what_anybody_delivers_all_systems_have_whoever_crashes(seed: int) -> None:
    """I6, §7: with crashes, loss and partitions; nothing is lost or delivered twice, and what is kept is let go at last."""
    options = SimulationOptions(
        messages=60, pattern="mixed", replies=0.5, gap="exponential:5ms", durable=True, seed=seed, **FAULTS
    )
    outcome = run(systems("safe", stability=seed % 2 == 0), options)
    assert outcome.wrong == []
    assert outcome.watch.delivered_safely > 100


@pytest.mark.parametrize("seed", range(6))
def test_i6_note_2_what_anybody_was_told_to_be_uniform_all_who_survive_deliver(seed: int) -> None:
    """I6, §7, note 2: with crashes, loss and partitions; every second time two die for good, so that some is never told."""
    options = SimulationOptions(
        messages=60, pattern="mixed", replies=0.5, gap="exponential:5ms", durable=True, seed=seed, deaths=2 * (seed % 2), **FAULTS
    )
    outcome = run(systems("notify"), options)
    assert outcome.watch.mistakes == []
    assert outcome.watch.noticed > (0 if options.deaths else 50)
    assert outcome.watch.undelivered([node.name for node in outcome.simulation.nodes.values() if not node.dead]) == []
    if not options.deaths:
        assert outcome.wrong == [], "and everybody was told of everything"
