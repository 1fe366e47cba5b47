"""The table of packages in ``docs/concepts/architecture.md``: what each is for, its files and its lines.

``python -m tests.support.pages.architecture_page`` writes it anew; ``tests/house/test_architecture.py`` holds the page to the
code.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[3]
SOURCE: Final = ROOT / "src" / "thence"
PAGE: Final = ROOT / "docs" / "concepts" / "architecture.md"
BEGIN: Final = "<!-- packages -->"
END: Final = "<!-- end of packages -->"


class Package(NamedTuple):
    """One row of the table."""

    name: str
    purpose: str
    files: int
    lines: int


def packages() -> list[Package]:
    """Return every package below ``thence``, itself first, each with the files directly in it."""
    folders = [SOURCE, *sorted(path for path in SOURCE.rglob("*") if (path / "__init__.py").is_file())]
    return [_package(folder) for folder in folders]


def _package(folder: Path) -> Package:
    files = sorted(folder.glob("*.py"))
    opening = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    name = ".".join(folder.relative_to(SOURCE.parent).parts)
    return Package(name, " ".join(opening.split("\n\n")[0].split()), len(files), lines)


def table() -> str:
    """Return the table as Markdown, with the sum in its last row."""
    found = packages()
    rows = [f"| `{one.name}` | {one.purpose} | {one.files} | {one.lines:,} |" for one in found]
    whole = f"| all | | {sum(one.files for one in found)} | {sum(one.lines for one in found):,} |"
    return "\n".join(["| package | what it is for | files | lines |", "|---|---|---|---|", *rows, whole])


def main() -> None:
    """Write the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
