"""Every run of small changes: nothing is lost, doubled or out of order, and planted mistakes are found."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest

from tests.support.search.reconfiguration import ChangeCase, Reconfigurations, explore_change
from thence.core.member.attachment import Attachment
from thence.core.reconfig import concern, coordinator, protocol
from thence.core.reconfig.border import Border
from thence.core.reconfig.concern import Comparison
from thence.core.reconfig.coordinator import Coordinator, Decision
from thence.core.reconfig.flush import Inventory, Settlement, settle
from thence.core.reconfig.protocol import BarLost, Resume, Standing, Switch, View, ViewInput
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.core.wire.messages import MAX_VERSION, Envelope
from thence.sim.search.search import replay


def fabric(version: int, *domains: str, links: tuple[Link, ...] = (), ordering: str = "matrix") -> Topology:
    """Return a fabric of domains named by their members' messages."""
    return Topology("f", [Domain(name, tuple(name), ordering) for name in domains], links, version=version)


FLAT = fabric(1, "ABC")
SPLIT = fabric(2, "AB", "BC")
PAIR, OTHERWISE = fabric(1, "AB"), fabric(2, "AB", ordering="vector")
LINKED_BEFORE = fabric(1, "AB", "CD", links=(Link("l", ("AB", "CD"), (("B", "C"),)),))
LINKED = fabric(2, "AB", "C", links=(Link("l", ("AB", "C"), (("A", "C"), ("B", "C"))),))


def named(version: int, **domains: str) -> Topology:
    """Return a fabric of domains that keep their names."""
    return Topology("f", [Domain(name, tuple(members), "matrix") for name, members in domains.items()], version=version)


BESIDE = ChangeCase(named(1, x="UX", a="XAB"), named(2, x="UX", a="XA", b="AB"), 1)
"""A split beside a domain that goes on."""

JOIN = ChangeCase(named(1, x="UX", a="XA"), named(2, x="UX", a="XAJ"), 1)
"""One comes into a domain beside one that goes on."""

JOIN_OF_A_RELAY = ChangeCase(named(1, x="UX", a="XA"), named(2, x="UX", a="XAJ", b="JK"), 1)
"""The same, and it forwards what it does not deliver."""

JOIN_WITHOUT_ONE = ChangeCase(named(1, x="UWX", a="XA"), named(2, x="UWX", a="XAJ"), 1, absent=("U",))
"""One whom it does not concern is away."""

BETWEEN = ChangeCase(named(1, a="XAB", x="XY", c="YCD"), named(2, a="XA", b="AB", x="XY", c="YC", d="CD"), 1)
"""Two splits on both sides of a domain that goes on."""

BY_ANOTHER = ChangeCase(named(1, x="YZ", a="YP", b="Z"), named(2, x="YZ", a="Y", b="ZP"), 1)
"""One moves, so that its messages come into the same domain by another member."""


def reordered(version: int, *domains: str) -> Topology:
    """Return a row of domains, of which these run vectors."""
    members = {"l": "AB", "m": "BC", "r": "CD"}
    made = [Domain(name, tuple(of), "vector" if name in domains else "matrix") for name, of in members.items()]
    return Topology("f", made, version=version)


ABSENT = BESIDE._replace(absent=("U",))
"""One whom the split does not concern is away, and hears of it later."""

TOLD_BY_THE_LOST = ChangeCase(
    Topology("f", [Domain("x", tuple("UWX"), "matrix"), Domain("a", tuple("XA"), "matrix")]),
    Topology("f", [Domain("x", tuple("UWX"), "matrix"), Domain("a", tuple("XA"), "vector")], version=2),
    0,
    absent=("U",),
    rescue=named(2, x="UWA"),
    later_lost=("X",),
)
"""The others leave a change without X, which has switched; U had no part in it, and X tells it."""

