"""A file opens with why it exists and can be read in one go, and so can a function."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.house.tree import name_of, python_files

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 80


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


@pytest.mark.parametrize("path", python_files("src", "tests", "benchmarks"), ids=name_of)
def test_a_file_opens_with_why_and_can_be_read_in_one_go(path: Path) -> None:
    assert unreadable(path.read_text(encoding="utf-8")) == []


def test_a_file_that_cannot_be_read_in_one_go_is_noticed() -> None:
    fine = '"""Why."""\n' + "x = 1\n" * (MAX_FILE_LINES - 1)
    assert unreadable(fine) == []
    assert unreadable(fine + "x = 1\n") == ["has 601 lines"]
    assert unreadable("x = 1\n") == ["has no module docstring"]


def test_a_long_function_is_noticed() -> None:
    body = "    pass\n"
    assert functions_too_long(ast.parse("def f():\n" + body * (MAX_FUNCTION_LINES - 1))) == []
    assert functions_too_long(ast.parse("def f():\n" + body * MAX_FUNCTION_LINES)) == ["f has 81 lines"]
