"""Times of logs as nanoseconds, exactly, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.pipeline.importers.times import ISO, UNITS, nanoseconds, nanoseconds_of_date
from thence.trace.events import INT64_MAX, INT64_MIN


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1, "s", 10**9),
        (1.5, "s", 1_500_000_000),
        ("1456966522.870845696", "s", 1456966522870845696),
        (1456966522870845696, "ns", 1456966522870845696),
        (-3, "us", -3_000),
        ("2024-02-29T12:00:00Z", ISO, 1709208000 * 10**9),
        ("2024-02-29T13:00:00+01:00", ISO, 1709208000 * 10**9),
        (10**19, "s", None),
        ("soon", "ms", None),
        ("nan", "s", None),
        ("1e999999999", "s", None),
        (True, "s", None),
        (1, ISO, None),
        ([1], "s", None),
    ],
)
def test_a_number_in_a_unit(value: object, unit: str, expected: int | None) -> None:
    assert nanoseconds(value, unit) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10/13/2014 04:23:20.113", 1413174200_113_000_000),
        ("5/27/2013 10:53:39 AM", 1369652019 * 10**9),
        ("2013-05-24 23:28:00,637", 1369438080_637_000_000),
        ("1456966522870845696", 1456966522870845696),
        ("9" * 30, None),
        ("", None),
    ],
)
def test_a_date(text: str, expected: int | None) -> None:
    assert nanoseconds_of_date(text) == expected


@given(st.one_of(st.text(max_size=80), st.integers(), st.floats(), st.none(), st.booleans()), st.sampled_from([*UNITS, ISO]))
def test_anything_is_a_time_or_none(value: object, unit: str) -> None:
    for time in (nanoseconds(value, unit), nanoseconds_of_date(str(value))):
        assert time is None or INT64_MIN <= time <= INT64_MAX
