"""The judge finds each planted bug, calls it by its name, and finds nothing else."""

import random
from collections import Counter

import pytest

from tests.planted import KEPT, PLANTED, Planted
from tests.support.reference import judge_literally
from tests.support.traces import drop_delivery, invent_delivery, parse, random_trace, repeat_delivery, text_of
from thence.trace.events import Event
from thence.trace.judge import PROPERTIES, judge

IDS = [f"{case.file}: {case.title}" for case in PLANTED]

SOUND_PROCESSES = 4
SOUND_STEPS = 40


def found(events: list[Event]) -> dict[str, int]:
    return {name: count for name, count in judge(events, PROPERTIES).properties.items() if count}


@pytest.mark.parametrize("case", PLANTED, ids=IDS)
def test_exactly_what_was_planted_is_found(case: Planted) -> None:
    assert found(parse(case.text)) == case.counts


@pytest.mark.parametrize("case", PLANTED, ids=IDS)
def test_the_definition_says_the_same(case: Planted) -> None:
    assert Counter(row[1] for row in judge_literally(parse(case.text), PROPERTIES)) == case.counts


@pytest.mark.parametrize("case", KEPT, ids=[case.title for case in KEPT])
def test_nothing_is_found_where_nothing_is_wrong(case: Planted) -> None:
    assert case.counts == {}
    assert found(parse(case.text)) == {}


@pytest.mark.parametrize("name", PROPERTIES)
def test_there_are_at_least_ten_of_each(name: str) -> None:
    cases = [case for case in PLANTED if case.file == name]
    implied = {"fifo": {"causal"}, "agreement": {"completeness"}}.get(name, set())
    only = [case for case in cases if case.counts.keys() == {name} | implied]
    assert len(only) >= 10
    assert [
        case.title for case in cases if case not in only and not (name == "completeness" and "agreement" in case.counts)
    ] == []


@pytest.mark.parametrize("case", PLANTED, ids=IDS)
def test_what_is_not_required_is_neither_checked_nor_listed(case: Planted) -> None:
    others = [name for name in PROPERTIES if name not in case.counts]
    verdict = judge(parse(case.text), others)
    assert verdict.kept
    assert list(verdict.properties) == others


def sound(seed: int) -> list[Event]:
    return random_trace(random.Random(seed), SOUND_PROCESSES, SOUND_STEPS, ordered=True)


@pytest.mark.parametrize("seed", range(20))
def test_a_sound_random_trace_is_kept(seed: int) -> None:
    assert judge(sound(seed)).kept


@pytest.mark.parametrize("seed", range(20))
def test_one_more_delivery_is_one_duplication(seed: int) -> None:
    events = repeat_delivery(random.Random(seed), sound(seed))
    verdict = judge(events)
    assert {name: n for name, n in verdict.properties.items() if n} == {"duplication": 1}, text_of(events)


@pytest.mark.parametrize("seed", range(20))
def test_one_invented_delivery_is_one_creation(seed: int) -> None:
    events = invent_delivery(random.Random(seed), sound(seed))
    verdict = judge(events)
    assert {name: n for name, n in verdict.properties.items() if n} == {"creation": 1}, text_of(events)


@pytest.mark.parametrize("seed", range(20))
def test_one_lost_delivery_is_one_incompleteness_at_least(seed: int) -> None:
    events = drop_delivery(random.Random(seed), sound(seed))
    verdict = judge(events)
    found = {name: n for name, n in verdict.properties.items() if n}
    assert found["completeness"] == 1, text_of(events)
    assert set(found) <= {"completeness", "fifo", "causal"}, "what overtakes the lost message counts too"
