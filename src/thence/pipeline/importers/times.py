"""Dates and times of logs as nanoseconds. A time is informative: one that cannot be read is left out, or refused by the caller.

Rules:

* A date without a zone is taken as UTC: the time is that of one process's own clock, and no order is decided by it.
* Nothing is rounded through floating point: 1456966522870845696 stays what it is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from thence.trace.events import INT64_MAX, INT64_MIN

UNITS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
ISO: Final = "iso"

_FORMATS: Final = (
    "%m/%d/%Y %H:%M:%S.%f",
    "%m/%d/%Y %H:%M:%S",
    "%m/%d/%Y %I:%M:%S %p",
    "%d/%m/%y %I:%M %p",
    "%d/%b/%Y:%H:%M:%S %z",
    "%b %d %H:%M:%S %Y",
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST: Final = 64


def nanoseconds_of_date(text: str) -> int | None:
    """Return a date of one of the usual forms, or a plain number of nanoseconds; None if it is neither."""
    text = text.strip()[:_LONGEST]
    if text.isdecimal():
        return _in_range(int(text))
    moment = _iso(text)
    for form in _FORMATS if moment is None else ():
        try:
            moment = datetime.strptime(text, form)  # noqa: DTZ007 - a zone is given below where there is none
            break
        except (ValueError, OverflowError):
            continue
    return None if moment is None else _since_epoch(moment)


def nanoseconds(value: object, unit: str) -> int | None:
    """Return a time given as a number in this unit, also as text, or as a date; None if it is no such time."""
    moment = _iso(value) if isinstance(value, str) and (unit == ISO or not value.isdecimal()) else None
    if moment is not None or unit == ISO:
        return None if moment is None else _since_epoch(moment)
    if isinstance(value, int) and not isinstance(value, bool):
        return _in_range(value * UNITS[unit])
    if not isinstance(value, float | str):
        return None
    try:
        exact = Decimal(str(value)[:_LONGEST]) * UNITS[unit]
        return _in_range(int(exact)) if abs(exact) <= INT64_MAX else None
    except ArithmeticError:
        return None


def _iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _since_epoch(moment: datetime) -> int | None:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    passed = moment - _EPOCH
    return _in_range(((passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds) * 10**3)


def _in_range(number: int) -> int | None:
    return number if INT64_MIN <= number <= INT64_MAX else None
