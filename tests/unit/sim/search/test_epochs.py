"""Every run of two servers that meet, crash and go back to a copy, within small bounds; and planted mistakes, each found."""

from __future__ import annotations

import pytest

from tests.support.planted.planted_epochs import (
    ComparesCountersOnly,
    FindsNothing,
    ForgetsEarlierOffers,
    ForgetsTheEpochInCommon,
    KeepsTheEpoch,
    ShowsNoReach,
    TakesLateAnswers,
)
from tests.support.search.epochs import Bounds, Epochs, Mistakes, explore_epochs
from thence.errors import UsageError
from thence.sim.search.search import replay

CRASHES = Bounds(sends=1, calls=2, crashes=1, copies=0)
ROLLBACK = Bounds(sends=2, calls=2, crashes=0, copies=1, one_way=True)
ROLLBACK_AND_CRASH = Bounds(sends=2, calls=2, crashes=1, copies=1, one_way=True)
CLONE = Bounds(sends=2, calls=2, crashes=0, copies=1, clone=True, one_way=True)
CONNECTING = Bounds(sends=0, calls=2, crashes=0, copies=0)

TWICE = "a number was used twice: what was sent is dropped as a repetition"
NEVER_AGAIN = "nobody runs on a copy, and the two do not go on when they meet again"
REFUSED = "somebody is refused where nobody runs on a copy"


@pytest.mark.parametrize(
    ("bounds", "states"),
    [(CRASHES, 1_000), (ROLLBACK, 300), (ROLLBACK_AND_CRASH, 1_000), (CLONE, 500), (CONNECTING, 50)],
    ids=["crashes", "a rollback", "a rollback and a crash", "a clone", "crossing calls"],
)
def test_no_run_uses_a_number_twice_or_refuses_wrongly(bounds: Bounds, states: int) -> None:
    found = explore_epochs(bounds)
    assert (found.broken, found.actions) == (None, ())
    assert found.states > states


def test_the_side_that_only_offered_is_not_taken_for_the_older_one() -> None:
    """A clone is offered an epoch before the original, which has agreed on the one before it, comes back."""
    assert not explore_epochs(Bounds(sends=1, calls=3, copies=1, clone=True, one_way=True)).broken


@pytest.mark.campaign
@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(sends=2, calls=2, crashes=1, copies=1),
        Bounds(sends=3, calls=2, copies=1),
        Bounds(calls=3, clone=True, one_way=True),
    ],
)
def test_longer_runs(bounds: Bounds) -> None:
    assert not explore_epochs(bounds).broken


@pytest.mark.parametrize(
    ("mistakes", "bounds", "problem", "most"),
    [
        (Mistakes(FindsNothing), ROLLBACK, TWICE, 18),
        (Mistakes(ComparesCountersOnly), ROLLBACK, TWICE, 18),
        (Mistakes(ShowsNoReach), ROLLBACK, TWICE, 18),
        (Mistakes(reaches_anew=True), ROLLBACK_AND_CRASH, TWICE, 19),
        (Mistakes(keeps_older=True), CLONE, TWICE, 16),
        (Mistakes(KeepsTheEpoch), CRASHES, NEVER_AGAIN, 11),
        (Mistakes(TakesLateAnswers, keeps_older=True), CONNECTING, REFUSED, 9),
        (Mistakes(ForgetsTheEpochInCommon), CONNECTING, NEVER_AGAIN, 2),
        (Mistakes(ForgetsEarlierOffers), CRASHES, NEVER_AGAIN, 7),
        (Mistakes(eager=frozenset({"offering"})), CONNECTING, NEVER_AGAIN, 3),
        (Mistakes(eager=frozenset({"agreeing"})), CONNECTING, NEVER_AGAIN, 5),
    ],
    ids=[
        "finds nothing",
        "compares counters only",
        "shows no reach",
        "reaches anew at each start",
        "keeps the older connection",
        "keeps the epoch",
        "takes late answers",
        "forgets the epoch in common",
        "forgets earlier offers",
        "answers before it is stored",
        "agrees before it is stored",
    ],
)
def test_a_planted_mistake_has_a_shortest_run(mistakes: Mistakes, bounds: Bounds, problem: str, most: int) -> None:
    found = explore_epochs(bounds, mistakes)
    assert found.broken == problem
    assert 0 < len(found.actions) <= most, found.actions
    assert replay(Epochs(bounds, mistakes), found.actions) == problem


def test_a_search_that_is_too_large_says_so() -> None:
    with pytest.raises(UsageError, match="more than 10 steps"):
        explore_epochs(CRASHES, limit=10)
