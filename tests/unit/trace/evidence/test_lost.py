"""Runs in which processes were declared dead: what is expected of whom, and what still counts as broken."""

from __future__ import annotations

from thence.trace.events import Event
from thence.trace.judge import judge


def trace(*lines: str) -> list[Event]:
    """Return events of lines such as ``p send p:1 x y`` and ``x view p``, numbered by process."""
    counts: dict[str, int] = {}
    events = []
    for line in lines:
        process, kind, *words = line.split()
        index = counts[process] = counts.get(process, -1) + 1
        message = words.pop(0) if kind in ("send", "deliver") else None
        events.append(Event(process=process, index=index, kind=kind, message=message, to=tuple(words) or None))
    return events


def broken(*lines: str) -> dict[str, int]:
    """Return what the judge finds, and how often."""
    return {name: count for name, count in judge(trace(*lines)).properties.items() if count}


def test_nothing_has_to_reach_a_process_that_was_lost() -> None:
    run = ("x send x:1 p y", "y deliver x:1")
    assert broken(*run) == {"completeness": 1}
    assert broken(*run, "y view p") == {}


def test_what_only_the_lost_had_is_given_up_and_holds_up_nobody() -> None:
    run = ("p send p:1 y", "p send p:2 x", "x deliver p:2", "x send x:1 y", "y deliver x:1")
    assert broken(*run) == {"causal": 1, "completeness": 1}
    assert broken(*run, "x view p", "y view p") == {}


def test_what_one_survivor_has_all_must_have() -> None:
    assert broken("p send p:1 x y", "x deliver p:1", "x view p", "y view p") == {"completeness": 1}


def test_order_is_asked_of_what_survivors_have_of_the_lost() -> None:
    run = ("p send p:1 x y", "p send p:2 x y", "x deliver p:1", "x deliver p:2", "y deliver p:2", "y deliver p:1")
    assert broken(*run, "x view p", "y view p") == {"fifo": 1, "causal": 1}


def test_a_message_of_the_lost_may_have_been_sent_behind_the_end_of_its_trace() -> None:
    assert broken("x deliver p:1", "x view p") == {}
    assert broken("x deliver q:1", "x view p") == {"creation": 1}


def test_who_left_a_view_without_being_lost_has_no_such_excuse() -> None:
    assert broken("p send p:1 y", "y view") == {"completeness": 1}


def test_who_is_lost_later_went_on_without_those_who_were_lost_before() -> None:
    views = ("x view p", "q view p", "x view q")
    # Nobody who went on without p has its message; that q is lost later makes no difference.
    assert broken("p send p:1 x q", "p send p:2 x q", "q deliver p:2", "x deliver p:2", *views) == {}
    assert broken("p send p:1 x q", "x send x:1 q", "q deliver x:1", *views) == {}
    # One who went on has it, and was lost later: the others should have it too.
    assert broken("p send p:1 x q", "q deliver p:1", *views) == {"completeness": 1}


def test_who_came_in_later_tells_of_fewer_who_were_lost() -> None:
    run = ("p send p:1 x", "p send p:2 x", "x deliver p:2", "x view p", "n join", "n view x")
    assert broken(*run) == {}
