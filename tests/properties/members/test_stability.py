"""Messages that are kept until all have them, in random fabrics under all faults at once, watched from outside and judged."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.planted.planted_stability import PLANTED, Planted, in_place, is_found
from tests.support.stable_runs import run_fabric

SEEDS = 64
CHUNKS = 4


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_nobody_says_too_early_that_all_have_a_message_and_everybody_does_at_last(chunk: int) -> None:
    size = SEEDS // CHUNKS
    faults: Counter[str] = Counter()
    stable = 0
    for seed in range(chunk * size, (chunk + 1) * size):
        outcome = run_fabric(seed)
        assert not outcome.wrong, f"run_fabric({seed}): {outcome.wrong[:3]}"
        stable += sum(outcome.watch.upto.values())
        faults += Counter(outcome.result.network) + Counter(crashes=outcome.result.statistics.crashes)
    assert stable > 10 * size
    assert {"lost", "duplicated", "reordered", "cut", "crashes"} <= set(+faults)


def test_where_nothing_was_planted_nothing_is_found() -> None:
    assert not any(is_found(run_fabric, seed) for seed in range(24))


@pytest.mark.parametrize("planted", PLANTED, ids=[planted.name for planted in PLANTED])
def test_random_runs_find_what_was_planted(planted: Planted) -> None:
    with in_place(planted):
        assert any(is_found(run_fabric, seed) for seed in range(40))
