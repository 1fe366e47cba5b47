"""Statements: how a server that is told to run on an old copy of its store finds out whether that is true.

A server that believes its peer in this could be stopped for good by a peer that lies. So each server states to each peer how far
it is with it, under a seal that only its own store can make. The peer keeps the last statement, and shows it when the two meet.
A server is an old copy if it is shown a statement of its own that goes beyond what it knows.

Rules:

* A statement holds what is durable, so a server that only crashed never meets one beyond its state.
* The key of the seal lies in the store, and goes wherever a copy of the store goes: a copy knows the statements of all others.
* A seal covers the name of the peer, so a statement is worth nothing to anybody else.
* Numbers are compared within one version of the topology; the number of the epoch is compared always.
* Places where others repeat frames are left out: there nobody knows what a peer can have got.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from thence.core.epochs.epoch import Claim
from thence.core.epochs.progress import Progress

KEY_BYTES: Final = 32
SEAL_BYTES: Final = 16

_encode = msgspec.msgpack.Encoder(order="sorted").encode


class Statement(msgspec.Struct, frozen=True, array_like=True):
    """How far one side is with the other, in its own words."""

    version: int
    """The version of the topology."""
    epoch: int
    """The number of the epoch."""
    places: dict[str, tuple[int, int]]
    """For each place, the highest number that it can have sent, and up to which it has taken what came."""
    seal: Annotated[bytes, msgspec.Meta(max_length=SEAL_BYTES)] = b""


def seal(key: bytes, peer: str, statement: Statement) -> Statement:
    """Return a statement to a peer with the seal of the store that has this key."""
    said = _encode((peer, statement.version, statement.epoch, statement.places))
    return msgspec.structs.replace(statement, seal=hashlib.blake2b(said, key=key, digest_size=SEAL_BYTES).digest())


def goes_beyond(statement: Statement, version: int, claim: Claim, progress: Mapping[str, Progress]) -> bool:
    """Return whether a server whose own statement this is has forgotten something, by what it knows now."""
    if statement.epoch > max(held.epoch.number for held in claim.held):
        return True
    if statement.version != version:
        return False
    reach = next((held.reach for held in claim.held if held.epoch.number == statement.epoch), None) or {}
    return any(
        sent > reach.get(place, progress[place].sent) or received > progress[place].received
        for place, (sent, received) in statement.places.items()
        if place in progress
    )
