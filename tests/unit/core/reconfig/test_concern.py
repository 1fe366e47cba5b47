"""Whom a change of the topology concerns, and what of a fabric goes on as it is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from thence.core.reconfig.concern import Comparison, concerned_by, why_everybody
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology


def fabric(domains: Mapping[str, str], *links: Link, version: int = 1, stability: bool = False) -> Topology:
    made = [Domain(name, tuple(members), "matrix") for name, members in domains.items()]
    fifo = any(link.mode == "fifo" for link in links)
    return Topology("f", made, links, version=version, stability=stability, promise="fifo" if fifo else "causal")


ROW = {"x": "UX", "a": "XABY", "y": "YZ"}
"""Three domains in a row, joined by X and Y."""

PAIR = (("B", "C"),)
WIDE = (("B", "C"), ("X", "D"))


@pytest.mark.parametrize(
    ("old", "new", "concerned"),
    [
        pytest.param(fabric(ROW), fabric(ROW), "", id="nothing"),
        pytest.param(fabric(ROW), fabric({"x": "UX", "a": "XA", "b": "ABY", "y": "YZ"}), "XABY", id="split"),
        pytest.param(fabric(ROW), fabric({"x": "UXABY", "y": "YZ"}), "UXABY", id="merge"),
        pytest.param(fabric(ROW), fabric({"x": "UX", "a": "XAY", "y": "YZB"}), "XABYZ", id="move"),
        pytest.param(fabric(ROW), fabric({**ROW, "y": "QYZ"}), "YZ", id="join"),
        pytest.param(fabric(ROW), fabric({**ROW, "y": "YZQ", "q": "QP"}), "YZ", id="join of a relay, and of those behind it"),
        pytest.param(fabric(ROW), fabric({**ROW, "q": "ZQ"}), "Z", id="join in a domain of its own"),
        pytest.param(fabric(ROW), fabric({"x": "UX", "a": "ABXY", "y": "YZ"}), "XABY", id="in another order"),
        pytest.param(
            fabric({"x": "UYZ", "a": "YP", "b": "ZQ", "c": "UV"}),
            fabric({"x": "UYZ", "a": "Y", "b": "ZQP", "c": "UV"}),
            "UYZPQ",
            id="a move by which messages come into a domain by another member",
        ),
        pytest.param(
            fabric({"x": "UX", "a": "XAB", "c": "CDE"}, Link("l", ("a", "c"), PAIR)),
            fabric({"x": "UX", "a": "XAB", "c": "CDE"}, Link("l", ("a", "c"), WIDE)),
            "XBCD",
            id="one more pair of a link: its relays",
        ),
        pytest.param(
            fabric({"x": "UX", "a": "XAB", "c": "CDE"}, Link("l", ("a", "c"), WIDE, "fifo")),
            fabric({"x": "UX", "a": "XAB", "c": "CDE"}, Link("l", ("a", "c"), PAIR, "fifo")),
            "XABCDE",
            id="one pair less where senders are divided: their domains, too",
        ),
        pytest.param(
            fabric({"x": "UX", "a": "XAB", "c": "CDE"}, Link("l", ("a", "c"), PAIR)),
            fabric({"x": "UX", "a": "XAB", "c": "CD", "e": "DE"}, Link("l", ("a", "c"), PAIR)),
            "CDE",
            id="a split behind a link that goes on",
        ),
        pytest.param(
            fabric({"x": "UX", "a": "XAB", "c": "CDE"}, Link("l", ("a", "c"), PAIR)),
            fabric({"x": "UX", "a": "XABD", "c": "CE"}, Link("l", ("a", "c"), PAIR)),
            "XABCDE",
            id="a move to the other side of a link",
        ),
    ],
)
def test_only_who_is_in_what_is_replaced_is_concerned(old: Topology, new: Topology, concerned: str) -> None:
    assert why_everybody(old, new) == ""
    assert concerned_by(old, new) == tuple(name for name in old.processes if name in concerned)
    compared = Comparison(old, new)
    assert "".join(name for name in old.processes if compared.concerns(name)) == "".join(concerned_by(old, new))


@pytest.mark.parametrize(
    ("old", "new", "lost", "why"),
    [
        pytest.param(fabric(ROW), fabric({**ROW, "a": "XAY"}), (), "has to arrive before", id="leave"),
        pytest.param(fabric(ROW), fabric({**ROW, "a": "XAYQ"}), (), "has to arrive before", id="leave and join"),
        pytest.param(fabric(ROW), fabric({**ROW, "a": "XAY"}), ("B",), "compare what they have", id="lost"),
        pytest.param(fabric(ROW), fabric(ROW, stability=True), (), "counted across the whole fabric", id="stability"),
        pytest.param(fabric(ROW), fabric({"x": "UXABYZ"}), (), "there is a single domain", id="one domain"),
    ],
)
def test_what_is_more_than_a_place_concerns_everybody(old: Topology, new: Topology, lost: tuple[str, ...], why: str) -> None:
    assert why in why_everybody(old, new, lost)
    assert concerned_by(old, new, lost) == tuple(name for name in old.processes if name not in lost)


def standing_in(domains: Mapping[str, str], *groups: str, local: str = "", version: int = 1) -> Topology:
    """Return a fabric in which the letters of each group stand for one relay, and send in a domain, if one is named."""
    made = [Domain(name, tuple(members), "vector") for name, members in domains.items()]
    sends = {name: local for group in groups for name in group} if local else {}
    return Topology("f", made, replicas=[tuple(group) for group in groups], local=sends, version=version)


TWINS = {"a": "ABXY", "b": "XYZPQ", "c": "PQCD"}
"""Three domains in a row: X and Y stand for one relay, P and Q for the other."""


@pytest.mark.parametrize(
    ("new", "concerned"),
    [
        pytest.param(standing_in(TWINS, "XY", "PQ"), "", id="nothing"),
        pytest.param(standing_in({**TWINS, "c": "PQC", "d": "CD"}, "XY", "PQ"), "PQCD", id="a split behind replicas"),
        pytest.param(standing_in(TWINS, "YX", "PQ"), "ABXYZPQ", id="the other one is first"),
        pytest.param(standing_in(TWINS, "XY", "PQ", local="b"), "ABXYZPQCD", id="they send"),
    ],
)
def test_domains_of_replicas_go_on_if_these_stay_as_they_are(new: Topology, concerned: str) -> None:
    old = standing_in(TWINS, "XY", "PQ")
    assert why_everybody(old, new) == ""
    assert concerned_by(old, new) == tuple(name for name in old.processes if name in concerned)


def test_replicas_of_which_some_of_three_domains_go_on_concern_everybody() -> None:
    old = standing_in({"a": "ABCXY", "b": "XYZ", "c": "XYD"}, "XY")
    new = standing_in({"a": "ABXY", "e": "BC", "b": "XYZ", "c": "XYD"}, "XY")
    assert "X and Y stand for one relay of several domains of which some are replaced" in why_everybody(old, new)


def test_relays_of_a_link_that_take_over_concern_everybody() -> None:
    link = Link("l", ("a", "b"), (("X", "Z"), ("Y", "P")), takeover=True)
    old, new = (
        Topology("f", [Domain(name, tuple(members), "vector") for name, members in domains.items()], [link])
        for domains in ({"a": "ABXY", "b": "ZPQ"}, {"a": "AXY", "c": "AB", "b": "ZPQ"})
    )
    assert "share out what they carry" in why_everybody(old, new)


def joined(domains: Mapping[str, str]) -> Topology:
    """Return a fabric in which the domain ``a`` orders by what messages carry."""
    made = [Domain(name, tuple(members), "relayed" if name == "a" else "matrix") for name, members in domains.items()]
    return Topology("f", made)


def test_where_relays_order_by_vectors_their_streams_go_on_or_everybody_holds() -> None:
    row = {"x": "UVX", "a": "XABY", "y": "YZ"}
    split = joined({"x": "UX", "v": "UV", "a": "XABY", "y": "YZ"})
    assert concerned_by(joined(row), split) == ("U", "V", "X")
    why = "messages carry what was seen"
    assert why in why_everybody(joined(row), joined({**row, "a": "XAY", "y": "YZB"}))
    assert why in why_everybody(joined(row), fabric(row))


def test_the_places_of_a_process_that_go_on_are_named() -> None:
    compared = Comparison(fabric(ROW), fabric({"x": "UX", "a": "XA", "b": "ABY", "y": "YZ"}))
    assert [compared.kept_by(name) for name in "UXAY"] == [("x",), ("x",), (), ("y",)]
