"""Nothing is handed up before everybody has it: random fabrics under all faults at once, watched from outside and judged."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.planted.planted_stability import UNSAFE, Planted, in_place, is_found
from tests.support.stable_runs import run_guarded

SEEDS = 32
CHUNKS = 2


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_is_delivered_is_on_the_disks_of_all_members(chunk: int) -> None:
    size = SEEDS // CHUNKS
    faults: Counter[str] = Counter()
    delivered = 0
    for seed in range(chunk * size, (chunk + 1) * size):
        outcome = run_guarded(seed)
        assert not outcome.wrong, f"run_guarded({seed}): {outcome.wrong[:3]}"
        delivered += outcome.watch.delivered_safely
        faults += Counter(outcome.result.network) + Counter(crashes=outcome.result.statistics.crashes)
    assert delivered > 20 * size
    assert {"lost", "duplicated", "reordered", "cut", "crashes"} <= set(+faults)


def test_where_nothing_was_planted_nothing_is_found() -> None:
    assert not any(is_found(run_guarded, seed) for seed in range(24))


@pytest.mark.parametrize("planted", UNSAFE, ids=[planted.name for planted in UNSAFE])
def test_random_runs_find_what_was_planted(planted: Planted) -> None:
    with in_place(planted):
        assert any(is_found(run_guarded, seed) for seed in range(40))
