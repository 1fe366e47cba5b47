"""A file opens with why it exists and can be read in one go, and so can a function. Each docstring is complete by itself.

Strings below names count as docstrings. ``help`` and the site show each without the one before, whose sentence it may not go on
with.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.tree import name_of, parse, python_files

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 80

NOT_YET = "src/thence/pipeline/"
"""The package whose docstrings are not held to this."""

GOES_ON = re.compile(r"[a-z]|(?:And|But|Or)\b")
"""How a docstring begins that goes on with another one."""
OPEN_END = re.compile(r"[,;:]$")
"""How one ends that another one goes on with."""


def functions_too_long(tree: ast.Module) -> list[str]:
    return [
        f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    ]


def unreadable(text: str) -> list[str]:
    """Return why a file cannot be read in one go."""
    tree = ast.parse(text)
    lines = len(text.splitlines())
    return [
        *(["has no module docstring"] if not ast.get_docstring(tree) else []),
        *([f"has {lines} lines"] if lines > MAX_FILE_LINES else []),
        *functions_too_long(tree),
    ]


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks"])
def test_a_file_opens_with_why_and_can_be_read_in_one_go(folder: str) -> None:
    files = python_files(folder)
    assert files
    assert {name_of(path): why for path in files if (why := unreadable(path.read_text(encoding="utf-8")))} == {}


def test_a_file_that_cannot_be_read_in_one_go_is_noticed() -> None:
    fine = '"""Why."""\n' + "x = 1\n" * (MAX_FILE_LINES - 1)
    assert unreadable(fine) == []
    assert unreadable(fine + "x = 1\n") == ["has 601 lines"]
    assert unreadable("x = 1\n") == ["has no module docstring"]


def test_a_long_function_is_noticed() -> None:
    body = "    pass\n"
    assert functions_too_long(ast.parse("def f():\n" + body * (MAX_FUNCTION_LINES - 1))) == []
    assert functions_too_long(ast.parse("def f():\n" + body * MAX_FUNCTION_LINES)) == ["f has 81 lines"]


# --- docstrings --------------------------------------------------------------------------------------------------------


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
