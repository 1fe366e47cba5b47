"""``thence token``: make tokens, by which clients prove to servers who they are."""

from __future__ import annotations

import json as json_
import re
from typing import Annotated

import typer

from thence.cli import console
from thence.cli.manual import Subcommands
from thence.net.security.tokens import new_token

command = Subcommands("Make tokens, by which clients prove to servers who they are.")


@command.callback()
def _group() -> None:
    """Keep ``new`` a command of its own, though it is the only one so far."""


@command.add("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The entry of the access file that it is for.")],
    signed: Annotated[
        bool, typer.Option("--signed", help="Logins are signed: no server can use them elsewhere. For operators.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make a token, and print it with what to write into the access file.

    The client keeps the token. The server keeps only the lines for the file:
    nobody can connect with these, and the token is shown this once.

    With --signed a server that was taken over learns nothing from a login
    that it could use at another one. A login then takes some milliseconds.

    Exits with 0.

    Example: thence token new ann
    """
    token = new_token(name)
    verifier = str(token.signed_verifier() if signed else token.verifier())
    if json:
        console.say_object({"name": name, "token": str(token), "verifier": verifier})
        return
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json_.dumps(name)
    console.err.print("for the client, shown this once: THENCE_TOKEN, --token, or connect(…, token=…)")
    console.say_plainly(str(token))
    console.err.print("for the access file of the server:")
    console.say_plainly(f"[clients.{key}]")
    console.say_plainly(f"tokens = [{json_.dumps(verifier)}]")
