"""Coming back after a crash: the snapshot of the parts of a member, and the records since then."""

from __future__ import annotations

import pytest

from thence.core.member.admission import Admission
from thence.core.member.attachment import Attachment
from thence.core.member.contract import Arrived, Ready, Repeated, Restored, Submit
from thence.core.member.deliver import DeliveryLog
from thence.core.member.forward import Forwarder
from thence.core.member.limits import MemberOptions
from thence.core.member.receive import Receiver
from thence.core.member.reconfigure import Reconfigurer, Survivor
from thence.core.member.recover import Recovery
from thence.core.member.submit import Submitter
from thence.core.reconfig.protocol import Hold, Prepare, Switch, View
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Envelope, Frame
from thence.core.wire.records import Passed, Received, Record, Submitted, Suspecting
from thence.errors import StorageError

DOMAIN = Domain("d", ("a", "b"), "vector")
PAIR, NEXT = Topology("f", [DOMAIN]), Topology("f", [DOMAIN], version=2)


class Process:
    """A recovery with the parts that it saves and brings back."""

    def __init__(self, name: str = "a", topology: Topology = PAIR) -> None:
        self.here, self.view = Attachment(name, Routes(topology), MemberOptions()), View()
        self.log = DeliveryLog(self.here, None)
        admission = Admission(self.here, self.log)
        self.forwarder = Forwarder(self.here, admission, None)
        self.receiver = Receiver(self.here, self.log, admission, self.forwarder, self.view, None)
        self.submitter = Submitter(self.here, self.log, admission, self.forwarder, self.view, None)
        survivor = Survivor(self.here, self.view, None)
        self.reconfigurer = Reconfigurer(self.here, self.log, self.forwarder, survivor, self.view, None)
        self.recovery = Recovery(
            self.here, self.log, self.forwarder, self.receiver, self.submitter, self.reconfigurer, self.view, None
        )


def lived() -> tuple[Process, list[Ready]]:
    """Return a, which has sent one message and got one, and what followed from each."""
    a, b = Process(), Process("b")
    first = a.submitter.submit(Submit(None, b"of a"), 1)
    ((_, packet),) = b.submitter.submit(Submit(None, b"of b"), 1).send
    return a, [first, a.receiver.arrived(Arrived("b", packet), 2)]


def records(steps: list[Ready]) -> list[Record]:
    return [record for ready in steps for record in ready.persist]


def test_a_snapshot_and_all_records_lead_to_the_same_state() -> None:
    a, steps = lived()
    by_snapshot, by_records = Process(), Process()
    ready = by_snapshot.recovery.restore(Restored(a.recovery.snapshot(), (), 1), 3)
    assert [(one.position, one.envelope.body) for one in ready.deliver] == [(2, b"of b")], "what was consumed does not come again"
    assert [(peer, packet.numbers, packet.acked) for peer, packet in ready.send] == [("b", (1,), 1)]
    assert (by_snapshot.forwarder.number, by_snapshot.here.in_memory, by_snapshot.log.position) == (1, 1, 2)
    again = by_records.recovery.restore(Restored(None, records(steps), 1), 3)
    assert (again.deliver, again.send, again.sent) == (ready.deliver, ready.send, steps[0].sent)
    assert by_records.recovery.snapshot() == by_snapshot.recovery.snapshot()


def test_a_record_that_is_repeated_leads_to_what_it_led_to() -> None:
    _, steps = lived()
    a = Process()
    a.recovery.restore(Restored(None, (), 0), 0)
    for ready in steps:
        repeated = a.recovery.repeat(Repeated(ready.persist[0]))
        assert (repeated.accepted, repeated.sent, repeated.deliver) == (ready.accepted, ready.sent, ready.deliver)
        assert repeated.send == ()


def test_a_change_of_the_topology_is_in_the_snapshot() -> None:
    a, again = Process(), Process()
    for change in (Hold(1, NEXT), Prepare(1), Switch(1)):
        a.reconfigurer.change(change, 0)
    again.recovery.restore(Restored(a.recovery.snapshot(), (), 0), 0)
    assert (again.here.topology.version, again.view.state.attempt) == (2, 1)


@pytest.mark.parametrize(
    "record",
    [
        Submitted(Envelope("a", 2, None, b"x")),
        Submitted(Envelope("b", 1, None, b"x")),
        Received("d", "z", 1, Frame(None, None)),
        Passed("d", (("b", 1),)),
        Suspecting("b", True),
    ],
)
def test_a_record_that_cannot_be_ours_is_refused(record: Record) -> None:
    a = Process()
    with pytest.raises(StorageError, match=r"^'a': a stored record"):
        a.recovery.restore(Restored(None, (record,), 0), 0)
    assert (a.forwarder.number, a.here.in_memory, a.log.position) == (0, 0, 0)


def test_the_snapshot_of_another_is_refused() -> None:
    stable = Topology("f", [DOMAIN], stability=True)
    for other, why in ((Process("b"), "this is the snapshot of 'b'"), (Process("a", stable), "a fabric with stability")):
        with pytest.raises(StorageError, match=why):
            Process().recovery.restore(Restored(other.recovery.snapshot(), (), 0), 0)
    with pytest.raises(StorageError, match="cannot be read"):
        Process().recovery.restore(Restored(b"\x93", (), 0), 0)
