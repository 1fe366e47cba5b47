"""``thence send``: send messages by way of a server.

Rules:

* None waits for the one before: as many are on their way as the client has room for (``MAX_UNACCEPTED``), and no more is read.
* The first that is refused ends it. What was on its way behind that one is accepted all the same, and counted.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Annotated, NamedTuple

import typer

from thence.cli import console
from thence.cli.messages.standard_input import pieces
from thence.cli.options import Authority, Token, Url
from thence.client.client import Client, connect
from thence.client.endpoint import Endpoint
from thence.client.message import EVERYONE, MAX_MESSAGE_BYTES
from thence.errors import UsageError
from thence.net.names import ALL, SEPARATOR, TOPIC_MARK, checked_name
from thence.runtime import event_loop


def command(
    url: Url,
    to: Annotated[str, typer.Argument(metavar="TO", help="A client, several with commas between, or everyone; or #TOPIC.")],
    body: Annotated[list[str] | None, typer.Argument(metavar="BODY", help="Messages; without any, lines are read.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the recipients are known at this server.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="Send as this client; otherwise as a temporary one.")] = None,
    token: Token = None,
    authority: Authority = None,
) -> None:
    """Send messages by way of a server, and wait until they are accepted.

    Without a body, each line of standard input is a message. TO is the name
    of a client, several names with commas between, the word "everyone", or
    a topic behind a #.

    Exits with 0 when all is accepted, with 2 if something never will be.

    Example: thence send thence://127.0.0.1:7401 bob "hello"
    """
    connected = partial(connect, url, name if name is None else checked_name(name), token=token, authority=authority)
    sent = event_loop.run(send_all(connected, to, bodies_of(body) if body else lines(), wait=wait))
    if sent.accepted or sent.error is None:
        console.err.print(f"{console.count(sent.accepted, 'message')} accepted")
    if sent.error is not None:
        raise sent.error


class SendResult(NamedTuple):
    """How many messages were accepted, and why not all were."""

    accepted: int
    error: UsageError | None


async def send_all(connected: Callable[[], Client], to: str, bodies: AsyncIterator[bytes], *, wait: bool) -> SendResult:
    if os.fsencode(to).decode(errors="replace") != to:
        raise UsageError(f"{to!r} is no text, so it names nobody")
    async with connected() as client:
        for recipient in names_in(to) if wait and to != ALL and not to.startswith(TOPIC_MARK) else ():
            await client.known(recipient)
        return await Sending(client, to).send(bodies)


class Sending:
    """Sends messages without waiting for each, as many at once as the client has room for, until one of them is refused."""

    def __init__(self, client: Endpoint, to: str) -> None:
        """``to`` is what a person wrote."""
        self._client = client
        self._post = poster(client, to)
        self._accepted = 0
        """How many were posted and have not been refused."""
        self._error: UsageError | None = None
        self._is_refused = asyncio.Event()
        client.refused = self._refused  # type: ignore[method-assign]

    async def send(self, bodies: AsyncIterator[bytes]) -> SendResult:
        """Send them all, or up to where one is refused, and wait until what was sent is accepted or not."""
        posting = asyncio.ensure_future(self._post_all(bodies))
        refusal = asyncio.ensure_future(self._is_refused.wait())
        try:
            # Whoever types is told at once: the next line may be long in coming.
            await asyncio.wait((posting, refusal), return_when=asyncio.FIRST_COMPLETED)
        finally:
            posting.cancel()
            refusal.cancel()
            await asyncio.gather(posting, refusal, return_exceptions=True)
        try:
            await self._client.flush()
        except UsageError as error:
            self._refused(str(error))  # The last one.
        if not posting.cancelled() and (failure := posting.exception()) is not None:
            if not isinstance(failure, UsageError):
                raise failure
            self._error = self._error or failure
        return SendResult(self._accepted, self._error)

    async def _post_all(self, bodies: AsyncIterator[bytes]) -> None:
        async for body in bodies:
            await self._client.room()
            self._post(body)
            self._accepted += 1

    def _refused(self, reason: str) -> None:
        self._accepted -= 1
        self._error = self._error or UsageError(reason)
        self._is_refused.set()


async def lines() -> AsyncIterator[bytes]:
    """Give the lines of standard input, which need not be text."""
    begun = bytearray()
    async for piece in pieces():
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield _ended(bytes(begun) + line)
            begun.clear()
        begun += rest
        if len(begun) > MAX_MESSAGE_BYTES + 1:  # What ends it may be among them.
            raise UsageError(f"a line of more than {MAX_MESSAGE_BYTES} bytes; MAX_MESSAGE_BYTES is {MAX_MESSAGE_BYTES}")
    if begun:
        yield _ended(bytes(begun))


def _ended(line: bytes) -> bytes:
    return line.removesuffix(b"\r")


async def bodies_of(words: Sequence[str]) -> AsyncIterator[bytes]:
    """Give what is on the command line."""
    for word in words:
        yield os.fsencode(word).rstrip(b"\n")


def poster(client: Endpoint, to: str) -> Callable[[bytes], None]:
    """Return what posts a message to what a person wrote."""
    if to.startswith(TOPIC_MARK):
        return partial(client.post_topic, to.removeprefix(TOPIC_MARK))
    if to == ALL:
        return partial(client.post, EVERYONE)
    names = names_in(to)
    return partial(client.post, names[0] if len(names) == 1 else names)


def names_in(to: str) -> list[str]:
    """Return the names in what a person wrote."""
    names = [name.strip() for name in to.split(SEPARATOR) if name.strip()]
    if not names:
        raise UsageError(f"{to!r} names nobody")
    return names
