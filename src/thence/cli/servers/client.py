"""``thence client``: list, show and remove clients of a server, and drop what waits for them.

Rules: this is for operators; nobody has to be one of the clients for it, and it works while a full mailbox stops the server. A
server answers for its own clients; where another one is, is in its error. Names come from elsewhere: what cannot be printed is
shown escaped.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from thence.cli import answers, console
from thence.cli.manual import Subcommands
from thence.cli.options import Authority, Token, Url, lines_on_stall

SHOWN_CLIENTS: Final = 50
"""How many clients are listed for people; 'list --json' has 1,000."""
SHOWN_TOPICS: Final = 20

command = Subcommands(
    "List, show and remove clients of a server; drop what waits for one of them. For operators: "
    "where there is an access file, an entry with clients = true, or topology = true."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The client.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with everything.")]


@command.add("list")
def list_(url: Url, json: Json = False, token: Token = None, authority: Authority = None) -> None:
    """List the clients of a server, those first for whom most waits.

    The 50 first are shown; --json has 1,000 and says how many there are.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence client list thence://127.0.0.1:7401
    """
    found = answers.ask(url, token, authority, answers.Clients, lambda client: client.operator.clients(1_000))
    if json:
        console.say_object(found)
        return
    rows = [
        (
            client["name"],
            client["from"] if client["connected"] else "away",
            "temporary" if client["temporary"] else "",
            f"{client['waiting_messages']:,}",
            f"{client['waiting_bytes']:,}",
            "full" if client["full"] else "",
        )
        for client in found["clients"][:SHOWN_CLIENTS]
    ]
    console.out.print(console.table(("client", "connected from", "", "waiting messages", "counted bytes", "mailbox"), rows))
    if found["count"] > len(rows):
        console.out.print(f"and {found['count'] - len(rows):,} more, for whom less waits")
    _say_stalled(found)


@command.add("show")
def show(url: Url, name: Name, json: Json = False, token: Token = None, authority: Authority = None) -> None:
    """Show one client of a server: whether it is connected, what waits for it, and which topics it follows.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence client show thence://127.0.0.1:7401 bob
    """
    client = answers.ask(url, token, authority, answers.ShownClient, lambda client: client.operator.show(name))
    if json:
        console.say_object(client)
        return
    where = f"connected from {client['from']}" if client["connected"] else "not connected"
    temporary = ", temporary" if client["temporary"] else ""
    full = "; its mailbox is full" if client["full"] else ""
    console.say_plainly(f"{client['name']}, a client of {client['server']}{temporary}: {where}")
    console.say_plainly(
        f"waiting: {console.count(client['waiting_messages'], 'message')}, "
        f"counted as {console.count(client['waiting_bytes'], 'byte')}; in files: {client['in_files']:,}{full}"
    )
    console.say_plainly(
        f"so far: {console.count(client['sent'], 'message')} sent, {client['received']:,} came for it, "
        f"{client['done']:,} of them done"
    )
    more = len(client["topics"]) + client["topics_left_out"] - SHOWN_TOPICS
    topics = ", ".join(client["topics"][:SHOWN_TOPICS]) + (f" and {more:,} more" if more > 0 else "")
    console.say_plainly(f"follows: {topics or 'no topic'}")
    _say_stalled(client)


@command.add("remove")
def remove(url: Url, name: Name, json: Json = False, token: Token = None, authority: Authority = None) -> None:
    """Remove a client: its name, its mailbox with all that waits in it, and what it follows.

    It works at once, also while the server takes nothing because this very
    mailbox is full. A program that is connected under the name is told, and
    ends. What was dropped is counted, and nobody gets it back.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence client remove thence://127.0.0.1:7401 bob
    """
    done = answers.ask(url, token, authority, answers.DroppedOf, lambda client: client.operator.remove(name))
    _say_dropped(done, "is removed from", json)


@command.add("purge")
def purge(url: Url, name: Name, json: Json = False, token: Token = None, authority: Authority = None) -> None:
    """Drop the messages that wait for a client, and keep its name and what it follows.

    It works at once, also while the server takes nothing because this very
    mailbox is full. What waited for room in it comes into it now. A program
    that is connected under the name is told, and ends.

    Exits with 0, or with 2 if the server refuses or cannot be reached.

    Example: thence client purge thence://127.0.0.1:7401 bob
    """
    done = answers.ask(url, token, authority, answers.DroppedOf, lambda client: client.operator.purge(name))
    _say_dropped(done, "has an empty mailbox at", json)


def _say_dropped(done: dict[str, Any], what: str, json: bool) -> None:
    if json:
        console.say_object(done)
        return
    told = "; the program that was connected is told" if done["was_connected"] else ""
    dropped = (
        f"{console.count(done['dropped_messages'], 'message')} dropped, counted as {console.count(done['dropped_bytes'], 'byte')}"
    )
    console.say_plainly(f"{done['name']} {what} {done['server']}: {dropped}{told}")
    _say_stalled(done)


def _say_stalled(answer: dict[str, Any]) -> None:
    for line in lines_on_stall(f"{answer['server']} is stalled: ", answer["stalled"]):
        console.say_plainly(line)
