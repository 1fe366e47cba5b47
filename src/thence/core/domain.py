"""A domain: some processes, the ordering that they keep among themselves, and how they confirm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from thence.core.confirmation import AT_ONCE, ConfirmationOptions
from thence.core.ordering import Ordering

Delivering = Literal["at once", "safe", "notify"]


class Domain(NamedTuple):
    """A domain as each of its members is told of it."""

    name: str
    members: tuple[str, ...]
    ordering: str | type[Ordering]
    """A name from the registry, or a class, for whoever tries out one of their own."""
    options: Mapping[str, Any] = {}
    confirmation: ConfirmationOptions = AT_ONCE
    """Who confirms to whom that a frame has come, and who repeats one that was lost."""
    forward_early: int | None = None
    """Of messages that wait at a relay, bodies of at least so many bytes go ahead to where it will forward them; None: none."""
    delivery: Delivering = "at once"
    """When a message is handed up, to the application and onward: as soon as its order allows, when also all have it, or as soon
    as its order allows and the application is told later that all have it."""
