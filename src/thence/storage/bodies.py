"""The bodies of messages between servers: messages of clients, and notices of who is where and who follows what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from thence.core.wire.messages import MAX_NAME_CHARACTERS, UNREADABLE
from thence.errors import MalformedFrame
from thence.net.names import MAX_TOPIC_CHARACTERS
from thence.storage.mailbox import Batch, ReadBatch

_encoder = msgspec.msgpack.Encoder()


MAX_KNOWN: Final = 10_000
"""How many clients or subscriptions one message lists that tells a new server of them."""


Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)]


Topic = Annotated[str, msgspec.Meta(max_length=MAX_TOPIC_CHARACTERS)]


class Joined(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """There is a client of this name at ``server``."""

    client: Name
    server: str
    temporary: bool
    kind: str = ""
    """Of an agent: its class, by name."""
    state: bytes = b""
    """Of an agent: what it begins with."""
    entry: str = ""
    """By which entry of the access file it came in, or whoever made the agent; nothing if there is no such file."""
    mailbox_id: int = 0
    """The id of the mailbox that it gets, drawn for it."""


class Left(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The client at ``server`` is gone, with all that waits for it and all that it follows."""

    client: Name
    server: str


class Follows(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The client follows a topic from here on, or no longer."""

    client: Name
    topic: Topic
    wanted: bool


class Known(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A server's clients and what they follow, for servers that have just come in (docs/how-to/reconfiguration.md)."""

    server: str
    clients: Annotated[dict[Name, bool], msgspec.Meta(max_length=MAX_KNOWN)]
    """By name: whether it is temporary."""
    follows: Annotated[list[tuple[Name, Topic]], msgspec.Meta(max_length=MAX_KNOWN)]
    """Clients and topics."""


class Closing(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Mailboxes of clients at ``server`` are closed: whoever writes to them waits. Or they are open again."""

    server: str
    clients: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_KNOWN)]
    closed: bool


Body = Batch | Joined | Left | Follows | Known | Closing


_body_decoder = msgspec.msgpack.Decoder(ReadBatch | Joined | Left | Follows | Known | Closing)


_decode_body: Any = _body_decoder.decode


write_body: Callable[[Body], bytes] = _encoder.encode
"""Returns the body of a message between directories."""


def read_body(written: bytes, origin: str) -> Body:
    """Return what a directory wrote."""
    try:
        return _decode_body(written)  # type: ignore[no-any-return]
    except UNREADABLE as error:
        raise MalformedFrame(f"a message of {origin!r} that no directory wrote: {error}") from None
