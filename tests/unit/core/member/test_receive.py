"""Packets that arrive: which frames are taken, which wait and which are refused, and what is stored of it."""

from __future__ import annotations

from typing import Any

import pytest

from thence.core.member import admission
from thence.core.member.admission import Admission
from thence.core.member.attachment import Attachment
from thence.core.member.contract import Arrived, Ready
from thence.core.member.deliver import DeliveryLog
from thence.core.member.forward import Forwarder
from thence.core.member.limits import MemberOptions
from thence.core.member.receive import Accounting, Receiver
from thence.core.reconfig.protocol import View
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.core.wire.records import Received, Skipped
from thence.errors import ImpossibleFrame, OverflowingFrame, StrangerFrame

DOMAINS = [Domain("A", ("a", "r"), "fifo"), Domain("B", ("r", "b"), "fifo")]
ROW = Routes(Topology("row", DOMAINS, promise="fifo"))
STABLE = Routes(Topology("row", DOMAINS, promise="fifo", stability=True))


class Process:
    """A receiver with what it uses."""

    def __init__(self, name: str = "r", routes: Routes = ROW) -> None:
        self.here = Attachment(name, routes, MemberOptions())
        self.view, log = View(), DeliveryLog(self.here, None)
        room = Admission(self.here, log)
        self.forwarder = Forwarder(self.here, room, None)
        self.receiver = Receiver(self.here, log, room, self.forwarder, self.view, None)

    def get(self, packet: Packet[Any], peer: str = "a") -> Ready:
        return self.receiver.arrived(Arrived(peer, packet), 7)


def packet_of_a(*bodies: bytes, routes: Routes = ROW) -> Packet[Any]:
    """Return the packet with which a sends messages; those with body 3 to r, others to everyone."""
    a = Process("a", routes)
    for number, body in enumerate(bodies, 1):
        a.forwarder.send(Envelope("a", number, ("r",) if body == b"3" else None, body))
    ((_, packet),) = a.here.collect(0)
    return packet


def stable_upto(packet: Packet[Any]) -> int:
    return 0 if packet.stable_ack is None else packet.stable_ack.upto


def bodies(ready: Ready) -> list[bytes]:
    return [delivery.envelope.body for delivery in ready.deliver]


def test_a_frame_is_stored_acknowledged_delivered_and_forwarded_once() -> None:
    r, packet = Process(), packet_of_a(b"1", b"2")
    ready = r.get(packet)
    assert ready.persist == tuple(Received("A", "a", number, packet.frames[number - 1], 7) for number in (1, 2))
    assert [(peer, sent.numbers, sent.acked) for peer, sent in ready.send] == [("a", (), 2), ("b", (1, 2), 0)]
    assert (bodies(ready), ready.refused) == ([b"1", b"2"], ())
    again = r.get(packet)
    assert (again.persist, again.deliver, r.here.in_memory) == ((), (), 2)


def test_what_finds_no_room_comes_again_and_nothing_overtakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_QUEUED_HARD", 1)
    r, packet = Process(), packet_of_a(b"1", b"2", b"3")
    ready = r.get(packet)
    assert ([type(one) for one in ready.refused], bodies(ready), len(ready.persist)) == ([OverflowingFrame], [b"1"], 1)
    assert [sent.acked for peer, sent in ready.send if peer == "a"] == [1]
    r.get(Packet("B", (), (), 1), "b")
    assert bodies(r.get(packet)) == [b"2", b"3"]


@pytest.mark.parametrize("forged", [Envelope("b", 1, None, b"x"), Envelope("", 1, None, b"x"), Envelope("a", 2, ("z",), b"x")])
def test_what_can_never_be_taken_is_skipped_and_the_rest_is_taken(forged: Envelope) -> None:
    r, (first, second) = Process(), packet_of_a(b"1", b"2").frames
    ready = r.get(Packet("A", (first, Frame(second.stamp, forged), second), (1, 2, 3)))
    assert [type(one) for one in ready.refused] == [ImpossibleFrame]
    assert (ready.persist[1], len(ready.persist), bodies(ready)) == (Skipped("A", "a", 2), 3, [b"1", b"2"])
    assert [sent.acked for peer, sent in ready.send if peer == "a"] == [3]


def test_a_packet_for_elsewhere_or_from_one_who_is_lost_changes_nothing() -> None:
    r = Process()
    ready = r.get(Packet("C", packet_of_a(b"1").frames, (1,)))
    assert ([type(one) for one in ready.refused], ready.persist, ready.send) == ([StrangerFrame], (), ())
    r.view.state.lost = ("a",)
    assert r.get(packet_of_a(b"1")) == Ready()


def test_a_frame_is_stable_when_all_that_followed_from_it_is() -> None:
    r, b, packet = Process(routes=STABLE), Process("b", STABLE), packet_of_a(b"1", routes=STABLE)
    accounting, place, envelope = Accounting(r.here), r.here.places["A"], packet.frames[0].envelope
    to = dict(r.get(packet).send)
    assert (accounting.pending(place, envelope), stable_upto(to["a"])) == (1, 0)
    ((_, answer),) = b.get(to["b"], "r").send
    assert stable_upto(answer) == 1, "nothing follows from it at b"
    r.get(answer, "b")
    r.here.visit_all()
    ((peer, report),) = r.here.collect(10**9)
    assert (accounting.pending(place, envelope), peer, stable_upto(report)) == (0, "a", 1)


@pytest.mark.parametrize(("to", "goes_on"), [(None, True), (("r",), False)])
def test_what_waits_for_its_turn_keeps_its_frame_unstable_only_if_it_goes_on(to: tuple[str, ...] | None, goes_on: bool) -> None:
    r, envelope = Process(routes=STABLE), Envelope("a", 2, to, b"2")
    stamp = packet_of_a(b"1", b"2", routes=STABLE).frames[1].stamp
    accounting, place = Accounting(r.here), r.here.domains["A"]
    assert not accounting.will_go_on(place, envelope), "nothing waits"
    place.ordering.accept("a", Frame(stamp, envelope), 0)
    assert accounting.will_go_on(place, envelope) is goes_on
