"""Everything is handed up at once, and who got it is told later that all have it: random fabrics under all faults at once.

What is checked, from outside (``tests.support.stable_runs``): nobody is told before all have it on disk, nor before all have what
led to it; what anybody was told to be safe all survivors deliver; and when the faults are over everybody has been told of
everything.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.planted.planted_stability import UNNOTICED, Planted, in_place, is_found
from tests.support.stable_runs import run_noticed

SEEDS = 32
CHUNKS = 2


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_who_is_told_is_told_of_what_all_have_and_in_the_end_of_everything(chunk: int) -> None:
    size = SEEDS // CHUNKS
    faults: Counter[str] = Counter()
    noticed = 0
    for seed in range(chunk * size, (chunk + 1) * size):
        outcome = run_noticed(seed)
        assert not outcome.wrong, f"run_noticed({seed}): {outcome.wrong[:3]}"
        noticed += outcome.watch.noticed
        faults += Counter(outcome.result.network) + Counter(crashes=outcome.result.statistics.crashes)
    assert noticed > 20 * size
    assert {"lost", "duplicated", "reordered", "cut", "crashes"} <= set(+faults)


@pytest.mark.parametrize("seed", range(2, 14, 3))
def test_what_was_told_to_be_safe_is_delivered_by_all_who_survive(seed: int) -> None:
    """Some die for good, and nobody takes them out: what hangs on their last messages waits for ever, and nothing else."""
    outcome = run_noticed(seed, deaths=2, crashes=4, loss=0.1, messages=60)
    assert outcome.watch.mistakes == []
    living = [node.name for node in outcome.simulation.nodes.values() if not node.dead]
    assert outcome.watch.noticed
    assert outcome.watch.undelivered(living) == []


def test_where_nothing_was_planted_nothing_is_found() -> None:
    assert not any(is_found(run_noticed, seed) for seed in range(24))


@pytest.mark.parametrize("planted", UNNOTICED, ids=[planted.name for planted in UNNOTICED])
def test_random_runs_find_what_was_planted(planted: Planted) -> None:
    with in_place(planted):
        assert any(is_found(run_noticed, seed) for seed in range(40))
