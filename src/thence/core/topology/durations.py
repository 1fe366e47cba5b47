"""Lengths of time as people write them: ``2ms``, ``1.5s``. Nanoseconds inside, and exact both ways."""

from __future__ import annotations

import re
from difflib import get_close_matches

from thence.errors import ConfigError

MAX_DELAY_NS = 3_600_000_000_000
"""No delay is longer than an hour."""

_NS_PER_UNIT = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}  # the largest first: see format_duration
_DURATION = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([a-zµ]*)", re.ASCII | re.IGNORECASE)


def parse_duration_ns(text: str) -> int:
    """Nanoseconds from text such as ``2ms`` or ``1.5s``."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not a duration: write a number and a unit, such as 2ms")
    number, unit = match.groups()
    if unit not in _NS_PER_UNIT:
        raise ConfigError(f"{text!r} has {_unit_trouble(number, unit)}")
    whole, _, part = str(number).partition(".")
    ns: int
    ns, rest = divmod(int(whole + part) * _NS_PER_UNIT[unit], 10 ** len(part))
    if rest:
        raise ConfigError(f"{text!r} is not a whole number of nanoseconds")
    if ns > MAX_DELAY_NS:
        raise ConfigError(f"{text!r} is longer than the longest delay, {format_duration(MAX_DELAY_NS)}")
    return ns


def format_duration(ns: int) -> str:
    """The shortest exact text: the largest unit that divides it."""
    unit = next(unit for unit, size in _NS_PER_UNIT.items() if ns % size == 0) if ns else "ns"
    return f"{ns // _NS_PER_UNIT[unit]}{unit}"


def _unit_trouble(number: str, unit: str) -> str:
    if not unit:
        return f"no unit: did you mean {number}ms?"
    close = get_close_matches(unit.lower(), _NS_PER_UNIT, n=1, cutoff=0.5)
    return f"no unit we know ({unit}): " + (f"did you mean {number}{close[0]}?" if close else "use ns, us, ms or s")
