"""The kernel: simulated time, and what happens when.

It exists so that a whole fabric runs in one thread, faster than real time, and the same way every time.

Rules:

* Time is integer nanoseconds. It never goes back, and only ``run`` moves it.
* Events of the same time run in the order in which they were scheduled. Nothing else decides a tie.
* An event is a tuple ``(time, function, argument)``, and nothing more is made per event.
* A plain event cannot be cancelled. A timer can, and is then gone: it is looked for in its bucket, which is small.
* A run that never comes to rest is stopped by a named limit.

How events wait: those that are due next stand in one short list, the latest first, so that the next one is taken from its
end; all later ones lie in buckets of time, and a heap says which bucket is next. Scheduling appends to a bucket, and the
bucket is sorted when its turn comes; only what is due before the end of the open bucket is inserted into the list. The
width of a bucket follows the run, so that one holds a handful of events, and while few are pending one bucket holds all:
any width gives the same run, some are quicker. One heap of all events would be shorter, but it compares tuples on every
push and pop, and that is much of what an event costs. ``benchmarks/simulator.py`` measures the kernel.
"""

from __future__ import annotations

from bisect import insort_left
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import repeat
from operator import itemgetter, length_hint
from typing import Any, NewType

from thence.errors import ConfigError, InternalError, UsageError

MAX_EVENTS = 1_000_000_000
"""Events one kernel runs in its life unless told otherwise: hours of work, so what gets there is going in circles."""

FIRST_WIDTH_BITS = 17
"""A bucket is ``1 << bits`` nanoseconds wide; the first ones are 131 µs, as delays are mostly milliseconds."""

WIDEST_BITS = 62
"""Wide enough for a run of a century, so that one bucket holds all events."""

FEW_PENDING = 64
"""As long as no more events than this are pending, one bucket holds them all."""

EVENTS_PER_BUCKET = 32
"""With more of them, a bucket is made so wide that about this many fall into it."""

EVENTS_PER_SAMPLE = 1_000
"""The width is looked at after this many events, or as many as are pending if those are more: so it costs little."""

Timer = NewType("Timer", int)
"""What ``Kernel.timer`` hands out and ``Kernel.cancel`` takes."""

_Event = tuple[int, Callable[[Any], object], Any]
_Call = tuple[Callable[..., object], tuple[Any, ...]]
_minus_time_of = itemgetter(0)
_FOREVER_NS = 1 << 63


class _Buckets(dict[int, list[_Event]]):
    """Buckets by number, which is time divided by width. Asking for one makes it."""

    __slots__ = ("order",)

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] = []  # a heap of the numbers

    def __missing__(self, number: int) -> list[_Event]:
        events: list[_Event] = []
        self[number] = events
        heappush(self.order, number)
        return events


