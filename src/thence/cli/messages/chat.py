"""``thence chat``: a small room that shows order kept across domains while links are slow, and what it looks like without."""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from thence.cli import console, live
from thence.cli.options import Authority, Token
from thence.client.client import connect
from thence.errors import InternalError, UsageError
from thence.net.names import checked_name
from thence.runtime import event_loop

if TYPE_CHECKING:
    from thence.cli.messages.chat_demo import Conversation

LOOK_EVERY_S: Final = 0.1
SLOW_S: Final = 0.8


def command(
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="The server of a room: thence://host:port, or thences:// with TLS.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Who you are in the room.")] = None,
    room: Annotated[str, typer.Option("--room", help="Which room: any topic.")] = "lobby",
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the name when you leave: what is said meanwhile comes when you are back.")
    ] = False,
    slow_s: Annotated[
        float, typer.Option("--slow", min=0.05, max=5, metavar="SECONDS", help="How slow the slow links are, without URL.")
    ] = SLOW_S,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="DIR", help="Keep the traces of both fabrics here, without URL.")
    ] = None,
    token: Token = None,
    authority: Authority = None,
) -> None:
    """Show order kept over slow links, and what it looks like without; or talk in a room.

    Without URL it plays a conversation. Two fabrics of six real servers in
    three domains run on this machine, alike but for their ordering, and two
    links of each are slow. Four people talk in each. Side by side stands
    what one of them reads, with causal order and without; lines that came
    before what led to them are marked. With --trace, what all servers did
    is kept in DIR/with and DIR/without, for thence judge.

    With URL you are in a room, with everybody who is in it at any server of
    the fabric. Each line that you type is said to all. Lines have numbers:
    "/re 3 yes" answers line 3. /who lists who is there, /waiting what waits
    at the server and for what, /help the rest. /quit, Ctrl-D and Ctrl-C
    leave. In a pipe, lines are read to their end, and come out plainly.
    A lost connection is made again; what you say meanwhile waits.

    Exits with 0 if order was kept and broke without, or when you have left;
    with 1 if nothing was out of order without it; with 2 if the server
    refuses you, or is away when you leave.

    Example: thence chat thence://127.0.0.1:7401 --name ada --room lobby
    """
    if url is None:
        if name is not None:
            raise UsageError("--name needs URL: a room is at a server")
        _demonstrate(slow_s, trace)
        return
    if name is None:
        raise UsageError("a room needs --name: who are you?")
    # Imported here: the demonstration has no use for a terminal's keys.
    from thence.cli.messages.chat_talk import talk

    event_loop.run(talk(partial(connect, url, checked_name(name), token=token, authority=authority), room, keep=keep))


def _demonstrate(slow_s: float, trace: Path | None) -> None:
    # Imported here: a person in a room has no use for servers.
    from thence.cli.messages.chat_demo import Conversation, frame, play

    ordered, unordered = Conversation("vector"), Conversation("fifo")
    folders = {"with": (ordered, "causal"), "without": (unordered, "fifo")}

    async def look() -> live.Shown:
        return frame(ordered, unordered)

    async def both(folder: Path) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for name, (conversation, promise) in folders.items():
                    (folder / name).mkdir()
                    kept = None if trace is None else trace / name
                    group.create_task(play(folder / name, conversation, promise, slow_s, kept))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    console.err.print("12 servers of two fabrics start; this takes a few seconds", style="dim")
    with tempfile.TemporaryDirectory(prefix="thence-chat-") as folder:
        event_loop.run(live.beside(both(Path(folder)), look, LOOK_EVERY_S))
    for part in frame(ordered, unordered):
        console.out.print(part)
    console.say(
        f"Out of order, before something that led to them: with causal order {_counts(ordered)}; "
        f"without {_counts(unordered)}, {unordered.early_answers} of them answers before their question."
    )
    if ordered.out_of_order:
        raise InternalError("causal order was not kept; please report this")
    if not unordered.out_of_order:
        console.say("Nothing came out of order without it: this machine was slower than its slow links. Try a larger --slow.")
        raise typer.Exit(1)


def _counts(conversation: Conversation) -> str:
    return f"{conversation.out_of_order} of {console.count(conversation.deliveries, 'line')}"
