"""The kernel: order, ties, timers, stopping and going on, and the same behaviour as a plain sorted list of events."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thence.errors import ConfigError, InternalError, UsageError
from thence.sim import kernel as kernels
from thence.sim.kernel import Kernel, Timer

MS = 1_000_000


def test_events_run_in_order_of_time() -> None:
    kernel, seen = Kernel(), list[tuple[int, str]]()
    for delay, name in ((30 * MS, "c"), (10, "a"), (5 * MS, "b")):
        kernel.schedule(delay, lambda name: seen.append((kernel.now, name)), name)
    assert kernel.run() == 3
    assert seen == [(10, "a"), (5 * MS, "b"), (30 * MS, "c")]


def test_equal_times_run_in_the_order_of_scheduling_however_they_were_scheduled() -> None:
    kernel, seen = Kernel(), list[int]()
    kernel.schedule(7, seen.append, 0)
    kernel.post(7, seen.append, 1)
    kernel.timer(7, seen.append, 2)
    kernel.at(7, seen.append, 3)
    kernel.run()
    assert seen == [0, 1, 2, 3]


def test_an_event_scheduled_for_now_runs_after_those_that_were_there() -> None:
    kernel, seen = Kernel(), list[str]()

    def first() -> None:
        seen.append("first")
        kernel.schedule(0, seen.append, "scheduled by first")

    kernel.schedule(5, first)
    kernel.schedule(5, seen.append, "second")
    kernel.run()
    assert seen == ["first", "second", "scheduled by first"]
    assert kernel.now == 5


def test_arguments_reach_the_callback() -> None:
    kernel, seen = Kernel(), list[tuple[Any, ...]]()
    kernel.schedule(1, lambda *args: seen.append(args))
    kernel.schedule(2, lambda *args: seen.append(args), 1, "two", None)
    kernel.timer(3, lambda *args: seen.append(args), 3)
    kernel.run()
    assert seen == [(), (1, "two", None), (3,)]


def test_run_until_stops_behind_that_time_and_goes_on_later() -> None:
    kernel, seen = Kernel(), list[int]()
    for time in (10, 20, 20, 21, 5 * MS):
        kernel.at(time, seen.append, time)
    assert kernel.run(until_ns=20) == 3
    assert (seen, kernel.now, kernel.pending) == ([10, 20, 20], 20, 2)
    assert kernel.run(until_ns=2 * MS) == 1
    assert (kernel.now, kernel.pending) == (2 * MS, 1)
    kernel.at(2 * MS, seen.append, -1)
    assert kernel.run() == 2
    assert seen == [10, 20, 20, 21, -1, 5 * MS]


def test_run_of_at_most_some_events_leaves_the_time_at_the_last_one() -> None:
    kernel, seen = Kernel(), list[int]()
    for time in (10, 10, 10, 40):
        kernel.at(time, seen.append, len(seen))
    assert kernel.run(max_events=2) == 2
    assert (kernel.now, kernel.pending, kernel.events) == (10, 2, 2)
    assert kernel.run(until_ns=30, max_events=5) == 1
    assert kernel.now == 30
    assert kernel.run(max_events=0) == 0
    assert kernel.run() == 1
    assert kernel.now == 40


def test_a_run_that_never_rests_is_stopped_and_says_so() -> None:
    kernel = Kernel(max_events=1_000)

    def again() -> None:
        kernel.schedule(0, again)

    kernel.schedule(0, again)
    with pytest.raises(InternalError, match=r"did not come to rest within 1000 events \(max_events of the kernel\)"):
        kernel.run()
    assert (kernel.events, kernel.pending) == (1_000, 1)


def test_a_run_that_rests_exactly_at_the_limit_is_no_error() -> None:
    kernel, seen = Kernel(max_events=3), list[int]()
    for number in range(3):
        kernel.schedule(number, seen.append, number)
    assert kernel.run() == 3
    assert seen == [0, 1, 2]
    assert kernel.run() == 0


def test_an_error_in_a_callback_comes_out_with_the_time_and_the_rest_can_go_on() -> None:
    kernel, seen = Kernel(), list[str]()

    def fail() -> None:
        kernel.schedule(0, seen.append, "scheduled by fail")
        raise ValueError("no")

    kernel.schedule(3, seen.append, "before")
    kernel.schedule(3, fail)
    kernel.schedule(3, seen.append, "after")
    with pytest.raises(ValueError, match="no") as caught:
        kernel.run()
    assert caught.value.__notes__ == ["at 3 ns of simulated time"]
    assert (seen, kernel.events, kernel.pending) == (["before"], 2, 2)
    assert kernel.run() == 2
    assert seen == ["before", "after", "scheduled by fail"]


def test_the_past_is_refused() -> None:
    kernel, seen = Kernel(), list[int]()
    kernel.schedule(10, seen.append, 1)
    kernel.run()
    with pytest.raises(UsageError, match="1 ns in the past"):
        kernel.schedule(-1, seen.append, 2)
    with pytest.raises(UsageError, match="1 ns in the past"):
        kernel.at(9, seen.append, 2)
    with pytest.raises(UsageError, match="in the past"):
        kernel.timer(-1, seen.append, 2)
    with pytest.raises(UsageError, match="cannot run until 9 ns: it is 10 ns already"):
        kernel.run(until_ns=9)
    assert (kernel.pending, seen) == (0, [1])


def test_run_inside_an_event_is_refused() -> None:
    kernel = Kernel()
    kernel.schedule(1, kernel.run)
    with pytest.raises(UsageError, match="from inside an event"):
        kernel.run()


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_events must be at least 1, not 0"):
        Kernel(max_events=0)


def test_a_cancelled_timer_is_gone() -> None:
    kernel, seen = Kernel(), list[str]()
    kernel.schedule(5, seen.append, "kept")
    timer = kernel.timer(90 * MS, seen.append, "cancelled")
    assert kernel.pending == 2
    assert kernel.cancel(timer)
    assert not kernel.cancel(timer)
    assert kernel.pending == 1
    assert kernel.run() == 1
    assert (seen, kernel.now) == (["kept"], 5)


def test_a_timer_that_fired_cannot_be_cancelled() -> None:
    kernel, seen = Kernel(), list[str]()
    timer = kernel.timer(5, seen.append, "fired")
    kernel.run()
    assert not kernel.cancel(timer)
    assert seen == ["fired"]


def test_timers_of_the_same_moment_can_be_cancelled_from_one_another() -> None:
    kernel, seen, timers = Kernel(), list[int](), list[Timer]()

    def fire(number: int) -> None:
        seen.append(number)
        own = kernel.timer(0, seen.append, -1)
        assert [kernel.cancel(timer) for timer in (timers[number], timers[number + 1], own)] == [False, True, True]

    timers += [kernel.timer(5, fire, number) for number in range(6)]
    assert kernel.run() == 3
    assert seen == [0, 2, 4]
    assert kernel.pending == 0


class SortedList:
    """The kernel as one would write it without thinking about speed: what ``Kernel`` is compared with."""

    def __init__(self) -> None:
        self.now = 0
        self.waiting: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self.scheduled = 0

    def timer(self, delay_ns: int, fn: Callable[..., object], *args: Any) -> Timer:
        self.scheduled += 1
        self.waiting.append((self.now + delay_ns, self.scheduled, fn, args))
        return Timer(self.scheduled)

    def cancel(self, timer: Timer) -> bool:
        before = len(self.waiting)
        self.waiting = [event for event in self.waiting if event[1] != timer]
        return len(self.waiting) < before

    def run(self, until_ns: int | None = None, max_events: int | None = None) -> int:
        ran = 0
        while self.waiting:
            event = min(self.waiting, key=lambda event: event[:2])
            if until_ns is not None and event[0] > until_ns:
                break
            if ran == max_events:
                return ran
            self.waiting.remove(event)
            self.now, _, fn, args = event
            ran += 1
            fn(*args)
        self.now = self.now if until_ns is None else until_ns
        return ran

    @property
    def pending(self) -> int:
        return len(self.waiting)


DELAYS = st.one_of(st.integers(0, 3), st.integers(0, 300), st.integers(0, 1 << 20), st.sampled_from([MS, 50 * MS]))
ACTIONS = st.lists(st.tuples(DELAYS, st.integers(0, 60), st.booleans()), min_size=1, max_size=60)
SLICES = st.lists(st.tuples(st.none() | DELAYS, st.none() | st.integers(0, 20)), max_size=8)


def play(kernel: Kernel | SortedList, actions: list[tuple[int, int, bool]], slices: list[Any]) -> list[Any]:
    """Every event notes itself, schedules the next action, and may cancel an earlier timer."""
    log: list[Any] = []
    timers: list[Timer] = []
    script = iter(actions)

    def act(number: int) -> None:
        log.append((kernel.now, number, kernel.pending))
        for delay, other, cancels in islice(script, 2):
            timers.append(kernel.timer(delay, act, len(timers)))
            if cancels:
                log.append(kernel.cancel(timers[other % len(timers)]))

    for delay, _, _ in actions[:5]:
        timers.append(kernel.timer(delay, act, len(timers)))
    for ahead, most in slices:
        log.append((kernel.run(None if ahead is None else kernel.now + ahead, most), kernel.now, kernel.pending))
    log.append((kernel.run(), kernel.now, kernel.pending))
    return log


@settings(max_examples=300, deadline=None)
@given(ACTIONS, SLICES)
def test_it_does_what_a_sorted_list_of_events_would_do(actions: list[tuple[int, int, bool]], slices: list[Any]) -> None:
    assert play(Kernel(), actions, slices) == play(SortedList(), actions, slices)


@settings(max_examples=300, deadline=None)
@given(ACTIONS, SLICES, st.integers(1, 5), st.integers(0, 30), st.integers(0, 8))
def test_the_width_of_the_buckets_changes_nothing(
    actions: list[tuple[int, int, bool]], slices: list[Any], sample: int, bits: int, few: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "EVENTS_PER_SAMPLE", sample)  # so that it is looked at, and changed, all the time
        patch.setattr(kernels, "FIRST_WIDTH_BITS", bits)
        patch.setattr(kernels, "EVENTS_PER_BUCKET", 3)
        patch.setattr(kernels, "FEW_PENDING", few)
        assert play(Kernel(), actions, slices) == play(SortedList(), actions, slices)


@pytest.mark.parametrize(("delay_ns", "narrower"), [(10, True), (100 * MS, False)])
def test_the_width_follows_the_run(delay_ns: int, *, narrower: bool) -> None:
    kernel = Kernel()
    widths = []

    def again(left: int) -> None:
        if left:
            kernel.post(delay_ns, again, left - 1)
        if left == 10:
            widths.append(kernel.bits)

    for start in range(200):
        kernel.post(start * delay_ns // 200, again, 50)
    assert kernel.run() == 200 * 51
    assert {bits < kernels.FIRST_WIDTH_BITS for bits in widths} == {narrower}
    assert kernels.WIDEST_BITS not in widths


def test_few_events_stand_in_one_bucket() -> None:
    kernel = Kernel()

    def again(left: int) -> None:
        if left:
            kernel.post(MS, again, left - 1)

    kernel.post(0, again, 3 * kernels.EVENTS_PER_SAMPLE)
    kernel.run()
    assert kernel.bits == kernels.WIDEST_BITS
