"""What changes from one topology to the next, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from thence.core.reconfig.diff import DiffLine, differences
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology

FLAT = {"d": "ABCD"}
TWO = {"d": "AB", "e": "CD"}
LINK = Link("l", ("d", "e"), (("A", "C"),))


WIDE = {"d": "ABCD", "e": "EFGH"}
PAIRS = (("A", "E"), ("B", "F"))
WIDE_LINK = Link("l", ("d", "e"), PAIRS)


def fabric(
    domains: Mapping[str, str],
    *links: Link,
    ordering: str = "matrix",
    address: str = "h:1",
    stability: bool = False,
    replicas: Sequence[str] = (),
) -> Topology:
    made = [Domain(name, tuple(members), ordering) for name, members in domains.items()]
    groups = [tuple(group) for group in replicas]
    return Topology("f", made, links, addresses={made[0].members[0]: address}, stability=stability, replicas=groups)


def taking_over(*pairs: tuple[str, str]) -> Topology:
    return fabric(WIDE, WIDE_LINK._replace(takeover=True, relays=pairs), ordering="vector")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(fabric(FLAT), fabric(FLAT), [], id="nothing"),
        pytest.param(
            fabric(FLAT),
            fabric({"d": "ABC", "e": "CD"}),
            [DiffLine("split", "d", "domain d splits: e takes C, D; d keeps A, B, C")],
            id="split",
        ),
        pytest.param(
            fabric(TWO, LINK),
            fabric(FLAT),
            [
                DiffLine("merge", "d", "domain e is merged into d"),
                DiffLine("link", "l", "there is no link l between d and e any more"),
            ],
            id="merge",
        ),
        pytest.param(
            fabric({"d": "ABC", "e": "CD"}),
            fabric({"d": "AC", "e": "CDB"}),
            [DiffLine("move", "B", "B moves from d to e")],
            id="move",
        ),
        pytest.param(
            fabric({"d": "AB"}),
            fabric({"d": "AX"}),
            [DiffLine("join", "X", "X joins, in d"), DiffLine("leave", "B", "B leaves")],
            id="join and leave",
        ),
        pytest.param(
            fabric(TWO, LINK),
            fabric({**TWO, "above": "AC"}),
            [
                DiffLine("domain", "above", "domain above is new, with A, C"),
                DiffLine("link", "l", "there is no link l between d and e any more"),
            ],
            id="a level",
        ),
        pytest.param(
            fabric(TWO, LINK),
            fabric(TWO, LINK._replace(relays=(("A", "C"), ("B", "D")))),
            [DiffLine("link", "l", "link l between d and e gets B and D")],
            id="a wider link",
        ),
        pytest.param(
            fabric(TWO, LINK._replace(relays=(("A", "C"), ("B", "D")))),
            fabric(TWO, LINK._replace(relays=(("B", "D"),))),
            [DiffLine("link", "l", "link l between d and e loses A and C")],
            id="a narrower link",
        ),
        pytest.param(
            fabric(FLAT),
            fabric(FLAT, ordering="vector", address="h:2"),
            [
                DiffLine("ordering", "d", "domain d runs vector, not matrix any more"),
                DiffLine("address", "A", "A listens on h:2, not h:1 any more"),
            ],
            id="another ordering, another address",
        ),
        pytest.param(
            fabric(FLAT),
            fabric(FLAT, stability=True),
            [DiffLine("stability", "f", "messages are kept until every recipient has them")],
            id="messages are kept until all have them",
        ),
        pytest.param(
            fabric(WIDE, WIDE_LINK, ordering="vector"),
            taking_over(*PAIRS),
            [DiffLine("link", "l", "the relays of link l take over from each other")],
            id="a link with takeover",
        ),
        pytest.param(
            taking_over(*PAIRS, ("C", "G")),
            fabric(WIDE, WIDE_LINK, ordering="vector"),
            [
                DiffLine("link", "l", "the relays of link l take over from each other no more"),
                DiffLine("link", "l", "link l loses C and G"),
            ],
            id="a link without takeover, and narrower",
        ),
        pytest.param(
            taking_over(*PAIRS),
            taking_over(*PAIRS, ("A", "F")),
            [DiffLine("link", "l", "domain l gets A and F")],
            id="a link with takeover and one more pair of the same relays",
        ),
        pytest.param(
            fabric({"d": "ABC", "e": "CD"}, ordering="vector"),
            fabric({"d": "ABC", "e": "BCD"}, ordering="vector", replicas=["BC"]),
            [
                DiffLine("move", "B", "B is also in e from now on"),
                DiffLine("replicas", "B", "B, C stand for one relay and take over from each other"),
            ],
            id="a second relay",
        ),
        pytest.param(
            fabric({"d": "ABC", "e": "BCD"}, ordering="vector", replicas=["BC"]),
            fabric({"d": "ABC", "e": "CD"}, ordering="vector"),
            [
                DiffLine("move", "B", "B is in e no more"),
                DiffLine("replicas", "B", "B, C do not stand for one relay any more"),
            ],
            id="one relay of two",
        ),
    ],
)
def test_each_change_is_told_once_by_its_name(old: Topology, new: Topology, expected: list[DiffLine]) -> None:
    assert differences(old, new) == expected
