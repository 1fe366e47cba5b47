"""The two pages that walk through the code, followed: each function that they name exists and calls the next.

A table of such a page is a chain of calls: the body of each function calls the one in the next row, or takes it as a value to
call. What the text calls ``Class.name`` is there too. Between two tables
nobody calls; the text between them begins with what hands over instead, in bold: a queue, a file, a socket or a return.
"""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = ("message-way", "trace-way")
HAND_OVERS: Final = ("Callback", "Queue", "File", "Socket", "Return")
MOST_VISITS: Final = 2
"""A package is entered once on the way in and once on the way out; of others the page says why."""


class Stop(NamedTuple):
    """A row of a table: a file below ``src/thence``, and a function in it, behind the name of its class if it has one."""

    file: str
    function: str

    @property
    def name(self) -> str:
        return self.function.rpartition(".")[2]

    @property
    def package(self) -> str:
        return self.file.partition("/")[0]


def read(page: str) -> str:
    return (ROOT / "docs" / "concepts" / f"{page}.md").read_text(encoding="utf-8")


def legs(page: str) -> list[list[Stop]]:
    """Return the tables of a page."""
    tables = re.findall(r"^\| file \|.*\n\|---.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    return [[Stop(*found) for found in re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", table, re.MULTILINE)] for table in tables]


def body(stop: Stop) -> ast.AST | None:
    """Return the function as the code has it."""
    path = ROOT / "src" / "thence" / stop.file
    if not path.is_file():
        return None
    found: ast.AST | None = ast.parse(path.read_text(encoding="utf-8"))
    for name in stop.function.split("."):
        inside = [] if found is None else list(ast.iter_child_nodes(found))
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = next((node for node in inside if isinstance(node, kinds) and node.name == name), None)
    return found


def calls(code: ast.AST) -> set[str]:
    """Return what a body calls: methods that stand before brackets, and functions, which it may also hand to others."""
    found = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
    return found | {
        node.func.attr for node in ast.walk(code) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }


def unknown(page: str) -> list[str]:
    """Return each ``Class.name`` of the text between tables that no file of the page has."""
    code = [
        ast.parse((ROOT / "src" / "thence" / file).read_text(encoding="utf-8"))
        for file in {s.file for leg in legs(page) for s in leg}
    ]
    known = {
        f"{kind.name}.{name}"
        for tree in code
        for kind in ast.walk(tree)
        if isinstance(kind, ast.ClassDef)
        for node in ast.walk(kind)
        for name in [getattr(node, "attr", None) or getattr(node, "name", None)]
    }
    prose = re.sub(r"^\|.*\n", "", page, flags=re.MULTILINE)
    return [name for name in re.findall(r"`([A-Z]\w+\.\w+)`", prose) if name not in known]


def mistakes(page: str) -> list[str]:
    """Return what a page says that is not so."""
    found = []
    for leg in legs(page):
        for here, there in pairwise([*leg, None]):
            code = body(here) if here is not None else None
            if code is None:
                found.append(f"{here} is not there")
            elif there is not None and there.name not in calls(code):
                found.append(f"{here} does not call {there.name}")
    between = re.split(r"^\| file \|.*\n(?:\|.*\n)+", page, flags=re.MULTILINE)[1:-1]
    found += [
        f"no hand-over: {text.strip()[:60]!r}" for text in between if not re.match(rf"\s*\*\*({'|'.join(HAND_OVERS)})\b", text)
    ]
    return found


def visits(page: str) -> dict[str, int]:
    """Return how often the way enters each package."""
    packages = [stop.package for leg in legs(page) for stop in leg]
    entered = [package for before, package in pairwise(["", *packages]) if package != before]
    return {package: entered.count(package) for package in entered}


@pytest.mark.parametrize("page", PAGES)
def test_each_function_is_there_and_calls_the_next(page: str) -> None:
    assert len([stop for leg in legs(read(page)) for stop in leg]) > 10
    assert mistakes(read(page)) == []
    assert unknown(read(page)) == []


@pytest.mark.parametrize("page", PAGES)
def test_packages_that_are_entered_more_often_are_explained(page: str) -> None:
    text = read(page)
    explained = set(re.findall(r"`(\w+)`", text.partition("## Packages that are entered more than twice")[2]))
    assert {package for package, count in visits(text).items() if count > MOST_VISITS} <= explained


PLANTED: Final = "| file | function | what it does |\n|---|---|---|\n"


@pytest.mark.parametrize(
    ("page", "mistake"),
    [
        ("| `trace/judge.py` | `nobody` | x |\n", "is not there"),
        ("| `trace/nowhere.py` | `judge` | x |\n", "is not there"),
        ("| `trace/judge.py` | `judge` | x |\n| `trace/verdict.py` | `sort_key` | x |\n", "does not call sort_key"),
        (f"| `trace/judge.py` | `judge` | x |\n\nThen.\n\n{PLANTED}| `trace/judge.py` | `judge` | x |\n", "no hand-over"),
    ],
)
def test_a_wrong_page_is_noticed(page: str, mistake: str) -> None:
    (found,) = mistakes(PLANTED + page)
    assert mistake in found


def test_a_right_page_is_not() -> None:
    assert mistakes(f"{PLANTED}| `trace/judge.py` | `judge` | x |\n| `trace/verdict.py` | `conclude` | x |\n") == []


def test_a_name_in_the_text_that_is_not_there_is_noticed() -> None:
    table = f"{PLANTED}| `node/history.py` | `TraceHistory.release` | x |\n"
    page = f"{table}\n**Queue.** `TraceHistory._waiting`, and `History._waiting`."
    assert unknown(page) == ["History._waiting"]
