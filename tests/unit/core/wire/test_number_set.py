"""A set of numbers that is small when holes get filled, and exact always."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thence.core.wire.number_set import NumberSet


@given(numbers=st.lists(st.integers(1, 30)))
def test_it_is_a_set(numbers: list[int]) -> None:
    seen = NumberSet()
    plain: set[int] = set()
    for number in numbers:
        assert seen.add(number) == (number not in plain)
        plain.add(number)
        assert {candidate for candidate in range(1, 40) if candidate in seen} == plain


@given(numbers=st.permutations(range(1, 20)))
def test_without_holes_nothing_is_kept_beyond(numbers: list[int]) -> None:
    seen = NumberSet()
    for number in numbers:
        seen.add(number)
    assert (seen.upto, seen.beyond) == (19, {})


def test_what_was_overtaken_is_no_repetition() -> None:
    seen = NumberSet()
    assert [seen.add(number) for number in (3, 1, 3, 2, 2)] == [True, True, False, True, False]


def test_numbers_below_one_are_never_new() -> None:
    assert 0 in NumberSet()
    assert not NumberSet().add(-5)
