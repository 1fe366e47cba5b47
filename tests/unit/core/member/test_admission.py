"""Room for what is submitted and for what arrives: only room ahead counts, and each queue has its share."""

from __future__ import annotations

import pytest

from thence.core.member import admission as admission_module
from thence.core.member.admission import Admission
from thence.core.member.attachment import Attachment
from thence.core.member.contract import Submit
from thence.core.member.deliver import DeliveryLog
from thence.core.member.limits import MemberOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.transport.base import Incoming
from thence.core.wire.messages import Envelope, Frame
from thence.errors import Busy

ROW = Routes(Topology("row", [Domain("A", ("a", "r"), "matrix"), Domain("B", ("r", "b"), "matrix")]))
OPTIONS = MemberOptions(max_queued=8, max_unconsumed=2)
FROM_A = Incoming("a", 1, Frame(None, Envelope("a", 1, None, b"x")))
FROM_B = Incoming("b", 1, Frame(None, Envelope("b", 1, None, b"x")))


class Relay:
    """An admission at r, with what it looks at."""

    def __init__(self) -> None:
        self.here = Attachment("r", ROW, OPTIONS)
        self.log = DeliveryLog(self.here, None)
        self.admission = Admission(self.here, self.log)

    def queue(self, domain: str, count: int) -> None:
        place = self.here.domains[domain]
        for number in range(1, count + 1):
            place.transport.push(place.ordering.send(Envelope("r", number, None, b"x"), None).send)
        self.here.count_frames()


def test_a_full_queue_stops_what_goes_into_it_and_nothing_else() -> None:
    relay = Relay()
    relay.queue("B", 5)
    relay.admission.check([Submit(("b",))], hard=False)
    relay.queue("B", 1)
    with pytest.raises(Busy, match=r"the queue to 'b' in 'B' is full: 6 frames .* max_queued is 8"):
        relay.admission.check([Submit(("a",)), Submit(("b",))], hard=False)
    relay.admission.check([Submit(("a",))], hard=False)
    assert [(full.place, full.peer) for full in relay.admission.full_queues()] == [("B", "b")]
    assert relay.admission.fullest == 1


def test_notices_and_what_goes_together_are_refused_later() -> None:
    relay = Relay()
    relay.queue("B", 6)
    assert relay.admission.full_queue(Submit(("b",))) is not None
    assert relay.admission.full_queue(Submit(("b",), notice=True)) is None
    relay.admission.check([Submit(("b",))], hard=True)


def test_a_frame_is_refused_only_for_want_of_room_where_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_module, "MAX_QUEUED_HARD", 4)
    relay = Relay()
    relay.queue("B", 3)
    assert relay.admission.full_for(relay.here.places["A"], FROM_A) == ""
    relay.queue("B", 1)
    assert "'b' in 'B' is full: 4 frames" in relay.admission.full_for(relay.here.places["A"], FROM_A)
    assert relay.admission.full_for(relay.here.places["B"], FROM_B) == ""


def test_no_frame_is_taken_while_the_application_has_too_much_to_consume() -> None:
    relay = Relay()
    relay.log.add([("A", FROM_A.frame)])
    assert relay.admission.full_for(relay.here.places["A"], FROM_A) == ""
    relay.log.add([("B", FROM_B.frame)])
    assert "not consumed 2 deliveries" in relay.admission.full_for(relay.here.places["A"], FROM_A)
    relay.log.consumed(1)
    assert relay.admission.full_for(relay.here.places["A"], FROM_A) == ""


@pytest.mark.parametrize("limit", ["MAX_ECHOES", "MAX_ECHO_BYTES"])
def test_only_so_much_may_come_back(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_module, limit, 1)
    relay = Relay()
    assert relay.admission.has_room_for_echo(relay.here.domains["B"])
    relay.here.domains["B"].expect_echo(Envelope("a", 1, None, b"x"))
    assert not relay.admission.has_room_for_echo(relay.here.domains["B"])
