"""What frames of replicas carry: each is safe when its message is, whoever brought that."""

from __future__ import annotations

from thence.core.stability.carried import CarriedMessages
from thence.core.stability.safe import SafeAcks
from thence.core.transport.base import Incoming
from thence.core.transport.direct import Direct
from thence.core.wire.messages import Envelope, Frame, Packet, SafeAck

GROUPS = dict.fromkeys(("r1", "r2"), ("r1", "r2"))


def place(name: str = "D", me: str = "p") -> SafeAcks:
    peers = [peer for peer in ("p", "r1", "r2", "z") if peer != me]
    return SafeAcks(Direct(name, me, peers), None, GROUPS)


def came(carried: CarriedMessages, acks: SafeAcks, peer: str, number: int, message: int) -> None:
    """A frame with a message of o came."""
    acks.took(peer, number)
    carried.came(acks.inner.name, Incoming(peer, number, Frame(None, Envelope("o", message, None, b""))))


def tell(acks: SafeAcks, peer: str, upto: int, *fellows: int) -> None:
    acks.came(peer, Packet(acks.inner.name, (), safe_ack=SafeAck(upto, False, fellows)), 0)


def test_the_copy_of_one_replica_is_safe_by_that_of_the_other() -> None:
    acks = place()
    carried = CarriedMessages({"D": acks})
    came(carried, acks, "r1", 1, message=7)
    came(carried, acks, "r1", 2, message=8)
    came(carried, acks, "r2", 1, message=7)
    tell(acks, "r2", 1)
    carried.look()
    assert (acks.peers["r1"].heard, carried.safe_of, carried.take_news()) == (1, {"o": 7}, ["o"])


def test_all_before_a_hole_is_safe_and_nothing_behind_it() -> None:
    acks = place()
    carried = CarriedMessages({"D": acks})
    came(carried, acks, "r1", 2, message=1)
    carried.is_safe("o", 5)
    carried.look()
    assert acks.peers["r1"].heard == 0, "and yet the frame itself is safe"
    assert carried.is_frame_safe("D", "r1", 2)
    assert not carried.is_frame_safe("D", "r1", 1)
    came(carried, acks, "r1", 1, message=2)
    carried.look()
    assert acks.peers["r1"].heard == 2


def test_what_one_says_for_another_counts_as_if_that_one_had_said_it() -> None:
    acks = place()
    tell(acks, "r2", 0, 3)
    assert acks.peers["r1"].heard == 3


def test_a_replica_tells_others_of_one_that_it_suspects() -> None:
    acks = place(me="r2")
    carried = CarriedMessages({"D": acks})
    came(carried, acks, "r1", 1, message=1)
    acks.suspect("r1", True)
    acks.attach([], 0)
    carried.is_safe("o", 1)
    carried.look()
    said = {peer: packet.safe_ack for peer, packet in acks.attach([], 0)}
    assert said["p"] == SafeAck(0, False, (1,))


def test_what_comes_late_is_known_to_be_safe_and_a_restart_knows_the_rest() -> None:
    acks = place()
    carried = CarriedMessages({"D": acks})
    acks.learned("r1", 1)
    came(carried, acks, "r1", 2, message=2)
    carried.look()
    came(carried, acks, "r1", 1, message=1)
    assert carried.safe_of == {"o": 1}
    again = CarriedMessages({"D": acks})
    again.load(carried.save(), carried.safe_of)
    again.is_safe("o", 2)
    again.look()
    assert acks.peers["r1"].heard == 2
