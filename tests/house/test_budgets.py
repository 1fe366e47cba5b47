"""The documentation is short: words of prose in all, words of the README, and no page twice. Folders of tests are, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.house.shapes import crowded
from tests.house.tree import ROOT
from tests.support.pages import prose

MAX_PROSE_WORDS = 50_000
"""The words of all pages together, without tables and code."""
MAX_README_WORDS = 600

CROWDED: dict[str, int] = {}
"""Folders of tests with too many files, and how many at most."""


def over_budget(words: Mapping[str, int], readme: str) -> list[str]:
    """Say which budget is exceeded, given the words of each part of docs and the text of the README."""
    total, short = sum(words.values()), len(readme.split())
    return [
        *([f"docs has {total} words of prose, of {MAX_PROSE_WORDS}: {dict(words)}"] if total > MAX_PROSE_WORDS else []),
        *([f"README.md has {short} words, of {MAX_README_WORDS}"] if short > MAX_README_WORDS else []),
    ]


def twins(pages: Iterable[Path]) -> list[Path]:
    """Return the pages that were made from another one that is there too."""
    known = set(pages)
    return sorted(page for page in known if page.suffix == ".html")


def files_of_folders(root: Path) -> dict[str, int]:
    """Return how many Python files each folder of tests has directly in it."""
    return {
        path.parent.relative_to(root).as_posix(): len(list(path.parent.glob("*.py"))) for path in (root / "tests").rglob("*.py")
    }


def test_the_documentation_is_within_its_budget() -> None:
    assert over_budget(prose.by_part(), (ROOT / "README.md").read_text(encoding="utf-8")) == []


def test_no_page_is_committed_as_html_too() -> None:
    assert twins((ROOT / "docs").rglob("*.*")) == []


def test_no_folder_of_tests_has_more_files_than_it_had() -> None:
    found = crowded(files_of_folders(ROOT))
    assert [name for name, count in found.items() if count > CROWDED.get(name, 0)] == []
    assert sorted(CROWDED.keys() - found.keys()) == [], "these are small enough now: take them off the list"


def test_what_is_over_budget_is_noticed() -> None:
    assert over_budget({"tutorial": MAX_PROSE_WORDS - 1, "home": 1}, "word " * MAX_README_WORDS) == []
    (docs,) = over_budget({"tutorial": MAX_PROSE_WORDS, "home": 1}, "")
    assert docs.startswith("docs has 50001 words of prose, of 50000")
    assert over_budget({}, "word " * 601) == ["README.md has 601 words, of 600"]


def test_a_twin_is_noticed() -> None:
    assert twins([Path("a.md"), Path("a.html"), Path("b.svg")]) == [Path("a.html")]


def test_a_crowded_folder_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    for number in range(16):
        (folder / f"test_{number}.py").touch()
    assert crowded(files_of_folders(tmp_path)) == {"tests/unit": 16}


def test_tables_and_code_are_no_prose() -> None:
    code = "```console\n$ no\n```"
    reference = "::: no\n    options:\n      no: no"
    page = f"---\na: b\n---\n# One two\n\n| no | no |\n|---|---|\n\n{code}\n[three](no.md) `four`, <b>\n\n{reference}\n\nfive"
    assert prose.words(page) == len(["One", "two", "three", "four", "five"])
