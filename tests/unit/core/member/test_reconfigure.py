"""Changes of the topology at one process: it holds, switches and attaches anew, and gives copies where others were lost."""

from __future__ import annotations

import pytest

from thence.core.member.admission import Admission
from thence.core.member.attachment import Attachment
from thence.core.member.contract import Arrived, Submit, Suspicion, Timer
from thence.core.member.deliver import DeliveryLog
from thence.core.member.forward import Forwarder
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.member.reconfigure import Reconfigurer, Survivor
from thence.core.reconfig.protocol import Expel, Flush, Hold, NewView, Prepare, Resume, Switch, View
from thence.core.reconfig.retention import Retention
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.topology.toml import write
from thence.core.wire.messages import Envelope, MessageId
from thence.core.wire.records import Changed
from thence.errors import UsageError


def version(number: int, members: str) -> Topology:
    return Topology("f", [Domain("d", tuple(members), "vector")], version=number)


class Process:
    """A reconfigurer and a survivor at a, with what they use."""

    def __init__(self, *, retains: bool = False) -> None:
        self.here = Attachment("a", Routes(version(1, "abc")), MemberOptions())
        self.retained = Retention("a") if retains else None
        self.view, self.log = View(), DeliveryLog(self.here, self.retained)
        self.forwarder = Forwarder(self.here, Admission(self.here, self.log), self.retained)
        self.survivor = Survivor(self.here, self.view, self.retained)
        self.reconfigurer = Reconfigurer(self.here, self.log, self.forwarder, self.survivor, self.view, self.retained)

    def wait(self, number: int) -> None:
        """Let a message of our own wait for the change, as a submitter does."""
        self.view.wait(Envelope("a", number, None, b"waited"))
        self.forwarder.number = number


def test_a_switch_attaches_anew_and_sends_greetings_and_then_what_waited() -> None:
    a = Process()
    following = version(2, "abd")
    assert a.reconfigurer.change(Hold(1, following), 7).persist == (Changed("holding", 1, write(following), at=7),)
    a.wait(1)
    standing = a.reconfigurer.standing()
    assert (standing.phase, standing.version, standing.next_version) == ("holding", 1, 2)
    a.reconfigurer.change(Prepare(1), 8)
    ready = a.reconfigurer.change(Switch(1, (b"hello",)), 9)
    assert a.here.topology.version == 2
    assert [(one.number, one.body) for one in ready.sent] == [(1, b"hello"), (2, b"waited")]
    assert ready.deliver[0].news == NewView(2, ("a", "b", "d"), ("d",), ("c",))
    assert [delivery.envelope.body for delivery in ready.deliver[1:]] == [b"hello", b"waited"]
    assert [(peer, packet.numbers) for peer, packet in ready.send] == [("b", (1, 2)), ("d", (1, 2))]
    assert a.forwarder.number == 2


def test_to_go_back_sends_what_waited_in_the_old_topology() -> None:
    a = Process()
    a.reconfigurer.change(Hold(1, version(2, "ab")), 0)
    a.wait(1)
    ready = a.reconfigurer.change(Resume(1), 0)
    assert ([one.body for one in ready.sent], a.here.topology.version) == ([b"waited"], 1)
    assert [peer for peer, _ in ready.send] == ["b", "c"]
    assert a.reconfigurer.change(Resume(1), 0).persist == ()


def test_whoever_is_not_in_the_next_topology_leaves() -> None:
    a = Process()
    for change in (Hold(1, version(2, "bc")), Prepare(1)):
        a.reconfigurer.change(change, 0)
    ready = a.reconfigurer.change(Switch(1), 0)
    assert ([one.news for one in ready.deliver], a.here.places) == ([NewView(2, ("b", "c"), (), ("a",))], {})
    expelled = Process()
    expelled.reconfigurer.change(Expel(2), 0)
    assert (expelled.here.places, expelled.view.state.phase) == ({}, "left")


def test_it_says_what_is_on_its_way() -> None:
    a = Process()
    assert a.reconfigurer.standing().idle
    a.forwarder.send(Envelope("a", 1, None, b"x"))
    standing = a.reconfigurer.standing()
    assert (standing.idle, standing.trouble) == (False, "2 frames are not acknowledged, 1 of them by 'b'")


def test_a_survivor_gives_what_it_has_once_nothing_is_taken_any_more() -> None:
    a, name = Process(retains=True), MessageId("a", 1)
    sent = Envelope("a", 1, None, b"x", 1)
    a.log.add(a.forwarder.send(sent))
    a.forwarder.send(Envelope("a", 2, ("c",), b"x", 2))
    a.reconfigurer.change(Hold(1, version(2, "ab"), ("c",)), 0)
    with pytest.raises(UsageError, match="'a' is holding: what it has may change"):
        a.survivor.report()
    a.reconfigurer.change(Prepare(1), 0)
    report = a.survivor.report()
    assert (report.latest, [copy.id for copy in report.copies], report.queued) == ({"a": 1}, [name], {"c": 2})
    assert a.survivor.give((name,)) == (sent,)
    with pytest.raises(UsageError, match="'a' has no copy of message b:1"):
        a.survivor.give((MessageId("b", 1),))
    owed = Envelope("c", 1, None, b"owed", 3)
    a.reconfigurer.change(Flush(1, "list", 0, True, (owed,)), 0)
    ready = a.reconfigurer.change(Switch(1), 0)
    assert (ready.deliver[0].envelope, ready.deliver[1].news) == (owed, NewView(2, ("a", "b"), lost=("c",)))


def test_nobody_can_be_lost_where_no_copies_are_kept() -> None:
    with pytest.raises(UsageError, match="'a' keeps no copies of messages"):
        Process().reconfigurer.change(Hold(1, version(2, "ab"), ("c",)), 0)


def test_a_suspicion_changes_nothing_while_survivors_compare_what_they_have_and_counts_afterwards() -> None:
    """Otherwise a holder has copies of which it did not tell, or delivers what it is about to be given."""
    now = Topology("f", [Domain("d", tuple("abcd"), "resilient", {"copies": 1})])
    without = Topology("f", [Domain("d", tuple("bcd"), "resilient", {"copies": 1})], version=2)
    options = MemberOptions(reliable=True, retain_bytes=1_000_000)
    a, b = Member("a", Routes(now), options), Member("b", Routes(now), options)
    sent = a.step(Submit(("b", "c"), b"x"), 0)
    b.step(Arrived("a", dict(sent.send)["b"]), 0)
    for change in (Hold(1, without, ("a",)), Prepare(1)):
        b.step(change, 0)
    before = b.survivor.report()
    assert b.step(Suspicion("a", True), 0).send == ()
    assert b.survivor.report() == before
    assert b.step(Resume(1, dead=True), 5).wake == 5
    assert "c" in dict(b.step(Timer(), 5).send)
    assert b.step(Timer(), 5).send == ()
