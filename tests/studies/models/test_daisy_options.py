"""The model of daisy §3.4: every option keeps order under every traffic, and the shares are those of one and the same traffic."""

from __future__ import annotations

import math

import pytest

from thence.studies.models.daisy_options import (
    OPTIONS,
    ORACLE,
    PLAIN,
    TRAFFIC,
    Oracle,
    Traffic,
    measure,
    run,
    simulate_option,
    where,
)
from thence.studies.study import Point
from thence.trace.events import Event
from thence.trace.judge import judge

POINT: Point = {"messages": 60, "load": 1}


def ignore(_: Event) -> None:
    """Take an event."""


@pytest.mark.parametrize("option", [option for option in OPTIONS if option != ORACLE])
def test_every_option_keeps_order(option: str) -> None:
    """What an option costs counts only if it promises the same."""
    for traffic in TRAFFIC.values():
        events: list[Event] = []
        simulate_option(option, traffic, POINT, 1, events.append)
        assert not any(judge(events).properties.values()), traffic


def test_the_same_messages_under_every_option() -> None:
    """Who sends what to whom, and when, does not depend on the option."""
    sent = []
    for option in OPTIONS:
        events: list[Event] = []
        simulate_option(option, TRAFFIC["even"], POINT, 3, events.append)
        sent.append(sorted((event.time, event.process, event.to) for event in events if event.kind == "send"))
    assert all(each == sent[0] for each in sent)
    assert len(sent[0]) == 60


@pytest.mark.parametrize("option", ["early", "star", ORACLE])
def test_a_seed_gives_the_same_numbers(option: str) -> None:
    point = {**POINT, "option": option, "traffic": "note, then large"}
    one = run(point, 7, ignore)
    assert one == pytest.approx(run(point, 7, ignore), rel=0, abs=0, nan_ok=True)
    assert one["delay_ms"] != run(point, 8, ignore)["delay_ms"]


def test_plain_is_a_whole_share_of_itself() -> None:
    measured = run({**POINT, "option": PLAIN, "traffic": "even"}, 1, ignore)
    assert {value for name, value in measured.items() if name.endswith("_share")} == {1.0}


def test_a_broadcast_is_one_frame_for_each_delivery() -> None:
    """§3.3: one broadcast in each group reaches everybody once; with copies, each who gets it answers and, with 2, is told."""
    assert measure(PLAIN, TRAFFIC["to all"], POINT, 1, ignore).frames == 1
    assert measure("whole", TRAFFIC["to all"], POINT, 1, ignore).frames == 1
    assert 2 <= measure("1 copy", TRAFFIC["to all"], POINT, 1, ignore).frames < 3
    assert measure("2 copies", TRAFFIC["to all"], POINT, 1, ignore).frames <= 3


def test_without_anything_to_wait_for_options_differ_by_their_hops() -> None:
    """Constant delays and a message now and then: a star takes one hop more inside a group, 2 copies two in every group."""
    still = Traffic(300, 1_000, local="constant:10ms", line="constant:10ms")
    plain, star, one, copied = (measure(option, still, POINT, 1, ignore) for option in (PLAIN, "star", "1 copy", "2 copies"))
    assert plain.local_delay_ms == 10
    assert 10 < star.local_delay_ms < 20, "unless the server is one of the two"
    assert one.local_delay_ms == 10, "whoever gets it knows that he and its sender have it"
    assert copied.local_delay_ms == 30
    assert (
        measure(ORACLE, still, POINT, 1, ignore).delay_ms == plain.delay_ms == measure("early", still, POINT, 1, ignore).delay_ms
    )


def test_the_oracle_holds_what_comes_too_early() -> None:
    """a writes to c and then to b, who writes to c; c gets that first, and must wait for what a wrote."""
    oracle = Oracle()
    for time, (process, index, kind, message, to) in enumerate(
        [
            ("a", 0, "send", "m1", ("c",)),
            ("a", 1, "send", "m2", ("b",)),
            ("b", 0, "deliver", "m2", None),
            ("b", 1, "send", "m3", ("c",)),
            ("c", 0, "deliver", "m3", None),
            ("c", 1, "deliver", "m1", None),
        ]
    ):
        oracle.hear(Event(process=process, index=index, kind=kind, message=message, to=to, time=time))
    assert oracle.delays_ns == [1, 5, 2], "m2 at once, then m1, then m3"


def test_only_local_groups_change_with_the_star() -> None:
    assert {name: domain.ordering for name, domain in where("star").domains.items()} == {
        "servers": "vector", "g1": "sequenced", "g2": "sequenced", "g3": "sequenced", "g4": "sequenced",
    }  # fmt: skip


def test_the_oracle_has_no_price() -> None:
    measured = run({**POINT, "option": ORACLE, "traffic": "even"}, 1, ignore)
    assert measured["delay_share"] < 1
    assert math.isnan(measured["frames_share"])
