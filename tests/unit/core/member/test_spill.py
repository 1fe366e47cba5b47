"""Frames that are elsewhere: which should go there, which are there, which are wanted back."""

from __future__ import annotations

import pytest

from thence.core.member.attachment import Attachment
from thence.core.member.contract import Fetched, Spilled
from thence.core.member.limits import MemberOptions
from thence.core.member.spill import SpillWays, Way
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.transport.spill_queue import SpillRoom
from thence.core.wire.messages import Envelope
from thence.errors import UsageError

ROW = Routes(Topology("row", [Domain("A", ("a", "r"), "matrix"), Domain("B", ("r", "b"), "matrix")]))
OPTIONS = MemberOptions(spill=SpillRoom(4, 1_000_000, 3, 1_000_000))
WAY, OTHER = Way("B", "b"), Way("A", "a")


def full() -> tuple[Attachment, SpillWays]:
    """Return the ways of r, which has sent nothing of the five frames that it has for b."""
    here = Attachment("r", ROW, OPTIONS)
    place = here.domains["B"]
    for number in range(1, 6):
        place.transport.push(place.ordering.send(Envelope("r", number, None, b"x"), None).send)
    here.count_frames()
    return here, SpillWays(here)


def test_a_way_asks_for_attention_once() -> None:
    _, ways = full()
    assert ways.take_attention() == [WAY]
    assert ways.take_attention() == []
    ways.attend_to_all()
    assert ways.take_attention() == list(ways.all()) == [OTHER, WAY]


def test_what_went_elsewhere_is_not_in_memory_until_it_is_fetched() -> None:
    here, ways = full()
    block = ways.block(WAY)
    assert [number for number, _ in block] == [1, 2, 3]
    assert (ways.block(OTHER), ways.elsewhere(WAY), ways.used(), here.in_memory) == ([], None, [], 5)
    assert ways.moved(Spilled("B", "b", 3), 0).send == ()
    assert (ways.elsewhere(WAY), ways.used(), here.in_memory) == ((1, 3), [WAY], 2)
    assert (ways.wants(WAY), ways.wants(OTHER)) == (True, False)
    ((peer, packet),) = ways.moved(Fetched("B", "b", block), 0).send
    assert (peer, packet.numbers) == ("b", (1, 2, 3, 4, 5))
    assert (ways.elsewhere(WAY), ways.used(), here.in_memory, ways.wants(WAY)) == (None, [], 5, False)


def test_what_is_no_way_is_refused() -> None:
    here, ways = full()
    nowhere = Way("C", "b")
    assert (ways.block(nowhere), ways.elsewhere(nowhere), ways.wants(nowhere), str(nowhere)) == ([], None, False, "b in C")
    for place, peer in (("C", "b"), ("A", "b")):
        with pytest.raises(UsageError, match=f"'b' in '{place}' is no way of 'r'"):
            ways.moved(Spilled(place, peer, 1), 0)
    assert here.in_memory == 5
