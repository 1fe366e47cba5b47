"""Frames to replicas: one report is enough, and the others have the message or are suspected."""

from __future__ import annotations

from thence.core.stability.stand_ins import Excused, StandIns
from thence.core.wire.messages import Envelope

GROUPS = dict.fromkeys(("r1", "r2"), ("r1", "r2"))
M = Envelope("o", 1, None, b"m")


def sent(me: str = "o") -> StandIns:
    """A message went to both replicas, the first frame to each."""
    stand_ins = StandIns(me, GROUPS)
    for peer in GROUPS:
        if peer != me:
            stand_ins.sent(peer, 1, M, "A")
    return stand_ins


def excused(stand_ins: StandIns) -> list[str]:
    return [peer for peer, *_ in stand_ins.excused()]


def all_acked(*_: object) -> bool:
    return True


def test_one_report_is_enough_when_the_other_has_the_message() -> None:
    stand_ins = sent()
    stand_ins.reported("r1", 1, M, "A")
    assert excused(stand_ins) == []
    stand_ins.heard("r2", lambda *_: False)
    assert excused(stand_ins) == []
    stand_ins.heard("r2", all_acked)
    assert excused(stand_ins) == ["r2"]
    assert excused(stand_ins) == [], "and that once"


def test_a_suspicion_counts_for_what_is_on_its_way_and_for_what_goes_out_meanwhile() -> None:
    stand_ins = sent()
    stand_ins.suspect("r1", True)
    stand_ins.heard("r2", all_acked)
    assert excused(stand_ins) == [], "nobody has reported it"
    stand_ins.reported("r2", 1, M, "A")
    assert excused(stand_ins) == ["r1"]
    later = Envelope("o", 2, None, b"later")
    for peer in GROUPS:
        stand_ins.sent(peer, 2, later, "A")
    stand_ins.suspect("r1", False)
    stand_ins.reported("r2", 2, later, "A")
    assert excused(stand_ins) == ["r1"]


def test_when_both_are_suspected_nobody_stands_in() -> None:
    stand_ins = sent()
    for peer in GROUPS:
        stand_ins.suspect(peer, True)
    assert excused(stand_ins) == []


def test_one_beside_us_need_not_report_and_we_hear_when_it_does() -> None:
    stand_ins = sent("r1")
    stand_ins.heard("r2", all_acked)
    assert excused(stand_ins) == ["r2"]
    stand_ins.reported("r2", 1, M, "A")
    assert stand_ins.reported_by_fellows == [(M, "A")]


def test_who_is_no_replica_is_waited_for() -> None:
    stand_ins = StandIns("o", GROUPS)
    stand_ins.sent("p", 1, M, "A")
    stand_ins.suspect("p", True)
    assert excused(stand_ins) == []


def test_after_a_restart_a_frame_that_is_gone_was_reported_and_what_was_excused_stays_so() -> None:
    frames: list[Excused] = [("r2", 1, M, "A")]
    stand_ins = StandIns("o", GROUPS)
    stand_ins.load(frames, [])
    stand_ins.heard("r2", all_acked)
    assert excused(stand_ins) == ["r2"]
    stand_ins.load(frames, frames)
    stand_ins.heard("r2", all_acked)
    assert excused(stand_ins) == []


def test_a_copy_goes_on_by_itself() -> None:
    stand_ins = sent()
    stand_ins.reported("r1", 1, M, "A")
    twin = stand_ins.fork()
    twin.heard("r2", all_acked)
    assert (excused(twin), excused(stand_ins)) == (["r2"], [])
