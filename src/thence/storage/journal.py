"""What a server writes to its store: the records of its member, what its clients acknowledged, and what its agents did.

An entry is one turn of the driver: msgpack of the version of the format and a list of records. A snapshot holds the member's and
the directory's state at the same point. See ``core.wire.records`` for why inputs are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from thence.core.epochs.epoch import Claim
from thence.core.epochs.statement import Statement
from thence.core.member.codec import FORMAT_VERSION, STORED_RECORD
from thence.core.wire.messages import UNREADABLE
from thence.core.wire.records import Record
from thence.errors import StorageError
from thence.storage.agents import DeadLettered, Reacted
from thence.storage.mailbox import MailboxMet
from thence.storage.rejections import Rejected
from thence.storage.spill_files import SpillFile


class Returned(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """The messages of an orphan up to a position have gone back, or had nobody to go to."""

    orphan: str
    upto: int


class Acknowledged(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A client has done with its messages up to this position."""

    client: str
    upto: int


class Met(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """A peer runs on this store; with another one it has forgotten what it promised."""

    peer: str
    store_id: str


class Started(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The server came back, at this time."""

    at: int
    arrivals: bool = False
    """Whether its trace tells arrivals from here on: versions that told none numbered their events without them."""


class Removed(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """A client was removed, with the mailbox that it had got with the notice of this number (``node.messages.removal``)."""

    client: str
    since: int


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """The server began, with this topology. Only ever the first record."""

    topology: str
    at: int = 0
    arrivals: bool = False
    """As in ``Started``."""


class EpochStored(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """Which epochs we have stored with a peer (``core.epochs.epoch``)."""

    peer: str
    claim: Claim


class FencedRecord(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """A peer has shown that this is an old copy of the store, or one of two: the server must not go on."""

    peer: str
    reason: str


class KeyDrawn(msgspec.Struct, frozen=True, array_like=True, tag=33):
    """The key under which this store seals its statements (``core.epochs.statement``)."""

    key: bytes


class StatementKept(msgspec.Struct, frozen=True, array_like=True, tag=34):
    """The last statement that a peer made to us."""

    peer: str
    statement: Statement


_Own = (
    Acknowledged
    | Rejected
    | MailboxMet
    | Met
    | Started
    | Reacted
    | DeadLettered
    | Opened
    | Removed
    | EpochStored
    | FencedRecord
    | KeyDrawn
    | StatementKept
    | Returned
)
Written = Record | _Own


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """All that stands for the entries before it."""

    version: int
    member: bytes
    directory: bytes
    consumed: int
    """Up to which of the member's deliveries the directory has them."""
    events: int
    """How many events of this server's history there are in all, for its trace."""
    met: dict[str, str]
    acknowledging: dict[str, int] = {}
    """What clients had acknowledged in entries that the snapshot stands for, and the directory had not been told yet."""
    agents: bytes = b""
    """The ledger of the agents."""
    topology: str = ""
    """The topology that was in force."""
    spilled_frames: list[tuple[str, str, list[SpillFile]]] = []
    """Place and peer, and the files with frames for it that the member says are elsewhere (``storage.frame_spill``)."""
    safety: bytes = b""
    """What of the messages in mailboxes was not safe."""
    removing: dict[str, int] = {}
    """Mailboxes, by client, whose removal was written in entries that the snapshot stands for, and had not been made yet."""
    claims: dict[str, Claim] = {}
    """Which epochs we have stored with each peer."""
    fenced: str = ""
    """Why the server must not go on, if so."""
    returning: bytes = b""
    """What goes back to its senders (``node.messages.returns``)."""
    key: bytes = b""
    """The key of our seal, and what peers have stated (``core.epochs.statement``)."""
    statements: dict[str, Statement] = {}
    arrived: list[tuple[str, int, int]] | None = None
    """When messages came in that wait (``node.arrival_times``); None: the trace has no arrivals so far."""


_stored: Any = STORED_RECORD
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, list[_stored | _Own]])
_snapshot_decoder = msgspec.msgpack.Decoder(Snapshot)


def encode_entry(records: Sequence[Written]) -> bytes:
    """Return what is stored for one turn."""
    return _encoder.encode((FORMAT_VERSION, records))


def decode_entry(entry: bytes) -> list[Written]:
    """Return what was stored."""
    try:
        version, records = _decoder.decode(entry)
    except UNREADABLE as error:
        raise StorageError(f"a stored entry that cannot be read: {error}") from None
    if version != FORMAT_VERSION:
        raise StorageError(f"a stored entry in format {version}; this is format {FORMAT_VERSION}")
    return cast("list[Written]", records)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return a snapshot's bytes."""
    return _encoder.encode(snapshot)


def decode_snapshot(written: bytes) -> Snapshot:
    """Return the snapshot that was stored."""
    try:
        snapshot = _snapshot_decoder.decode(written)
    except UNREADABLE as error:
        raise StorageError(f"a stored snapshot that cannot be read: {error}") from None
    if snapshot.version != FORMAT_VERSION:
        raise StorageError(f"a stored snapshot in format {snapshot.version}; this is format {FORMAT_VERSION}")
    return snapshot
