"""The turn of deliveries: nothing overtakes a message of our own that is not safe."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from thence.core.stability.safe_turn import SafeTurn
from thence.core.wire.messages import Envelope, Frame


def frame(origin: str, number: int, to: tuple[str, ...] | None = None) -> Frame[Any]:
    return Frame(None, Envelope(origin, number, to, b"x"))


def test_others_wait_behind_our_own_until_it_is_safe() -> None:
    guard: Any = SimpleNamespace(own=0)
    turn = SafeTurn("a", {"d": guard})
    ours, theirs = frame("a", 1), frame("b", 1)
    assert turn.next([("d", theirs)]) == [("d", theirs)]
    turn.sent("d", 1, [("b", ours)])
    assert turn.next([("d", ours), ("d", theirs)]) == []
    assert (len(turn), turn.first, turn.bytes) == (2, ours.envelope, ours.weight + theirs.weight)
    guard.own = 1
    assert turn.next([]) == [("d", ours), ("d", theirs)]
    assert (len(turn), turn.bytes) == (0, 0)


def test_what_is_not_for_us_is_not_waited_for() -> None:
    guard: Any = SimpleNamespace(own=0)
    turn = SafeTurn("a", {"d": guard})
    turn.sent("d", 1, [("b", frame("a", 1, ("b",)))])
    theirs = frame("b", 1)
    assert turn.next([("d", theirs)]) == [("d", theirs)]


def test_a_fork_and_a_saved_turn_go_on_by_themselves() -> None:
    guard: Any = SimpleNamespace(own=0)
    turn = SafeTurn("a", {"d": guard})
    ours = frame("a", 1)
    turn.sent("d", 1, [("b", ours)])
    turn.next([("d", ours)])
    safe: Any = SimpleNamespace(own=1)
    twin, again = turn.fork({"d": safe}), SafeTurn("a", {"d": safe})
    again.load(turn.save())
    assert again.bytes == turn.bytes
    assert twin.next([]) == again.next([]) == [("d", ours)]
    assert len(turn) == 1
