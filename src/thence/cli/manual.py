"""How the help of a command reads: like a manual page, without the notes of a type checker.

typer prints a type beside every option, also beside a flag, which takes no value. Commands and groups made of these classes
leave it out there.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command whose flags are shown without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, the help option included."""
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    """The same for a command that has commands of its own."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, the help option included."""
        return _without_types(super().get_params(ctx))


def _without_types(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params
