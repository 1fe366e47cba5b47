"""Random fabrics and the judge find every planted mistake of routes; the code as it is passes the same fabrics."""

from __future__ import annotations

import pytest

from tests.support.planted.planted_routes import PLANTED, Planted, broken_by

COMPARED = 30
"""On how many of the same fabrics the real code is tried, at least; and on the one in which the mistake is noticed."""


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_mistake_is_noticed(planted: Planted) -> None:
    noticed = next((seed for seed in range(planted.seeds) if broken_by(planted, seed)), None)
    assert noticed is not None, f"{planted.name} was not noticed in {planted.seeds} random fabrics"
    assert broken_by(planted, noticed, really=False) == {}


@pytest.mark.parametrize("changes", sorted({str(dict(planted.changes)) for planted in PLANTED}))
def test_the_real_code_passes_the_same_fabrics(changes: str) -> None:
    planted = max((each for each in PLANTED if str(dict(each.changes)) == changes), key=lambda each: each.seeds)
    assert [seed for seed in range(COMPARED) if broken_by(planted, seed, really=False)] == []