TWO_FILES = ChangeCase(reordered(1), reordered(2, "l"), 0, absent=("C", "D"), rescue=reordered(2, "r"), absent_later=("A", "B"))
"""Two changes at once that concern nobody in common, each without half of all."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(ABSENT, id="one is away"),
        pytest.param(ABSENT._replace(deaths=1), id="one is away, the command dies"),
        pytest.param(ABSENT._replace(leases=1), id="one is away, a member goes back"),
        pytest.param(TOLD_BY_THE_LOST, id="one is away, another one is lost"),
        pytest.param(BESIDE, id="split beside a domain that goes on"),
        pytest.param(BESIDE._replace(deaths=1), id="split beside a domain, the command dies"),
        pytest.param(BESIDE._replace(leases=1), id="split beside a domain, a member goes back"),
        pytest.param(JOIN, id="join beside a domain that goes on"),
        pytest.param(JOIN._replace(deaths=1), id="join, the command dies"),
        pytest.param(JOIN._replace(leases=1), id="join, a member goes back"),
        pytest.param(JOIN_OF_A_RELAY, id="join of a relay beside a domain that goes on"),
        pytest.param(JOIN_WITHOUT_ONE, id="join, one is away"),
        pytest.param(BETWEEN, id="two splits, and a domain between that goes on"),
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
    assert explored.broken is None, explored.actions
    assert explored.states > 500


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(ChangeCase(FLAT, fabric(2, "AB"), 2, lost=("C",)), id="a plain member"),
        pytest.param(ChangeCase(fabric(1, "ABC", ordering="vector"), fabric(2, "AB"), 2, lost=("C",)), id="by vectors"),
        pytest.param(ChangeCase(fabric(1, "ABC", ordering="sequenced"), fabric(2, "BC"), 2, lost=("A",)), id="a coordinator"),
        pytest.param(ChangeCase(fabric(1, "AB", "BC"), fabric(2, "AC"), 2, lost=("B",)), id="a relay"),
        pytest.param(ChangeCase(fabric(1, "ABR", "RCD"), fabric(2, "ABCD"), 1, lost=("R",)), id="a relay with more to do"),
        pytest.param(ChangeCase(LINKED_BEFORE, fabric(2, "ACD"), 1, lost=("B",)), id="an end of a link"),
        pytest.param(ChangeCase(fabric(1, "ABCD"), fabric(2, "AB"), 1, lost=("C", "D")), id="two at once"),
        pytest.param(ChangeCase(FLAT, fabric(2, "ABD"), 1, lost=("C",)), id="another one joins instead"),
        pytest.param(ChangeCase(FLAT, fabric(2, "AB"), 1, deaths=1, leases=1, lost=("C",)), id="the command dies"),
        pytest.param(ChangeCase(FLAT, fabric(2, "AB"), 1, commands=2, lost=("C",)), id="two commands"),
    ],
)
def test_every_run_without_members_that_are_lost_keeps_order_and_agreement(case: ChangeCase) -> None:
    explored = explore_change(case)
    assert explored.broken is None, explored.actions
    assert explored.states > 500


LATER = ChangeCase(FLAT, SPLIT, 0, rescue=fabric(2, "AB"), later_lost=("C",))
"""C is lost at any moment of a split, or held to be, and a command removes it while the first one still leads."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(LATER, id="in a split"),
        pytest.param(ChangeCase(FLAT, fabric(2, "AB"), 0, rescue=fabric(2, "AB"), later_lost=("C",)), id="one who was to leave"),
        pytest.param(
            ChangeCase(fabric(1, "ABCD"), fabric(2, "ABC"), 0, lost=("D",), rescue=fabric(2, "AB"), later_lost=("C", "D")),
            id="a second one, in a removal",
        ),
    ],
)
def test_survivors_of_one_who_is_lost_in_the_midst_of_a_change_stay_together(case: ChangeCase) -> None:
    """They go back and on without it, or finish the change if one of them has switched; and there is always a way out."""
    explored = explore_change(case)
    assert explored.broken is None, explored.actions
    assert explored.states > 500


