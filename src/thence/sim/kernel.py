"""The kernel: simulated time, and what happens when.

It exists so that a whole fabric runs in one thread, faster than real time, and the same way every time.

Rules:

* Time is integer nanoseconds. It never goes back, and only ``run`` moves it.
* Events of the same time run in the order in which they were scheduled. Nothing else decides a tie.
* An event is a tuple ``(time, function, argument)``, and nothing more is made per event.
* A plain event cannot be cancelled. A timer can, and is then gone: it is looked for in its bucket, which is small.
* A run that never comes to rest is stopped by a named limit.

How events wait: time is cut into buckets, and a heap says which bucket is next. Scheduling appends to a bucket, and
the bucket is sorted when its turn comes; sorting is stable, so ties keep their order. The width of a bucket follows
the run, so that a bucket holds a handful of events: any width gives the same run, some are quicker. One heap of all
events would be shorter, but it compares tuples on every push and pop, and that is much of what an event costs.
``benchmarks/simulator.py`` measures the kernel.
"""

from __future__ import annotations

from bisect import insort_right
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import islice
from operator import itemgetter, length_hint
from typing import Any, NewType

from thence.errors import ConfigError, InternalError, UsageError

MAX_EVENTS = 1_000_000_000
"""Events one kernel runs in its life unless told otherwise: hours of work, so what gets there is going in circles."""

FIRST_WIDTH_BITS = 17
"""A bucket is ``1 << bits`` nanoseconds wide; the first ones are 131 µs, as delays are mostly milliseconds."""

MAX_WIDTH_BITS = 40
"""Buckets grow no wider than 18 minutes, however few the events."""

FEWEST_PER_BUCKET, BEST_PER_BUCKET, MOST_PER_BUCKET = 16, 31, 100
"""Outside the first and the last, as an average, buckets are made anew with a width that gives about the middle one."""

EVENTS_PER_SAMPLE = 1_000
"""The average is looked at after this many events, or as many as are pending if those are more: so it costs little."""

Timer = NewType("Timer", int)
"""What ``Kernel.timer`` hands out and ``Kernel.cancel`` takes."""

_Event = tuple[int, Callable[[Any], object], Any]
_Call = tuple[Callable[..., object], tuple[Any, ...]]
_time_of = itemgetter(0)
_NO_BUCKET = -1
_FOREVER_NS = 1 << 63


class _Buckets(dict[int, list[_Event]]):
    """Buckets by number, which is time divided by width. Asking for one makes it."""

    __slots__ = ("late", "open", "order")

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] = []  # a heap of the numbers
        self.open = _NO_BUCKET  # the number of the bucket that is being run, which is not among the others
        self.late: list[_Event] = []  # events scheduled for the open bucket by its own events

    def __missing__(self, number: int) -> list[_Event]:
        if number == self.open:
            return self.late
        events: list[_Event] = []
        self[number] = events
        heappush(self.order, number)
        return events


