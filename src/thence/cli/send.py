"""``thence send``: send a message by way of a server."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import typer

from thence.cli import console
from thence.cli.options import Authority, Token
from thence.errors import UsageError
from thence.runtime import loops
from thence.runtime.client import Client, connect
from thence.runtime.endpoint import Endpoint
from thence.runtime.letters import EVERYONE


def command(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server: thence://host:port, or thences:// with TLS.")],
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
    sent = loops.run(_send(partial(connect, url, name, token=token, authority=authority), to, body, wait=wait))
    console.err.print(f"{console.count(sent, 'message')} accepted")


async def _send(connected: Callable[[], Client], to: str, bodies: list[str] | None, *, wait: bool) -> int:
    sent = 0
    async with connected() as client:
        for recipient in names_in(to) if wait and to != "everyone" and not to.startswith("#") else ():
            await client.known(recipient)
        for body in map(os.fsencode, bodies) if bodies else _lines():
            await send_to(client, to, body.rstrip(b"\n"))
            sent += 1
    return sent


def _lines() -> Iterator[bytes]:
    """Give the lines of standard input, which need not be text."""
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


async def send_to(client: Endpoint, to: str, body: bytes) -> None:
    """Send to what a person wrote."""
    if to.startswith("#"):
        await client.publish(to[1:], body)
    elif to == "everyone":
        await client.send(EVERYONE, body)
    else:
        await client.send(names_in(to), body)


def names_in(to: str) -> list[str]:
    """Return the names in what a person wrote."""
    names = [name.strip() for name in to.split(",") if name.strip()]
    if not names:
        raise UsageError(f"{to!r} names nobody")
    return names
