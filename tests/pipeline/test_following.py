"""A trace that is followed gives the judge's rows, whatever parts it comes in, and holds no more than it must."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.followed import follow, judged
from tests.planted import PLANTED, Planted
from tests.traces import parse, random_case, text_of
from thence.pipeline.following.follower import FOLLOWED, Follower
from thence.trace.events import Event


def chunks_of(events: Sequence[Event], chance: random.Random) -> list[Sequence[Event]]:
    """Events cut anywhere into a few chunks."""
    edges = sorted(chance.randint(0, len(events)) for _ in range(chance.randint(0, 8)))
    return [events[begin:end] for begin, end in zip([0, *edges], [*edges, len(events)], strict=True)]


def sends_once(events: Sequence[Event]) -> bool:
    sends = [(event.run, event.message) for event in events if event.kind == "send" and event.message is not None]
    return len(set(sends)) == len(sends)


def counts_on(events: Sequence[Event]) -> bool:
    """Whether no index is repeated or negative; holes do no harm."""
    places = [(event.run, event.process, event.index) for event in events]
    return len(set(places)) == len(places) and all(index >= 0 for *_, index in places)


@pytest.mark.parametrize("case", PLANTED, ids=[f"{case.file}: {case.title}" for case in PLANTED])
def test_what_was_planted_is_found(case: Planted) -> None:
    """All at once, where nothing may differ, and event by event."""
    events = parse(case.text)
    assert follow(Follower(FOLLOWED), [events]) == judged(events)
    if sends_once(events) and counts_on(events):
        assert follow(Follower(FOLLOWED), [[event] for event in events]) == judged(events)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_random_traces_are_judged_alike_in_any_chunks(seed: int) -> None:
    chance = random.Random(seed)
    events = random_case(seed)
    if sends_once(events):
        assert follow(Follower(FOLLOWED), [events]) == judged(events), text_of(events)
    follower = Follower(FOLLOWED)
    rows = follow(follower, chunks_of(events, chance))
    if sends_once(events) and counts_on(events):
        assert rows == judged(events), text_of(events)
    else:
        assert any(row.property == "well-formed" for row in rows)
    assert follower.counts.total() == len(rows)
    assert follower.events == len(events)
    assert follower.held == 0
