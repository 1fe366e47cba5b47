"""The option that names what to check, the same in every command that checks."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from thence.cli import console
from thence.trace.verdict import DEFAULT_REQUIRED, OPTIONAL, PROPERTIES

EXIT_BAD_OPTION: Final = 2

Require = Annotated[
    str | None,
    typer.Option(
        help=f"What to check, with commas between. Known: {', '.join(PROPERTIES)}. Default: all but {' and '.join(OPTIONAL)}."
    ),
]


def required_properties(require: str | None) -> tuple[str, ...]:
    """Return the properties that an option names."""
    if require is None:
        return DEFAULT_REQUIRED
    names = tuple(name.strip() for name in require.split(",") if name.strip())
    unknown = [name for name in names if name not in PROPERTIES]
    if unknown or not names:
        what = f"unknown property {', '.join(map(repr, unknown))}" if unknown else "no property is named"
        console.error(f"--require: {what}; the properties are {', '.join(PROPERTIES)}")
        raise typer.Exit(EXIT_BAD_OPTION)
    return names
