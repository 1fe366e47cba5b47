"""What a program gets and gives: a message that came in, names of recipients, and checks of what is to be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import UnionType
from typing import Any, Final, TypeVar, overload

import msgspec

from thence.client.values import decode_value
from thence.core.wire.messages import MAX_BODY_BYTES, UNREADABLE
from thence.errors import MalformedFrame, UsageError
from thence.net.names import MAX_TOPIC_CHARACTERS, is_whole
from thence.net.protocol import MAX_RECIPIENTS, MAX_RECIPIENTS_BYTES, BatchItem, encode_value
from thence.words import article

MAX_MESSAGE_BYTES: Final = MAX_BODY_BYTES - 64 * 1024
"""The largest body of one message; what is around it must fit into a message too."""
MAX_HEADERS_BYTES: Final = 16 * 1024

T = TypeVar("T")


class Everyone:
    """Stands for all clients of all servers."""

    def __repr__(self) -> str:
        return "thence.EVERYONE"


EVERYONE: Final = Everyone()

To = str | Iterable[str] | Everyone


def nobody() -> None:
    """Whom a message belongs to that nobody can reply to."""


class Message(msgspec.Struct, eq=False, gc=False):
    """A message that came in: its ``body`` as bytes, its ``sender``, its ``topic`` if it came by one, its ``position`` here."""

    # A struct, since making these is most of what it costs to listen. The collector of garbage does not look at it, which would
    # cost as much again: so it must be part of no circle, and knows its endpoint weakly.
    _endpoint: Callable[[], Any]
    position: int
    """Counts the messages of this endpoint from 1."""
    sender: str
    topic: str | None
    item: BatchItem
    body: bytes
    """What was sent, as bytes."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What was said beside the body."""
        return self.item.headers or {}

    @overload
    def value(self) -> Any: ...
    @overload
    def value(self, as_type: type[T]) -> T: ...
    @overload
    def value(self, as_type: UnionType) -> Any: ...
    def value(self, as_type: Any = Any) -> Any:
        """Return the body as a value: what was sent if that was no bytes, checked to be of this type.

        A body that was sent as bytes is ``bytes`` and nothing else: its bytes are not taken for a value of another type.
        Raises ``MalformedFrame`` if it is none. That is the sender's fault: ``on_message`` leaves the message out.
        """
        if not self.item.coded:
            return self._raw(as_type)
        try:
            return decode_value(self.item.body, as_type)
        except UNREADABLE as error:
            wanted = as_type.__name__ if isinstance(as_type, type) else as_type
            raise MalformedFrame(f"a message from {self.sender!r} is no {wanted}: {error}") from None

    def _raw(self, as_type: Any) -> Any:
        """Return a body that was sent as bytes, if that is of this type."""
        if as_type in (Any, bytes):
            return self.item.body
        try:
            value = msgspec.convert(self.item.body, type=as_type)  # It may be bytes among others, such as ``bytes | None``.
        except UNREADABLE:
            value = None
        if isinstance(value, bytes | bytearray | memoryview):
            return value
        wanted = as_type.__name__ if isinstance(as_type, type) else as_type
        raise MalformedFrame(
            f"a message from {self.sender!r} is no {wanted}: it was sent as bytes, which are its body; "
            f"whoever wants to give {article(str(wanted))} sends one, and not its bytes"
        )

    @property
    def wants_reply(self) -> bool:
        """Whether it was sent with ``request``."""
        return self.item.request > 0

    def reply(self, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Answer a request; the answer is queued, as with ``post``."""
        endpoint = self._endpoint()
        if endpoint is None:
            raise UsageError(f"whoever got the message from {self.sender!r} is gone, and cannot reply")
        endpoint.reply(self, body, headers=headers)

    async def safe(self) -> None:
        """Wait until it is safe: everybody who gets it in its domain has it on disk. Only in domains that tell it."""
        endpoint = self._endpoint()
        if endpoint is None:
            raise UsageError(f"whoever got the message from {self.sender!r} is gone, and is told nothing more")
        await endpoint.safe(self)

    def __repr__(self) -> str:
        where = f" on {self.topic!r}" if self.topic is not None else ""
        return f"<Message {self.position} from {self.sender!r}{where}: {self.body[:40]!r}>"


def recipients(to: object) -> tuple[str, ...] | None:
    """Return the names of recipients; None stands for everyone."""
    if isinstance(to, str):
        if not is_whole(to):
            raise UsageError(f"{to!r} names nobody: it has halves of characters")
        return (to,)
    if isinstance(to, Everyone):
        return None
    names = tuple(to) if isinstance(to, Iterable) else ()
    if not names or not all(isinstance(name, str) and is_whole(name) for name in names):
        raise UsageError(f"{to!r} names nobody; give a name, several names, or thence.EVERYONE")
    if len(names := tuple(dict.fromkeys(names))) > MAX_RECIPIENTS:
        raise UsageError(f"{len(names)} recipients; MAX_RECIPIENTS is {MAX_RECIPIENTS}: send to some of them, then to the others")
    if (size := sum(map(len, names))) > MAX_RECIPIENTS_BYTES:
        limit = f"MAX_RECIPIENTS_BYTES is {MAX_RECIPIENTS_BYTES}"
        raise UsageError(
            f"recipients with names of {size} characters together; {limit}: send to some of them, then to the others"
        )
    return names


def recipient(to: object) -> tuple[str, ...]:
    """Return the name of who is asked for a reply, which is one alone."""
    if not isinstance(to, str) or not is_whole(to):
        raise UsageError(f"{to!r} is no name; a request goes to one who replies")
    return (to,)


def checked_topic(topic: object) -> str:
    """Return the topic, if it can be one."""
    if not isinstance(topic, str) or not 0 < len(topic) <= MAX_TOPIC_CHARACTERS or not is_whole(topic):
        raise UsageError(f"{topic!r} is no topic; it must be text of 1 to {MAX_TOPIC_CHARACTERS} characters")
    return topic


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    checked = dict(headers)
    if not all(isinstance(part, str) for item in checked.items() for part in item):
        raise UsageError("headers are texts by name")
    if not all(is_whole(part) for item in checked.items() for part in item):
        raise UsageError("headers with halves of characters cannot be sent")
    size = sum(len(name) + len(text) for name, text in checked.items())
    if size > MAX_HEADERS_BYTES:
        raise UsageError(f"headers of {size} characters; MAX_HEADERS_BYTES is {MAX_HEADERS_BYTES}")
    return checked


def written_body(body: Any) -> tuple[bytes, bool]:
    """Return a body as bytes, and whether it had to be coded."""
    coded = not isinstance(body, bytes)
    try:
        written = encode_value(body) if coded else body
    except UnicodeEncodeError as error:
        raise UsageError(f"a body that cannot be sent: {error}") from None
    if len(written) > MAX_MESSAGE_BYTES:
        raise UsageError(f"a body of {len(written)} bytes; MAX_MESSAGE_BYTES is {MAX_MESSAGE_BYTES}")
    return written, coded
