"""Reports of what is settled, step by step: what goes along, what goes by itself, what is asked for again, what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from thence.core.ordering import ArrivalOrder
from thence.core.ordering.vector import VectorStamp
from thence.core.stability.layer import AckLayer
from thence.core.stability.stable import MAX_BEYOND, STABLE_WITHIN_NS, SavedStable, StableAcks
from thence.core.transport.acks import RESEND_AT_MOST_NS
from thence.core.transport.channels import PeerChannels
from thence.core.transport.direct import Direct
from thence.core.wire.messages import Envelope, Frame, Packet, StableAck
from thence.core.wire.number_set import NumberSet
from thence.errors import ImpossibleFrame, MalformedFrame, StorageError

MS = 1_000_000
RESEND = 200 * MS


def pair(*, exact: bool = False) -> tuple[AckLayer, AckLayer]:
    """Return the two ends between a and b."""
    if exact:
        return AckLayer(Direct("d", "a", ["b"]), None, stable=True), AckLayer(Direct("d", "b", ["a"]), None, stable=True)
    ends = [PeerChannels("d", me, [peer], ArrivalOrder.ANY, RESEND) for me, peer in ("ab", "ba")]
    return AckLayer(ends[0], RESEND, stable=True), AckLayer(ends[1], RESEND, stable=True)


def stable(transport: AckLayer) -> StableAcks:
    """Return the policy of an end."""
    assert transport.stable is not None
    return transport.stable


def message(number: int) -> Envelope:
    return Envelope("a", number, None, b"body")


def send(transport: AckLayer, *numbers: int, now: int = 0) -> Packet[Any]:
    """Send messages to the other; return the packet."""
    (peer,) = transport.peers
    transport.push([(peer, Frame(VectorStamp(number, ()), message(number))) for number in numbers], "came by")
    ((_, packet),) = transport.collect(now)
    return packet


def take(transport: AckLayer, packet: Packet[Any], now: int = 0) -> list[int]:
    """Let a packet arrive and be taken; return the numbers of its frames."""
    (peer,) = transport.peers
    incoming = transport.frames_in(peer, packet, now)
    for one in incoming:
        transport.take(one)
    return [one.number for one in incoming]


def said(transport: AckLayer, now: int) -> list[StableAck | None]:
    """Return what goes out now beside frames."""
    return [packet.stable_ack for _, packet in transport.collect(now)]


def test_what_is_settled_when_it_is_taken_is_reported_with_the_confirmation() -> None:
    a, b = pair()
    take(b, send(a, 1))
    stable(b).add("a", 1)
    ((_, packet),) = b.collect(1)
    assert (packet.acked, packet.stable_ack) == (1, StableAck(1))
    assert a.queued == 1
    take(a, packet, 2)
    assert (a.queued, a.queued_bytes, a.queues.by_peer()) == (0, 0, {"b": 0})
    assert stable(a).take_news() == [(message(1), "came by")]
    assert stable(a).take_news() == []


def test_a_confirmation_alone_settles_nothing() -> None:
    a, b = pair()
    take(b, send(a, 1, 2))
    ((_, packet),) = b.collect(1)
    assert (packet.acked, packet.stable_ack) == (2, None)
    take(a, packet, 2)
    assert (a.queued, a.inner.queued, stable(a).take_news()) == (2, 0, [])


def test_a_report_waits_for_a_packet_that_goes_the_same_way_and_goes_by_itself_at_last() -> None:
    a, b = pair()
    take(b, send(a, 1, 2))
    b.collect(0)
    stable(b).add("a", 1)
    assert (said(b, 10), b.wake_at) == ([], 10 + STABLE_WITHIN_NS)
    b.visit_all()
    assert said(b, 10 + STABLE_WITHIN_NS) == [StableAck(1)]
    stable(b).add("a", 2)
    assert send(b, 1, now=20 * MS).stable_ack == StableAck(2), "it goes along"
    b.visit_all()
    assert said(b, 30 * MS) == [], "and not once more"


def test_what_takes_long_holds_up_no_other() -> None:
    a, b = pair()
    take(b, send(a, 1, 2, 3))
    b.collect(0)
    for number in (3, 2):
        stable(b).add("a", number)
    b.collect(0)
    b.visit_all()
    ((_, packet),) = b.collect(STABLE_WITHIN_NS)
    assert packet.stable_ack == StableAck(0, False, (3, 2))
    take(a, packet, 2)
    assert (a.queued, [envelope.number for envelope, _ in stable(a).take_news()]) == (1, [3, 2])


def test_many_numbers_behind_a_hole_go_in_several_packets() -> None:
    a, b = pair()
    count = MAX_BEYOND + 3
    take(b, send(a, *range(1, count + 2)))
    b.collect(0)
    for number in range(2, count + 2):
        stable(b).add("a", number)
    b.collect(1)
    reports = []
    for now in (STABLE_WITHIN_NS + 1, STABLE_WITHIN_NS + 2):
        b.visit_all()
        reports += said(b, now)
    assert [len(report.beyond) for report in reports if report is not None] == [MAX_BEYOND, 3]


def test_a_report_that_is_lost_is_asked_for_less_and_less_often() -> None:
    a, b = pair()
    take(b, send(a, 1))
    ((_, confirmation),) = b.collect(0)
    take(a, confirmation, 1)
    stable(b).add("a", 1)
    b.collect(1)
    b.visit_all()
    assert said(b, STABLE_WITHIN_NS + 1) == [StableAck(1)], "and this is lost"
    now, waits, question = 1, [], Packet[Any]("d", ())
    for _ in range(8):
        a.visit_all()
        assert said(a, now) == []
        assert a.wake_at is not None
        waits.append(a.wake_at - now)
        now = a.wake_at
        a.visit_all()
        ((_, question),) = a.collect(now)
        assert question.stable_ack == StableAck(0, True)
    assert waits == sorted(waits)
    assert waits[-1] == RESEND_AT_MOST_NS
    take(b, question, now)
    ((_, answer),) = b.collect(now)
    take(a, answer, now)
    assert (a.queued, answer.stable_ack) == (0, StableAck(1))
    a.visit_all()
    assert (a.collect(now), a.wake_at) == ([], None)


def test_a_new_connection_asks_and_tells_at_once() -> None:
    a, b = pair()
    take(b, send(a, 1))
    ((_, confirmation),) = b.collect(0)
    take(a, confirmation, 1)
    a.connected("b")
    assert said(a, 2) == [StableAck(0, True)]
    stable(b).add("a", 1)
    b.connected("a")
    assert said(b, 2) == [StableAck(1)]


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    a, b = pair()
    send(a, 1)
    for report, error in (
        (StableAck(2), ImpossibleFrame),
        (StableAck(0, False, (2,)), ImpossibleFrame),
        (StableAck(-1), MalformedFrame),
        (StableAck(0, False, (0, -1)), MalformedFrame),
        (StableAck(0, False, (1,) * (MAX_BEYOND + 1)), MalformedFrame),
    ):
        with pytest.raises(error):
            a.frames_in("b", Packet("d", (), (), 1, (), None, report), 1)
    assert (a.queued, a.inner.queued) == (1, 1)
    assert b.frames_in("a", Packet("d", (), stable_ack=StableAck()), 1) == []


def test_a_frame_that_is_refused_for_good_holds_up_nothing() -> None:
    a, b = pair()
    b.frames_in("a", send(a, 1), 0)
    b.skip("a", 1)
    assert said(b, 0) == [StableAck(1)]


def test_a_snapshot_keeps_what_is_not_settled_and_each_message_once() -> None:
    peers = ["b", "c"]
    a = AckLayer(PeerChannels("d", "a", peers, ArrivalOrder.ANY, RESEND), RESEND, stable=True)
    for number in (1, 2):
        a.push([("b", Frame(VectorStamp(number, ()), message(number))), ("c", Frame(VectorStamp(number, ()), None))], "x")
    a.frames_in("b", Packet("d", (), (), 2, (), None, StableAck(1)), 1)
    saved = stable(a).save()
    assert saved.messages == [(message(2), "x")]
    again = AckLayer(PeerChannels("d", "a", peers, ArrivalOrder.ANY, RESEND), RESEND, stable=True)
    again.load(a.save())
    again.load_acks((msgspec.convert(msgspec.to_builtins(saved), SavedStable), None))
    assert (again.queued, again.queued_bytes, again.queues.by_peer()) == (a.queued, a.queued_bytes, {"b": 1, "c": 2})
    again.frames_in("b", Packet("d", (), (), 2, (), None, StableAck(2)), 1)
    assert stable(again).take_news() == [(message(2), "x")]
    with pytest.raises(StorageError, match="without stability"):
        again.load_acks((None, None))


def test_where_the_network_is_exact_frames_are_numbered_for_the_reports_and_nobody_waits() -> None:
    a, b = pair(exact=True)
    assert take(b, send(a, 1, 2)) == [1, 2]
    assert take(b, send(a, 3)) == [3]
    stable(b).add("a", 2)
    assert said(b, 0) == [StableAck(0, False, (2,))]
    assert (a.wake_at, b.wake_at) == (None, None)


def test_a_fork_goes_on_alone() -> None:
    a, b = pair()
    take(b, send(a, 1, 2))
    twin = b.fork()
    stable(twin).add("a", 1)
    assert stable(twin).save().peers["a"].stable == NumberSet(1)
    assert stable(b).save().peers["a"].stable == NumberSet(0)
    assert a.fork().queues.by_peer() == {"b": 2}
