"""``thence agent``: make, list, show and remove agents of a server, and look through the messages they could not react to.

Rules: a server answers for its own agents; where another one lives is in its error. Names and errors come from elsewhere: what
cannot be printed is shown escaped.
"""

from __future__ import annotations

import json as json_
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from thence.cli import answers, console
from thence.cli.manual import Subcommands
from thence.cli.options import Authority, Token, Url
from thence.errors import ConfigError

command = Subcommands(
    "Make, list, show and remove agents of a server, and look through the messages that they could not react to."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The agent.")]
Number = Annotated[int, typer.Argument(metavar="NUMBER", help="The message, as 'thence agent dead' numbers it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@command.add("create")
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
    answers.ask(url, token, authority, Any, lambda client: client.agents.create(name, kind, value))
    console.err.print(f"{console.plain(name)} is there")


@command.add("list")
def list_(url: Url, json: Json = False, token: Token = None, authority: Authority = None) -> None:
    """List the agents of a server.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence agent list thence://127.0.0.1:7401
    """
    found = answers.ask(url, token, authority, list[answers.ListedAgent], lambda client: client.agents.list())
    if json:
        console.say_object(found)
        return
    keys = ("name", "kind", "reacted", "waiting_letters", "state_bytes", "trouble")
    rows = [[agent[key] for key in keys] for agent in found]
    console.out.print(console.table(("agent", "class", "reacted to", "waiting", "state bytes", "trouble"), rows))


@command.add("show")
def show(url: Url, name: Name, token: Token = None, authority: Authority = None) -> None:
    """Print what there is to say of an agent, and its state, as JSON.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence agent show thence://127.0.0.1:7401 ann
    """
    console.say_object(answers.ask(url, token, authority, Any, lambda client: client.agents.show(name)), ensure_ascii=False)


@command.add("remove")
def remove(url: Url, name: Name, token: Token = None, authority: Authority = None) -> None:
    """Remove an agent, with its state and all messages for it.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence agent remove thence://127.0.0.1:7401 ann
    """
    answers.ask(url, token, authority, Any, lambda client: client.agents.remove(name))
    console.err.print(f"{console.plain(name)} is gone")


@command.add("dead")
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
    if number is not None:
        shown = answers.ask(url, token, authority, Any, lambda client: client.agents.dead_letter(number))
        console.say_object(shown, ensure_ascii=False)
        return
    messages = answers.ask(url, token, authority, list[answers.DeadLetter], lambda client: client.agents.dead())
    if json:
        console.say_object(messages)
        return
    console.out.print(console.table(("message", "agent", "from", "since", "attempts", "error"), map(_row, messages)))


def _row(item: dict[str, Any]) -> tuple[object, ...]:
    since = datetime.fromtimestamp(item["at"] / 1e9, UTC).isoformat(timespec="seconds")
    return item["number"], item["agent"], item["sender"], since, item["attempts"], item["error"]


@command.add("retry")
def retry(url: Url, number: Number, token: Token = None, authority: Authority = None) -> None:
    """Send such a message to its agent once more, behind all that waits there.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence agent retry thence://127.0.0.1:7401 3
    """
    answers.ask(url, token, authority, Any, lambda client: client.agents.retry(number))
    console.err.print(f"message {number} is on its way again")


@command.add("drop")
def drop(url: Url, number: Number, token: Token = None, authority: Authority = None) -> None:
    """Drop such a message.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence agent drop thence://127.0.0.1:7401 3
    """
    answers.ask(url, token, authority, Any, lambda client: client.agents.drop(number))
    console.err.print(f"message {number} is dropped")
