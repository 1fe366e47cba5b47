"""Notices that a message is safe, in every run of small domains and fabrics: nobody is told too early, and in the end all are."""

from __future__ import annotations

from typing import Any, Final
from unittest import mock

import pytest

from tests.support.planted.planted_stability import UNNOTICED, Planted, in_place, needs_no_report
from thence.core.ordering import ORDERINGS
from thence.core.stability.stand_ins import StandIns
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.errors import ThenceError
from thence.sim.search.explorer import Action, Case, Fault, explore


def told(name: str, members: tuple[str, ...], ordering: str) -> Domain:
    """A domain that tells later what is safe."""
    return Domain(name, members, ordering)._replace(delivery="notify")


def relayed(left: str, right: str, **options: Any) -> Topology:
    """Two domains of two, joined by r."""
    return Topology("relayed", [told("A", ("a", "r"), left), told("D", ("r", "d"), right)], **options)


def linked() -> Topology:
    """Two domains, joined by one pair of relays."""
    link = Link("l", ("A", "C"), (("a", "c"),))
    return Topology("linked", [told("A", ("a", "b"), "matrix"), told("C", ("c", "d"), "matrix")], [link])


WHOLE: Final = AckOptions(scheme="distributed", retransmission="nearest", whole=True)


def twin() -> Topology:
    """Two domains, joined by a relay of two replicas."""
    domains = [told(name, (member, "r1", "r2"), "vector")._replace(acks=WHOLE) for name, member in (("A", "a"), ("D", "d"))]
    return Topology("twin", domains, replicas=[("r1", "r2")])


TAKES_OVER: Final = (Action("r1", fault=Fault.CRASH), Action("r2", "r1", fault=Fault.SUSPECT))
"""r1 dies, and r2 notices."""

CASES: Final = {
    "replicas, unicast": Case(twin(), 1, "unicast", among=("d",)),
    "three messages": Case(told("d", ("a", "b", "c"), "fifo"), 3, "unicast"),
    "a relay, unicast": Case(relayed("vector", "vector"), 2, "unicast"),
    "a relay, broadcast": Case(relayed("matrix", "vector"), 2, "broadcast"),
    "a relay, with stability": Case(relayed("matrix", "matrix", stability=True), 1, "broadcast"),
    "a link, broadcast": Case(linked(), 1, "broadcast"),
}

DIRECT: Final = [name for name, ordering in ORDERINGS.items() if ordering.traits.direct]

WIDE: Final = Case(told("d", ("a", "b", "c"), "matrix"), 2, "multicast")
"""Here one ack is not all of them, and a message may hang on one that not all have."""


@pytest.mark.parametrize("name", CASES)
def test_nobody_is_told_too_early_that_a_message_is_safe_and_in_the_end_everybody_is(name: str) -> None:
    found = explore(CASES[name])
    assert found.broken is None, found.actions


@pytest.mark.parametrize("ordering", DIRECT)
@pytest.mark.parametrize("pattern", ["unicast", "multicast", "broadcast"])
def test_so_it_is_with_every_ordering_that_can_tell(ordering: str, pattern: str) -> None:
    found = explore(Case(told("d", ("a", "b", "c"), ordering), 2, pattern))
    assert found.broken is None, found.actions


@pytest.mark.parametrize("planted", [one for one in UNNOTICED if one.explorable], ids=lambda one: one.name)
def test_the_explorer_finds_what_was_planted(planted: Planted) -> None:
    with in_place(planted):
        try:
            cases = (WIDE, WIDE._replace(pattern="broadcast"), CASES["a relay, unicast"])
            found = any(explore(case, limit=300_000).broken == "notices" for case in cases)
        except (ThenceError, KeyError):  # It contradicts itself.
            found = True
    assert found


def test_a_sender_waits_for_a_dead_replica_until_it_suspects_it() -> None:
    """The search sees a takeover: r2 has forwarded and reported, and a waits for an ack of r1, which it does not suspect."""
    found = explore(Case(twin(), 1, "unicast", faults=TAKES_OVER, among=("d",)))
    assert found.broken == "notices"


def test_the_explorer_finds_that_who_is_suspected_is_not_waited_for_though_nobody_stands_in() -> None:
    both = tuple(Action("a", relay, fault=Fault.SUSPECT) for relay in ("r1", "r2"))
    with mock.patch.object(StandIns, "excused", needs_no_report):
        found = explore(Case(twin(), 1, "broadcast", faults=both))
    assert found.broken == "notices"
