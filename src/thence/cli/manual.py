"""How the help of a command reads: like a manual page, without the notes of a type checker.

typer prints a type beside every option, also beside a flag, which takes no value. Commands and groups made of these classes
leave it out there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class ManualCommand(TyperCommand):
    """A command whose flags are shown without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, the help option included."""
        return _without_types(super().get_params(ctx))


class ManualGroup(TyperGroup):
    """A group of commands whose flags are shown without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, the help option included."""
        return _without_types(super().get_params(ctx))


class Subcommands(typer.Typer):
    """A command that has commands of its own."""

    def __init__(self, about: str) -> None:
        """``about`` is what its help says."""
        super().__init__(cls=ManualGroup, add_completion=False, no_args_is_help=True, help=about)

    def add(self, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Return what makes a function one of the commands."""
        return self.command(name, cls=ManualCommand)


def _without_types(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params
