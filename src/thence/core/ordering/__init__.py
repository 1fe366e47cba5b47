"""The orderings, by name.

One file per ordering: a module in this folder that defines a subclass of ``Ordering`` is an ordering, and nothing
else needs to be told. The codec learns its stamps, the conformance suite, the property tests, the explorer and the
benchmarks pick it up by its name.

May import ``core.wire``. Exports the names below, ``base``, ``grouped``, ``matrix_clock``, ``pending``, ``relayed`` and
``vector``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from thence.core.ordering.base import (
    ArrivalOrder,
    Ordering,
    Output,
    Predecessor,
    Timed,
    Traits,
    Wait,
    is_suspected,
    survival_of,
    unsecured_in,
)
from thence.core.ordering.pending import MAX_HELD, Gate
from thence.errors import ConfigError

__all__ = [
    "MAX_HELD",
    "ORDERINGS",
    "ArrivalOrder",
    "Gate",
    "Ordering",
    "Output",
    "Predecessor",
    "Timed",
    "Traits",
    "Wait",
    "is_suspected",
    "make_ordering",
    "ordering_named",
    "survival_of",
    "unsecured_in",
]


def _discover() -> Mapping[str, type[Ordering]]:
    found: dict[str, type[Ordering]] = {}
    for module_info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for value in vars(module).values():
            is_ordering = isinstance(value, type) and issubclass(value, Ordering) and value is not Ordering
            if is_ordering and value.__module__ == module.__name__:
                found[value.traits.name] = value
    return MappingProxyType(found)


ORDERINGS = _discover()


def ordering_named(name: str | type[Ordering]) -> type[Ordering]:
    """Return the ordering called ``name``, or say which ones there are. One that is at hand as a class is itself."""
    if isinstance(name, type):
        return name
    if name not in ORDERINGS:
        near = get_close_matches(name, ORDERINGS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"there is no ordering {name!r}{hint} (there are: {', '.join(ORDERINGS)})")
    return ORDERINGS[name]


def make_ordering(
    name: str | type[Ordering],
    me: str,
    members: Sequence[str],
    options: Mapping[str, Any] | None = None,
    *,
    max_held: int = MAX_HELD,
) -> Ordering:
    """Make the ordering called ``name`` for ``me``."""
    return ordering_named(name)(me, members, options, max_held=max_held)
