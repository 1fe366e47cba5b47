"""The bytes of the store: segments of batches, snapshots, and the mark of what is durable.

This file knows bytes and no files, so that every rule about damage can be tried on a ``bytes`` value. All numbers are
little endian; docs/reference/store.md draws the layout.

Rules:

* Every file opens with a header: magic, format version, identity, a number, and a checksum over all of that.
* A batch is what one commit wrote: one checksum over the numbers, the lengths and the entries. One commit is one batch, so
  a write that was torn has nothing whole behind it, and whatever has something whole behind it was durable once.
* Batches begin with a marker that was drawn at random for their segment. Entries are written by others: nobody can
  send one that looks like a batch, neither to hide damage nor to make a torn write look like damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from thence.errors import StorageError
from thence.runtime.checksum import crc32

FORMAT_VERSION = 1
"""The version that this code writes, and the only one that it reads."""

MAX_IDENTITY_BYTES = 1024
"""The longest identity of a store, in UTF-8."""

MARKER_BYTES = 8

SEGMENT = b"thenceLG"
SNAPSHOT = b"thenceSN"
MARK = b"thenceMK"
SPILL = b"thenceSP"

_HEADER = struct.Struct(f"<8sHH{MARKER_BYTES}sQ")  # magic, version, bytes of the identity, marker, number
_CHECKSUM = struct.Struct("<I")
_BATCH = struct.Struct(f"<{MARKER_BYTES}sIIIQ")  # marker, checksum, entries, bytes behind this, number of the first
_SUMMED = struct.Struct("<IIQ")  # the same from where the checksum covers it; the marker is known anyway
_SUMMED_FROM = _BATCH.size - _SUMMED.size
_BODY = struct.Struct("<QI")  # bytes, checksum
_MARK = struct.Struct("<8sQ")
_LENGTH_BYTES = 4

MARK_BYTES = _MARK.size + _CHECKSUM.size
OUTLINE_BYTES = _BATCH.size


class Header(NamedTuple):
    """What a file says of itself. ``number``: a segment's first sequence, or the last one that a snapshot stands for."""

    identity: str
    marker: bytes
    number: int
    size: int


class LogBatch(NamedTuple):
    """The entries of one commit: where they are, and their sequence numbers ``first`` to ``last``."""

    offset: int
    end: int
    first: int
    last: int

    def entries(self, data: bytes) -> list[bytes]:
        """Cut the entries out of the segment's bytes."""
        start = self.offset + _BATCH.size
        count = self.last - self.first + 1
        if count == 1:  # a log of small commits is read twice as fast for it
            return [data[start + _LENGTH_BYTES : self.end]]
        lengths = struct.unpack_from(f"<{count}I", data, start)
        start += _LENGTH_BYTES * count
        return [data[begin:end] for begin, end in pairwise(accumulate(lengths, initial=start))]


class Outline(NamedTuple):
    """What the beginning of a batch says of it; nothing vouches for it yet."""

    size: int
    first: int


class Gap(NamedTuple):
    """Bytes that are no batch. Where ``end`` is the end of the file, nothing whole is behind them."""

    offset: int
    end: int


def encode_header(magic: bytes, identity: str, marker: bytes, number: int) -> bytes:
    """Return what a segment or a snapshot begins with."""
    name = identity.encode()
    written = _HEADER.pack(magic, FORMAT_VERSION, len(name), marker, number) + name
    return written + _CHECKSUM.pack(crc32(written))


def decode_header(data: bytes, magic: bytes, place: str) -> Header:
    """Read what a file begins with; ``place`` is named in the error if it cannot be read."""
    if len(data) < _HEADER.size:
        raise StorageError(f"{place}, offset 0: the header is incomplete")
    found, version, name_bytes, marker, number = _HEADER.unpack_from(data)
    if found != magic:
        raise StorageError(f"{place}, offset 0: this does not begin as such a file does")
    end = _HEADER.size + name_bytes
    if len(data) < end + _CHECKSUM.size or _CHECKSUM.unpack_from(data, end)[0] != crc32(data[:end]):
        raise StorageError(f"{place}, offset 0: the checksum of the header is wrong")
    if version != FORMAT_VERSION:
        raise StorageError(f"{place} is in format {version}; this is format {FORMAT_VERSION}")
    return Header(data[_HEADER.size : end].decode(), marker, number, end + _CHECKSUM.size)


