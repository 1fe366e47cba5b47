"""What can be asked of a server about its agents: one struct per question. ``agents.admin`` answers."""

from __future__ import annotations

from typing import cast

import msgspec

from thence.core.wire.messages import UNREADABLE
from thence.errors import MalformedFrame


class Create(msgspec.Struct, frozen=True, tag="create"):
    """Make an agent."""

    name: str
    kind: str
    state: bytes
    """What it begins with, as msgpack; empty: what its class says."""
    exist_ok: bool = False


class Remove(msgspec.Struct, frozen=True, tag="remove"):
    """Remove an agent, with its state and its messages."""

    name: str


class Show(msgspec.Struct, frozen=True, tag="show"):
    """What is an agent's state?"""

    name: str


class ListAll(msgspec.Struct, frozen=True, tag="list"):
    """Which agents are there?"""


class ListDead(msgspec.Struct, frozen=True, tag="dead"):
    """Which messages were set aside?"""


class ShowDead(msgspec.Struct, frozen=True, tag="show-dead"):
    """What is in a message that was set aside?"""

    number: int


class Retry(msgspec.Struct, frozen=True, tag="retry"):
    """Send it to its agent once more."""

    number: int


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """Drop it."""

    number: int


Question = Create | Remove | Show | ListAll | ListDead | ShowDead | Retry | Drop

_decoder = msgspec.msgpack.Decoder(Question)


def read_question(written: bytes) -> Question:
    """Return what a client asks."""
    try:
        return cast("Question", _decoder.decode(written))
    except UNREADABLE as error:
        raise MalformedFrame(f"a question about agents that cannot be read: {error}") from None