class Kernel:
    """Events that wait for their time, and the time of the latest one."""

    __slots__ = (
        "_armed", "_bits", "_buckets", "_cursor", "_events_open", "_look_after", "_looked_at", "_max_events", "_opened",
        "_timers", "events", "now",
    )  # fmt: skip

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        if max_events < 1:
            raise ConfigError(f"max_events must be at least 1, not {max_events}")
        self.now = 0  # nanoseconds; read it, never write it
        self.events = 0  # events run so far; brought up to date after each bucket
        self._max_events = max_events
        self._bits = FIRST_WIDTH_BITS
        self._buckets = _Buckets()
        self._events_open: list[_Event] = []  # the open bucket, sorted, with what has run already
        self._cursor: Iterator[_Event] = iter(())  # what the open bucket still holds
        self._opened, self._looked_at, self._look_after = 0, 0, EVENTS_PER_SAMPLE  # buckets, events: see _adapt
        self._timers = 0
        self._armed: dict[int, tuple[int, _Call]] = {}  # timers that are still to fire: when, and what

    @property
    def pending(self) -> int:
        """How many events are still to run."""
        waiting = sum(map(len, self._buckets.values()))
        return waiting + length_hint(self._cursor) + len(self._buckets.late)

    def post(self, delay_ns: int, fn: Callable[[Any], object], arg: Any) -> None:
        """Call ``fn(arg)`` when ``delay_ns`` have passed: the quickest way to schedule."""
        if delay_ns < 0:
            raise UsageError(f"an event cannot be scheduled {-delay_ns} ns in the past")
        time = self.now + delay_ns
        self._buckets[time >> self._bits].append((time, fn, arg))

    def schedule(self, delay_ns: int, fn: Callable[..., object], *args: Any) -> None:
        """Call ``fn(*args)`` when ``delay_ns`` have passed."""
        if delay_ns < 0:
            raise UsageError(f"an event cannot be scheduled {-delay_ns} ns in the past")
        time = self.now + delay_ns
        # Said again rather than left to post(): a second call would cost a fifth of the event.
        event = (time, fn, args[0]) if len(args) == 1 else (time, _call, (fn, args))
        self._buckets[time >> self._bits].append(event)

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
        bucket = time >> self._bits
        if bucket == self._buckets.open:
            # What is armed has not run, so it is ahead of the cursor, where the list may change.
            found = _remove(self._buckets.late, call) or _remove(self._events_open, call)
        else:
            found = _remove(self._buckets[bucket], call)
        if not found:
            raise InternalError(f"timer {timer} is armed, but not where it should be")
        return True

    def run(self, until_ns: int | None = None, max_events: int | None = None) -> int:
        """Run events in order and return how many ran.

        Stops when none is left, when the next one is later than ``until_ns``, or after ``max_events``. In the first two
        cases the time is then ``until_ns``, if that was given. An error in a callback comes out as it is, with a note
        that says when it happened; the events behind it stay pending.
        """
        if self._buckets.open != _NO_BUCKET:
            raise UsageError("run() was called from inside an event: schedule an event instead")
        if until_ns is not None and until_ns < self.now:
            raise UsageError(f"cannot run until {until_ns} ns: it is {self.now} ns already")
        before = self.events
        limit = self._max_events if max_events is None else min(self._max_events, before + max_events)
        at_rest = self._run(_FOREVER_NS if until_ns is None else until_ns, limit)
        if at_rest and until_ns is not None:
            self.now = until_ns
        if not at_rest and max_events != self.events - before:
            raise InternalError(
                f"the simulation did not come to rest within {self._max_events} events (max_events of the kernel):"
                f" at {self.now} ns there are {self.pending} pending"
            )
        return self.events - before

    def _run(self, until_ns: int, limit: int) -> bool:
        """The loop: true if nothing is left to do until ``until_ns``, false if the limit on events came first."""
        buckets, late = self._buckets, self._buckets.late
        try:
            while buckets.order and buckets.order[0] << self._bits <= until_ns:
                if self.events >= limit:
                    return self._next_ns() > until_ns
                events = self._open()
                # A bucket that is much too wide may never end. Then it is closed, its width looked at, and opened again.
                most = max(len(events), EVENTS_PER_SAMPLE)
                for time, fn, arg in islice(self._cursor, min(most, limit - self.events)):
                    if time > until_ns:
                        self._cursor = iter([(time, fn, arg), *self._cursor])
                        return True
                    self.now = time
                    fn(arg)
                    if late:
                        for event in late:
                            insort_right(events, event, key=_time_of)  # not before now: the cursor will get there
                        late.clear()
                self._close()
            return True
        except Exception as error:
            error.add_note(f"at {self.now} ns of simulated time")
            raise
        finally:
            if buckets.open != _NO_BUCKET:
                self._close()

    def _next_ns(self) -> int:
        """When the next event is, and later than any time if there is none. Cancelling may have emptied buckets."""
        buckets = self._buckets
        while buckets.order and not buckets[buckets.order[0]]:
            del buckets[heappop(buckets.order)]
        return min(map(_time_of, buckets[buckets.order[0]])) if buckets.order else _FOREVER_NS + 1

    def _open(self) -> list[_Event]:
        """Take the next bucket from among the others, and sort it."""
        buckets = self._buckets
        buckets.open = heappop(buckets.order)
        self._events_open = events = buckets.pop(buckets.open)
        events.sort(key=_time_of)
        self._cursor = iter(events)
        return events

    def _close(self) -> None:
        """Count what was run and put back what was not, so that no bucket is open outside a run."""
        buckets = self._buckets
        rest = list(self._cursor)
        self.events += len(self._events_open) - len(rest)
        number, buckets.open = buckets.open, _NO_BUCKET
        if rest or buckets.late:
            buckets[number] += rest + buckets.late
            buckets.late.clear()
        self._opened += 1
        if self.events >= self._look_after:
            self._adapt()

    def _adapt(self) -> None:
        """Make the buckets anew if they hold too few or too many events. Equal times stay together and in order."""
        per_bucket = max(1, (self.events - self._looked_at) // self._opened)
        self._opened, self._looked_at = 0, self.events
        self._look_after = self.events + max(EVENTS_PER_SAMPLE, self.pending)
        bits = self._bits + BEST_PER_BUCKET.bit_length() - per_bucket.bit_length()
        bits = min(max(bits, 0), MAX_WIDTH_BITS)
        if FEWEST_PER_BUCKET <= per_bucket <= MOST_PER_BUCKET or bits == self._bits:
            return
        waiting = list(self._buckets.values())
        self._bits = bits
        self._buckets.clear()
        self._buckets.order.clear()
        for events in waiting:
            for event in events:
                self._buckets[event[0] >> bits].append(event)

    def _fire(self, call: _Call) -> None:
        fn, (timer, *args) = call
        del self._armed[timer]
        fn(*args)


def _call(call: _Call) -> None:
    fn, args = call
    fn(*args)


def _remove(events: list[_Event], call: _Call) -> bool:
    """Take out the event of this very call, the latest first; false if it is not there."""
    for place in range(len(events) - 1, -1, -1):
        if events[place][2] is call:
            del events[place]
            return True
    return False
