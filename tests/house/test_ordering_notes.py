"""Each ordering has a design note, and the code links to it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.house.tree import ROOT, SOURCE, parse

ORDERINGS = SOURCE / "core" / "ordering"


def ordering_names(tree: ast.Module) -> list[str]:
    """Return the names of the orderings that a module defines: ``traits = Traits("…", …)`` in a class."""
    return [
        statement.value.args[0].value
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.Assign)
        and ast.unparse(statement.targets[0]) == "traits"
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.args[0], ast.Constant)
        and isinstance(statement.value.args[0].value, str)
    ]


def defined_orderings() -> list[tuple[str, Path]]:
    return [(name, path) for path in sorted(ORDERINGS.glob("*.py")) for name in ordering_names(parse(path))]


def test_orderings_are_found() -> None:
    assert "fifo" in [name for name, _ in defined_orderings()]


@pytest.mark.parametrize(("name", "path"), defined_orderings(), ids=[name for name, _ in defined_orderings()])
def test_an_ordering_has_a_design_note_and_links_to_it(name: str, path: Path) -> None:
    note = f"docs/concepts/orderings/{name}.md"
    assert path.stem == name, "an ordering lives in the file of its name"
    assert (ROOT / note).is_file(), f"{note} is missing"
    assert note in (ast.get_docstring(parse(path)) or ""), f"the docstring does not link to {note}"
