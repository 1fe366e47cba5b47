"""What changes from one topology to the next, in words."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from thence.core.differences import Difference, differences
from thence.core.domain import Domain
from thence.core.topology import Link, Topology

FLAT = {"d": "ABCD"}
TWO = {"d": "AB", "e": "CD"}
LINK = Link("l", ("d", "e"), (("A", "C"),))


def fabric(
    domains: Mapping[str, str], *links: Link, ordering: str = "matrix", address: str = "h:1", stability: bool = False
) -> Topology:
    made = [Domain(name, tuple(members), ordering) for name, members in domains.items()]
    return Topology("f", made, links, addresses={made[0].members[0]: address}, stability=stability)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(fabric(FLAT), fabric(FLAT), [], id="nothing"),
        pytest.param(
            fabric(FLAT),
            fabric({"d": "ABC", "e": "CD"}),
            [Difference("split", "d", "domain d splits: e takes C, D; d keeps A, B, C")],
            id="split",
        ),
        pytest.param(
            fabric(TWO, LINK),
            fabric(FLAT),
            [
                Difference("merge", "d", "domain e is merged into d"),
                Difference("link", "l", "there is no link l between d and e any more"),
            ],
            id="merge",
        ),
        pytest.param(
            fabric({"d": "ABC", "e": "CD"}),
            fabric({"d": "AC", "e": "CDB"}),
            [Difference("move", "B", "B moves from d to e")],
            id="move",
        ),
        pytest.param(
            fabric({"d": "AB"}),
            fabric({"d": "AX"}),
            [Difference("join", "X", "X joins, in d"), Difference("leave", "B", "B leaves")],
            id="join and leave",
        ),
        pytest.param(
            fabric(TWO, LINK),
            fabric({**TWO, "above": "AC"}),
            [
                Difference("domain", "above", "domain above is new, with A, C"),
                Difference("link", "l", "there is no link l between d and e any more"),
            ],
            id="a level",
        ),
        pytest.param(
            fabric(TWO, LINK),
            fabric(TWO, LINK._replace(relays=(("A", "C"), ("B", "D")))),
            [Difference("link", "l", "link l between d and e gets B and D")],
            id="a wider link",
        ),
        pytest.param(
            fabric(TWO, LINK._replace(relays=(("A", "C"), ("B", "D")))),
            fabric(TWO, LINK._replace(relays=(("B", "D"),))),
            [Difference("link", "l", "link l between d and e loses A and C")],
            id="a narrower link",
        ),
        pytest.param(
            fabric(FLAT),
            fabric(FLAT, ordering="vector", address="h:2"),
            [
                Difference("ordering", "d", "domain d runs vector, not matrix any more"),
                Difference("address", "A", "A listens on h:2, not h:1 any more"),
            ],
            id="another ordering, another address",
        ),
        pytest.param(
            fabric(FLAT),
            fabric(FLAT, stability=True),
            [Difference("stability", "f", "messages are kept until every recipient has them")],
            id="messages are kept until all have them",
        ),
    ],
)
def test_each_change_is_told_once_by_its_name(old: Topology, new: Topology, expected: list[Difference]) -> None:
    assert differences(old, new) == expected
