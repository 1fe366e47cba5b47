"""Bodies that would stop their reader: values that cannot be made, and tables that take hours to read."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thence.client.table_costs import SHIFT, is_costly
from thence.client.values import FEW_KEYS, check_tables, decode_value
from thence.core.wire.messages import UNREADABLE

encode = msgspec.msgpack.encode
_FIRST, _SECOND, _BEGIN, _ALL = 11400714785074694791, 14029467366897019727, 2870177450012600261, 2**64 - 1
"""The constants by which Python makes the hash of a tuple (``Objects/tupleobject.c``)."""


def turned(number: int, bits: int) -> int:
    return (number << bits | number >> 64 - bits) & _ALL


def alike(count: int) -> list[tuple[int, int]]:
    """Return pairs that all have one hash."""
    wanted = turned(12345 * pow(_FIRST, -1, 2**64) & _ALL, 64 - 31)
    found: list[tuple[int, int]] = []
    one = 0
    while len(found) < count:
        one += 1
        other = (wanted - turned((_BEGIN + one * _SECOND) & _ALL, 31) * _FIRST) * pow(_SECOND, -1, 2**64) & _ALL
        if other < 2**61 - 1:
            found.append((one, other))
    assert len(set(map(hash, found))) == 1
    return found


def to_one_run(bits: int) -> list[int]:
    """Return numbers with different hashes that lead to places next to each other, as a table of this size goes through them."""
    size = 1 << bits
    order = [0]
    while len(order) < size:
        order.append((5 * order[-1] + 1) % size)
    when = {place: number for number, place in enumerate(order)}
    taken = size // 2
    found = order[:taken]
    for number in range(size, 1 << bits + SHIFT + 1):
        place, rest = number % size, number
        while when[place] < taken and rest:
            rest >>= SHIFT
            place = (5 * place + rest + 1) % size
        if when[place] < taken // 5 and len(found) < 2 * size // 3:
            found.append(number)
    assert len(found) == 2 * size // 3
    return found


BAD = {"lists of one hash": alike(4 * FEW_KEYS), "numbers": to_one_run(11), "texts before": ["x", "y", *alike(4 * FEW_KEYS)]}


@pytest.mark.parametrize("keys", BAD.values(), ids=BAD)
@pytest.mark.parametrize(
    "wrap", [lambda table: table, lambda table: [1, "x" * 300, {"a": [2.5, table]}], lambda table: {(1,): table}]
)
def test_a_table_whose_keys_would_take_long_is_refused(wrap: Any, keys: list[Any]) -> None:
    body = encode(wrap(dict.fromkeys(keys)))
    for cut in (len(body), len(body) - 1):  # A body without its end is read up to there.
        with pytest.raises(msgspec.DecodeError, match=r"a table has .* by which it would take long"):
            decode_value(body[:cut])
    fine = wrap(dict.fromkeys(keys[:FEW_KEYS]))
    assert decode_value(encode(fine)) == fine


Pairs = set[tuple[int, int]]


class Holder(msgspec.Struct):
    inner: dict[str, Holder] = {}
    some: frozenset[tuple[int, int]] | None = None


@pytest.mark.parametrize(
    ("as_type", "wrap"),
    [
        (Pairs, lambda pairs: pairs),
        (list[Pairs], lambda pairs: [*[[]] * 200, pairs]),
        (dict[str, Pairs | None], lambda pairs: {"a": None, "b": pairs}),
        (Holder, lambda pairs: {"inner": {"x": {"some": pairs}}}),
    ],
)
def test_a_set_whose_items_would_take_long_is_refused(as_type: Any, wrap: Any) -> None:
    with pytest.raises(msgspec.DecodeError, match=r"a set has .* by which it would take long"):
        decode_value(encode(wrap(alike(12 * FEW_KEYS))), as_type)
    different = [(one, one) for one in range(1_000)]
    assert decode_value(encode(wrap(different)), as_type) == msgspec.convert(wrap(different), as_type)
    assert decode_value(encode(wrap([(1, 2)] * 1_000)), as_type) == msgspec.convert(wrap([(1, 2)]), as_type)


def test_lists_in_lists_are_not_gone_through_again_and_again() -> None:
    """A body of 57 KB took seconds."""
    with pytest.raises(msgspec.DecodeError, match="nested such that it would take long"):
        decode_value(b"\xdc\x00\x81" * 19_000, set[int])
    deep = [[[one] * 2_000] for one in range(200)]
    assert decode_value(encode(deep), list[list[set[int]]]) == [[{one}] for one in range(200)]


def test_lists_that_become_no_sets_are_not_looked_at() -> None:
    same = [list(pair) for pair in alike(12 * FEW_KEYS)]
    assert decode_value(encode(same), list[list[int]]) == same


@pytest.mark.parametrize("as_set", [False, True])
@pytest.mark.parametrize("shift", [0, 1, 10, 20, 24, 33, 47])
def test_honest_numbers_are_read(shift: int, as_set: bool) -> None:
    assert not is_costly([hash(one << shift) for one in range(5_000)], as_set=as_set)


@pytest.mark.parametrize("as_set", [False, True])
def test_what_all_leads_to_one_place_is_costly(as_set: bool) -> None:
    assert is_costly([7] * (12 * FEW_KEYS if as_set else 2 * FEW_KEYS), as_set=as_set)
    assert not is_costly([7] * FEW_KEYS, as_set=as_set)


def test_tables_by_lists_whose_hashes_differ_are_read() -> None:
    table = {(one, str(one)): [one] for one in range(5_000)}
    assert decode_value(encode(table)) == table


@pytest.mark.parametrize("as_type", [set, frozenset, list[set[Any]]])
def test_what_cannot_be_in_a_set_cannot_be_read(as_type: Any) -> None:
    body = encode([[{}]]) if as_type == list[set[Any]] else encode([{}])
    with pytest.raises(UNREADABLE):
        decode_value(body, as_type)


def test_a_type_that_nothing_can_be_read_as_is_the_fault_of_who_asks() -> None:
    with pytest.raises(TypeError, match="not supported"):
        decode_value(b"\x01", dict[list[int], int] | dict[str, int])


EVERY_KIND = [
    *(None, True, False, 1.5, 0, 127, -32, -33, 200, 2**16, 2**32, 2**64 - 1, -200, -(2**15), -(2**31), -(2**63)),
    *("x" * length for length in (0, 31, 32, 255, 256, 65_536)),
    *(b"y" * length for length in (0, 255, 256, 65_536)),
    *(msgspec.msgpack.Ext(5, b"z" * length) for length in (1, 2, 3, 4, 8, 16, 255, 256, 65_536)),
    *([list(range(length)) for length in (0, 15, 16, 65_536)]),
    *({one: one for one in range(length)} for length in (0, 15, 16, 65_536)),
]
"""Items whose heads are all that there are."""


def test_what_is_looked_through_is_followed_to_its_end() -> None:
    """Behind any item a table is found that is refused."""
    bad = dict.fromkeys(alike(2 * FEW_KEYS))
    for item in EVERY_KIND:
        check_tables(encode([item, {(one, 0): item for one in range(3)}]))
        for found in ([item, bad], {1: item, 2: bad}, {(1, 2): item, (3,): [[item], bad]}):
            with pytest.raises(msgspec.DecodeError, match="would take long"):
                check_tables(encode(found))
    long = {(one, str(one)): EVERY_KIND[one % 24] for one in range(3 * FEW_KEYS)}
    with pytest.raises(msgspec.DecodeError, match="would take long"):
        check_tables(encode([long, bad]))


@settings(max_examples=25)
@given(st.binary())
def test_what_is_no_value_is_looked_through_too(body: bytes) -> None:
    for damaged in (body, b"\xde\x10\x00" + body, encode({(one,): 1 for one in range(200)})[: 1 + len(body)] + body):
        try:
            check_tables(damaged)
        except UNREADABLE:
            continue


def test_what_is_nested_without_end_is_not_followed() -> None:
    with pytest.raises(UNREADABLE):
        decode_value(b"\xde\x01\x00" + b"\x91" * 1_000_000)


def test_numbers_at_random_are_no_attack() -> None:
    chance = random.Random(1)
    numbers = [chance.random() for _ in range(5_000)]
    assert decode_value(encode(numbers)) == numbers
