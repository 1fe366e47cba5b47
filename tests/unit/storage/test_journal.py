"""What a server writes comes back as it was; what it did not write is refused."""

from __future__ import annotations

import msgspec
import pytest

from thence.core.member.codec import FORMAT_VERSION
from thence.core.wire.messages import Envelope
from thence.core.wire.records import Skipped, Submitted
from thence.errors import StorageError
from thence.storage.journal import (
    Acknowledged,
    Met,
    Snapshot,
    Started,
    Written,
    decode_entry,
    decode_snapshot,
    encode_entry,
    encode_snapshot,
)

RECORDS: list[Written] = [
    Submitted(Envelope("s1", 1, ("s2",), b"body")),
    Skipped("D", "s2", 7),
    Acknowledged("ann", 12),
    Met("s2", "0123"),
    Started(99),
]


def test_an_entry_comes_back() -> None:
    assert decode_entry(encode_entry(RECORDS)) == RECORDS


def test_a_snapshot_comes_back() -> None:
    snapshot = Snapshot(FORMAT_VERSION, b"member", b"office", 5, 7, {"s2": "0123"})
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot


def test_another_format_is_refused_by_its_number() -> None:
    entry = msgspec.msgpack.encode((FORMAT_VERSION + 1, []))
    with pytest.raises(StorageError, match=f"in format {FORMAT_VERSION + 1}; this is format {FORMAT_VERSION}"):
        decode_entry(entry)
    snapshot = Snapshot(FORMAT_VERSION + 1, b"", b"", 0, 0, {})
    with pytest.raises(StorageError, match=f"in format {FORMAT_VERSION + 1}"):
        decode_snapshot(encode_snapshot(snapshot))


@pytest.mark.parametrize("damaged", [b"", b"\xc1", b"hello", encode_entry(RECORDS)[:-1]])
def test_what_cannot_be_read_is_refused(damaged: bytes) -> None:
    with pytest.raises(StorageError, match="a stored entry that cannot be read"):
        decode_entry(damaged)
    with pytest.raises(StorageError, match="a stored snapshot that cannot be read"):
        decode_snapshot(damaged)
