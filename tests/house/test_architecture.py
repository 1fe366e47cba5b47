"""The table of packages on the architecture page is that of the code."""

from __future__ import annotations

import re

from tests.support.pages.architecture_page import BEGIN, END, PAGE, Package, packages

FRESH = 0.1
"""By so much the lines of a package may differ from the page: who changes a file need not rewrite the table each time."""
FEW_LINES = 100


def told() -> list[Package]:
    """Return the rows of the page."""
    text = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (.*) \| (\d+) \| ([\d,]+) \|$", text, re.MULTILINE)
    return [Package(name, purpose, int(files), int(lines.replace(",", ""))) for name, purpose, files, lines in rows]


def stale(page: list[Package], code: list[Package]) -> list[str]:
    """Name every package that the page lacks, has too much, or describes otherwise than the code."""
    here, there = {one.name: one for one in page}, {one.name: one for one in code}
    wrong = [f"{name}: only on one side" for name in here.keys() ^ there.keys()]
    for name in here.keys() & there.keys():
        said, is_ = here[name], there[name]
        if (said.purpose, said.files) != (is_.purpose, is_.files):
            wrong.append(f"{name}: purpose or files")
        if abs(said.lines - is_.lines) > max(FEW_LINES, FRESH * is_.lines):
            wrong.append(f"{name}: {said.lines} lines on the page, {is_.lines} in the code")
    return sorted(wrong)


def test_the_page_has_the_packages_of_the_code() -> None:
    assert stale(told(), packages()) == [], "to rewrite it: .venv/bin/python -m tests.support.pages.architecture_page"


def test_a_stale_page_is_noticed() -> None:
    code = packages()
    assert stale(code[1:], code) == ["thence: only on one side"]
    core = next(one for one in code if one.name == "thence.core.member")
    for planted in (core._replace(files=core.files + 1), core._replace(purpose="Nothing."), core._replace(lines=core.lines * 2)):
        assert stale([planted if one is core else one for one in code], code) != []