def encode_batch(marker: bytes, first: int, entries: Sequence[bytes]) -> bytes:
    """Return the bytes of one commit."""
    lengths = [len(entry) for entry in entries]
    size = _LENGTH_BYTES * len(entries) + sum(lengths)
    numbers = _SUMMED.pack(len(entries), size, first)
    summed = b"".join((numbers, struct.pack(f"<{len(entries)}I", *lengths), *entries))
    return b"".join((marker, _CHECKSUM.pack(crc32(summed)), summed))


def read_batches(data: bytes, header: Header) -> Iterator[LogBatch | Gap]:
    """Go through a segment; what is no batch is skipped up to the next that is one, and given as a gap."""
    view = memoryview(data)
    offset = header.size
    while offset < len(data):
        found: LogBatch | Gap | None = batch_at(view, offset, header.marker)
        if found is None:
            found = Gap(offset, _next_batch(data, view, offset + 1, header.marker))
        yield found
        offset = found.end


def batch_at(view: memoryview, offset: int, marker: bytes) -> LogBatch | None:
    """Return the batch that begins here, if there is a whole one."""
    start = offset + _BATCH.size
    if start > len(view):
        return None
    found, checksum, count, length, first = _BATCH.unpack_from(view, offset)
    end = start + length
    if found != marker or not count or end > len(view) or length < count * _LENGTH_BYTES:
        return None
    if crc32(view[offset + _SUMMED_FROM : end]) != checksum:
        return None
    return LogBatch(offset, end, first, first + count - 1)


def _next_batch(data: bytes, view: memoryview, offset: int, marker: bytes) -> int:
    while (offset := data.find(marker, offset)) != -1:
        if batch_at(view, offset, marker):
            return offset
        offset += 1
    return len(data)


def outline_at(data: bytes, marker: bytes) -> Outline | None:
    """Return what the first ``OUTLINE_BYTES`` of a batch say of it, if they are those of one."""
    if len(data) < OUTLINE_BYTES or not data.startswith(marker):
        return None
    _, _, _, length, first = _BATCH.unpack_from(data)
    return Outline(OUTLINE_BYTES + length, first)


def encode_snapshot(identity: str, upto: int, body: bytes) -> bytes:
    """Return the bytes of a snapshot that stands for every entry up to and including ``upto``."""
    header = encode_header(SNAPSHOT, identity, bytes(MARKER_BYTES), upto)
    return b"".join((header, _BODY.pack(len(body), crc32(body)), body))


def decode_snapshot(data: bytes, place: str) -> tuple[Header, bytes]:
    """Return a snapshot's header and body."""
    header = decode_header(data, SNAPSHOT, place)
    start = header.size + _BODY.size
    if len(data) < start:
        raise StorageError(f"{place}, offset {header.size}: the snapshot is incomplete")
    length, checksum = _BODY.unpack_from(data, header.size)
    body = data[start:]
    if len(body) != length or crc32(body) != checksum:
        raise StorageError(f"{place}, offset {start}: the checksum of the snapshot is wrong")
    return header, body


def encode_mark(durable: int) -> bytes:
    """Return the mark which says that everything up to ``durable`` was durable."""
    written = _MARK.pack(MARK, durable)
    return written + _CHECKSUM.pack(crc32(written))


def decode_mark(data: bytes) -> int | None:
    """Return how far everything was durable, or None if this is no whole mark."""
    if len(data) != MARK_BYTES or not data.startswith(MARK):
        return None
    if _CHECKSUM.unpack_from(data, _MARK.size)[0] != crc32(data[: _MARK.size]):
        return None
    return int(_MARK.unpack_from(data)[1])
