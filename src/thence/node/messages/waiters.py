"""Who waits until all have what was sent: clients of a server, and the program in an embedded member.

What a client sent is a part of what its server has sent by the time it asks. So one number for each who waits is enough: the last
message of the server at that time. Who loses its connection asks again over the next one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from thence.core.member.member import Member

MAX_WAITERS: Final = 100_000
"""How many may wait at a time, at one server."""

MAX_WAITERS_EACH: Final = 10_000
"""How many times one may wait, so that nobody takes all places."""


class _Waiter(NamedTuple):
    number: int
    who: object
    then: Callable[[str], None]


class Waiters:
    """Those who wait, in the order of what they wait for."""

    def __init__(self, member: Member) -> None:
        """Nobody waits for what ``member`` has sent."""
        self._member = member
        self._waiting: deque[_Waiter] = deque()
        self._times: Counter[object] = Counter()
        """How often each who waits does."""
        self._gone = 0
        """How many in the queue are of somebody who has gone: taken out together, so that leaving costs nobody much."""

    def ask(self, who: object, then: Callable[[str], None]) -> None:
        """Call ``then`` with nothing when all have what was sent so far, or at once with the reason why nobody will say so."""
        member = self._member
        if not member.topology.stability:
            then(self._reason())
        elif member.forwarder.stable_upto >= member.forwarder.number:
            then("")
        elif (count := len(self._waiting) - self._gone) >= MAX_WAITERS:
            then(f"{count} wait until all have what was sent; MAX_WAITERS is {MAX_WAITERS}")
        elif self._times[who] >= MAX_WAITERS_EACH:
            then(f"{self._times[who]} times you wait until all have what was sent; MAX_WAITERS_EACH is {MAX_WAITERS_EACH}")
        else:
            self._waiting.append(_Waiter(member.forwarder.number, who, then))
            self._times[who] += 1

    def drop(self, who: object) -> None:
        """Somebody is gone."""
        self._gone += self._times.pop(who, 0)
        if 2 * self._gone > len(self._waiting):
            self._waiting = deque(patient for patient in self._waiting if patient.who in self._times)
            self._gone = 0

    def heard(self, upto: int) -> None:
        """All have what was sent up to this number."""
        while self._waiting and self._waiting[0].number <= upto:
            patient = self._waiting.popleft()
            if patient.who not in self._times:
                self._gone -= 1
                continue
            self._times[patient.who] -= 1
            if not self._times[patient.who]:
                del self._times[patient.who]
            patient.then("")

    def changed(self) -> None:
        """Another topology is in force: perhaps one in which nobody finds out any more.

        What waited for it went out behind greetings, so with other numbers than it had when somebody asked.
        """
        member = self._member
        if member.topology.stability:
            stable, last = member.forwarder.stable_upto, member.forwarder.number
            asked = [patient if patient.number <= stable else patient._replace(number=last) for patient in self._waiting]
            self._waiting = deque(asked)
            return
        waiting = [patient for patient in self._waiting if patient.who in self._times]
        self._waiting, self._gone = deque(), 0
        self._times.clear()
        for patient in waiting:
            patient.then(self._reason())

    def _reason(self) -> str:
        name = self._member.topology.name
        return f"nobody finds out in {name!r} when all have a message; its topology must say stability = true"
