"""Pages for newcomers are typed as they stand, in a fresh folder: README, quickstart, tutorial, agents and security."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.pages.typed_pages import Shell, blocks_of, follow, on_free_ports, write_files
from tests.test_docs import ROOT, read

CHAPTERS = sorted((ROOT / "docs" / "tutorial").glob("[0-9]*.md"))
NEED_SPARK = {"09-watching.md"}
LONG = {"05-two-domains.md", "06-three-sites.md", "07-agents.md", "09-watching.md", "10-change.md"}
"""Chapters that start many servers, or Spark: `make test-all` types them."""
FEWEST_COMMANDS = 4


def marks_of(chapter: Path) -> list[pytest.MarkDecorator]:
    return [
        *([pytest.mark.spark] if chapter.name in NEED_SPARK else []),
        *([pytest.mark.campaign] if chapter.name in LONG else []),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    return fresh


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/tutorial/quickstart.md",
        "docs/how-to/agents.md",
        pytest.param("docs/how-to/security.md", marks=pytest.mark.slow),
    ],
)
def test_the_page_is_followed(page: str, folder: Path) -> None:
    (text,) = on_free_ports([read(page)])
    assert follow(text, folder) >= FEWEST_COMMANDS


@pytest.mark.slow
@pytest.mark.parametrize(
    "chapter",
    [pytest.param(page, marks=marks_of(page), id=page.stem) for page in CHAPTERS],
)
def test_the_chapter_is_followed(chapter: Path, folder: Path) -> None:
    """Whoever is at a chapter has written the files of those before it. Nothing else of them is needed."""
    pages = CHAPTERS[: CHAPTERS.index(chapter) + 1]
    *earlier, now = on_free_ports([page.read_text(encoding="utf-8") for page in pages])
    for page in earlier:
        write_files(page, folder)
    assert follow(now, folder) >= FEWEST_COMMANDS


def test_chapters_that_are_marked_are_there() -> None:
    assert {page.name for page in CHAPTERS} >= LONG | NEED_SPARK


def test_chapters_are_numbered_and_lead_to_the_next() -> None:
    assert [page.name[:2] for page in CHAPTERS] == [f"{number:02}" for number in range(1, len(CHAPTERS) + 1)]
    for page, following in pairwise(CHAPTERS):
        title = following.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        assert f"Next: [{title}]({following.name})" in page.read_text(encoding="utf-8")


# --- how pages are typed -----------------------------------------------------------------------------------------------


def test_a_block_without_a_name_is_no_file() -> None:
    assert [block.file for block in blocks_of("Write `a.toml`:\n\n```toml\nx = 1\n```\n\n```console\n$ ls\n```\n")] == [
        "a.toml",
        "",
    ]
    with pytest.raises(AssertionError, match="which file"):
        blocks_of("Look:\n\n```python\nx = 1\n```\n")


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("$ echo one\ntwo\n", "echo one prints:\none"),
        ("$ false\n", "false exits with 1"),
        ("$ true\n$ echo $?\n1\n", "true exits with 0"),
    ],
)
def test_what_is_not_as_shown_is_found(typed: str, found: str, folder: Path) -> None:
    with pytest.raises(AssertionError, match=found):
        follow(f"```console\n{typed}```\n", folder)


def test_files_jobs_and_exit_codes_are_those_of_a_shell(folder: Path) -> None:
    page = (
        "Save `a.py`:\n\n```python\nprint('here')\n```\n\n```console\n$ python a.py > said.txt &\n$ wait\n$ cat said.txt\nhere\n"
    )
    page += "$ ls nowhere\n…nowhere…\n$ echo $?\n2\n```\n"
    assert follow(page, folder) == 4


def test_nobody_is_left_behind(folder: Path) -> None:
    shell = Shell(folder)
    assert shell.type("setsid sleep 1000 & sleep 1000 &")[0] == 0
    shell.stop()
    assert shell.processes() == []


def test_a_port_is_the_same_one_wherever_it_stands() -> None:
    first, second = on_free_ports(["127.0.0.1:7401 7401 7402", "127.0.0.1:7401 in 2024"])
    port = first.split()[1]
    assert port != "7401"
    assert (first, second) == (f"127.0.0.1:{port} {port} 7402", f"127.0.0.1:{port} in 2024")
