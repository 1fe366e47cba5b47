"""``thence listen``: print what comes for a client."""

from __future__ import annotations

import asyncio
import json as json_
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final

import typer
from msgspec import to_builtins

from thence.cli import console
from thence.cli.options import Authority, Token, Url
from thence.client.client import Client, connect
from thence.client.message import Message
from thence.errors import MalformedFrame, UsageError
from thence.net.names import checked_name
from thence.runtime import event_loop

LOOK_EVERY_S: Final = 0.5
"""How often ``listen`` looks whether it is still connected."""


def command(
    url: Url,
    name: Annotated[
        str | None, typer.Option("--name", help="Listen as this client; what came while it was away comes first.")
    ] = None,
    topic: Annotated[list[str] | None, typer.Option("--topic", help="Follow a topic; may be given several times.")] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="Stop after so many messages.")] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop when nothing came for so long.")
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Give up the name, with all that waits for it, and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print each message as a line of JSON.")] = False,
    token: Token = None,
    authority: Authority = None,
) -> None:
    """Print the messages that come for a client, in order.

    A message counts as received when it has been printed. A body that is no
    text is printed as JSON. Without a name the client is temporary: it gets
    what is sent to everyone, and topics.

    Exits with 1 if --timeout ran out before --count messages came.

    Example: thence listen thence://127.0.0.1:7401 --name bob
    """
    if forget:
        if not name:
            raise UsageError("--forget needs --name")
        # Not by ``connect``: it may be one that could not be chosen today.
        event_loop.run(give_up_name(partial(Client, url, name, token=token, authority=authority)))
        return
    connected = partial(connect, url, name if name is None else checked_name(name), token=token, authority=authority)
    complete = event_loop.run(_listen(connected, topic or [], count, timeout, json))
    if not complete:
        raise typer.Exit(1)


async def give_up_name(connected: Callable[[], Client]) -> None:
    async with connected() as client:
        await client.leave()
    console.err.print(console.plain(f"{client.name} is forgotten"))


async def _listen(
    connected: Callable[[], Client], topics: list[str], count: int | None, within: float | None, json: bool
) -> bool:
    async with connected() as client:
        for topic in topics:
            await client.subscribe(topic)
        console.err.print(console.plain(f"listening as {client.name} at {client.server}"))
        watch = asyncio.create_task(tell_of_trouble(client))
        try:
            return await _print_all(client, count, within, json)
        finally:
            watch.cancel()


async def _print_all(client: Client, count: int | None, within: float | None, json: bool) -> bool:
    printed = 0
    while count is None or printed < count:
        try:
            message = await client.receive(within)
        except TimeoutError:
            return count is None
        print_message(message, json)
        printed += 1
    return True


async def tell_of_trouble(client: Client) -> None:
    """Say when the connection is lost, and when it is there again."""
    lost = False
    while True:
        trouble = client.trouble
        if bool(trouble) != lost:
            again = f"connected again, to {client.server}"
            console.err.print(console.plain(f"the connection is lost ({trouble}); trying again" if trouble else again))
        lost = bool(trouble)
        await asyncio.sleep(LOOK_EVERY_S)


def print_message(message: Message, json: bool) -> None:
    try:
        line = _line(message, _readable(message), json)
    except (RecursionError, ValueError):  # JSON has limits of its own: nesting, and numbers that are none.
        line = _line(message, message.body.decode("utf-8", "replace"), json)
    if json:
        console.say_json(line)
    else:
        console.say_plainly(line)


def _line(message: Message, body: Any, json: bool) -> str:
    if json:
        line = {"sender": message.sender, "topic": message.topic, "headers": dict(message.headers), "body": body}
        return json_.dumps(line, ensure_ascii=False, allow_nan=False)
    where = f" #{message.topic}" if message.topic is not None else ""
    text = body if isinstance(body, str) else json_.dumps(body, ensure_ascii=False)
    return f"{message.sender}{where}: {text}"


def _readable(message: Message) -> Any:
    """Return the body as a program sent it, as far as JSON can say that; bytes are taken for text."""
    try:
        value = message.value()
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else to_builtins(value, str_keys=True)
    except (MalformedFrame, TypeError, RecursionError):
        return message.body.decode("utf-8", "replace")
