"""Mistakes for the claims of daisy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final
from unittest import mock

from tests.papers import test_daisy, test_daisy_faults, test_daisy_groups, test_daisy_stability
from tests.papers.costs import test_daisy_load
from tests.papers.mistakes.mistake import Mistake, instead, ordering
from tests.support.papers import daisy_study
from tests.support.planted import planted_resilient, planted_routes, planted_stability, planted_stamps, planted_takeover
from thence.core.ordering import Output
from thence.core.ordering.sequenced import Sequenced
from thence.core.places import place
from thence.core.reconfig.border import Border, Crossing
from thence.core.reconfig.concern import Comparison
from thence.core.topology.routing import RoutePlan, Routes
from thence.core.transport.ack_all.missing import Missing
from thence.core.wire.messages import MAX_VERSION, Envelope
from thence.studies.models import daisy_load
from thence.studies.models.daisy_load import MessageTree
from thence.studies.models.daisy_options import OptionCost

_plan, _open = Routes.plan, Border.open


def _everywhere(self: Routes, at: str, origin: str, to: Collection[str] | None, came_from: str | None) -> RoutePlan:
    """Each group that a causal server is in is visited, whether there are recipients or not."""
    plan = _plan(self, at, origin, to, came_from)
    return RoutePlan({home: plan.into.get(home, ()) for home in self.topology.homes[at] if home != came_from}, plan.across)


class ToEverybody(Sequenced):
    """The server passes on to its whole group, whoever the message is for."""

    def _pass_on(self, envelope: Envelope, recipients: Collection[int], out: Output) -> None:
        super()._pass_on(envelope, range(len(self.members)), out)


class AcksAtOnce(MessageTree):
    """A server acknowledges a message when it arrives, and not when it is stable in the next group."""

    def _acknowledged(self, receiver: str, sender: str) -> int:
        if receiver in self.children:
            self._settle(receiver)
        arrived = self._load.log.arrivals[receiver, self.message].at
        return arrived + self._load.map.acknowledgement(receiver, sender).draw_ns(self._chance)


def _backwards(border: Border) -> list[Crossing]:
    """What waited at a border until a change was over goes on last first."""
    return _open(border)[::-1]


def _costs(*names: str) -> Mapping[str, Mapping[str, OptionCost]]:
    """Measure some configurations over two seeds."""
    with mock.patch.object(daisy_study, "SEEDS", range(2)):
        return {"costs": {name: daisy_study.mean_cost(daisy_study.CONFIGURATIONS[name], "even") for name in names}}


OF_A_SPLIT: Final = {
    "old": test_daisy_groups.BEGIN,
    "new": test_daisy_groups.ELECTED,
    "outside": ("R1", "R2"),
    "down": "L4",
}
OF_ONE_WHO_COMES_IN: Final = {**OF_A_SPLIT, "new": test_daisy_groups.ENTERED}
TAKEOVER: Final = {planted.name: planted for planted in planted_takeover.PLANTED}
STABILITY: Final = {planted.name: planted for planted in planted_stability.PLANTED}

MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake(
        "D1",
        "groups without recipients are visited",
        instead(Routes, "plan", _everywhere),
        test_daisy.test_d1_groups_without_recipients_are_not_visited,
        {"sizes": [3, 3, 3], "seed": 3},
    ),
    Mistake(
        "D1",
        "servers write to recipients only, not to those who lead further",
        instead(Routes, "plan", planted_routes.only_recipients),
        test_daisy.test_d1_causal_multicast_to_any_subset,
        {"sizes": [3, 3, 3], "seed": 1, "recipients": 4, "delay": "exponential:10ms", "stamps": "changed"},
    ),
    Mistake(
        "D2",
        "a server forgets the last of several recipients",
        instead(Routes, "plan", planted_routes.forgets_the_last),
        test_daisy.test_d2_hyper_servers,
        {"levels": 3, "seed": 1, "recipients": 8},
    ),
    Mistake(
        "D4",
        "one ack counts for all",
        partial(planted_stability.in_place, STABILITY["drops too early: one report counts for all"]),
        test_daisy_stability.test_the_sender_keeps_a_message_exactly_until_the_last_recipient_has_it,
    ),
    Mistake(
        "D6",
        "a vector has an entry more than its group has members",
        ordering("vector", planted_stamps.AnEntryMore),
        test_daisy.test_d6_five_integers_for_sixty_processes,
    ),
    Mistake(
        "D7",
        "(i) a message whose body has not come is handed on without it",
        instead(place, "Bodies", test_daisy.Broken),
        test_daisy.test_d7_forwarding_bodies_early_keeps_order,
    ),
    *(
        Mistake(
            claim,
            f"(ii) {what}",
            ordering("resilient", planted_resilient.PLANTED[name]),
            test_daisy.test_d7_any_k_members_may_die,
            {"copies": 1},
        )
        for claim, name, what in (
            ("D7", "NotHandedOn", "who holds a message keeps it to himself"),
            ("D7", "NotReplaced", "nobody takes the place of a holder who is suspected"),
            ("D7", "CountingTheDead", "as many must hold a message as if all were alive"),
            ("D9", "AcceptingEarly", "a message is accepted when it is sent"),
        )
    ),
    Mistake(
        "D7",
        "(iii) the server passes on to its whole group",
        ordering("sequenced", ToEverybody),
        test_daisy.test_d7_star,
        partial(_costs, "daisy", "star"),
    ),
    Mistake(
        "D8",
        "a server acknowledges what is not stable in the next group",
        instead(daisy_load, "MessageTree", AcksAtOnce),
        test_daisy_load.test_d8_the_stability_delay_of_a_daisy_rises,
    ),
    Mistake(
        "D3",
        "all hold, whomever a change concerns",
        instead(Comparison, "concerns", lambda *_: True),
        test_daisy_groups.test_d3_who_is_outside_of_a_change_never_holds,
        OF_A_SPLIT,
    ),
    Mistake(
        "D3",
        "what waited at the border goes on backwards",
        instead(Border, "open", _backwards),
        test_daisy_groups.test_d3_who_is_outside_of_a_change_never_holds,
        OF_A_SPLIT,
    ),
    Mistake(
        "D3",
        "whoever comes in delivers what was for everyone before",
        instead(Envelope, "version", MAX_VERSION),
        test_daisy_groups.test_d3_who_is_outside_of_a_change_never_holds,
        OF_ONE_WHO_COMES_IN,
    ),
    Mistake(
        "D5",
        "whoever lacks a message asks its sender only, who is dead",
        instead(Missing, "_whom_to_ask", lambda _, stream, *__: stream),
        test_daisy_faults.test_d5_fig_2_does_not_block_ours,
    ),
    Mistake(
        "D9",
        "what was kept for a dead server is forgotten",
        partial(planted_takeover.in_place, TAKEOVER["what was kept is forgotten"]),
        test_daisy_faults.test_d5_d9_safe_live_and_reliable_under_crash_and_omission,
        {"seed": 1, "levels": 2},
    ),
)
