"""Every claim of the papers has a test that cites it, and a planted mistake that makes such a test fail."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable

import pytest

from tests.house.tree import parse, python_files
from tests.papers.mistakes.claims import CLAIMS, STILL_TO_COME
from tests.papers.mistakes.mistake import Mistake, plain
from tests.papers.mistakes.table import MISTAKES

CLAIM = re.compile(r"\b[IDCGM]\d{1,2}\b")
IN_NAME = re.compile(r"_([idcgm]\d{1,2})(?=_)")


def cited(tree: ast.Module) -> dict[str, set[str]]:
    """Return, for each test of a module, the claims that its name or its docstring cites."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            named = {claim.upper() for claim in IN_NAME.findall(node.name)}
            found[node.name] = (named | set(CLAIM.findall(ast.get_docstring(node) or ""))) & CLAIMS.keys()
    return found


TESTS = {path.stem: cited(parse(path)) for path in python_files("tests/papers") if path.stem.startswith("test_")}


def without_mistake(mistakes: Iterable[Mistake]) -> set[str]:
    return CLAIMS.keys() - {mistake.claim for mistake in mistakes}


def test_every_claim_has_a_planted_mistake() -> None:
    assert without_mistake(MISTAKES) == STILL_TO_COME, "add a mistake in tests/papers/mistakes, or take the claim off the list"


def test_a_claim_without_a_mistake_is_noticed() -> None:
    left = [mistake for mistake in MISTAKES if mistake.claim != "M2"]
    assert without_mistake(left) - without_mistake(MISTAKES) == {"M2"}


def test_every_claim_with_a_mistake_is_cited() -> None:
    by_claim = defaultdict(list)
    for tests in TESTS.values():
        for name, claims in tests.items():
            for claim in claims:
                by_claim[claim].append(name)
    assert CLAIMS.keys() - by_claim.keys() <= STILL_TO_COME


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.claim}: {mistake.what}")
def test_a_mistake_is_found_by_a_test_that_cites_its_claim(mistake: Mistake) -> None:
    test = plain(mistake.cited)
    module = test.__module__.rpartition(".")[2]
    assert test.__module__.startswith("tests.papers."), "the cited test is in tests/papers"
    assert mistake.claim in TESTS[module][test.__name__], f"{test.__name__} does not say that it is about {mistake.claim}"


def test_a_citation_is_read_from_names_and_docstrings() -> None:
    tree = ast.parse('def test_d5_d9_safe(): ...\ndef test_x():\n    "C4, and X1, and S1."\ndef other_m1_(): ...')
    assert cited(tree) == {"test_d5_d9_safe": {"D5", "D9"}, "test_x": {"C4"}}
