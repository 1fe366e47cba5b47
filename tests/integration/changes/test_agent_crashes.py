"""A short crash campaign with agents in every test run: money is neither lost nor made, whoever is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.campaigns.agent_crashes import Options, replay, run_once
from tests.support.campaigns.crashes import MAX_WRONG_TOLD


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.campaign), 1])  # Servers of odd seeds have small limits.
def test_money_is_neither_lost_nor_made_whoever_is_killed(seed: int, tmp_path: Path) -> None:
    options = Options(seed=seed, fault_s=10.0)
    outcome = run_once(options, tmp_path / "run")
    assert not outcome.wrong, "\n".join([*outcome.wrong[:MAX_WRONG_TOLD], replay(options)])
    assert outcome.counts["trees"] > 50
    assert outcome.faults["kills of servers"] > 3
