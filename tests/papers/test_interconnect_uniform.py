"""interconnect §7: uniform delivery. Row I6.

"A message is not delivered until the group communication system can ensure that it has been received by all message target
processes." Here a domain asks for that by ``delivery = "safe"`` (docs/concepts/stability.md). The paper's rule for relays, which
report a message only when the systems beyond have it, is ``stability = true``. Its note 2, "the message can be delivered as soon
as it is received and complies with the intended order semantics. Later on a uniform/safe notification is delivered to the
receiver process", is ``delivery = "notify"``.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.stable_runs import run
from thence.core.member.contract import Arrived, Submit, Timer
from thence.core.member.member import Member
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.sim.options import SimulationOptions


def systems(delivery: Any, **options: Any) -> Topology:
    """Two systems, joined by two pairs of relays."""
    domains = [Domain("S0", ("p", "q", "r0", "r1"), "vector"), Domain("S1", ("t", "u", "w0", "w1"), "matrix")]
    link = Link("l", ("S0", "S1"), (("r0", "w0"), ("r1", "w1")))
    return Topology("two", [domain._replace(delivery=delivery) for domain in domains], [link], **options)


def test_i6_a_message_is_delivered_and_forwarded_only_when_its_whole_system_has_it() -> None:
    """I6, §7: q has p's message; before r0 and r1 have acknowledged it, q does not deliver and the relay does not forward."""
    fabric = systems("safe")
    members = {name: Member(name, fabric) for name in fabric.processes}
    sent = dict(members["p"].step(Submit(None, b"m"), 0).send)
    at_q, at_r0 = (members[name].step(Arrived("p", sent[name]), 1) for name in ("q", "r0"))
    assert (at_q.deliver, at_r0.deliver) == ((), ())
    assert [peer for peer, _ in at_r0.send] == ["p"], "an ack, and nothing across"
    at_once = Member("q", systems("at once")).step(Arrived("p", sent["q"]), 1)
    assert [delivery.envelope.body for delivery in at_once.deliver] == [b"m"]


@pytest.mark.parametrize("seed", range(6))
def test_i6_what_anybody_delivers_its_whole_system_has_whoever_crashes(seed: int) -> None:
    """I6, §7: with crashes, loss and partitions; nothing is lost or delivered twice, and what is kept is let go at last."""
    faults: dict[str, Any] = {"crashes": 6, "loss": 0.1, "duplication": 0.1, "reordering": 0.1, "partitions": 1}
    options = SimulationOptions(
        messages=60, pattern="mixed", replies=0.5, gap="exponential:5ms", durable=True, seed=seed, **faults
    )
    outcome = run(systems("safe", stability=True), options)
    assert outcome.wrong == []
    assert outcome.watch.delivered_safely > 100


def test_i6_note_2_a_message_is_delivered_and_forwarded_at_once_and_told_to_be_uniform_when_its_system_has_it() -> None:
    """I6, §7, note 2: q delivers p's message and r0 forwards it at once; q is told when r0 and r1 have acknowledged it too."""
    fabric = systems("notify")
    members = {name: Member(name, fabric) for name in fabric.processes}
    sent = dict(members["p"].step(Submit(None, b"m"), 0).send)
    arrived = {name: members[name].step(Arrived("p", sent[name]), 1) for name in ("q", "r0")}
    assert [delivery.envelope.body for delivery in arrived["q"].deliver] == [b"m"]
    assert "w0" in [peer for peer, _ in arrived["r0"].send], "across at once"
    assert (arrived["q"].safe, arrived["r0"].safe) == (0, 0)
    arrived["r1"] = members["r1"].step(Arrived("p", sent["r1"]), 2)
    at_p = [members["p"].step(Arrived(name, dict(ready.send)["p"]), 3) for name, ready in arrived.items()]
    assert [ready.safe for ready in at_p] == [0, 0, 1], "p is told of its own when the last has acknowledged it"
    [(_, to_q)] = [(peer, packet) for peer, packet in members["p"].step(Timer(), 10_000_000).send if peer == "q"]
    assert members["q"].step(Arrived("p", to_q), 10_000_001).safe == 1


@pytest.mark.parametrize("seed", range(6))
def test_i6_note_2_what_anybody_was_told_to_be_uniform_all_who_survive_deliver(seed: int) -> None:
    """I6, §7, note 2: with crashes, loss and partitions; every second time two die for good, so that some is never told."""
    faults: dict[str, Any] = {"crashes": 6, "loss": 0.1, "duplication": 0.1, "reordering": 0.1, "partitions": 1}
    options = SimulationOptions(
        messages=60, pattern="mixed", replies=0.5, gap="exponential:5ms", durable=True, seed=seed, deaths=2 * (seed % 2), **faults
    )
    outcome = run(systems("notify"), options)
    assert outcome.watch.mistakes == []
    assert outcome.watch.noticed > 50
    assert outcome.watch.undelivered([node.name for node in outcome.simulation.nodes.values() if not node.dead]) == []
    if not options.deaths:
        assert outcome.wrong == [], "and everybody was told of everything"
