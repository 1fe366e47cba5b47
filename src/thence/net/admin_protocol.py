"""What an operator can ask of a server about its clients: one struct per question. ``server.admin`` answers."""

from __future__ import annotations

from typing import cast

import msgspec

from thence.core.wire.messages import UNREADABLE
from thence.errors import MalformedFrame


class ListClients(msgspec.Struct, frozen=True, tag="list"):
    """Which clients are there? Those for whom most waits come first."""

    limit: int


class ShowClient(msgspec.Struct, frozen=True, tag="show"):
    """How is it with one of them?"""

    name: str


class RemoveClient(msgspec.Struct, frozen=True, tag="remove"):
    """Remove a client: its name, its mailbox and its subscriptions."""

    name: str


class PurgeClient(msgspec.Struct, frozen=True, tag="purge"):
    """Drop the messages that wait for a client."""

    name: str


Question = ListClients | ShowClient | RemoveClient | PurgeClient

_decoder = msgspec.msgpack.Decoder(Question)


def read_question(written: bytes) -> Question:
    """Return what an operator asks."""
    try:
        return cast("Question", _decoder.decode(written))
    except UNREADABLE as error:
        raise MalformedFrame(f"a question about clients that cannot be read: {error}") from None
