"""What travels."""

from __future__ import annotations

import msgspec
import pytest

from thence.core.ordering.fifo import FifoStamp
from thence.core.ordering.vector import FullVectorStamp, VectorStamp
from thence.core.wire.messages import MAX_VERSION, Envelope, Frame, MessageId, Packet, Seen, control_bytes


@pytest.mark.parametrize("seen", [0, 7, 2**40, Seen(7, (0, 3))])
@pytest.mark.parametrize("version", [2, MAX_VERSION])
def test_what_is_for_everyone_of_a_later_version_says_so_and_keeps_the_rest(seen: int | Seen, version: int) -> None:
    message = Envelope("A", 3, None, b"x", seen)
    assert message.version == 0
    assert message.for_everyone_of(1) is message
    later = message.for_everyone_of(version)
    assert (later.id, later.to, later.body) == (message.id, None, b"x")
    assert (later.version, later.depth, later.vector) == (version, message.depth, message.vector)
    other = later.with_vector((1, 2))
    assert (other.version, other.depth, other.vector) == (version, message.depth, (1, 2))
    assert other.with_vector(None).with_vector(message.vector) == later
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(later), type=Envelope) == later


def test_a_message_is_named_by_origin_and_number() -> None:
    assert str(Envelope("A", 3, None, b"").id) == "A:3"
    assert Envelope("A", 3, ("B",), b"x").id == MessageId("A", 3)


@pytest.mark.parametrize(
    ("value", "field"),
    [(Envelope("A", 1, None, b""), "number"), (Frame(FifoStamp(1), None), "stamp"), (Packet("d", ()), "acked")],
)
def test_what_travels_cannot_be_changed(value: object, field: str) -> None:
    with pytest.raises(AttributeError):
        setattr(value, field, 2)


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        (FifoStamp(1), 3),
        (FifoStamp(200), 4),
        (VectorStamp(1, ()), 4),
        (VectorStamp(1, (3, 7)), 6),
        (FullVectorStamp((0,) * 16), 1 + 1 + 3 + 16),
    ],
)
def test_control_bytes_are_those_on_the_wire(stamp: msgspec.Struct, expected: int) -> None:
    """An array head, a tag and the numbers: one byte each as long as they are small."""
    assert control_bytes(stamp) == expected
    envelope = Envelope("A", 1, None, b"body")
    with_stamp = msgspec.msgpack.encode(Frame(stamp, envelope))
    without = msgspec.msgpack.encode(Frame(None, envelope))
    assert len(with_stamp) - len(without) == expected - 1
