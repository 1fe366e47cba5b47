"""One process in one topology: what it has there, and what is left of it in the next one."""

from __future__ import annotations

import pytest

from thence.core.member.attachment import Attachment
from thence.core.member.limits import MemberOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Envelope
from thence.errors import ConfigError, UsageError

PAIR = Routes(Topology("f", [Domain("A", ("a", "r"), "vector")]))
ROW = Routes(Topology("f", [Domain("A", ("a", "r"), "vector"), Domain("B", ("r", "b"), "vector")]))
STABLE = Routes(Topology("f", [Domain("A", ("a", "r"), "vector")], stability=True))


def queue(here: Attachment, domain: str, count: int = 1) -> None:
    place = here.domains[domain]
    for number in range(1, count + 1):
        place.transport.push(place.ordering.send(Envelope("r", number, None, b"x"), None).send)
    here.count_frames()


def test_it_has_the_places_of_its_process_and_only_what_the_topology_asks_for() -> None:
    here = Attachment("r", ROW, MemberOptions())
    assert (list(here.places), here.flat, here.simple) == (["A", "B"], False, False)
    assert list(Attachment("a", ROW, MemberOptions()).places) == ["A"]
    assert (here.takeover, here.accounts, here.turn, here.notices) == (None, None, None, None)
    assert Attachment("a", STABLE, MemberOptions()).accounts is not None
    with pytest.raises(ConfigError, match="'z' is no process of fabric 'f'"):
        Attachment("z", ROW, MemberOptions())


def test_only_a_plain_member_of_one_domain_takes_the_fast_path() -> None:
    assert Attachment("a", PAIR, MemberOptions(durable=False)).simple
    for options in (MemberOptions(), MemberOptions(durable=False, retain_bytes=1), MemberOptions(durable=False, reliable=False)):
        assert not Attachment("a", PAIR, options).simple


def test_nothing_of_the_topology_before_is_left() -> None:
    here = Attachment("r", ROW, MemberOptions())
    queue(here, "B")
    here.suspect("b", True)
    assert (here.in_memory, here.queued(), list(here.suspected)) == (1, {"a": 0, "b": 1}, ["b"])
    here.enter(PAIR, 0)
    assert (here.in_memory, here.queued(), list(here.suspected), here.flat) == (0, {"a": 0}, [], True)
    here.leave(None)
    assert (here.places, here.flat, here.ready(0).send, here.wake()) == ({}, False, (), None)


def test_a_new_connection_sends_again_to_that_peer_alone() -> None:
    here = Attachment("r", ROW, MemberOptions())
    queue(here, "A")
    queue(here, "B")
    assert [peer for peer, _ in here.collect(0)] == ["a", "b"]
    assert here.collect(1) == ()
    here.connected("b")
    assert [peer for peer, _ in here.collect(1)] == ["b"]
    with pytest.raises(UsageError, match="'z' shares no domain and no link with 'r'"):
        here.connected("z")


def test_it_wakes_for_whatever_is_due_first() -> None:
    here = Attachment("r", ROW, MemberOptions(resend_after_ns=100))
    queue(here, "B")
    here.collect(0)
    first = here.wake()
    queue(here, "A")
    here.collect(50)
    assert first is not None
    assert here.wake() == first


def test_a_fork_goes_on_by_itself() -> None:
    here = Attachment("r", ROW, MemberOptions())
    twin = here.fork()
    queue(twin, "B")
    twin.suspect("b", True)
    assert (here.queued(), here.suspected, here.clocks()["B"]) == ({"a": 0, "b": 0}, {}, here.fork().clocks()["B"])
    assert here.clocks()["B"] != twin.clocks()["B"]
