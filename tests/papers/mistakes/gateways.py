"""Mistakes for the claims of gateways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.papers import test_gateways, test_gateways_confirmation
from tests.papers.gateways import test_gateways_relayed
from tests.papers.mistakes.mistake import Mistake, instead, ordering
from tests.support.planted import planted_orderings, planted_stamps
from thence.core.member.forward import Cascade, Forwarder
from thence.core.ordering.clocked import Clocked, ClockedOptions
from thence.core.ordering.vector import Vector
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.places.seen_streams import SeenStreams
from thence.core.topology.model import Topology
from thence.core.transport.ack_all.missing import Missing
from thence.core.transport.acks import ReceivedAcks
from thence.core.wire.messages import Frame

_follow = Forwarder.follow
_begin: Callable[[ReceivedAcks, int, int], None] = ReceivedAcks.__init__


class MovesOnReceiptOnly(Clocked):
    """A hybrid clock looks at the time when something comes, and not when something is sent."""

    def _start(self, options: ClockedOptions) -> None:
        super()._start(options)
        self._hybrid = False


def _at_once(self: ReceivedAcks, *_: int) -> None:
    """An ack waits for nothing, whatever the domain's options say."""
    _begin(self, 0, 1)


def _asks_the_sender(_: Missing, stream: int, *__: int) -> int:
    """Whoever lacks a message asks its sender, however far that is."""
    return stream


def _not_its_own(self: Forwarder, place: DomainPlace | LinkPlace, frame: Frame[Any], cascade: Cascade) -> None:
    """A process does not take over the entry of its own subgroup (k ≠ j), as §4 is printed."""
    here, past = self._attachment.name, self._attachment.seen
    mine = test_gateways_relayed.group_of(here)
    known = past.known[mine]
    _follow(self, place, frame, cascade)
    past.known[mine] = known


def _all_processes(topology: Topology) -> SeenStreams:
    """A vector has an entry for each process."""
    return SeenStreams(len(topology.processes))


MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake(
        "G1",
        "a gateway waits for no cause from other subgroups",
        ordering("relayed", planted_orderings.WithoutFacts),
        test_gateways_relayed.test_g1_every_mix_is_causal_and_waits_for_nothing_else,
        {"kinds": ["vector", "controller", "physical clock"], "size": 3, "pattern": "multicast", "loss": 0.1, "seed": 1},
    ),
    Mistake(
        "G1",
        "a gateway cannot tell another one for what a third has to wait",
        ordering("relayed", planted_orderings.OnlyOwnFacts),
        test_gateways_relayed.test_g1_every_mix_is_causal_and_waits_for_nothing_else,
        {"kinds": ["vector", "controller", "vector", "vector"], "size": 2, "pattern": "multicast", "loss": 0.1, "seed": 2},
    ),
    Mistake(
        "G1",
        "a gateway waits for no cause, in every run of a small group",
        ordering("relayed", planted_orderings.WithoutFacts),
        test_gateways_relayed.test_g1_every_run_of_a_small_group_is_causal,
        {"kinds": ("vector", "vector")},
    ),
    Mistake(
        "G1",
        "every gateway gets a marker",
        ordering("relayed", Vector),
        test_gateways_relayed.test_g1_a_global_unicast_takes_three_frames_among_4000_processes,
    ),
    Mistake(
        "G2",
        "a gateway passes on with its merged vector",
        ordering("relayed", planted_orderings.MergedOrder),
        test_gateways_relayed.test_g2_fig_8_step_by_step,
    ),
    Mistake(
        "G2",
        "a vector has an entry for each process",
        instead(SeenStreams, "of", staticmethod(_all_processes)),
        test_gateways_relayed.test_g2_vectors_are_sized_by_the_number_of_subgroups,
        {"size": 2},
    ),
    Mistake(
        "G3",
        "what a gateway passed on counts as a cause",
        ordering("relayed", planted_orderings.GatewayOrder),
        test_gateways_relayed.test_g3_concurrent_messages_stay_concurrent,
    ),
    Mistake(
        "G3",
        "a process does not take over the entry of its own subgroup",
        instead(Forwarder, "follow", _not_its_own),
        test_gateways_relayed.test_g3_concurrent_messages_stay_concurrent,
    ),
    Mistake(
        "G4",
        "a vector has an entry more than its subgroup has members",
        ordering("vector", planted_stamps.AnEntryMore),
        test_gateways.test_g4_the_header_is_a_tenth_of_the_flat_one,
    ),
    Mistake(
        "G5",
        "no ack waits for company",
        instead(ReceivedAcks, "__init__", _at_once),
        test_gateways_confirmation.test_g5_delayed_confirmation_sends_fewer,
        {"scheme": "decentralised", "loss": 0.0},
    ),
    Mistake(
        "G5",
        "whoever lacks a message asks its sender",
        instead(Missing, "_whom_to_ask", _asks_the_sender),
        test_gateways_confirmation.test_g5_the_nearest_destination_repeats_sooner_than_a_far_sender,
        {"loss": 0.05, "delayed": ""},
    ),
    Mistake(
        "G6",
        "a hybrid clock moves on receipt only",
        ordering("clocked", MovesOnReceiptOnly),
        test_gateways.test_g6_one_that_has_heard_nothing_does_not_overtake,
    ),
    Mistake(
        "G6",
        "a hybrid clock moves on receipt only, in random runs",
        ordering("clocked", MovesOnReceiptOnly),
        test_gateways.test_g6_what_is_sent_later_is_delivered_later_within_the_skew,
        {"seed": 1, "skew": 10},
    ),
)
