"""Messages that are kept until all have them, in every run of small fabrics with a relay, a link, and orderings that pass on."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.planted.planted_stability import PLANTED, Planted, in_place
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.errors import ThenceError
from thence.sim.search.explorer import Case, explore


def relayed(left: str, right: str) -> Topology:
    """Two domains of two, joined by r."""
    return Topology("relayed", [Domain("A", ("a", "r"), left), Domain("D", ("r", "d"), right)], stability=True)


def linked(mode: str) -> Topology:
    """Two domains of two, joined by two pairs of relays."""
    domains = [Domain("A", ("a", "b"), "matrix"), Domain("C", ("c", "d"), "matrix")]
    link = Link("l", ("A", "C"), (("a", "c"), ("b", "d")), "causal" if mode == "causal" else "fifo")
    return Topology("linked", domains, [link], promise="causal" if mode == "causal" else "fifo", stability=True)


CASES: Final = {
    "vector, unicast": Case(relayed("vector", "vector"), 2, "unicast"),
    "matrix, broadcast": Case(relayed("matrix", "matrix"), 2, "broadcast"),
    "sequenced and vector, broadcast": Case(relayed("sequenced", "vector"), 2, "broadcast"),
    "flood and matrix, broadcast": Case(relayed("flood", "matrix"), 2, "broadcast"),
    "clocked, unicast": Case(relayed("clocked", "vector"), 2, "unicast"),
    "resilient, unicast": Case(relayed("resilient", "vector"), 2, "unicast"),
    "a causal link, unicast": Case(linked("causal"), 2, "unicast"),
    "a FIFO link, unicast": Case(linked("fifo"), 2, "unicast"),
    "a flat group that passes on": Case(Topology("flat", [Domain("d", ("a", "b", "c"), "flood")], stability=True), 2, "unicast"),
}

WIDE: Final = Case(
    Topology("wide", [Domain("A", ("a", "r"), "matrix"), Domain("D", ("r", "d", "e"), "matrix")], stability=True), 2
)
"""Here one report is not all of them, and messages wait at the relay for their turn."""


@pytest.mark.parametrize("name", CASES)
def test_nobody_says_too_early_that_all_have_a_message_and_in_the_end_everybody_does(name: str) -> None:
    found = explore(CASES[name])
    assert found.broken is None, found.actions


@pytest.mark.parametrize("planted", [one for one in PLANTED if one.explorable], ids=lambda one: one.name)
def test_the_explorer_finds_what_was_planted(planted: Planted) -> None:
    with in_place(planted):
        try:
            property_broken = explore(WIDE, limit=200_000).broken
        except (ThenceError, KeyError):
            property_broken = "contradicts itself"
    assert property_broken is not None
