"""News of the fabric come from a member's own part in a change. Nobody else can make them up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from thence.core.contract import Arrived, Submit
from thence.core.domain import Domain
from thence.core.member import Member, MemberOptions
from thence.core.messages import Envelope, Packet
from thence.core.views import FABRIC, NewView
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
