"""Every mistake planted in links and relays is found: by the explorer, and by random runs with the judge."""

from __future__ import annotations

import pytest

from tests.support.planted.planted_fabric import PLANTED, Planted, in_place
from thence.sim.options import SimulationOptions
from thence.sim.scenario import Stage, from_actions, parse
from thence.sim.search.explorer import Action, Case, explore
from thence.sim.search.search import Explored
from thence.sim.simulation import simulate
from thence.trace.judge import judge

SEEDS = 10
IDS = [planted.mistake.__name__ for planted in PLANTED]

ENDING = [planted for planted in PLANTED if planted.ends]


def case_of(planted: Planted) -> Case:
    return Case(planted.where, planted.messages, planted.pattern)


def broken_seeds(planted: Planted) -> int:
    """Return in how many random runs the judge finds something."""
    require = {"creation", "duplication", "completeness", *planted.where.guarantees}
    options = {"messages": 30, "pattern": planted.pattern, "gap": "exponential:5ms", "replies": 0.5, "body_bytes": 0}
    runs = [simulate(SimulationOptions(**options, seed=seed), planted.where)[1] for seed in range(SEEDS)]  # type: ignore[arg-type]
    return sum(not judge(events, sorted(require)).kept for events in runs)


@pytest.mark.parametrize("planted", PLANTED, ids=IDS)
def test_the_explorer_finds_it(planted: Planted) -> None:
    case = case_of(planted)
    with in_place(planted.mistake):
        found = explore(case)
        assert (found.broken or "").partition(":")[0] == planted.property
        assert_the_judge_agrees(case, found, ends=planted.ends)


def assert_the_judge_agrees(case: Case, found: Explored[Action], *, ends: bool) -> None:
    """Play the run that was found from its text, to its end; the judge must see what the explorer saw, or a message missing."""
    stage = Stage(case.topology)
    for block in parse(from_actions(case, found.actions, "planted")):
        assert stage.do(block.command) == block.expected
    if ends:
        stage.do("arrive everything")
    seen = "completeness" if (found.broken or "").startswith("refused") else found.broken or ""
    assert judge(stage.events, [seen]).properties[seen] >= 1


@pytest.mark.parametrize("planted", ENDING, ids=[planted.mistake.__name__ for planted in ENDING])
def test_random_runs_find_it(planted: Planted) -> None:
    with in_place(planted.mistake):
        assert broken_seeds(planted) > 0


@pytest.mark.parametrize("planted", PLANTED, ids=IDS)
def test_without_it_nothing_is_found(planted: Planted) -> None:
    assert explore(case_of(planted)).broken is None
    assert broken_seeds(planted) == 0
