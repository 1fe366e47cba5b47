"""Messages from vector clocks: happens-before stays what the clocks say, and clocks that cannot be are refused."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pipeline.executions import executions, govector, happens_before, imported
from tests.support.pipeline.replay import replay
from thence.pipeline.importers.clocks import Derived, Heard, Logged, derive
from thence.pipeline.importers.shiviz import LOGGED


def rows_of(events: Sequence[Logged], derived: Derived) -> list[dict[str, object]]:
    """A trace made of a derivation in the plainest way, for comparison."""
    rows: list[dict[str, object]] = []
    index: dict[str, int] = {}
    for heard in derived.events:
        host = events[heard.place].host
        parts = [("deliver", message) for message in heard.received]
        parts += [("event", str(heard.place)), ("send", f"{host}:{events[heard.place].number}")]
        for kind, message in parts:
            rows.append({"process": host, "index": index.get(host, 0), "kind": kind, "message": message})
            index[host] = index.get(host, 0) + 1
    return rows


def assert_same_order(events: Sequence[Logged], derived: Derived) -> None:
    """Happens-before of the derived trace is that of the clocks, for every pair of events that were accepted."""
    rows = rows_of(events, derived)
    clocks = replay(rows, {"event"})
    found = {
        int(str(row["message"])): clocks[str(row["process"]), int(str(row["index"]))] for row in rows if row["kind"] == "event"
    }
    for one, its in found.items():
        for other, others in found.items():
            after = one != other and its[events[one].host] <= others.get(events[one].host, 0)
            assert after == happens_before(events[one], events[other]), (events[one], events[other])


@given(executions(), st.randoms(use_true_random=False))
def test_the_logged_clocks_come_out_again(events: list[Logged], chance: random.Random) -> None:
    shuffled = list(events)
    chance.shuffle(shuffled)
    rows = imported(govector(shuffled))
    clocks = replay(rows, {LOGGED})
    logged = [row for row in rows if row["kind"] == LOGGED]
    assert len(logged) == len(events)
    for row in logged:
        assert clocks[row["process"], row["index"]] == row["clock"]


@given(executions(), st.data())
def test_events_that_are_missing_cost_nothing_but_themselves(events: list[Logged], data: st.DataObject) -> None:
    kept = [event for event in events if data.draw(st.booleans())]
    derived = derive(kept)
    assert len(derived.events) == len(kept)
    assert derived.refused == []
    assert_same_order(kept, derived)
    named = {host: max(event.clock.get(host, 0) for event in kept) for event in kept for host in event.clock}
    expected = {host for host, last in named.items() if last > sum(event.host == host for event in kept)}
    assert {host for host, _ in derived.missing} == expected


@given(executions(), st.data())
def test_whatever_the_clocks_say_each_event_is_accepted_or_refused(events: list[Logged], data: st.DataObject) -> None:
    corrupt = []
    for event in events:
        clock = dict(event.clock)
        if data.draw(st.booleans()):
            clock[data.draw(st.sampled_from(["a", "b", "node-3", "nobody"]))] = data.draw(st.integers(0, 5))
            clock[event.host] = max(1, clock[event.host])
        corrupt.append(Logged(event.host, clock))
    derived = derive(corrupt)
    accounted = [heard.place for heard in derived.events] + [place for place, _ in derived.refused]
    assert sorted(accounted) == list(range(len(corrupt)))
    assert_same_order(corrupt, derived)


def test_a_message_goes_to_all_who_heard_it_directly() -> None:
    events = [
        Logged("a", {"a": 1}),
        Logged("b", {"a": 1, "b": 1}),
        Logged("c", {"a": 1, "c": 1}),
        Logged("d", {"a": 1, "b": 1, "d": 1}),
    ]
    assert derive(events).events == [
        Heard(0, (), ("b", "c")),
        Heard(1, ("a:1",), ("d",)),
        Heard(2, ("a:1",), ()),
        Heard(3, ("b:1",), ()),
    ]


def test_one_event_may_hear_of_several() -> None:
    events = [Logged("a", {"a": 1}), Logged("b", {"b": 1}), Logged("c", {"a": 1, "b": 1, "c": 1})]
    assert derive(events).events[-1].received == ("a:1", "b:1")


@pytest.mark.parametrize(
    ("events", "place", "reason"),
    [
        ([("a", {"a": 1}), ("a", {"a": 1})], 1, "the clock repeats number 1 of 'a'"),
        (
            [("b", {"b": 1}), ("b", {"b": 2}), ("a", {"a": 1, "b": 2}), ("a", {"a": 2, "b": 1})],
            3,
            "the clock goes back: 'b' was 2 and is 1",
        ),
        (
            [("c", {"c": 1}), ("b", {"b": 1, "c": 1}), ("a", {"a": 1, "b": 1})],
            2,
            "the clock knows event 1 of 'b', but not what that one knew: 'c' is 0, there 1",
        ),
        (
            [("a", {"a": 1, "b": 1}), ("b", {"a": 1, "b": 1})],
            1,
            "the clock knows 'a' up to 1, which comes after this event itself",
        ),
    ],
)
def test_a_clock_that_cannot_be_is_refused(events: list[tuple[str, dict[str, int]]], place: int, reason: str) -> None:
    derived = derive([Logged(host, clock) for host, clock in events])
    assert derived.refused == [(place, reason)]
    assert derived.missing == []
    assert len(derived.events) == len(events) - 1


def test_one_clock_that_claims_too_much_costs_only_itself() -> None:
    events = [
        Logged("a", {"a": 1, "b": 1_000}),
        *(Logged("a", {"a": number}) for number in (2, 3)),
        *(Logged("b", {"b": number, "a": 3}) for number in range(1, 10)),
    ]
    derived = derive(events)
    assert [place for place, _ in derived.refused] == [0]
    assert len(derived.events) == len(events) - 1


def test_missing_events_are_counted_for_each_host() -> None:
    derived = derive([Logged("a", {"a": 2, "x": 3}), Logged("a", {"a": 5, "x": 3})])
    assert derived.missing == [
        ("a", "clocks count 5 events of 'a', of which 3 are missing: first 1"),
        ("x", "clocks count 3 events of 'x', of which 3 are missing: first 1"),
    ]


def test_many_events_take_time_in_proportion() -> None:
    events = []
    for number in range(1, 5_001):
        events.append(Logged("a", {"a": number, "b": number - 1}))
        events.append(Logged("b", {"a": number, "b": number}))
    derived = derive(events[::-1])
    assert len(derived.events) == 10_000
    assert sum(len(heard.received) for heard in derived.events) == 9_999
