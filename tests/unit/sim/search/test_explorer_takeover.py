"""Replicas of a relay, and a link's relays, in every run of small fabrics: a wrong suspicion, and a death, at every moment."""

from __future__ import annotations

import pytest

from tests.support.explorer_cases import (
    LINK_CRASH,
    LINK_WRITTEN_TO,
    LOCAL_WIDE,
    TAKEOVER_CASES,
    TAKEOVER_CRASH,
    TAKEOVER_SUSPICION,
    linked_fabric,
    takeover_fabric,
)
from tests.support.planted.planted_takeover import PLANTED, PLANTED_AT_LINKS, PLANTED_LOCAL, Planted, in_place
from thence.core.ordering.fifo import Fifo
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.sim.scenario import Stage, from_actions, parse
from thence.sim.search.explorer import Action, Case, explore
from thence.trace.judge import judge

WIDE = Case(takeover_fabric("matrix", wide=True), 2, "multicast", faults=TAKEOVER_SUSPICION, among=("x", "y", "z"))
"""Here an answer can overtake its question, if replicas do not wait for each other."""


@pytest.mark.parametrize("name", TAKEOVER_CASES)
def test_nothing_is_lost_doubled_or_out_of_order_in_any_run(name: str) -> None:
    case = TAKEOVER_CASES[name]
    found = explore(case)
    assert found.broken is None, from_actions(case, found.actions, f"breaks {found.broken}")


@pytest.mark.parametrize("planted", PLANTED, ids=[planted.name for planted in PLANTED])
def test_the_explorer_finds_what_was_planted(planted: Planted) -> None:
    assert find(planted, WIDE) == planted.property


@pytest.mark.parametrize("planted", PLANTED_AT_LINKS, ids=[planted.name for planted in PLANTED_AT_LINKS])
def test_the_explorer_finds_what_was_planted_at_a_link(planted: Planted) -> None:
    assert find(planted, LINK_WRITTEN_TO) == planted.property


class GatedFifo(Fifo):
    """FIFO as replicas could run it before they were refused there."""

    traits = Fifo.traits._replace(gated=True)


def test_with_fifo_first_copies_are_out_of_order() -> None:
    """Why replicas may not run it: what the successor sends does not wait for what it saw the first one send."""
    domains = [Domain("A", ("a", "r1", "r2"), GatedFifo), Domain("D", ("d", "e", "r1", "r2"), GatedFifo)]
    topology = Topology("twin", domains, replicas=[("r1", "r2")], promise="fifo")
    found = explore(Case(topology, 2, "broadcast", faults=TAKEOVER_SUSPICION, among=("a",)))
    assert (found.broken or "").startswith("fifo")


@pytest.mark.parametrize("planted", [*PLANTED[2:4], *PLANTED_LOCAL], ids=lambda planted: planted.name)
def test_the_explorer_finds_what_was_planted_at_replicas_that_send(planted: Planted) -> None:
    with in_place(planted):
        assert explore(LOCAL_WIDE).broken


def find(planted: Planted, case: Case) -> str:
    """Return what a mistake breaks; the judge must see it in the run that was found (who refuses a frame has seen it before)."""
    with in_place(planted):
        found = explore(case)
        assert found.broken is not None
        stage = Stage(case.topology)
        for block in parse(from_actions(case, found.actions, "planted")):
            assert stage.do(block.command) == block.expected
    if planted.property != "refused":
        assert judge(stage.events, [planted.property]).properties[planted.property] >= 1
    return found.broken.split(":")[0]


@pytest.mark.parametrize(
    ("topology", "crash", "among"),
    [
        (takeover_fabric("vector"), TAKEOVER_CRASH[0], ("a", "d")),
        (linked_fabric("vector", single=True), LINK_CRASH[0], ("x", "y")),
    ],
    ids=["a relay", "a sequencer"],
)
def test_without_a_suspicion_a_death_is_the_end(topology: Topology, crash: Action, among: tuple[str, ...]) -> None:
    """Nobody takes over from a dead one whom nobody suspects: so the searches above do see the takeover."""
    found = explore(Case(topology, 1, "unicast", faults=(crash,), among=among))
    assert found.broken == "completeness"
    assert found.actions[-1].actor in topology.processes
