"""News of the fabric come from a member's own part in a change. Nobody else can make them up."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from thence.core.member.contract import Arrived, Restored, Submit
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.reconfig.protocol import FABRIC, NewView
from thence.core.topology.domain import Domain
from thence.core.wire.messages import Envelope, Packet
from thence.errors import ImpossibleFrame

DOMAIN = Domain("d", ("A", "B"), "vector")


def forged(packet: Packet[Any]) -> Packet[Any]:
    """Return the packet with its message turned into news of a view."""
    (frame,) = packet.frames
    news = Envelope(FABRIC, 2, None, msgspec.msgpack.encode(NewView(2, ("A",), ())))
    return msgspec.structs.replace(packet, frames=(msgspec.structs.replace(frame, envelope=news),))


@pytest.mark.parametrize("durable", [True, False])
def test_a_neighbour_cannot_tell_of_a_view(durable: bool) -> None:
    a, b = (Member(name, DOMAIN, MemberOptions(durable=durable)) for name in "AB")
    ((_, first),) = a.step(Submit(("B",), b"one"), 0).send
    ((_, second),) = a.step(Submit(("B",), b"two"), 0).send
    taken = b.step(Arrived("A", forged(first)), 1)
    assert taken.deliver == ()
    (refusal,) = taken.refused
    assert isinstance(refusal, ImpossibleFrame)
    assert "claims to be news of the fabric" in str(refusal)
    assert (b.step(Arrived("A", second), 2).refused, b.step(Submit(("A",), b"three"), 3).accepted[0].body) == ((), b"three")


@pytest.mark.parametrize("delivery", ["at once", "safe"])
def test_what_was_refused_is_not_asked_for_again_and_a_restart_knows_it_too(delivery: Literal["at once", "safe"]) -> None:
    domain = DOMAIN._replace(delivery=delivery)
    a, b = (Member(name, domain) for name in "AB")
    ((_, packet),) = a.step(Submit(("B",), b"one"), 0).send
    ready = b.step(Arrived("A", forged(packet)), 1)
    assert b.attachment.progress("A")["d"].received == 1
    refused = list(ready.refused)
    assert [type(refusal) for refusal in refused] == [ImpossibleFrame]
    assert b.attachment.waiting() == []
    again = b.step(Arrived("A", forged(packet)), 3)
    assert (again.refused, again.persist, again.deliver) == ((), (), ())
    restarted = Member("B", domain)
    assert restarted.step(Restored(None, ready.persist, 0), 4).deliver == ()
    assert restarted.snapshot() == b.snapshot()
