"""docs/research/benchmarks.md: a section for each benchmark, written by the run that measured it; all its rows are in a file."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from benchmarks.table import HEAD as COLUMNS
from benchmarks.table import Row, as_csv, cells, markdown

PAGE = Path(__file__).parent.parent / "docs" / "research" / "benchmarks.md"
DATA = PAGE.parent / "data"
SHOWN = 12
"""So many rows of a table are on the page."""
HEAD = (
    "# Benchmarks\n\n"
    "Written by `make bench` and `make bench-peers`. Absolute figures depend on the machine; the ratios are taken in one run, "
    "both sides alternating, the best of several counting, since noise only ever adds. Above 1 ours is better.\n\n"
    "Machine: {machine}.\n"
)


def section(name: str, module: ModuleType, rows: list[Row]) -> str:
    """Return what is said of one benchmark: its purpose, its command, its table, and its ``NOTES`` if it has any."""
    purpose = " ".join((module.__doc__ or "").strip().split("\n\n")[0].split())
    notes = f"\n{module.NOTES.strip()}\n" if hasattr(module, "NOTES") else ""
    return f"## {name}\n\n{purpose}\n\n`python -m benchmarks {name}`\n\n{part(name, rows)}\n{notes}"


def part(name: str, rows: list[Row]) -> str:
    """Return the first rows, and where all of them are."""
    return f"{markdown(rows[:SHOWN])}\n\nAll {len(rows)} rows: [{name}.csv](data/{name}.csv)."


def page(before: str, sections: Mapping[str, str]) -> str:
    """Return the page with these sections: in place of those of the same name, or at the end."""
    kept = {part.split("\n", 1)[0]: f"## {part.rstrip()}\n" for part in re.split(r"^## ", before, flags=re.MULTILINE)[1:]}
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.python_implementation()} {platform.python_version()}"
    return "\n".join([HEAD.format(machine=machine), *(kept | dict(sections)).values()])


def write(sections: Mapping[str, str], measured: Mapping[str, list[Row]]) -> None:
    """Put sections into the page, and their rows into files."""
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    PAGE.write_text(page(before, sections), encoding="utf-8")
    DATA.mkdir(exist_ok=True)
    for name in sections:
        (DATA / f"{name}.csv").write_text(as_csv(COLUMNS, cells(measured[name])), encoding="utf-8")
