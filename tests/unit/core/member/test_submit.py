"""Submissions, and the fast path that most of them take: all that was asked for is done, or nothing."""

from __future__ import annotations

import pytest

from thence.core.member.admission import Admission
from thence.core.member.attachment import Attachment
from thence.core.member.contract import Arrived, Submit, SubmitAll
from thence.core.member.deliver import DeliveryLog
from thence.core.member.fast_path import FastPath
from thence.core.member.forward import Forwarder
from thence.core.member.limits import MemberOptions
from thence.core.member.submit import Submitter
from thence.core.reconfig.protocol import Hold, View
from thence.core.reconfig.retention import Retention
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import MAX_BODY_BYTES, Envelope
from thence.core.wire.records import Submitted
from thence.errors import Busy, UsageError

DOMAIN = Domain("d", ("a", "b"), "vector")
PAIR, NEXT = Topology("f", [DOMAIN]), Topology("f", [DOMAIN], version=2)


class Process:
    """A submitter and a fast path, with what they use."""

    def __init__(self, name: str = "a", options: MemberOptions | None = None, retained: Retention | None = None) -> None:
        self.here = Attachment(name, Routes(PAIR), options or MemberOptions())
        self.log, self.view = DeliveryLog(self.here, None), View()
        admission = Admission(self.here, self.log)
        self.forwarder = Forwarder(self.here, admission, None)
        self.submitter = Submitter(self.here, self.log, admission, self.forwarder, self.view, retained)
        self.fast_path = FastPath(self.here, self.log, self.forwarder, self.view)

    def hold(self) -> None:
        record = self.view.hold(Hold(1, NEXT), PAIR, "a")
        assert record is not None
        self.view.note(record)


def test_messages_are_numbered_stored_sent_and_delivered_to_ourselves() -> None:
    retained = Retention("a")
    retained.depth = 4
    a = Process(retained=retained)
    first, second = Envelope("a", 1, None, b"1", 5), Envelope("a", 2, ("b",), b"2", 5)
    ready = a.submitter.submit(SubmitAll((Submit(None, b"1"), Submit(("b",), b"2"))), 7)
    assert ready.persist == (Submitted(first, 7), Submitted(second, 7))
    assert ready.accepted == ready.sent == (first, second)
    assert [(peer, packet.numbers) for peer, packet in ready.send] == [("b", (1, 2))]
    assert [delivery.envelope for delivery in ready.deliver] == [first]
    assert Process(options=MemberOptions(durable=False)).submitter.submit(Submit(None), 7).persist == ()


@pytest.mark.parametrize("wrong", [Submit(None, bytes(MAX_BODY_BYTES + 1)), Submit(()), Submit(("z",))])
def test_where_one_is_refused_none_is_sent(wrong: Submit) -> None:
    a = Process()
    with pytest.raises(UsageError):
        a.submitter.submit(SubmitAll((Submit(None, b"1"), wrong)), 0)
    assert (a.forwarder.number, a.here.in_memory, a.log.position) == (0, 0, 0)


def test_what_is_submitted_during_a_change_waits_as_far_as_there_is_room() -> None:
    a = Process(options=MemberOptions(max_queued=1))
    a.hold()
    ready = a.submitter.submit(Submit(None, b"1"), 0)
    assert (len(ready.accepted), len(ready.persist), ready.sent, ready.send, ready.deliver) == (1, 1, (), (), ())
    assert ([one.number for one in a.view.state.waiting], a.forwarder.number) == ([1], 1)
    with pytest.raises(Busy, match="1 messages wait for the fabric to change"):
        a.submitter.submit(Submit(None), 0)
    a.view.state.phase = "left"
    with pytest.raises(UsageError, match="'a' has left the fabric 'f'"):
        a.submitter.submit(Submit(None), 0)


def test_the_fast_path_does_what_the_usual_one_does() -> None:
    options = MemberOptions(durable=False)
    fast, usual, b = Process(options=options), Process(options=options), Process("b", options)
    ready = fast.fast_path.submit(Submit(None, b"1"), 7)
    assert ready == usual.submitter.submit(Submit(None, b"1"), 7)
    assert ready is not None
    assert (fast.here.in_memory, fast.forwarder.number, fast.log.position) == (1, 1, 1)
    arrived = Arrived("a", ready.send[0][1])
    taken = b.fast_path.arrived(arrived, 8)
    assert taken is not None
    assert [(one.position, one.envelope.body) for one in taken.deliver] == [(1, b"1")]
    assert [(peer, packet.acked) for peer, packet in taken.send] == [("a", 1)]
    assert b.fast_path.arrived(arrived, 9) is None, "a repetition takes the usual path"


def test_whatever_is_unusual_takes_the_usual_path() -> None:
    a = Process(options=MemberOptions(durable=False))
    assert a.fast_path.submit(Submit(("a", "b")), 0) is None
    assert a.fast_path.submit(Submit(None, bytes(MAX_BODY_BYTES + 1)), 0) is None
    a.hold()
    assert a.fast_path.submit(Submit(None), 0) is None
    assert (a.forwarder.number, a.here.in_memory, a.log.position) == (0, 0, 0)
