"""What can be asked of a server about its agents and about its clients: one struct per question.

A frame of ``net.protocol`` carries a question as msgpack, with a number that its answer has too. ``agents.admin`` answers about
agents, ``server.admin`` about clients.
"""

from __future__ import annotations

from typing import Any, cast

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


AboutAgents = Create | Remove | Show | ListAll | ListDead | ShowDead | Retry | Drop


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


AboutClients = ListClients | ShowClient | RemoveClient | PurgeClient

_about_agents = msgspec.msgpack.Decoder(AboutAgents)
_about_clients = msgspec.msgpack.Decoder(AboutClients)


def read_about_agents(written: bytes) -> AboutAgents:
    """Return what somebody asks about agents."""
    return cast("AboutAgents", _read(_about_agents, written, "agents"))


def read_about_clients(written: bytes) -> AboutClients:
    """Return what an operator asks about clients."""
    return cast("AboutClients", _read(_about_clients, written, "clients"))


def _read(decoder: msgspec.msgpack.Decoder[Any], written: bytes, about: str) -> Any:
    try:
        return decoder.decode(written)
    except UNREADABLE as error:
        raise MalformedFrame(f"a question about {about} that cannot be read: {error}") from None
