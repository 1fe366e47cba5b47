"""In a fabric, a crash at any point loses, repeats and reorders nothing: before and after each persist, send and acknowledge."""

from __future__ import annotations

import pytest

from tests.support.crashes.crashes import Fleet
from tests.support.crashes.fabric_crashes import FABRICS, PLANTED, Planted, complaint, crash_everywhere, in_between

IN_EACH = pytest.mark.parametrize("where", FABRICS)


@IN_EACH
@pytest.mark.parametrize("snapshots", [False, True], ids=["records", "snapshots"])
@pytest.mark.parametrize("lose_every", [0, 3])
def test_a_crash_at_any_point_loses_and_repeats_nothing(where: str, snapshots: bool, lose_every: int) -> None:
    topology = FABRICS[where]
    crashed: set[tuple[str, str]] = set()
    for fleet, wrong in crash_everywhere(topology, snapshots=snapshots, lose_every=lose_every):
        assert len(fleet.crashes) == 1
        assert not wrong, f"{fleet.crashes}, at {fleet.crash_at}: {wrong}"
        crashed.update(fleet.crashes)
    # Nobody is left out, and nothing that one does who stands between two domains.
    assert {name for name, _ in crashed} == set(topology.processes)
    done = {"persist", "send", "acknowledge", "deliver", "rest", *(["snapshot"] if snapshots else [])}
    for name in in_between(topology):
        idle = name in topology.fellows and name != topology.fellows[name][0]
        assert {before for process, before in crashed if process == name} >= done - ({"send"} if idle else set())


@IN_EACH
def test_a_crash_while_coming_back_is_no_different(where: str) -> None:
    calm = Fleet(FABRICS[where], lose_every=4)
    assert complaint(calm) == ""
    for point in range(1, calm.operations, 3):
        fleet = Fleet(FABRICS[where], crash_at=[point, point + 1, point + 2, point + 7], lose_every=4)
        wrong = complaint(fleet)
        assert not wrong, f"{fleet.crashes}, from {point} on: {wrong}"
        assert len(fleet.crashes) >= 3


def test_a_crash_at_any_point_of_a_takeover_is_no_different() -> None:
    """The first replica crashes in the middle of a run and stays away; then somebody crashes at each point that follows."""
    calm = Fleet(FABRICS["replicas"])
    assert complaint(calm) == ""
    first = next(
        point
        for point in range(calm.operations // 3, calm.operations)
        for fleet in [Fleet(FABRICS["replicas"], crash_at=[point])]
        if complaint(fleet) == "" and fleet.crashes == [("r1", "send")]
    )
    crashed: set[tuple[str, str]] = set()
    for point in range(first + 1, calm.operations + 1):
        fleet = Fleet(FABRICS["replicas"], crash_at=[first, point])
        wrong = complaint(fleet)
        assert not wrong, f"{fleet.crashes}, at {first} and {point}: {wrong}"
        crashed.update(fleet.crashes[1:])
    assert {before for name, before in crashed if name == "r2"} >= {"persist", "send", "acknowledge", "deliver", "rest"}


@pytest.mark.parametrize(
    ("planted", "where"), [pytest.param(one, where, id=f"{one.name}, {where}") for one in PLANTED for where in one.where]
)
def test_what_is_planted_is_found_by_crashes_and_not_without(planted: Planted, where: str) -> None:
    with planted.put():
        runs = crash_everywhere(FABRICS[where], planted.fleet, planted.seed, snapshots=planted.snapshots)
        assert any(wrong.startswith(planted.breaks) for _, wrong in runs)


@IN_EACH
@pytest.mark.parametrize("name", ["sends first", "acknowledges first"])
def test_the_rules_find_what_is_done_too_early_without_a_crash(where: str, name: str) -> None:
    (planted,) = [planted for planted in PLANTED if planted.name == name]
    checked = type("Checked", (planted.fleet,), {"checked": True})
    assert "before they are on disk" in complaint(checked(FABRICS[where]))
