"""Packets and records to bytes and back: versioned, bounded, and safe on any input.

Rules:

* The first byte is the version of the format. An unknown one is refused by naming both.
* Nothing is decoded before its size has been checked.
* Whatever the bytes are, decoding either returns a value or raises ``MalformedFrame`` (from the network) or
  ``StorageError`` (from our own disk), and nothing else. Fuzzing says so.
* The stamps of all orderings form one tagged union, which is made from the registry: a new ordering's stamps are
  known here as soon as its file exists, and two stamps with the same tag cannot be loaded together.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from thence.core.ahead import BodyAhead
from thence.core.links import LINK_STAMPS
from thence.core.messages import UNREADABLE, Frame, Packet
from thence.core.ordering import ORDERINGS
from thence.core.ordering.base import stamp_union
from thence.core.records import Changed, Owed, Passed, Record, Skipped, Submitted, Suspecting, Taken
from thence.errors import MalformedFrame, StorageError, UsageError

FORMAT_VERSION = 2
"""The version that this code writes, and the only one that it reads."""

MAX_PACKET_BYTES = 64 * 1024 * 1024
"""The largest packet that is written or read."""

MAX_RECORD_BYTES = 64 * 1024 * 1024
"""The largest record that is written or read."""


_generic_packet: Any = Packet
_generic_taken: Any = Taken
_generic_frame: Any = Frame
_any_stamp = stamp_union([*(stamp for ordering in ORDERINGS.values() for stamp in ordering.stamps), *LINK_STAMPS, BodyAhead])
_VERSION = bytes([FORMAT_VERSION])
_encoder = msgspec.msgpack.Encoder()
_packet_decoder = msgspec.msgpack.Decoder(_generic_packet[_any_stamp])
_decode_packet: Any = _packet_decoder.decode
STORED_RECORD: Any = Submitted | _generic_taken[_any_stamp] | Skipped | Suspecting | Changed | Passed | Owed
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


def decode_packet(written: bytes | memoryview, sender: str = "?") -> Packet[Any]:
    """Return the packet that somebody wrote; ``sender`` is named in the error if it cannot be one."""
    if not 0 < len(written) <= MAX_PACKET_BYTES or written[0] != FORMAT_VERSION:
        raise _unreadable(written, sender)
    try:
        packet: Packet[Any] = _decode_packet(memoryview(written)[1:])
    except UNREADABLE as error:
        raise MalformedFrame(f"a packet from {sender!r} that cannot be read: {error}") from None
    if packet.numbers and len(packet.numbers) != len(packet.frames):
        raise MalformedFrame(f"a packet from {sender!r} with {len(packet.frames)} frames and {len(packet.numbers)} numbers")
    return packet


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
