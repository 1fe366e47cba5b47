"""daisy §3.1.2: stability across groups. Row D4.

"The sender of a message should not discard it until it is stable w.r.t. every recipient, and not just within the group." The
paper reports it from group to group: a causal server reports a message in one group when it is stable in the next. Here each
receiver reports to whom it has a frame from when all that followed from it is where it has to be (docs/concepts/stability.md).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.papers.builders import everywhere, hierarchy
from tests.support.stable_runs import Outcome, keeping, run
from thence.core.member.contract import Arrived, Submit, Timer
from thence.core.member.member import Member
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.wire.messages import Packet
from thence.sim.options import SimulationOptions

MS = 1_000_000

DAISY = Topology(
    "daisy",
    [
        Domain("left", ("p1", "p2", "s1"), "vector"),
        Domain("servers", ("s1", "s2"), "vector"),
        Domain("right", ("s2", "p3", "p4"), "vector"),
    ],
    stability=True,
)
"""Two local groups and the group of their causal servers."""


def test_the_sender_keeps_a_message_exactly_until_the_last_recipient_has_it() -> None:
    """D4, §3.1.2: with every packet that arrives it is looked who has the message on disk, and whether its sender keeps it."""
    members = {name: Member(name, DAISY) for name in DAISY.processes}
    ready = members["p1"].step(Submit(None, b"m"), 0)
    has, flying = {"p1"}, [("p1", peer, packet) for peer, packet in ready.send]
    kept_after_all_had_it = 0
    for now in range(1, 400):
        arrivals, flying = flying, []
        inputs: list[tuple[str, Arrived | Timer]] = [(target, Arrived(source, packet)) for source, target, packet in arrivals]
        for name, what in inputs or [(name, Timer()) for name in members]:
            then = members[name].step(what, now * MS)
            has.update(name for record in then.persist)
            flying += [(name, peer, packet) for peer, packet in then.send]
            if has < set(members):
                assert members["p1"].forwarder.unstable() == [1], f"{set(members) - has} lack it"
                assert members["p1"].attachment.queued()["s1"] == 1, "it is in the store of its sender"
            else:
                kept_after_all_had_it += bool(members["p1"].forwarder.unstable())
    assert members["p1"].forwarder.unstable() == []
    assert sum(sum(member.attachment.queued().values()) for member in members.values()) == 0
    assert kept_after_all_had_it > 0, "it cannot know at once"


def test_a_server_reports_in_one_group_when_the_next_one_has_it() -> None:
    """D4, §3.1.2: "a causal server does not report a message as stable in the servers group, until it becomes stable in its local
    group"; without recipients there, it does so at once.
    """
    for to, at_once in ((("p3",), False), (("s2",), True)):
        members = {name: Member(name, DAISY) for name in DAISY.processes}
        sent = members["p1"].step(Submit(to, b"m"), 0).send
        to_s1 = next(packet for peer, packet in sent if peer == "s1")
        forwarded = next(packet for peer, packet in members["s1"].step(Arrived("p1", to_s1), 1).send if peer == "s2")
        answers = [packet for peer, packet in members["s2"].step(Arrived("s1", forwarded), 2).send if peer == "s1"]
        assert [_settled(packet) for packet in answers] == [1 if at_once else 0]


def _settled(packet: Packet[object]) -> int:
    return packet.stable_ack.upto if packet.stable_ack is not None else 0


def long_run(messages: int, **faults: Any) -> Outcome:
    """Three daisies of two groups each, and their hyper-servers."""
    topology = keeping(hierarchy([[3, 3], [3, 3], [3, 3]], everywhere("vector")).topology)
    chosen: dict[str, Any] = {
        "messages": messages,
        "pattern": "mixed",
        "gap": "exponential:5ms",
        "durable": True,
        "reliable": True,
    }
    return run(topology, SimulationOptions(**chosen | faults))


def test_buffers_stay_as_they_are_however_long_it_goes_on() -> None:
    """D4, §3.1.2: "to keep the amount of local storage from overflowing": ten times as many messages, the same buffers."""
    short, long = long_run(100), long_run(1_000)
    assert (short.wrong, long.wrong) == ([], [])
    assert sum(long.watch.upto.values()) == 1_000
    assert long.watch.most_kept < 3 * short.watch.most_kept


@pytest.mark.parametrize("seed", range(4))
def test_crashes_and_loss_change_nothing_of_it(seed: int) -> None:
    """D4 with causal servers that crash, packets that are lost and groups that are cut off."""
    outcome = long_run(150, crashes=6, loss=0.1, duplication=0.1, partitions=1, seed=seed)
    assert outcome.wrong == []
    assert sum(outcome.watch.upto.values()) == 150
