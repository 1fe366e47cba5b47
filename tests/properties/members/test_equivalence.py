"""Two ways to write the same knowledge deliver the same (domains App. A, claim M3; and the two stamps of vector)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.members.test_orderings import NAMES, Schedule, schedules, to_whom
from tests.support.runs import Run, random_run
from thence.core.wire.messages import control_bytes

FULL: Mapping[str, Any] = {"stamps": "full"}


def side_by_side(name: str, schedule: Schedule) -> tuple[Run, Run]:
    """Run both with one schedule: the same messages are sent, and the same message reaches the same member at the same time."""
    short, full = Run(name, schedule.members), Run(name, schedule.members, FULL)
    runs = (short, full)
    for kind, first, second in schedule.choices:
        flights = short.flights()
        if kind < 45 or not flights:
            sender = schedule.members[first % len(schedule.members)]
            to = to_whom(schedule.members, sender, schedule.patterns[kind % len(schedule.patterns)], second)
            for run in runs:
                run.send(sender, to)
        else:
            step(runs, (first + 64 * second) % len(flights))
    while flights := short.flights():
        step(runs, len(flights) - 1)
    return runs


def step(runs: tuple[Run, Run], choice: int, same_recipients: bool = True) -> None:
    one, other = (run.flights()[choice] for run in runs)
    assert (one.source, one.target) == (other.source, other.target)
    assert one.frame.envelope == other.frame.envelope or not same_recipients
    for run in runs:
        run.arrive(one.source, one.target, one.place)


def told(run: Run) -> list[tuple[str, str, str]]:
    """Return all that happened, in order."""
    return [(event.process, event.kind, str(event.message)) for event in run.events]


@given(schedule=schedules)
def test_matrix_updates_deliver_as_full_matrices_do(schedule: Schedule) -> None:
    updates, full = side_by_side("matrix", schedule)
    assert told(updates) == told(full)
    assert updates.complaints() == full.complaints() == []


@given(schedule=schedules)
def test_vector_changed_delivers_as_full_in_broadcast(schedule: Schedule) -> None:
    changed, full = side_by_side("vector", schedule._replace(patterns=("broadcast",)))
    assert told(changed) == told(full)
    assert changed.complaints() == full.complaints() == []


@given(schedule=schedules)
def test_vector_changed_delivers_the_same_as_full_in_multicast(schedule: Schedule) -> None:
    """``full`` also orders a message behind markers that its sender had seen, so concurrent messages may change places."""
    changed, full = side_by_side("vector", schedule)
    assert changed.complaints() == full.complaints() == []
    for member in schedule.members:
        assert sorted(changed.deliveries(member)) == sorted(full.deliveries(member))


@given(schedule=schedules)
def test_flood_is_one_and_the_same_run_whoever_the_messages_are_for(schedule: Schedule) -> None:
    """Recipients only filter what is delivered. So what holds of all broadcasts holds of multicast and unicast too."""
    some, everyone = Run("flood", schedule.members), Run("flood", schedule.members)
    recipients: dict[str, tuple[str, ...]] = {}
    for kind, first, second in schedule.choices:
        flights = some.flights()
        if kind < 45 or not flights:
            sender = schedule.members[first % len(schedule.members)]
            to = to_whom(schedule.members, sender, schedule.patterns[kind % len(schedule.patterns)], second)
            recipients[str(some.send(sender, to).id)] = schedule.members if to is None else to
            everyone.send(sender, None)
        else:
            step((some, everyone), (first + 64 * second) % len(flights), same_recipients=False)
    for member in schedule.members:
        expected = [message for message in everyone.deliveries(member) if member in recipients[message]]
        assert some.deliveries(member) == expected


@given(members=st.integers(2, 6), seed=st.integers(0, 2**32))
def test_updates_carry_nothing_twice_to_the_same_member(members: int, seed: int) -> None:
    run = Run("matrix", NAMES[:members])
    random_run(run, random.Random(seed), 12)
    told_before: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for _ in range(3):
        for sender, target in permutations(run.members, 2):
            run.send(sender, (target,))
            (frame,) = run.on_the_way[sender, target]
            said = told_before.setdefault((sender, target), set())
            assert not pairs(frame.stamp.updates) & said
            said |= pairs(frame.stamp.updates)
            run.arrive(sender, target)


def test_updates_do_not_echo_what_they_were_told() -> None:
    """C tells A of its messages to B. A answers, and does not tell C of them again; but it tells B."""
    run = Run("matrix", NAMES[:3])
    run.send("C", ("B",))
    run.send("C", ("A",))
    run.arrive("C", "A")
    run.send("A", ("C",))
    run.send("A", ("B",))
    c_to_b, c_to_a, a_to_c = (2 * 3 + 1, 1), (2 * 3 + 0, 1), (0 * 3 + 2, 1)
    assert pairs(run.on_the_way["A", "C"][0].stamp.updates) == set()
    assert pairs(run.on_the_way["A", "B"][0].stamp.updates) == {c_to_b, c_to_a, a_to_c}


def pairs(updates: tuple[int, ...]) -> set[tuple[int, int]]:
    return set(zip(updates[::2], updates[1::2], strict=True))


@pytest.mark.parametrize(("count", "pattern", "times"), [(16, "unicast", 10), (16, "broadcast", 1), (48, "unicast", 40)])
def test_updates_are_smaller_than_full(count: int, pattern: str, times: int) -> None:
    names = [f"s{number}" for number in range(count)]
    runs = (Run("matrix", names), Run("matrix", names, FULL))
    for run in runs:
        random_run(run, random.Random(1), 60, (pattern,))
    sizes = [[control_bytes(stamp) for stamp in stamps_of(run)] for run in runs]
    assert len(sizes[0]) == len(sizes[1])
    assert times * sum(sizes[0]) < sum(sizes[1])


def stamps_of(run: Run) -> list[Any]:
    """Return a stamp of each further message of each member, in the state that the run has reached."""
    for member in run.members:
        run.send(member, None)
    return [flight.frame.stamp for flight in run.flights()]
