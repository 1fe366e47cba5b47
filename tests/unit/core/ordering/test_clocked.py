"""What only ``clocked`` has: acknowledgements, a limit that lets the earliest message through, times that survive a crash."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.runs import Run
from thence.core.member.contract import Arrived, Restored, Submit
from thence.core.member.member import Member
from thence.core.ordering.clocked import ClockedAcknowledgement
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.wire.messages import Packet
from thence.errors import ConfigError, ImpossibleFrame, OverflowingFrame


def acknowledgements(run: Run) -> list[tuple[str, str]]:
    return [(f.source, f.target) for f in run.flights() if isinstance(f.frame.stamp, ClockedAcknowledgement)]


def test_each_recipient_hears_of_everybody_and_nobody_else_does() -> None:
    run = Run("clocked", "ABCD")
    run.send("A", ("B", "C"))
    for target in "BCD":
        run.arrive("A", target)
    assert acknowledgements(run) == [("B", "C"), ("C", "B"), ("D", "B"), ("D", "C")]


def test_who_has_told_a_later_time_need_not_acknowledge() -> None:
    run = Run("clocked", "ABC")
    run.send("A", None)
    run.send("B", None)
    run.arrive("A", "B")
    assert acknowledgements(run) == [], "B has sent a message of the same time to all"


def test_equal_times_go_by_sender() -> None:
    run = Run("clocked", "ABC")
    run.send("B", None)
    run.send("A", None)
    run.arrive("B", "C")
    run.arrive("A", "C")
    while flights := run.flights():
        run.arrive(flights[0].source, flights[0].target)
    assert [run.deliveries(name) for name in "ABC"] == [["A:1", "B:1"]] * 3


def test_a_full_member_takes_what_others_wait_for() -> None:
    run = Run("clocked", "ABC", max_held=2)
    for _ in range(3):
        run.send("A", ("C",))
    run.send("B", ("C",))
    run.arrive("A", "C")
    run.arrive("A", "C")
    before = run.orderings["C"].snapshot()
    with pytest.raises(OverflowingFrame, match=r"A:3.*max_held"):
        run.arrive("A", "C")
    assert run.orderings["C"].snapshot() == before
    assert run.arrive("B", "C").deliver, "A:1 waits for a word of B, and B:1 is one"
    while flights := run.flights():
        run.arrive(flights[0].source, flights[0].target)
    assert run.deliveries("C") == ["A:1", "B:1", "A:2", "A:3"]


def test_a_time_that_has_passed_is_impossible() -> None:
    run = Run("clocked", "ABC")
    run.send("A", None)
    run.send("A", None)
    first, second = run.on_the_way["A", "B"]
    run.arrive("A", "B")
    stamp = type(second.stamp)(2, first.stamp.time, None)
    with pytest.raises(ImpossibleFrame, match="the time 1 after 1"):
        run.orderings["B"].accept("A", type(second)(stamp, second.envelope), 0)


@pytest.mark.parametrize(("clock", "latest"), [("physical", 7_000_001), ("hybrid", 8_000_000)])
def test_after_a_crash_the_times_are_the_same(clock: str, latest: int) -> None:
    """A clock moves with the time at which frames came in or went out; that time is stored, so the same stamps come out again."""
    domain = Domain("d", ("A", "B", "C"), "clocked", {"clock": clock})
    sent = Member("A", domain).step(Submit(None, b"x"), 1_000).send
    frames = Packet[Any]("d", next(packet.frames for peer, packet in sent if peer == "B"), (1,))
    alive = Member("B", domain)
    taken = alive.step(Arrived("A", frames), 7_000_000)
    written = alive.step(Submit(None, b"y"), 8_000_000)
    restarted = Member("B", domain)
    again = restarted.step(Restored(None, (*taken.persist, *written.persist), 0), 99_000_000)
    first = {(peer, frame) for peer, packet in (*taken.send, *written.send) for frame in packet.frames}
    second = {(peer, frame) for peer, packet in again.send for frame in packet.frames}
    assert first == second
    assert max(frame.stamp.time for _, frame in second) == latest


def test_a_relay_stamps_with_the_time_of_its_step() -> None:
    """What a relay brings in from another domain was sent there when it was forwarded, whatever its clock has heard."""
    topology = Topology("t", [Domain("d", ("A", "B"), "vector"), Domain("e", ("B", "C"), "clocked", {"clock": "hybrid"})])
    (_, packet), *_ = Member("A", topology).step(Submit(("C",), b"x"), 1_000).send
    ((_, forwarded),) = (pair for pair in Member("B", topology).step(Arrived("A", packet), 7_000).send if pair[0] == "C")
    assert forwarded.frames[0].stamp.time == 7_000


def test_a_bound_needs_clocks() -> None:
    with pytest.raises(ConfigError, match="skew_ns"):
        Run("clocked", "AB", {"skew_ns": 5})
