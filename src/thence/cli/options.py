"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from thence.errors import ConfigError

OrderingOptions = Annotated[
    list[str] | None,
    typer.Option("--option", help="An option of the ordering, as NAME=VALUE; a value is JSON, or text. May be repeated."),
]


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
