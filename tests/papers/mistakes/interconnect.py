"""Mistakes for the claims of interconnect."""

from __future__ import annotations

from functools import partial
from typing import Final

from benchmarks.takeover import FIFO_LINK
from tests.papers import (
    test_interconnect,
    test_interconnect_costs,
    test_interconnect_faults,
    test_interconnect_uniform,
)
from tests.papers.costs import test_interconnect_regime
from tests.papers.interconnect import test_uniform_takeover
from tests.papers.mistakes.mistake import Mistake, instead
from tests.support.planted import planted_fabric
from tests.support.planted.planted_stability import needs_no_report
from thence.core.failover.replicas import StillKept, Takeover
from thence.core.member.deliver import DeliveryLog
from thence.core.member.receive import Accounting
from thence.core.places.link_end import LinkEnd, LinkOutput
from thence.core.stability.accounts import Accounts
from thence.core.stability.carried import CarriedMessages
from thence.core.stability.safe_notification import SafeNotification
from thence.core.stability.stand_ins import StandIns
from thence.core.topology import checks
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Envelope

_open = Accounts.open


class PassesOnAtHome(LinkEnd):
    """What crosses is passed on at home once more."""

    def cross(self, envelope: Envelope, relay: str) -> LinkOutput:
        return LinkOutput(super().cross(envelope, relay).send, [envelope])


class TwoCopies(LinkEnd):
    """The sequencer hands a message to the relay whose turn it is, and to another one that drops it."""

    def cross(self, envelope: Envelope, relay: str) -> LinkOutput:
        output = super().cross(envelope, relay)
        return LinkOutput(output.send * 2, output.pass_on)


def _every_link(self: Routes, _: str) -> frozenset[str]:
    """Transfer sets are not looked at: everybody's messages may use every link."""
    return frozenset(self.topology.links)


def _no_cycle(self: Topology, origin: str | None = None) -> None:
    """Cycles are not found."""


def _nothing(_: Topology) -> None:
    """Check nothing."""


def _own_senders_only(self: Takeover, origin: str, domain: str) -> bool:
    """Nobody carries for a sender but its own relay."""
    return not self.group or self._routes.carriers(self.me, origin, domain)[0] == self.me


def _not_for_what_it_keeps(self: Accounts, envelope: Envelope, came_by: str, what: str) -> None:
    """What another replica should forward is reported as soon as it is here."""
    if not what.startswith("into "):
        _open(self, envelope, came_by, what)


def _first_pair(self: LinkEnd, _: int) -> tuple[str, str]:
    """The other pairs get nothing to carry."""
    return self._pairs[0]


MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake(
        "I1",
        "a relay sends to the far relays in turn",
        partial(planted_fabric.in_place, planted_fabric.FifoByMessage),
        test_interconnect.test_i1_senders_divided_in_turn_stay_fifo,
        {"seed": 1},
    ),
    Mistake(
        "I2",
        "every sender may use every link",
        instead(Routes, "_links_for", _every_link),
        test_interconnect.test_i2_fig_4_every_sender_uses_its_own_shape,
        {"origin": "q", "target": "x1", "path": "q S0 isp02 chain-1 isp21 chain-2 isp12 S1 x1"},
    ),
    Mistake(
        "I3",
        "a causal promise is not compared with the links",
        instead(checks, "check_promise", _nothing),
        test_interconnect.test_i3_uncoordinated_relays_are_refused_where_causal_order_is_promised,
        {"mode": "fifo"},
    ),
    Mistake(
        "I4",
        "receiving relays pass on by themselves",
        partial(planted_fabric.in_place, planted_fabric.EveryRelayPassesOn),
        test_interconnect.test_i4_our_links_are_causal_in_every_run,
        {"sizes": (2, 2), "messages": 2, "pattern": "broadcast"},
    ),
    Mistake(
        "I4",
        "the sequencer does not put in order what comes",
        partial(planted_fabric.in_place, planted_fabric.PassesOnAsItComes),
        test_interconnect.test_i4_our_links_are_causal_in_random_runs,
        {"seed": 1},
    ),
    Mistake(
        "I5",
        "cycles are not found",
        instead(Topology, "find_cycle", _no_cycle),
        test_interconnect.test_i5_a_cycle_of_links_is_refused_by_name,
    ),
    Mistake(
        "I5",
        "what comes in is not put in order",
        partial(planted_fabric.in_place, planted_fabric.PassesOnAsItComes),
        test_interconnect.test_i5_three_systems_in_a_row_are_causal_in_every_run,
        {"pattern": "broadcast"},
    ),
    Mistake(
        "I6",
        "all is safe when its own system has it",
        instead(SafeNotification, "_all_beyond_have", lambda *_: True),
        test_interconnect_uniform.test_i6_note_2_with_one_system_cut_off_all_deliver_and_nobody_is_told_until_it_is_back,
        {"mode": "causal"},
    ),
    Mistake(
        "I6",
        "all is safe when its own domain of a row has it",
        instead(SafeNotification, "_all_beyond_have", lambda *_: True),
        test_interconnect_uniform.test_i6_note_2_in_a_row_of_systems_nobody_is_told_before_the_last_process_of_the_last_has_it,
    ),
    Mistake(
        "I6",
        "what is not safe is handed up",
        instead(DeliveryLog, "hand_up", lambda _, deliveries: deliveries),
        test_interconnect_uniform.test_i6_with_one_system_cut_off_nobody_delivers_and_everybody_does_when_it_is_back,
        {"mode": "fifo"},
    ),
    Mistake(
        "I6",
        "one that is suspected is not waited for, though nobody stands in",
        instead(StandIns, "excused", needs_no_report),
        test_uniform_takeover.test_i6_with_the_other_system_cut_off_and_a_relay_dead_nobody_is_told,
        {"delivery": "notify"},
    ),
    Mistake(
        "I6",
        "the next relay does not forward again what was not reported",
        instead(StillKept, "take", lambda *_: []),
        test_uniform_takeover.test_i6_whichever_relay_dies_for_good_all_survivors_are_told_and_nobody_too_early,
        {"text": test_uniform_takeover.LINKED, "dying": ("re1",), "delivery": "notify"},
    ),
    Mistake(
        "I6",
        "only a relay that died could say that its messages are safe",
        instead(CarriedMessages, "look", lambda _: None),
        test_uniform_takeover.test_i6_whichever_relay_dies_for_good_all_survivors_are_told_and_nobody_too_early,
        {"text": test_uniform_takeover.LINKED, "dying": ("rw1",), "delivery": "notify"},
    ),
    Mistake(
        "I6",
        "a relay that keeps a message for another one reports it",
        instead(Accounts, "open", _not_for_what_it_keeps),
        test_uniform_takeover.test_i6_with_the_other_system_cut_off_and_a_relay_dead_nobody_is_told,
        {"delivery": "safe"},
    ),
    Mistake(
        "I6",
        "what waits for its turn is reported",
        instead(Accounting, "_has_no_turn_yet", lambda *_: False),
        test_uniform_takeover.test_i6_nobody_is_told_of_what_somebody_may_never_deliver,
    ),
    Mistake(
        "I10",
        "nobody takes over a sender",
        instead(Takeover, "forwards_for", _own_senders_only),
        test_interconnect_faults.test_i10_the_senders_of_a_dead_relay_are_taken_over,
        {"text": FIFO_LINK, "relays": ("ra1",)},
    ),
    Mistake(
        "I7",
        "one pair carries all",
        instead(LinkEnd, "_pair", _first_pair),
        test_interconnect_regime.test_i7_eq_2_links_multiply_the_bandwidth,
        {"architecture": "causal", "links": 4},
    ),
    Mistake(
        "I8",
        "what crosses is handed on twice",
        partial(planted_fabric.in_place, TwoCopies),
        test_interconnect_costs.test_i8_our_links_take_one_slow_message_and_up_to_two_hand_overs,
        {"n": 3},
    ),
    Mistake(
        "I9",
        "what crosses is passed on at home once more",
        partial(planted_fabric.in_place, PassesOnAtHome),
        test_interconnect_costs.test_i9_joining_does_not_slow_down_a_local_broadcast,
        {"pairs": 1},
    ),
)
