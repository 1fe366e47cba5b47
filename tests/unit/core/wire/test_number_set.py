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


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(1, 30))))
def test_all_up_to_a_number_can_be_added(steps: list[tuple[bool, int]]) -> None:
    seen = NumberSet()
    plain: set[int] = set()
    for whole, number in steps:
        if whole:
            seen.add_upto(number)
            plain.update(range(1, number + 1))
        else:
            seen.add(number)
            plain.add(number)
        assert {candidate for candidate in range(1, 40) if candidate in seen} == plain
        assert seen.highest == max(plain)
        assert all(candidate > seen.upto + 1 for candidate in seen.beyond), "it is as small as can be"


def test_a_copy_goes_its_own_way() -> None:
    seen = NumberSet(1, {3: None})
    twin = seen.copy()
    twin.add(2)
    assert (twin.upto, seen) == (3, NumberSet(1, {3: None}))
