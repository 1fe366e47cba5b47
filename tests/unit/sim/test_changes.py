"""Every run of small changes: nothing is lost, doubled or out of order, and planted mistakes are found."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from thence.core.changeover import Changeover
from thence.core.domain import Domain
from thence.core.topology import Link, Topology
from thence.core.views import Resume, Standing, ViewInput
from thence.sim.changes import ChangeCase, explore_change


def fabric(version: int, *domains: str, links: tuple[Link, ...] = (), ordering: str = "matrix") -> Topology:
    """Return a fabric of domains named by their members' letters."""
    return Topology("f", [Domain(name, tuple(name), ordering) for name in domains], links, version=version)


FLAT = fabric(1, "ABC")
SPLIT = fabric(2, "AB", "BC")
PAIR, OTHERWISE = fabric(1, "AB"), fabric(2, "AB", ordering="vector")
LINKED = fabric(2, "AB", "C", links=(Link("l", ("AB", "C"), (("A", "C"), ("B", "C"))),))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(ChangeCase(FLAT, SPLIT, 2), id="split"),
        pytest.param(ChangeCase(FLAT, LINKED, 2), id="split, with two pairs of relays between"),
        pytest.param(ChangeCase(fabric(1, "AB", "BC"), fabric(2, "ABC"), 2), id="merge"),
        pytest.param(ChangeCase(fabric(1, "AB", "BC"), fabric(2, "AB", "AC"), 2), id="move"),
        pytest.param(ChangeCase(FLAT, fabric(2, "AB"), 2), id="leave"),
        pytest.param(ChangeCase(fabric(1, "AB"), fabric(2, "AB", "BC", ordering="vector"), 2), id="join"),
        pytest.param(ChangeCase(FLAT, SPLIT, 1, deaths=1, leases=1), id="split, the command dies, a member goes back"),
        pytest.param(ChangeCase(PAIR, OTHERWISE, 1, commands=2), id="two commands at once"),
        pytest.param(ChangeCase(PAIR, OTHERWISE, 0, commands=2, leases=2), id="two commands, and members go back"),
    ],
)
def test_every_run_of_a_small_change_keeps_order(case: ChangeCase) -> None:
    explored = explore_change(case)
    assert explored.broken is None, explored.run
    assert explored.states > 500


class _WithoutQuiet(Changeover):
    def _quiet(self, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> bool:
        return True


class _OneRound(Changeover):
    def _quiet(self, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> bool:
        return super()._quiet(answers, answers)


class _Hasty(Changeover):
    """Takes an attempt for dead as soon as somebody is not in it: it may not have been in it yet."""

    def _free(
        self, prepared: Mapping[str, Standing], before: Mapping[str, Standing], answers: Mapping[str, Standing]
    ) -> dict[str, ViewInput]:
        return {name: Resume(standing.attempt, dead=True) for name, standing in prepared.items()}


class _Early(Changeover):
    """Lets those switch who are prepared, before all are."""

    def _go_on(self, attempt: int, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> object:  # type: ignore[override]
        prepared = {name: standing for name, standing in answers.items() if standing.phase == "prepared"}
        return super()._go_on(attempt, before, prepared or answers)


@pytest.mark.parametrize(
    ("mistake", "old", "new"),
    [
        pytest.param(_WithoutQuiet, FLAT, SPLIT, id="switch without quiet"),
        pytest.param(_OneRound, fabric(1, "WX", "XYZ"), fabric(2, "WXYZ"), id="quiet by one round"),
    ],
)
def test_a_mistake_about_quiet_is_found(mistake: type[Changeover], old: Topology, new: Topology) -> None:
    explored = explore_change(ChangeCase(old, new, 1, changeover_type=mistake))
    assert explored.broken == "a frame of the old version was still on its way"
    assert explored.run[-1].endswith("is asked to switch")


def test_switching_before_all_are_prepared_is_found() -> None:
    explored = explore_change(ChangeCase(FLAT, SPLIT, 1, deaths=1, leases=1, changeover_type=_Early))
    assert explored.broken == "a frame of the old version was still on its way"


def test_taking_an_attempt_for_dead_too_early_is_found() -> None:
    explored = explore_change(ChangeCase(PAIR, OTHERWISE, 1, commands=2, leases=1, changeover_type=_Hasty))
    assert explored.broken == "a frame of the old version was still on its way"
    assert "B is asked to resume" in explored.run
