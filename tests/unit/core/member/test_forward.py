"""Forwarding: what is released in one domain goes into the next, in the order in which it was released."""

from __future__ import annotations

import pytest

from thence.core.member.admission import Admission
from thence.core.member.attachment import Attachment
from thence.core.member.deliver import DeliveryLog
from thence.core.member.forward import Cascade, Forwarder
from thence.core.member.limits import MemberOptions
from thence.core.reconfig.retention import Retention
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Envelope, Frame, MessageId
from thence.errors import StorageError

A, B = Domain("A", ("a", "r", "q"), "matrix"), Domain("B", ("r", "b"), "matrix")
ROW = Routes(Topology("row", [A, B]))
FLAT = Routes(Topology("row", [A]))


class Relay:
    """A forwarder at r, with what it uses."""

    def __init__(self, routes: Routes = ROW) -> None:
        self.here = Attachment("r", routes, MemberOptions())
        self.retained = Retention("r")
        self.admission = Admission(self.here, DeliveryLog(self.here, None))
        self.forwarder = Forwarder(self.here, self.admission, self.retained)

    def release(self, *envelopes: Envelope) -> list[tuple[str, MessageId]]:
        """Let A release messages; return what is for us."""
        released = [(self.here.places["A"], Frame(None, envelope)) for envelope in envelopes]
        found = self.forwarder.drain(Cascade(released=[*released]))
        return [(place, frame.envelope.id) for place, frame in found if frame.envelope is not None]

    def sent(self) -> dict[str, list[str]]:
        """Return which messages go out now, by peer."""
        return {
            peer: [str(frame.envelope.id) for frame in packet.frames if frame.envelope is not None]
            for peer, packet in self.here.collect(0)
        }


def test_what_is_released_is_delivered_and_forwarded_in_its_order() -> None:
    relay = Relay()
    envelopes = [Envelope("a", 1, None, b"x"), Envelope("q", 1, ("b",), b"x"), Envelope("a", 2, ("r",), b"x")]
    assert relay.release(*envelopes) == [("A", ("a", 1)), ("A", ("a", 2))]
    assert relay.here.in_memory == 2
    assert relay.sent() == {"b": ["a:1", "q:1"]}
    assert relay.forwarder.forwarded == 2
    assert [str(one.id) for one in relay.retained.copies()] == ["a:1", "q:1"]


def test_an_own_message_goes_into_all_domains_and_to_ourselves_at_once() -> None:
    relay = Relay()
    (delivery,) = relay.forwarder.send(Envelope("r", 1, None, b"x"))
    assert delivery[0] == "A"
    assert relay.sent() == {"a": ["r:1"], "q": ["r:1"], "b": ["r:1"]}
    assert relay.forwarder.send(Envelope("r", 2, ("b",), b"x")) == []
    assert relay.sent() == {"b": ["r:2"]}
    assert (relay.forwarder.number, relay.forwarder.forwarded, relay.here.in_memory) == (2, 0, 4)
    assert len(relay.retained) == 2


def test_where_there_is_one_domain_nothing_is_forwarded() -> None:
    relay = Relay(FLAT)
    ((place, frame),) = relay.forwarder.send(Envelope("r", 1, None, b"x"))
    assert (place, frame.envelope) == ("A", Envelope("r", 1, None, b"x"))
    assert relay.sent() == {"a": ["r:1"], "q": ["r:1"]}
    assert (relay.forwarder.number, len(relay.retained)) == (1, 1)


def test_a_stored_suspicion_that_makes_no_difference_is_refused() -> None:
    with pytest.raises(StorageError, match="makes no difference"):
        Relay().forwarder.suspect("b", True)


def test_a_fork_goes_on_by_itself() -> None:
    relay, other = Relay(), Relay()
    relay.forwarder.send(Envelope("r", 1, None, b"x"))
    twin = relay.forwarder.fork(other.here, other.admission, None)
    twin.send(Envelope("r", 2, ("b",), b"x"))
    assert (relay.forwarder.number, twin.number, other.sent()) == (1, 2, {"b": ["r:2"]})
