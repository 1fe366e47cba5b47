"""Each docstring is complete by itself: it begins a sentence of its own and ends one.

Strings below names count too. One that went on with the sentence of the one before was read alone by ``help`` and by the site.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.tree import name_of, parse, python_files

NOT_YET = "src/thence/pipeline/"
"""The package whose docstrings are not held to this."""

GOES_ON = re.compile(r"[a-z]|(?:And|But|Or)\b")
"""How a docstring begins that goes on with another one."""
OPEN_END = re.compile(r"[,;:]$")
"""How one ends that another one goes on with."""


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Give the docstrings of modules, classes, functions and names."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else []:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield one.value


def incomplete(tree: ast.AST) -> list[str]:
    """Return the docstrings that are not complete by themselves, behind their lines."""
    found = []
    for one in docstrings(tree):
        text = str(one.value).strip()
        if GOES_ON.match(text) or OPEN_END.search(text):
            found.append(f"{one.lineno}: {text.splitlines()[0]}")
    return found


def test_each_docstring_is_complete_by_itself() -> None:
    files = [path for path in python_files("src") if not name_of(path).startswith(NOT_YET)]
    assert {name_of(path): found for path in files if (found := incomplete(parse(path)))} == {}


def test_a_docstring_that_goes_on_is_noticed() -> None:
    planted = 'MOST = 1\n"""How many may wait,"""\nEACH = 2\n"""and how many of each."""\ndef f():\n    """But not here."""'
    assert incomplete(ast.parse(planted)) == ["2: How many may wait,", "4: and how many of each.", "6: But not here."]


def test_one_that_is_complete_is_not() -> None:
    planted = '"""What waits: two lists.\n\nOf names:\n\n    a, b\n"""\nMOST = 1\n"""``a`` and ``b`` wait."""'
    assert incomplete(ast.parse(planted)) == []
