"""Limits on what one place can cause: log lines about those who do what they should not, and connections in a second.

Each line names the offender, and there are never too many of them.

Whoever can make a server write a line can make it write a million. So the same offence of the same place is one line each
``REPEAT_EVERY_S``; numbers in it do not make it another one. Of different ones there are at most ``BURST_LINES`` at once and one
each ``LINE_EVERY_S`` after that from one place, and ``ALL_BURST_LINES`` and one each ``ALL_LINE_EVERY_S`` in all. The last
``FIRST_LINES`` of these are for places about which there was no line lately, so that a few cannot hide all others. What was
left out is counted, and the next line says how many.

Names and reasons come from outside: whatever could pass for the end of a line or hide something is written escaped.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import re
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from thence.runtime.printable import printable
from thence.words import counted

BURST_LINES: Final = 20
LINE_EVERY_S: Final = 5.0
ALL_BURST_LINES: Final = 100
ALL_LINE_EVERY_S: Final = 1.0
FIRST_LINES: Final = 20
"""Of these, so many are kept for places about which there was no line lately."""
MAX_PLACES: Final = 1_024
"""How many places are remembered; the one that was quiet for longest is forgotten first."""
REPEAT_EVERY_S: Final = 60.0
MAX_LINE_CHARACTERS: Final = 1_000

log = logging.getLogger("thence.complaints")


class Allowance:
    """Lines that may still be written: so many at first, and one more every so often."""

    def __init__(self, burst: int, every_s: float, now: float) -> None:
        self._burst, self._every_s = burst, every_s
        self._left, self._at = float(burst), now

    def left(self, now: float) -> float:
        """Return how many there are."""
        self._left = min(self._burst, self._left + (now - self._at) / self._every_s)
        self._at = now
        return self._left

    def take(self, now: float) -> bool:
        """Take one, if there is one."""
        if self.left(now) < 1:
            return False
        self._left -= 1
        return True


class RecentLines:
    """What there were lines about in the last ``REPEAT_EVERY_S``. Of each it keeps a few bytes."""

    def __init__(self) -> None:
        self._at: dict[bytes, float] = {}

    def repeats(self, offence: bytes, now: float) -> bool:
        """Return whether there was such a line lately."""
        at = self._at.get(offence)
        return at is not None and now - at < REPEAT_EVERY_S

    def note(self, offence: bytes, now: float) -> None:
        """There is one now."""
        self._at.pop(offence, None)
        self._at[offence] = now
        while now - self._at[oldest := next(iter(self._at))] >= REPEAT_EVERY_S:
            del self._at[oldest]


def offence_of(place: str, text: str) -> bytes:
    """Return what stands for a line about a place, whatever numbers are in it."""
    line = f"{place} {_NUMBERS.sub('#', text[:MAX_LINE_CHARACTERS])}"
    return hashlib.blake2b(line.encode("utf-8", "surrogatepass"), digest_size=16).digest()


_NUMBERS: Final = re.compile(r"\d+")


class Offender:
    """What one server did lately."""

    def __init__(self, now: float) -> None:
        self._allowance = Allowance(BURST_LINES, LINE_EVERY_S, now)
        self._written = RecentLines()

    def may_say(self, text: str, now: float) -> bool:
        """Return whether there may be a line about this: there was none of it for ``REPEAT_EVERY_S``, and not too many others."""
        offence = offence_of("", text)
        if self._written.repeats(offence, now) or not self._allowance.take(now):
            return False
        self._written.note(offence, now)
        return True


class OffenderLog:
    """Write log lines about others, within limits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` tells seconds."""
        self._clock = clock
        self._all = Allowance(ALL_BURST_LINES, ALL_LINE_EVERY_S, clock())
        self._written = RecentLines()
        self.places: dict[str, Allowance] = {}
        self.left_out = 0
        """How many lines were not written since the last one that was."""

    def say(self, address: str, text: str) -> None:
        """Write a line about somebody at an address (``host:port``), unless there were too many."""
        now, name = self._clock(), place_of(address.rpartition(":")[0])
        place = self.places.pop(name, None) or Allowance(BURST_LINES, LINE_EVERY_S, now)
        self.places[name] = place  # At the end: the first is the one that was quiet for longest.
        if len(self.places) > MAX_PLACES:
            del self.places[next(iter(self.places))]
        about, offence = offence_of(name, ""), offence_of(name, text)
        kept = FIRST_LINES if self._written.repeats(about, now) else 0
        room = self._all.left(now) >= 1 + kept and not self._written.repeats(offence, now)
        if not (room and place.take(now) and self._all.take(now)):
            self.left_out += 1
            return
        self._written.note(about, now)
        self._written.note(offence, now)
        more = (
            f" ({counted(self.left_out, 'line')} like this {'was' if self.left_out == 1 else 'were'} left out)"
            if self.left_out
            else ""
        )
        self.left_out = 0
        log.warning("%s: %s%s", address, escaped(text), more)


@lru_cache(maxsize=MAX_PLACES)
def place_of(host: str) -> str:
    """Return what counts as one place: an address, or of the newer kind the network that a single subscriber gets."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), 64), strict=False))


def escaped(text: str) -> str:
    """Return a text from outside as one line of bounded length."""
    return printable(cut(text))


def cut(text: str) -> str:
    """Return a text of bounded length."""
    return text if len(text) <= MAX_LINE_CHARACTERS else f"{text[:MAX_LINE_CHARACTERS]}… ({len(text)} characters)"


class ArrivalPace:
    """How many connections are begun with in a second from each place: whoever comes without end waits, and others do not.

    A place has so many at once, and gets one more every so often. Each one that comes behind these is told when its turn is.
    """

    def __init__(self, per_s: float, burst: int, longest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``longest_s``: how long one may have to wait for its turn, at most."""
        self._every_s, self._burst_s, self._longest_s = 1 / per_s, burst / per_s, longest_s
        self._clock = clock
        self._last: dict[str, float] = {}
        """When the last one of each place has its turn, the place that was quiet for longest first."""

    def delay(self, place: str) -> float | None:
        """Return after how many seconds somebody has its turn; None: that would be too long, and it has none."""
        now = self._clock()
        last = self._last.pop(place, 0.0)
        turn = max(last, now - self._burst_s) + self._every_s
        too_long = turn - now > self._longest_s
        self._last[place] = last if too_long else turn
        if len(self._last) > MAX_PLACES:
            del self._last[next(iter(self._last))]
        return None if too_long else max(0.0, turn - now)
