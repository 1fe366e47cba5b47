"""The tree of errors is drawn as it is, and each says whose fault it is and whether the operation may have happened."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from thence import errors


def drawn_parents(drawing: str) -> dict[str, str | None]:
    """Read the tree that a docstring draws: each class with its parent."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in drawing.splitlines():
        drawn = re.match(r"^( {4}[│ ]*(?:[├└]── )?)([A-Z]\w+)(?:  |$)", line)
        if drawn:
            depth = (len(drawn[1]) - 4) // 4
            path = [*path[:depth], drawn[2]]
            parents[drawn[2]] = path[depth - 1] if depth else None
    return parents


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    classes = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)}
    actual = {kind.__name__: kind.__base__.__name__ for kind in classes if kind.__base__ not in {None, Exception}}
    assert drawn_parents(errors.__doc__ or "") == {"ThenceError": None, **actual}


@pytest.mark.parametrize(
    "kind", [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
)
def test_an_error_says_whose_fault_it_is_and_whether_it_happened(kind: type[errors.ThenceError]) -> None:
    assert kind.__doc__
    assert kind.fault in get_args(errors.Fault)
    assert kind.happened in get_args(errors.Happened)
    parent = kind.__base__
    if parent is not None and issubclass(parent, errors.ThenceError) and parent.happened == "no":
        assert kind.happened == "no", f"whoever catches {parent.__name__} relies on it"
