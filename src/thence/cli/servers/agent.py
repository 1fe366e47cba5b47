"""``thence agent``: make, list, show and remove agents of a server, and look through the messages they could not react to.

Rules: a server answers for its own agents; where another one lives is in its error. Names and errors come from elsewhere: what
cannot be printed is shown escaped.
"""

from __future__ import annotations

import json as json_
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from thence.cli import answers, console
from thence.cli.manual import Command, Group
from thence.cli.options import Authority, Token, Url
from thence.client.admin import Agents
from thence.client.client import Client
from thence.errors import ConfigError
from thence.runtime import event_loop

command = typer.Typer(
    cls=Group,
    add_completion=False,
    no_args_is_help=True,
    help="Make, list, show and remove agents of a server, and look through the messages that they could not react to.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The agent.")]
Number = Annotated[int, typer.Argument(metavar="NUMBER", help="The message, as 'thence agent dead' numbers it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

T = TypeVar("T")


class _Server(NamedTuple):
    """Where to ask, and how to get in."""

    url: str
    token: str | None
    authority: Path | None


def _ask(server: _Server, question: Callable[[Agents], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with Client(server.url, "", temporary=False, token=server.token, authority=server.authority) as client:
            return await question(client.agents)

    return event_loop.run(ask())


@command.command("create", cls=Command)
def create(
    url: Url,
    name: Name,
    kind: Annotated[str, typer.Argument(metavar="CLASS", help="Its class; the server was started with --agents.")],
    state: Annotated[str | None, typer.Option("--state", metavar="JSON", help="What it begins with.")] = None,
    token: Token = None,
    authority: Authority = None,
) -> None:
    """Make an agent, which lives at this server until it is removed.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence agent create thence://127.0.0.1:7401 ann Account --state '{"balance": 100}'
    """
    try:
        value = None if state is None else json_.loads(state)
    except ValueError as error:
        raise ConfigError(f"--state {state!r}: {error}") from None
    _ask(_Server(url, token, authority), lambda agents: agents.create(name, kind, value))
    console.err.print(f"{console.plain(name)} is there")


@command.command("list", cls=Command)
def list_(url: Url, json: Json = False, token: Token = None, authority: Authority = None) -> None:
    """List the agents of a server.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence agent list thence://127.0.0.1:7401
    """
    found = answers.checked(_ask(_Server(url, token, authority), lambda agents: agents.list()), list[answers.ListedAgent], url)
    if json:
        console.say_json(json_.dumps(found))
        return
    rows = [
        (
            console.plain(agent["name"]),
            console.plain(agent["kind"]),
            agent["reacted"],
            agent["waiting_letters"],
            agent["state_bytes"],
            console.plain(agent["trouble"]),
        )
        for agent in found
    ]
    console.out.print(console.table(("agent", "class", "reacted to", "waiting", "state bytes", "trouble"), rows))


@command.command("show", cls=Command)
def show(url: Url, name: Name, token: Token = None, authority: Authority = None) -> None:
    """Print what there is to say of an agent, and its state, as JSON.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence agent show thence://127.0.0.1:7401 ann
    """
    console.say_json(json_.dumps(_ask(_Server(url, token, authority), lambda agents: agents.show(name)), ensure_ascii=False))


@command.command("remove", cls=Command)
def remove(url: Url, name: Name, token: Token = None, authority: Authority = None) -> None:
    """Remove an agent, with its state and all messages for it.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence agent remove thence://127.0.0.1:7401 ann
    """
    _ask(_Server(url, token, authority), lambda agents: agents.remove(name))
    console.err.print(f"{console.plain(name)} is gone")


@command.command("dead", cls=Command)
def dead(
    url: Url,
    number: Annotated[int | None, typer.Argument(metavar="NUMBER", help="Show this one, with what is in it.")] = None,
    json: Json = False,
    token: Token = None,
    authority: Authority = None,
) -> None:
    """List the messages that agents could not react to, the oldest first.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence agent dead thence://127.0.0.1:7401
    """
    server = _Server(url, token, authority)
    if number is not None:
        console.say_json(json_.dumps(_ask(server, lambda agents: agents.dead_letter(number)), ensure_ascii=False))
        return
    messages = answers.checked(_ask(server, lambda agents: agents.dead()), list[answers.DeadLetter], url)
    if json:
        console.say_json(json_.dumps(messages))
        return
    console.out.print(console.table(("message", "agent", "from", "since", "attempts", "error"), map(_row, messages)))


def _row(item: dict[str, Any]) -> tuple[object, ...]:
    since = datetime.fromtimestamp(item["at"] / 1e9, UTC).isoformat(timespec="seconds")
    names = (console.plain(item["agent"]), console.plain(item["sender"]))
    return item["number"], *names, since, item["attempts"], console.plain(item["error"])


@command.command("retry", cls=Command)
def retry(url: Url, number: Number, token: Token = None, authority: Authority = None) -> None:
    """Send such a message to its agent once more, behind all that waits there.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence agent retry thence://127.0.0.1:7401 3
    """
    _ask(_Server(url, token, authority), lambda agents: agents.retry(number))
    console.err.print(f"message {number} is on its way again")


@command.command("drop", cls=Command)
def drop(url: Url, number: Number, token: Token = None, authority: Authority = None) -> None:
    """Drop such a message.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence agent drop thence://127.0.0.1:7401 3
    """
    _ask(_Server(url, token, authority), lambda agents: agents.drop(number))
    console.err.print(f"message {number} is dropped")
