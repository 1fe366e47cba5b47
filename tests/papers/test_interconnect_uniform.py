"""interconnect §7: uniform delivery. Row I6.

"A message is not delivered until the group communication system can ensure that it has been received by all message target
processes." Here a domain asks for that by ``delivery = "safe"`` (docs/stability.md). The paper's rule for relays, which report a
message only when the systems beyond have it, is ``stability = true``.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.stable_runs import run
from thence.core.contract import Arrived, Submit
from thence.core.domain import Domain
from thence.core.member import Member
from thence.core.topology import Link, Topology
from thence.sim.options import SimulationOptions


def systems(delivery: Any, **options: Any) -> Topology:
    """Two systems, joined by two pairs of relays."""
    domains = [Domain("S0", ("p", "q", "r0", "r1"), "vector"), Domain("S1", ("t", "u", "w0", "w1"), "matrix")]
    link = Link("l", ("S0", "S1"), (("r0", "w0"), ("r1", "w1")))
    return Topology("two", [domain._replace(delivery=delivery) for domain in domains], [link], **options)


def test_i6_a_message_is_delivered_and_forwarded_only_when_its_whole_system_has_it() -> None:
    """I6, §7: q has p's message; before r0 and r1 have confirmed it, q does not deliver and the relay does not forward."""
    fabric = systems("safe")
    members = {name: Member(name, fabric) for name in fabric.processes}
    sent = dict(members["p"].step(Submit(None, b"m"), 0).send)
    at_q, at_r0 = (members[name].step(Arrived("p", sent[name]), 1) for name in ("q", "r0"))
    assert (at_q.deliver, at_r0.deliver) == ((), ())
    assert [peer for peer, _ in at_r0.send] == ["p"], "a confirmation, and nothing across"
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
