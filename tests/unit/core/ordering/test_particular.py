"""What only one ordering can get wrong: who may send which kind of frame, and which options make sense."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.runs import Run
from thence.core.ordering import make_ordering
from thence.core.ordering.flood import FloodStamp
from thence.core.ordering.grouped import GroupedGlobal, GroupedLocal, GroupedRequest
from thence.core.ordering.matrix import Matrix
from thence.core.ordering.matrix_clock import FULL_MATRIX_LIMIT, FullMatrix, MatrixStamp, MatrixState
from thence.core.ordering.sequenced import SequencedOrder, SequencedRequest
from thence.core.wire.messages import Envelope, Frame
from thence.errors import ConfigError, FrameRefused, MalformedFrame, StrangerFrame, UsageError

NAMES = ("A", "B", "C", "D")
GROUPS = {"groups": [["A", "B"], ["C", "D"]]}
MESSAGE = Envelope("B", 1, None, b"")


def refusal(name: str, me: str, peer: str, stamp: object, options: dict[str, Any] | None = None) -> FrameRefused:
    """Return how a fresh member refuses this frame."""
    ordering = make_ordering(name, me, NAMES, options)
    before = ordering.snapshot()
    with pytest.raises(FrameRefused) as caught:
        ordering.accept(peer, Frame(stamp, MESSAGE), 0)
    assert ordering.snapshot() == before
    return caught.value


STRANGERS = {
    "sequenced: an order from no coordinator": ("sequenced", "C", "B", SequencedOrder(1), {}),
    "sequenced: a request to no coordinator": ("sequenced", "C", "B", SequencedRequest(1, None), {}),
    "sequenced: an order to the coordinator": ("sequenced", "A", "B", SequencedOrder(1), {}),
    "grouped: from the gateway of others": ("grouped", "B", "C", GroupedLocal(1, ()), GROUPS),
    "grouped: a request to no gateway": ("grouped", "B", "A", GroupedRequest(1, None, ()), GROUPS),
    "grouped: a request from another subgroup": ("grouped", "A", "D", GroupedRequest(1, None, ()), GROUPS),
    "grouped: a global message from no gateway": ("grouped", "A", "D", GroupedGlobal(1, None, (0, 1)), GROUPS),
    "flood: no link between us": ("flood", "A", "C", FloodStamp(2, 1, 1, None), {"links": "ring"}),
}


@pytest.mark.parametrize("case", STRANGERS.values(), ids=STRANGERS.keys())
def test_who_may_not_send_this_is_a_stranger(case: tuple[str, str, str, object, dict[str, Any]]) -> None:
    assert type(refusal(*case)) is StrangerFrame


MALFORMED = {
    "sequenced: a recipient who is nobody": ("sequenced", "A", "B", SequencedRequest(1, (4,)), {}),
    "grouped: a subgroup that is none": ("grouped", "B", "A", GroupedLocal(1, (2, 1)), GROUPS),
    "grouped: a subgroup twice": ("grouped", "B", "A", GroupedLocal(1, (0, 1, 0, 2)), GROUPS),
    "grouped: number and vector contradict": ("grouped", "A", "C", GroupedGlobal(1, None, (0, 2)), GROUPS),
    "matrix: an entry twice": ("matrix", "A", "B", MatrixStamp(1, (6, 1, 6, 2)), {}),
    "matrix: its own number again": ("matrix", "A", "B", MatrixStamp(1, (4, 1)), {}),
    "matrix: what I must look at does not come first": ("matrix", "A", "B", MatrixStamp(1, (9, 1, 8, 1)), {}),
    "flood: an origin that is nobody": ("flood", "A", "B", FloodStamp(4, 1, 1, None), {}),
}


@pytest.mark.parametrize("case", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_contradicts_itself_is_malformed(case: tuple[str, str, str, object, dict[str, Any]]) -> None:
    assert type(refusal(*case)) is MalformedFrame


def test_a_marker_of_a_message_for_my_subgroup_is_malformed() -> None:
    gateway = make_ordering("grouped", "A", NAMES, GROUPS)
    for to in (None, (1, 2)):
        with pytest.raises(MalformedFrame, match="for my subgroup"):
            gateway.accept("C", Frame(GroupedGlobal(1, to, (0, 1)), None), 0)
    gateway.accept("C", Frame(GroupedGlobal(1, (2,), (0, 1)), None), 0)


BAD_OPTIONS = {
    "no such coordinator": ("sequenced", {"coordinator": "Z"}, "'Z'"),
    "a member in no subgroup": ("grouped", {"groups": [["A", "B"], ["C"]]}, "exactly once"),
    "a member in two subgroups": ("grouped", {"groups": [["A", "B"], ["B", "C", "D"]]}, "exactly once"),
    "an empty subgroup": ("grouped", {"groups": [["A", "B", "C", "D"], []]}, "empty"),
    "a link to nobody": ("flood", {"links": [["A", "Z"]]}, "'Z'"),
    "a link to itself": ("flood", {"links": [["A", "A"]]}, "itself"),
    "islands": ("flood", {"links": [["A", "B"], ["C", "D"]]}, "do not join 'A' and 'C'"),
    "no such links": ("flood", {"links": "star"}, "links"),
    "no such stamps": ("vector", {"stamps": "short"}, "short"),
}


@pytest.mark.parametrize(("name", "options", "words"), BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys())
def test_options_that_cannot_be_are_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_ordering(name, "A", NAMES, options)


def test_a_full_matrix_says_when_it_cannot_count_further() -> None:
    ordering = Matrix("A", NAMES, {"stamps": "full"})
    assert isinstance(ordering.clock, FullMatrix)
    counts = [0, FULL_MATRIX_LIMIT, *[0] * (len(NAMES) ** 2 - 2)]
    ordering.clock.load(MatrixState([0] * len(NAMES), None, b"".join(count.to_bytes(4, "little") for count in counts)))
    before = ordering.snapshot()
    with pytest.raises(UsageError, match="updates"):
        ordering.send(MESSAGE, ("B", "C"))
    assert ordering.snapshot() == before
    ordering.send(MESSAGE, ("C",))


def test_subgroups_have_about_the_square_root_of_the_members() -> None:
    run = Run("grouped", [f"s{number}" for number in range(10)])
    run.send("s1", None)
    assert list(run.on_the_way) == [("s1", "s0")]
    run.arrive("s1", "s0")
    reached = {target for (source, target), frames in run.on_the_way.items() if source == "s0" and frames}
    assert reached == {"s1", "s2", "s3", "s6", "s9"}, "its own members, and the gateways of the others"


def test_flood_writes_to_nobody_who_must_have_it_already() -> None:
    run = Run("flood", NAMES)
    run.send("A", None)
    run.arrive("A", "B")
    assert {target for (source, target), frames in run.on_the_way.items() if source == "B" and frames} == {"C", "D"}
    run.arrive("B", "C")
    assert {target for (source, target), frames in run.on_the_way.items() if source == "C" and frames} == {"D"}
