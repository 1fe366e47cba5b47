"""A domain: some processes, and the ordering that they keep among themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from thence.core.ordering import Ordering


class Domain(NamedTuple):
    """A domain as each of its members is told of it."""

    name: str
    members: tuple[str, ...]
    ordering: str | type[Ordering]
    """A name from the registry, or a class, for whoever tries out one of their own."""
    options: Mapping[str, Any] = {}
