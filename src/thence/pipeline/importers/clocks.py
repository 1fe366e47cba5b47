"""Messages from vector clocks: who must have heard from whom, when a log has clocks but no messages.

ShiViz and GoVector logs hold events with vector clocks and nothing about sends and receipts. An event whose clock knows more
of other hosts than the event before it on its own host has received something. This kernel finds from which events it heard
directly; it knows no Spark, no files and no text.

Rules:

* An entry ``h: n`` of a clock says: every event of ``h`` up to its n-th is in my past. ``n`` need not be in the log: what
  counts is the last event of ``h`` up to ``n`` that is. So an event that is missing, or was set aside, costs nothing but
  itself.
* An event heard directly from the newest events that it knows and its predecessor did not, without those that another one of
  them already knew. Happens-before of what comes out is exactly that of the clocks: no pair more, no pair less.
* One message per event that was heard from, to all hosts that heard it directly, named ``host:number``.
* A clock that cannot be is refused, with its reason; the others are judged without it. In a circle of events that each know
  the next one, the clock with the greatest sum is refused: it claims most.
* Each event waits for what it names and is looked at once: n events of h hosts cost n times h, not n times n.

A receipt that brought no news leaves no mark in clocks. A message that was overtaken (its send was already known when it
arrived) is therefore never found: what is derived from clocks can show who knew what, but not that order was broken.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple


class Logged(NamedTuple):
    """An event as the log has it. ``clock`` has a positive entry for ``host``."""

    host: str
    clock: Mapping[str, int]

    @property
    def number(self) -> int:
        """Which event of its host it is, as the clock counts."""
        return self.clock[self.host]


class Heard(NamedTuple):
    """An event that can be: its place in what was given, and what it received and sent."""

    place: int
    received: tuple[str, ...]
    sent_to: tuple[str, ...]


class Derived(NamedTuple):
    """What the clocks say. ``events`` are in the order of their hosts' names, and of the host's own history."""

    events: list[Heard]
    refused: list[tuple[int, str]]
    missing: list[tuple[str, str]]


def message_id(host: str, number: int) -> str:
    """Return the name of the message that an event sends."""
    return f"{host}:{number}"


def derive(events: Sequence[Logged]) -> Derived:
    """Find the messages of one run."""
    return _Run(events).derived()


@dataclass
class _Host:
    """One host: what is still to be looked at, and what was accepted so far."""

    queue: list[tuple[int, int]]
    """(number, place), in order and without repetitions."""
    next: int = 0
    numbers: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    waiting: list[tuple[int, str]] = field(default_factory=list)
    """A heap of (number, host): that host's next event wants to know about this one's events up to the number."""
    waits_for: str = ""

    def pending(self) -> int | None:
        """Return the number of the next event, or None after the last."""
        return self.queue[self.next][0] if self.next < len(self.queue) else None

    def last_up_to(self, number: int) -> int | None:
        """Return the place of the last accepted event up to this number."""
        position = bisect_right(self.numbers, number)
        return self.places[position - 1] if position else None


class _Run:
    """The state of one derivation."""

    def __init__(self, events: Sequence[Logged]) -> None:
        self.events = events
        self.weights = [sum(event.clock.values()) for event in events]
        self.refused: list[tuple[int, str]] = []
        self.heard: dict[int, list[int]] = {}
        self.hosts = self._hosts()
        self.ready = sorted(self.hosts, reverse=True)

    def _hosts(self) -> dict[str, _Host]:
        by_host: dict[str, dict[int, int]] = {}
        for place, event in enumerate(self.events):
            first = by_host.setdefault(event.host, {}).setdefault(event.number, place)
            if first != place:
                self.refused.append((place, f"the clock repeats number {event.number} of '{event.host}'"))
        return {host: _Host(sorted(numbers.items())) for host, numbers in by_host.items()}

    def derived(self) -> Derived:
        left = True
        while left:
            while self.ready:
                self._advance(self.ready.pop())
            left = self._break_a_circle()
        return Derived(self._rows(), sorted(self.refused), self._missing())

    # --- in which order ----------------------------------------------------------------------------------------------

    def _advance(self, name: str) -> None:
        """Look at the host's next events until one has to wait for another host's."""
        host = self.hosts[name]
        while host.next < len(host.queue):
            place = host.queue[host.next][1]
            blocker = self._blocker(self.events[place])
            if blocker is not None:
                host.waits_for = blocker
                heappush(self.hosts[blocker].waiting, (self.events[place].clock[blocker], name))
                return
            reason = self._look(place)
            self._resolve(name, reason)

    def _blocker(self, event: Logged) -> str | None:
        for name, number in event.clock.items():
            other = self.hosts.get(name)
            if other is None or name == event.host:
                continue
            pending = other.pending()
            if pending is not None and pending <= number:
                return name
        return None

    def _resolve(self, name: str, reason: str | None) -> None:
        """Accept or refuse the host's next event, and wake who waited for it."""
        host = self.hosts[name]
        number, place = host.queue[host.next]
        host.next += 1
        if reason is None:
            host.numbers.append(number)
            host.places.append(place)
        else:
            self.refused.append((place, reason))
        pending = host.pending()
        while host.waiting and (pending is None or host.waiting[0][0] < pending):
            self.ready.append(heappop(host.waiting)[1])

    def _break_a_circle(self) -> bool:
        """Where hosts wait for each other, refuse the event that claims most; False when nobody waits."""
        stuck = next((name for name, host in self.hosts.items() if host.pending() is not None), None)
        if stuck is None:
            return False
        path: list[str] = []
        while stuck not in path:
            path.append(stuck)
            stuck = self.hosts[stuck].waits_for
        circle = path[path.index(stuck) :]
        heads = {name: self.hosts[name].queue[self.hosts[name].next][1] for name in circle}
        worst = max(circle, key=lambda name: (self.weights[heads[name]], name))
        event = self.events[heads[worst]]
        known = self.hosts[worst].waits_for
        self._resolve(worst, f"the clock knows '{known}' up to {event.clock[known]}, which comes after this event itself")
        self.ready.append(worst)
        return True

    # --- what an event heard -----------------------------------------------------------------------------------------

    def _look(self, place: int) -> str | None:
        """Note what the event heard directly, or return why its clock cannot be."""
        event = self.events[place]
        host = self.hosts[event.host]
        before = self.events[host.places[-1]].clock if host.places else {}
        for name, number in before.items():
            if event.clock.get(name, 0) < number:
                return f"the clock goes back: '{name}' was {number} and is {event.clock.get(name, 0)}"
        news = self._news(event, before)
        for other in news:
            for name, number in self.events[other].clock.items():
                if event.clock.get(name, 0) < number:
                    known = self.events[other]
                    return (
                        f"the clock knows event {known.number} of '{known.host}', but not what that one knew: "
                        f"'{name}' is {event.clock.get(name, 0)}, there {number}"
                    )
        self.heard[place] = self._newest(news)
        return None

    def _news(self, event: Logged, before: Mapping[str, int]) -> list[int]:
        """Return the last known event of every other host of which more is known than before."""
        news = []
        for name, number in event.clock.items():
            other = self.hosts.get(name)
            old = before.get(name, 0)
            if other is None or name == event.host or number <= old:
                continue
            known = other.last_up_to(number)
            if known is not None and known != other.last_up_to(old):
                news.append(known)
        return news

    def _newest(self, news: list[int]) -> list[int]:
        """Leave out what another one of them already knew. Whoever knows another has the greater sum, so it comes first."""
        if len(news) == 1:
            return news
        newest: list[int] = []
        covered: dict[str, int] = {}
        for place in sorted(news, key=lambda place: self.weights[place], reverse=True):
            event = self.events[place]
            if event.number <= covered.get(event.host, 0):
                continue
            newest.append(place)
            for name, number in event.clock.items():
                covered[name] = max(covered.get(name, 0), number)
        return sorted(newest, key=lambda place: self.events[place].host)

    # --- the result --------------------------------------------------------------------------------------------------

    def _rows(self) -> list[Heard]:
        sent_to: dict[int, list[str]] = {}
        for place, sources in self.heard.items():
            for source in sources:
                sent_to.setdefault(source, []).append(self.events[place].host)
        return [
            Heard(
                place,
                tuple(message_id(self.events[source].host, self.events[source].number) for source in self.heard[place]),
                tuple(sorted(sent_to.get(place, ()))),
            )
            for name in sorted(self.hosts)
            for place in self.hosts[name].places
        ]

    def _missing(self) -> list[tuple[str, str]]:
        """Say for each host which of its events are counted by clocks, but not in the log."""
        highest: dict[str, int] = {}
        for place in self.heard:
            for name, number in self.events[place].clock.items():
                highest[name] = max(highest.get(name, 0), number)
        found = []
        for name, last in sorted(highest.items()):
            there = [number for number, _ in self.hosts[name].queue if number <= last] if name in self.hosts else []
            if len(there) < last:
                first = next((wanted for wanted, number in enumerate(there, 1) if wanted != number), len(there) + 1)
                found.append(
                    (name, f"clocks count {last} events of '{name}', of which {last - len(there)} are missing: first {first}")
                )
        return found