class _Unbarred(Coordinator):
    """All others are prepared and none is seen to have switched: so let them go back at once."""

    def _make_way(self, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> Decision:
        decision = super()._make_way(before, answers)
        if any(isinstance(request, BarLost) for request in decision.requests.values()):
            return Decision({name: Resume(standing.attempt, dead=True) for name, standing in answers.items()}, "")
        return decision


class _HalfBarred(Coordinator):
    """Mistake: some are barred, so nobody can switch."""

    def _make_way(self, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> Decision:
        decision = super()._make_way(before, answers)
        if any(standing.barred for standing in answers.values()):
            return Decision({name: Resume(standing.attempt, dead=True) for name, standing in answers.items()}, "")
        return decision


class _Waiting(Coordinator):
    """Waits for those who are lost, as it was once."""

    def _make_way(self, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> Decision:
        return Decision({}, "waiting")


@pytest.mark.parametrize(
    ("mistake", "deaths", "broken"),
    [
        pytest.param(_Unbarred, 0, "B stays behind", id="back without being barred"),
        pytest.param(_HalfBarred, 1, "A stays behind", id="back before all are barred"),
        pytest.param(_Waiting, 0, "no way out", id="waiting for the lost"),
    ],
)
def test_a_mistake_about_an_attempt_that_counts_on_one_who_is_lost_is_found(
    mistake: type[Coordinator], deaths: int, broken: str
) -> None:
    assert explore_change(LATER._replace(coordinator_type=mistake, deaths=deaths)).broken == broken


def test_who_switches_though_it_is_barred_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "may_switch", lambda *_: True)
    assert explore_change(LATER).broken is not None


def _nothing(lost: Collection[str], reports: Mapping[str, Inventory]) -> Settlement:
    return settle(lost, reports)._replace(owed=dict.fromkeys(reports, ()))


def _to_all(lost: Collection[str], reports: Mapping[str, Inventory]) -> Settlement:
    return settle(lost, {name: msgspec.structs.replace(report, latest={}) for name, report in reports.items()})


def _backwards(lost: Collection[str], reports: Mapping[str, Inventory]) -> Settlement:
    found = settle(lost, reports)
    return found._replace(owed={name: owed[::-1] for name, owed in found.owed.items()})


@pytest.mark.parametrize(
    ("mistake", "messages", "broken"),
    [
        pytest.param(_nothing, 1, "agreement", id="nobody is given what it lacks"),
        pytest.param(_to_all, 1, "duplication", id="all are given it, also those who have it"),
        pytest.param(_backwards, 2, "fifo", id="in the wrong order"),
    ],
)
def test_a_mistake_about_what_survivors_owe_each_other_is_found(mistake: Any, messages: int, broken: str) -> None:
    explored = explore_change(ChangeCase(FLAT, fabric(2, "AB"), messages, lost=("C",), settle=mistake))
    assert explored.broken == broken


def test_taking_more_while_all_compare_what_they_have_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "deaf_to", lambda *_: False)
    assert explore_change(ChangeCase(FLAT, fabric(2, "AB"), 1, lost=("C",))).broken is not None


def test_switching_before_all_have_what_they_lack_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hasty(Coordinator):
        def _go_on(self, attempt: int, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> Decision:
            decision = super()._go_on(attempt, before, answers)
            switching = any(standing.phase == "flushed" for standing in answers.values())
            return Decision({name: Switch(attempt) for name in answers}, "", flush=()) if switching else decision

    # The members themselves would refuse: they must be mistaken as well.
    monkeypatch.setattr(View, "ready", property(lambda view: view.state.phase in ("prepared", "flushed")))
    case = ChangeCase(FLAT, fabric(2, "AB"), 1, deaths=1, lost=("C",), coordinator_type=Hasty)
    assert explore_change(case).broken == "agreement"


@pytest.mark.parametrize("mistake", ["nothing waits at the border", "what goes on begins anew", "entries do not count"])
def test_a_mistake_about_what_goes_on_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = BESIDE
    if mistake == "nothing waits at the border":
        monkeypatch.setattr(Border, "stops", lambda *_: False)
    elif mistake == "what goes on begins anew":
        entered = Attachment.enter
        monkeypatch.setattr(Attachment, "enter", lambda here, routes, delivered, *_: entered(here, routes, delivered))
    else:
        monkeypatch.setattr(Comparison, "_enters_alike", lambda *_: True)
        case = BY_ANOTHER
    assert explore_change(case).broken is not None


def test_who_joins_and_delivers_what_was_for_others_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Envelope, "version", MAX_VERSION)
    assert explore_change(JOIN_OF_A_RELAY).broken == "creation"


LEAVE = ChangeCase(named(1, x="UX", a="XAL"), named(2, x="UX", a="XA"), 1)
LOSS = LEAVE._replace(lost=("L",))


@pytest.mark.parametrize(("case", "others_hold"), [(LEAVE, False), (LEAVE, True), (LOSS, False), (LOSS, True)])
def test_who_leaves_or_is_lost_lets_all_others_hold_for_a_reason(
    case: ChangeCase, others_hold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not others_hold:
        for module in (concern, protocol, coordinator):
            monkeypatch.setattr(module, "why_everybody", lambda *_: "")
        # Nobody's messages decide whether a place goes on but of those who stay: there is no other way for the rest.
        monkeypatch.setattr(Comparison, "_enters_alike", lambda *_: True)
    assert (explore_change(case).broken is None) == others_hold


def test_a_change_without_more_than_half_of_all_is_never_made() -> None:
    assert explore_change(TWO_FILES).broken == "no way out", "each waits for the others"


@pytest.mark.parametrize("mistake", ["half of all may be away", "a lost one is believed"])
def test_a_mistake_about_those_who_are_away_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = TOLD_BY_THE_LOST
    if mistake == "half of all may be away":
        case = TWO_FILES
        for module in (protocol, coordinator):
            monkeypatch.setattr(module, "is_majority", lambda *_: True)
    else:
        follow = View.follow
        believed = ("somebody else",)
        monkeypatch.setattr(View, "follow", lambda view, change, *of: follow(view, change._replace(peers=believed), *of))
    assert (explore_change(case).broken or "").endswith("stays behind")


class _WithoutQuiet(Coordinator):
    def _quiet(self, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> bool:
        return True


class _OneRound(Coordinator):
    def _quiet(self, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> bool:
        return super()._quiet(answers, answers)


class _Hasty(Coordinator):
    """Takes an attempt for dead as soon as somebody is not in it: it may not have been in it yet."""

    def _free(
        self, prepared: Mapping[str, Standing], before: Mapping[str, Standing], answers: Mapping[str, Standing]
    ) -> dict[str, ViewInput]:
        return {name: Resume(standing.attempt, dead=True) for name, standing in prepared.items()}


class _Early(Coordinator):
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
def test_a_mistake_about_quiet_is_found(mistake: type[Coordinator], old: Topology, new: Topology) -> None:
    explored = explore_change(ChangeCase(old, new, 1, coordinator_type=mistake))
    assert explored.broken == "a frame of the old version was still on its way"
    assert explored.actions[-1].endswith("is asked to switch")


def test_switching_before_all_are_prepared_is_found() -> None:
    explored = explore_change(ChangeCase(FLAT, SPLIT, 1, deaths=1, leases=1, coordinator_type=_Early))
    assert explored.broken == "a frame of the old version was still on its way"


def test_taking_an_attempt_for_dead_too_early_is_found() -> None:
    case = ChangeCase(PAIR, OTHERWISE, 1, commands=2, leases=1, coordinator_type=_Hasty)
    explored = explore_change(case)
    assert explored.broken == "a frame of the old version was still on its way"
    assert "B is asked to resume" in explored.actions
    assert replay(Reconfigurations(case), explored.actions) == explored.broken
