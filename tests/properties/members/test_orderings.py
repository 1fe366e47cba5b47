"""Whatever is sent and whatever arrives when: each ordering keeps what it guarantees, and waits for nothing it need not wait for.

The reference is the judge, which shares no code with the orderings, and for "need not wait" a model that knows the causal
past of every message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.suite import VARIANTS, Variant, every_ordering
from tests.support.planted.planted_orderings import PLANTED, Planted
from tests.support.runs import PATTERNS, Flight, Run

NAMES = ("A", "B", "C", "D", "E", "F")
STEPS = 60


class Schedule(NamedTuple):
    """How many members there are, and what happens next, as numbers to choose by."""

    members: tuple[str, ...]
    patterns: tuple[str, ...]
    choices: list[tuple[int, int, int]]


def subset(members: Sequence[str], mask: int) -> tuple[str, ...]:
    """Return at least one of ``members``."""
    return tuple(name for at, name in enumerate(members) if mask >> at & 1) or (members[mask % len(members)],)


schedules = st.builds(
    Schedule,
    st.integers(2, 6).map(lambda count: NAMES[:count]),
    st.sampled_from([("unicast",), ("multicast",), ("broadcast",), PATTERNS]),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 63), st.integers(0, 63)), max_size=STEPS),
)


def to_whom(members: Sequence[str], sender: str, pattern: str, mask: int) -> tuple[str, ...] | None:
    """Return the destinations that a number stands for."""
    if pattern == "broadcast":
        return None
    if pattern == "self":
        return (sender,)
    others = [name for name in members if name != sender]
    return (others[mask % len(others)],) if pattern == "unicast" else subset(members, mask)


def play(run: Run, schedule: Schedule, sending_percent: int = 50, hear: Callable[[Run], None] = lambda _: None) -> None:
    """Do what the schedule says, then let all arrive, the newest frames first; ``hear`` is called after every step."""
    for kind, first, second in schedule.choices:
        flights = run.flights()
        if kind < sending_percent or not flights:
            sender = run.members[first % len(run.members)]
            pattern = schedule.patterns[kind % len(schedule.patterns)]
            run.send(sender, to_whom(run.members, sender, pattern, second))
        else:
            arrive(run, flights[(first + 64 * second) % len(flights)])
        hear(run)
    while flights := run.flights():
        arrive(run, flights[-1])
        hear(run)


def arrive(run: Run, flight: Flight) -> None:
    run.arrive(flight.source, flight.target, flight.place)


@every_ordering
@given(schedule=schedules)
def test_guarantees_hold(variant: Variant, schedule: Schedule) -> None:
    run = variant.run(schedule.members)
    play(run, schedule)
    assert run.complaints() == []
    assert run.waiting() == 0


@every_ordering
@given(schedule=schedules)
def test_nothing_wrong_is_delivered_in_between(variant: Variant, schedule: Schedule) -> None:
    """Also a run that is cut off keeps order: nothing that is missing may be overtaken."""
    run = variant.run(schedule.members)
    for kind, first, second in schedule.choices:
        flights = run.flights()
        if kind < 40 or not flights:
            sender = run.members[first % len(run.members)]
            run.send(sender, to_whom(run.members, sender, schedule.patterns[kind % len(schedule.patterns)], second))
        else:
            arrive(run, flights[(first + 64 * second) % len(flights)])
    assert run.complaints(complete=False) == []


def test_schedules_are_able_to_find_a_bug() -> None:
    """The planted bugs are found by these schedules too: the property test has teeth."""
    found = [planted for planted in PLANTED if broken_by_some_schedule(planted)]
    assert len(found) == len(PLANTED), {p.ordering.__name__ for p in PLANTED} - {p.ordering.__name__ for p in found}


def broken_by_some_schedule(planted: Planted) -> bool:
    for seed in range(400):
        choices = [((seed * 31 + at * 17) % 100, (seed * 7 + at * at * 5) % 64, (seed * 3 + at * 11) % 64) for at in range(30)]
        run = Run(planted.ordering, NAMES[:3], planted.options)
        try:
            play(run, Schedule(NAMES[:3], (planted.pattern,), choices))
        except Exception:  # noqa: BLE001 - a planted bug may break anything
            return True
        if run.complaints():
            return True
    return False


# --- as early as can be ------------------------------------------------------------------------------------------------


class Oracle:
    """Knows, from sends and deliveries alone, which arrived messages could be delivered without breaking causal order."""

    def __init__(self, run: Run) -> None:
        self.seen = 0
        self.recipients: dict[str, tuple[str, ...]] = {}
        self.causes: dict[str, set[str]] = {}
        self.past: dict[str, set[str]] = {name: set() for name in run.members}
        self.delivered: dict[str, set[str]] = {name: set() for name in run.members}

    def hear(self, run: Run) -> None:
        for event in run.events[self.seen :]:
            message, process = str(event.message), event.process
            if event.kind == "send":
                self.recipients[message], self.causes[message] = event.to or (), set(self.past[process])
            else:
                self.delivered[process].add(message)
                self.past[process] |= self.causes[message]
            self.past[process].add(message)
        self.seen = len(run.events)

    def may_be_delivered(self, member: str, message: str) -> bool:
        before = {cause for cause in self.causes[message] if member in self.recipients[cause]}
        return before <= self.delivered[member]


def assert_nothing_waits_in_vain(oracle: Oracle) -> Callable[[Run], None]:
    def hear(run: Run) -> None:
        oracle.hear(run)
        for member, ordering in run.orderings.items():
            for wait in ordering.waiting():
                assert wait.message is None or not oracle.may_be_delivered(member, str(wait.message))

    return hear


EXACT = [
    *((variant, pattern) for variant in VARIANTS for pattern in ("unicast", "multicast") if variant.name == "matrix"),
    *((variant, "broadcast") for variant in VARIANTS if variant.name in {"matrix", "vector"}),
]


@pytest.mark.parametrize(("variant", "pattern"), EXACT, ids=[f"{variant.label}-{pattern}" for variant, pattern in EXACT])
@given(schedule=schedules)
def test_nothing_waits_that_could_be_delivered(variant: Variant, pattern: str, schedule: Schedule) -> None:
    run = variant.run(schedule.members)
    play(run, schedule._replace(patterns=(pattern,)), hear=assert_nothing_waits_in_vain(Oracle(run)))