class Kernel:
    """Events that wait for their time, and the time of the latest one."""

    __slots__ = (
        "_armed", "_buckets", "_due", "_horizon", "_look_after", "_looked_at", "_max_events", "_running", "_timers", "bits",
        "events", "now",
    )  # fmt: skip

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        if max_events < 1:
            raise ConfigError(f"max_events must be at least 1, not {max_events}")
        self.now = 0  # nanoseconds; read it, never write it
        self.events = 0  # events run so far; brought up to date after each bucket
        self._max_events = max_events
        self.bits = FIRST_WIDTH_BITS
        self._buckets = _Buckets()
        self._due: list[_Event] = []  # what the open bucket still holds, the latest first
        self._horizon = 0  # what is earlier than this belongs into the open bucket; without an open one it is now
        self._running = False
        self._looked_at, self._look_after = (0, 0), EVENTS_PER_SAMPLE  # events and time: see _adapt
        self._timers = 0
        self._armed: dict[int, tuple[int, _Call]] = {}  # timers that are still to fire: when, and what

    @property
    def pending(self) -> int:
        """How many events are still to run."""
        return sum(map(len, self._buckets.values())) + len(self._due)

    def post(self, delay_ns: int, fn: Callable[[Any], object], arg: Any) -> None:
        """Call ``fn(arg)`` when ``delay_ns`` have passed."""
        time = self.now + delay_ns
        if time >= self._horizon:
            self._buckets[time >> self.bits].append((-time, fn, arg))
        elif delay_ns >= 0:
            insort_left(self._due, (-time, fn, arg), key=_minus_time_of)
        else:
            raise UsageError(f"an event cannot be scheduled {-delay_ns} ns in the past")

    def schedule(self, delay_ns: int, fn: Callable[..., object], *args: Any) -> None:
        """Like ``post``, for callbacks that take none or several arguments."""
        self.post(delay_ns, _call, (fn, args))

    def at(self, time_ns: int, fn: Callable[..., object], *args: Any) -> None:
        """Call ``fn(*args)`` at ``time_ns``."""
        self.post(time_ns - self.now, _call, (fn, args))

    def timer(self, delay_ns: int, fn: Callable[..., object], *args: Any) -> Timer:
        """Like ``schedule``, for what may have to be cancelled."""
        timer = Timer(self._timers + 1)
        call = (fn, (timer, *args))
        self.post(delay_ns, self._fire, call)
        self._timers = timer
        self._armed[timer] = (self.now + delay_ns, call)
        return timer

    def cancel(self, timer: Timer) -> bool:
        """Keep a timer from firing; false if it has fired or was cancelled before."""
        if timer not in self._armed:
            return False
        time, call = self._armed.pop(timer)
        events = self._due if time < self._horizon else self._buckets[time >> self.bits]
        for place in range(len(events) - 1, -1, -1):
            if events[place][2] is call:
                del events[place]
                return True
        raise InternalError(f"timer {timer} is armed, but not where it should be")

    def run(self, until_ns: int | None = None, max_events: int | None = None) -> int:
        """Run events in order and return how many ran.

        Stops when none is left, when the next one is later than ``until_ns``, or after ``max_events``. In the first two
        cases the time is then ``until_ns``, if that was given. An error in a callback comes out as it is, with a note
        that says when it happened; the events behind it stay pending.
        """
        if self._running:
            raise UsageError("run() was called from inside an event: schedule an event instead")
        if until_ns is not None and until_ns < self.now:
            raise UsageError(f"cannot run until {until_ns} ns: it is {self.now} ns already")
        before = self.events
        limit = self._max_events if max_events is None else min(self._max_events, before + max_events)
        at_rest = self._run(_FOREVER_NS if until_ns is None else until_ns, limit)
        if at_rest and until_ns is not None:
            self._horizon = self.now = until_ns
        if not at_rest and max_events != self.events - before:
            raise InternalError(
                f"the simulation did not come to rest within {self._max_events} events (max_events of the kernel):"
                f" at {self.now} ns there are {self.pending} pending"
            )
        return self.events - before

    def _run(self, until_ns: int, limit: int) -> bool:
        """True if nothing is left to do until ``until_ns``, false if the limit on events came first."""
        self._running = True
        try:
            while self._anything(until_ns):
                if self.events >= limit:
                    return False
                self._run_bucket(until_ns, limit - self.events)
            return True
        except Exception as error:
            error.add_note(f"at {self.now} ns of simulated time")
            raise
        finally:
            self._running = False

    def _anything(self, until_ns: int) -> bool:
        """Whether an event is left that is not later than ``until_ns``; those would be in the first bucket."""
        buckets = self._buckets
        while buckets.order:
            number = buckets.order[0]
            if buckets[number]:
                return (number + 1) << self.bits <= until_ns or -max(map(_minus_time_of, buckets[number])) <= until_ns
            del buckets[heappop(buckets.order)]  # cancelling has emptied it
        return False

    def _run_bucket(self, until_ns: int, limit: int) -> None:
        """The loop: run the next bucket. One that is much too wide may never end, so it is left after a while."""
        due = self._open(until_ns)
        most = min(max(len(due), EVENTS_PER_SAMPLE), limit)
        turns = repeat(None, most)
        try:
            for _ in turns:
                minus_time, fn, arg = due.pop()
                self.now = -minus_time
                fn(arg)
                if not due:
                    break
        finally:
            self.events += most - length_hint(turns)
            self._close()

    def _open(self, until_ns: int) -> list[_Event]:
        """Take the next bucket from among the others, and sort it; what is later than ``until_ns`` stays behind."""
        number = heappop(self._buckets.order)
        events = self._buckets.pop(number)
        self._horizon = (number + 1) << self.bits
        if self._horizon > until_ns + 1:
            self._horizon = until_ns + 1
            later = [event for event in events if -event[0] > until_ns]
            if later:
                self._buckets[number].extend(later)
                events = [event for event in events if -event[0] <= until_ns]
        events.reverse()  # sorting is stable: of equal times the first one scheduled comes last, and is taken first
        events.sort(key=_minus_time_of)
        self._due = events
        return events

    def _close(self) -> None:
        """Put back what was not run, so that no bucket is open outside a run."""
        rest = self._due
        if rest:
            rest.reverse()
            bucket = self._buckets[-rest[0][0] >> self.bits]
            bucket[:0] = rest
        self._due = []
        self._horizon = self.now
        if self.events >= self._look_after:
            self._adapt()

    def _adapt(self) -> None:
        """Make the buckets anew if another width is better by far. Equal times stay together and in order."""
        events, now = self._looked_at
        gap_ns = (self.now - now) // (self.events - events)
        pending = self.pending
        self._looked_at = self.events, self.now
        self._look_after = self.events + max(EVENTS_PER_SAMPLE, pending)
        bits = WIDEST_BITS if pending <= FEW_PENDING else (gap_ns * EVENTS_PER_BUCKET).bit_length()
        if abs(bits - self.bits) <= 1:
            return
        waiting = list(self._buckets.values())
        self.bits = bits
        self._buckets.clear()
        self._buckets.order.clear()
        for bucket in waiting:
            for event in bucket:
                self._buckets[-event[0] >> bits].append(event)

    def _fire(self, call: _Call) -> None:
        fn, (timer, *args) = call
        del self._armed[timer]
        fn(*args)


def _call(call: _Call) -> None:
    fn, args = call
    fn(*args)
