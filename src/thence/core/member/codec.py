"""Packets and records to bytes and back: versioned, bounded, and safe on any input.

Rules:

* The first byte is the version of the format. An unknown one is refused by naming both.
* Nothing is decoded before its size has been checked. A packet takes up to forty times as much in memory as on the wire: a name
  of one byte becomes an object of 64. So the outline of a long packet is compared first with what there can be at most in the
  topology (``limits_of``). No packet that a member sends there, whatever its version, is beyond these limits.
* Whatever the bytes are, decoding either returns a value or raises ``MalformedFrame`` (from the network) or
  ``StorageError`` (from our own disk), and nothing else. Fuzzing says so.
* The stamps of all orderings form one tagged union, which is made from the registry: a new ordering's stamps are
  known here as soon as its file exists, and two stamps with the same tag cannot be loaded together.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import msgspec

from thence.core.failover.early_payloads import BodyAhead
from thence.core.ordering import ORDERINGS
from thence.core.ordering.base import stamp_union
from thence.core.places.link_end import LINK_STAMPS
from thence.core.stability.stable import MAX_BEYOND
from thence.core.topology.checks import MAX_NAME_BYTES
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.transport.ack_all.claims import MAX_CLAIMED_RANGES, MAX_REQUESTED
from thence.core.transport.channel import WINDOW
from thence.core.wire.messages import UNREADABLE, Frame, Packet
from thence.core.wire.records import Changed, Owed, Passed, Received, Record, SafeUpto, Shared, Skipped, Submitted, Suspecting
from thence.errors import MalformedFrame, StorageError, UsageError
from thence.words import counted

FORMAT_VERSION = 2
"""The version that this code writes, and the only one that it reads."""

MAX_PACKET_BYTES = 64 * 1024 * 1024
"""The largest packet that is written or read."""

PLAIN_PACKET_BYTES = 256 * 1024
"""Up to this size a packet is read at once: whatever it holds, that takes no more than 16 MiB."""

MAX_RECORD_BYTES = 64 * 1024 * 1024
"""The largest record that is written or read."""

NUMBER_BYTES = 9
"""The longest number on the wire."""

HEAD_BYTES = 5
"""The longest head of a text or a list."""

FRAME_BYTES = 2 * MAX_NAME_BYTES + 16 * NUMBER_BYTES
"""What a frame has beside what grows with the fabric: two names, in the envelope and in a stamp, numbers and heads."""


class PacketLimits(NamedTuple):
    """What a packet of a member that keeps to the rules can be at most, beside the bodies in it."""

    frames: int
    control_bytes: int
    """All of it but the bodies of messages."""


class _EnvelopeOutline(msgspec.Struct, array_like=True, gc=False):
    origin: msgspec.Raw
    number: msgspec.Raw
    to: msgspec.Raw
    body: msgspec.Raw


class _FrameOutline(msgspec.Struct, array_like=True, gc=False):
    stamp: msgspec.Raw
    envelope: _EnvelopeOutline | None


class _Head(msgspec.Struct, array_like=True, gc=False):
    domain: msgspec.Raw
    frames: msgspec.Raw


_generic_packet: Any = Packet
_generic_received: Any = Received
_generic_frame: Any = Frame
_ordering_stamps = [stamp for ordering in ORDERINGS.values() for stamp in ordering.traits.stamps]
_any_stamp = stamp_union([*_ordering_stamps, *LINK_STAMPS, BodyAhead])
_VERSION = bytes([FORMAT_VERSION])
_encoder = msgspec.msgpack.Encoder()
_packet_decoder = msgspec.msgpack.Decoder(_generic_packet[_any_stamp])
_decode_packet: Any = _packet_decoder.decode
_decode_head = msgspec.msgpack.Decoder(_Head).decode
_decode_outline = msgspec.msgpack.Decoder(list[_FrameOutline]).decode
_LONG_ARRAYS = {0xDC: 2, 0xDD: 4}
"""By what msgpack begins a list of more than 15 items, and how many bytes then count them."""
STORED_RECORD: Any = (
    Submitted | _generic_received[_any_stamp] | Skipped | Suspecting | Changed | Passed | Owed | Shared | SafeUpto
)
"""The type of a record with any stamp, for whoever decodes records among other things."""
STORED_FRAME: Any = _generic_frame[_any_stamp | None]
"""The type of a frame with any stamp, for the same."""
_record_decoder = msgspec.msgpack.Decoder(STORED_RECORD)


def encode_packet(packet: Packet[Any]) -> bytes:
    """Return the bytes of a packet."""
    written = _VERSION + _encoder.encode(packet)
    if len(written) > MAX_PACKET_BYTES:
        raise UsageError(f"a packet of {len(written)} bytes; MAX_PACKET_BYTES is {MAX_PACKET_BYTES}")
    return written


def decode_packet(written: bytes | memoryview, sender: str = "?", limits: PacketLimits | None = None) -> Packet[Any]:
    """Return the packet that somebody wrote; ``sender`` is named in the error if it cannot be one."""
    if not 0 < len(written) <= MAX_PACKET_BYTES or written[0] != FORMAT_VERSION:
        raise _unreadable(written, sender)
    try:
        if limits is not None and len(written) > PLAIN_PACKET_BYTES:
            _check_outline(written, sender, limits)
        packet: Packet[Any] = _decode_packet(memoryview(written)[1:])
    except UNREADABLE as error:
        raise MalformedFrame(f"a packet from {sender!r} that cannot be read: {error}") from None
    if packet.numbers and len(packet.numbers) != len(packet.frames):
        raise MalformedFrame(
            f"a packet from {sender!r} with {counted(len(packet.frames), 'frame')} and {counted(len(packet.numbers), 'number')}"
        )
    return packet


def _check_outline(written: bytes | memoryview, sender: str, limits: PacketLimits) -> None:
    """Refuse a packet that would take much more memory than any that is sent, before anything is made of what it holds."""
    frames = _decode_head(memoryview(written)[1:]).frames
    count = _count(memoryview(frames))
    if count > limits.frames:
        raise MalformedFrame(f"a packet from {sender!r} with {count} frames; here at most {limits.frames} are sent at once")
    outline = _decode_outline(frames)
    control = len(written) - sum([len(memoryview(frame.envelope.body)) for frame in outline if frame.envelope is not None])
    if control > limits.control_bytes:
        raise MalformedFrame(
            f"a packet from {sender!r} with {control} bytes beside the bodies of messages; here at most {limits.control_bytes}"
        )


def _count(array: memoryview) -> int:
    """Return how many items a list has, as its head says."""
    first = array[0]
    if first in _LONG_ARRAYS:
        return int.from_bytes(array[1 : 1 + _LONG_ARRAYS[first]])
    return first & 0x0F


def _unreadable(written: bytes | memoryview, sender: str) -> MalformedFrame:
    size = len(written)
    if size > MAX_PACKET_BYTES:
        return MalformedFrame(f"a packet of {size} bytes from {sender!r}; MAX_PACKET_BYTES is {MAX_PACKET_BYTES}")
    found = written[0] if size else "nothing at all"
    return MalformedFrame(f"a packet from {sender!r} in format {found}; this is format {FORMAT_VERSION}")


def encode_record(record: Record) -> bytes:
    """Return the bytes of a record."""
    written = _VERSION + _encoder.encode(record)
    if len(written) > MAX_RECORD_BYTES:
        raise UsageError(f"a record of {len(written)} bytes; MAX_RECORD_BYTES is {MAX_RECORD_BYTES}")
    return written


def decode_record(written: bytes | memoryview) -> Record:
    """Return the record that we stored."""
    if len(written) > MAX_RECORD_BYTES or bytes(written[:1]) != _VERSION:
        raise StorageError(f"a record of {len(written)} bytes that is not in format {FORMAT_VERSION}")
    try:
        return cast("Record", _record_decoder.decode(memoryview(written)[1:]))
    except UNREADABLE as error:
        raise StorageError(f"a record that cannot be read: {error}") from None


def limits_of(topology: Topology) -> PacketLimits:
    """Return the limits on packets in a fabric."""
    names = sum([len(name.encode()) + HEAD_BYTES for name in topology.processes])
    vector = 2 * topology.entries()
    found = [_in_domain(domain, names, vector) for domain in topology.domains.values()]
    return PacketLimits(max(limits.frames for limits in found), max(limits.control_bytes for limits in found))


def _in_domain(domain: Domain, names: int, vector: int) -> PacketLimits:
    """Return the limits in a domain, and in a link that ends in it; an envelope has a vector of so many numbers."""
    count = len(domain.members)
    # A window for each peer. Where all ack to all: of each stream, and what is repeated and asked for beside that.
    distributed = domain.acks.scheme == "distributed"
    frames = WINDOW * (count + 4) if distributed else WINDOW
    # Where all ack to all, stamps are vectors: a pair of numbers for each member. A matrix has one for each two members.
    pairs = count if distributed else count * count + count
    frame = FRAME_BYTES + names + NUMBER_BYTES * (2 * pairs + 2 * count + vector)
    claims = count * (2 * MAX_CLAIMED_RANGES + MAX_REQUESTED + 6)
    return PacketLimits(frames, frames * frame + NUMBER_BYTES * (claims + WINDOW + MAX_BEYOND) + FRAME_BYTES)
