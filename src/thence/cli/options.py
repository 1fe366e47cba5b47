"""Options that several commands share, and how their text becomes values.

Rule: every command that connects to servers takes ``Token`` and ``Authority`` from here, and ``Url`` where it asks one server. So
the environment stands for the same options everywhere; a test goes through all commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
import typer

from thence.core.ordering import ordering_named
from thence.errors import ConfigError

OrderingOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option of the ordering; a value is JSON, or text. May be repeated.",
    ),
]

Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="THENCE_TOKEN",
        help="Our token, for a server with an access file. Others can see what is on a command line: better in the environment.",
    ),
]

Authority = Annotated[
    Path | None,
    typer.Option("--tls-ca", metavar="FILE", envvar="THENCE_CA", help="Who signs the certificates of servers, for TLS."),
]

Url = Annotated[str, typer.Argument(metavar="URL", help="The server: thence://host:port, or thences:// with TLS.")]


MAILBOX_ADVICE: Final = "start the program of that client, or make room with: thence client purge URL NAME, or remove"
"""What to do about a server that a mailbox stalls."""


def lines_on_stall(begin: str, stalled: str) -> list[str]:
    """Return what to print of why a server is stalled, if it is, and what to do."""
    if not stalled:
        return []
    is_of_mailbox = "mailbox of " in stalled or "in all mailboxes" in stalled
    return [f"{begin}{stalled}", MAILBOX_ADVICE] if is_of_mailbox else [f"{begin}{stalled}"]


def ordering_options(words: Iterable[str] | None) -> dict[str, Any]:
    """Return the options of an ordering from NAME=VALUE words."""
    options: dict[str, Any] = {}
    for word in words or ():
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise ConfigError(f"--option {word}: expected NAME=VALUE")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def check_ordering_options(ordering: str, options: Mapping[str, Any]) -> None:
    """Refuse an option that the ordering does not have, or a value that it cannot have, and say which it can."""
    known = get_type_hints(ordering_named(ordering).traits.options)
    for name, value in options.items():
        if name not in known:
            has = f"its options: {', '.join(known)}" if known else "it has no options"
            raise ConfigError(f"--option {name}: {ordering} has no such option ({has})")
        try:
            msgspec.convert(value, known[name])
        except msgspec.ValidationError as error:
            choices = get_args(known[name]) if get_origin(known[name]) is Literal else ()
            why = f"must be one of {', '.join(map(str, choices))}" if choices else str(error)
            raise ConfigError(f"--option {name}={value}: {why}") from None
