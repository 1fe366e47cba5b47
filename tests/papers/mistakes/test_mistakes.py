"""For every claim a mistake is planted, and the test that cites the claim has to fail with it; without it, it passes.

So each of these tests can fail, for what it is about. The table is in ``tests/papers/mistakes``.
"""

from __future__ import annotations

import pytest

from tests.papers.mistakes.mistake import Mistake, call, instead, is_found
from tests.papers.mistakes.table import MISTAKES
from thence.core.topology.routing import Routes

IDS = [f"{mistake.claim}: {mistake.what}" for mistake in MISTAKES]


@pytest.mark.parametrize("mistake", MISTAKES, ids=IDS)
def test_the_cited_test_passes_without_the_mistake(mistake: Mistake, request: pytest.FixtureRequest) -> None:
    call(mistake, request.getfixturevalue)


@pytest.mark.parametrize("mistake", MISTAKES, ids=IDS)
def test_the_cited_test_finds_the_mistake(mistake: Mistake, request: pytest.FixtureRequest) -> None:
    with pytest.raises((Exception, pytest.fail.Exception)) as caught, mistake.plant():
        call(mistake, request.getfixturevalue)
    assert is_found(mistake, caught.value), f"{caught.value!r} is not what the test asserts"


def nothing(_: object) -> None:
    """Be a test that asserts nothing."""


def error(found: int) -> None:
    """Be a test."""
    assert found == 1 / 0


def test_a_mistake_that_is_not_found_is_noticed(request: pytest.FixtureRequest) -> None:
    """The check can fail: a test that asserts nothing finds nothing."""
    planted = Mistake("M1", "no routes", instead(Routes, "plan", None), nothing, {"_": 1})
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_the_cited_test_finds_the_mistake(planted, request)


def test_an_error_is_no_finding(request: pytest.FixtureRequest) -> None:
    """The check can fail: what the mistake itself does wrong does not count."""
    planted = Mistake("M1", "no number", instead(Routes, "plan", None), error, {"found": 1})
    with pytest.raises(AssertionError, match="is not what the test asserts"):
        test_the_cited_test_finds_the_mistake(planted, request)
