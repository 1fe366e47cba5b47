"""The judge against the definition taken literally, row by row, on thousands of small random traces.

The rows compared have everything: run, property, process, index, later, earlier, missing and the chain, message by
message. So ``earlier`` is checked to be minimal and the chain to be valid and shortest by the definition's own search.
"""

import random

import pytest

from tests.support.reference import Literal, Row, judge_literally
from tests.support.traces import MUTATIONS, parse, random_case, random_trace, text_of
from thence.trace.events import Event
from thence.trace.judge import PROPERTIES, judge

SMALL_CASES = 4_000
SPARSE_CASES = 150
PER_TEST = 250


def rows_of(events: list[Event]) -> list[Row]:
    rows = judge(events, PROPERTIES).violations
    return sorted(((r.run, r.property, r.process, r.index, r.later, r.earlier, r.missing, r.chain) for r in rows), key=repr)


@pytest.mark.parametrize("first", range(0, SMALL_CASES, PER_TEST))
def test_small_traces_with_all_kinds_of_mistakes(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        events = random_case(seed)
        assert rows_of(events) == judge_literally(events, PROPERTIES), f"seed {seed}\n{text_of(events)}"


def sparse_case(seed: int) -> list[Event]:
    """Many processes and one destination each: causality takes long ways."""
    chance = random.Random(seed)
    events = random_trace(chance, chance.randint(6, 9), 90, ordered=False, group=1)
    for _ in range(chance.randint(0, 2)):
        events = chance.choice(MUTATIONS)(chance, events)
    return events


@pytest.mark.parametrize("first", range(0, SPARSE_CASES, PER_TEST // 5))
def test_sparse_traces_with_long_chains(first: int) -> None:
    longest = 0
    for seed in range(first, first + PER_TEST // 5):
        events = sparse_case(seed)
        rows = rows_of(events)
        assert rows == judge_literally(events, PROPERTIES), f"seed {seed}\n{text_of(events)}"
        longest = max(longest, *(len(row[-1]) for row in rows))
    assert longest >= 5, "these cases are meant to have long chains"


def test_the_random_cases_contain_every_violation_and_every_way_to_it() -> None:
    """Comparing is worth something only if there is something to compare."""
    seen = dict.fromkeys(PROPERTIES, 0)
    circular = transitive = kept = 0
    for seed in range(600):
        events = random_case(seed)
        rows = judge_literally(events, PROPERTIES)
        for row in rows:
            seen[row[1]] += 1
        kept += not rows
        circular += bool(Literal(events).backward)
        transitive += any(len(row[-1]) > 2 for row in rows)
    assert min(seen.values()) > 50, seen
    assert kept > 20
    assert circular > 20
    assert transitive > 10


def test_the_definition_itself_on_the_triangle() -> None:
    """The reference is checked by hand on one case, since all others are checked by it."""
    events = parse("""
        A send m1 -> C
        A send m2 -> B
        B deliver m2
        B send m3 -> C
        C deliver m3
        C deliver m1
    """)
    assert judge_literally(events) == [(None, "causal", "C", 0, "m3", "m1", 1, ("m1", "m2", "m3"))]
