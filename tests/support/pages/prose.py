"""How many words of prose the pages of docs have: without tables, code and front matter.

python -m tests.support.pages.prose      print them, part by part
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).resolve().parents[3] / "docs"
LEFT_OUT: Final = re.compile(
    r"\A---\n.*?^---$"  # front matter
    r"|^ *```.*?^ *```$"  # code
    r"|^ *\|.*?$"  # tables
    r"|^::: .*?$(?:\n {4}.*?$)*"  # what comes from docstrings
    r"|!?\[(?=[^]]*\]\()|\]\([^)]*\)"  # links, but not their words
    r"|</?[a-z][^>\n]*>",
    re.MULTILINE | re.DOTALL,
)


def words(page: str) -> int:
    """Return the number of words of prose of a page."""
    return len(re.findall(r"\S*\w\S*", LEFT_OUT.sub(" ", page)))


def by_part() -> Counter[str]:
    """Return the number of words in each folder of docs, and at its top."""
    found: Counter[str] = Counter()
    for page in DOCS.rglob("*.md"):
        place = page.relative_to(DOCS).parts
        found[place[0] if len(place) > 1 else "home"] += words(page.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    counted = by_part()
    for part, count in sorted(counted.items()):
        sys.stdout.write(f"{part:<10} {count:>7,}\n")
    sys.stdout.write(f"{'all':<10} {counted.total():>7,}\n")
