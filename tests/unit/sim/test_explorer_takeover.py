"""Replicas of a relay, in every run of small fabrics: with a wrong suspicion, and with a death, at every moment."""

from __future__ import annotations

import pytest

from tests.explorer_cases import TAKEOVER_CASES, TAKEOVER_CRASH, TAKEOVER_SUSPICION, takeover_fabric
from tests.planted_takeover import PLANTED, Planted, in_place
from thence.sim.explorer import Case, explore
from thence.sim.scenario import Stage, from_actions, parse
from thence.trace.judge import judge

WIDE = Case(takeover_fabric("matrix", wide=True), 2, "multicast", faults=TAKEOVER_SUSPICION, among=("x", "y", "z"))
"""Here an answer can overtake its question, if replicas do not wait for each other."""


@pytest.mark.parametrize("name", TAKEOVER_CASES)
def test_nothing_is_lost_doubled_or_out_of_order_in_any_run(name: str) -> None:
    case = TAKEOVER_CASES[name]
    found = explore(case)
    assert found.property is None, from_actions(case, found.actions, f"breaks {found.property}")


@pytest.mark.parametrize("planted", PLANTED, ids=[planted.name for planted in PLANTED])
def test_the_explorer_finds_what_was_planted(planted: Planted) -> None:
    with in_place(planted):
        found = explore(WIDE)
        assert found.property == planted.property
        stage = Stage(WIDE.topology)
        for block in parse(from_actions(WIDE, found.actions, "planted")):
            assert stage.do(block.command) == block.expected
    assert judge(stage.events, [planted.property]).properties[planted.property] >= 1


def test_without_a_suspicion_a_death_is_the_end() -> None:
    """Nobody takes over from a dead replica whom nobody suspects: so the searches above do see the takeover."""
    (crash, _) = TAKEOVER_CRASH
    found = explore(Case(takeover_fabric("vector"), 1, "unicast", faults=(crash,), among=("a", "d")))
    assert found.property == "completeness"
    assert found.actions[-1].actor in ("r1", "r2", "a", "d")
