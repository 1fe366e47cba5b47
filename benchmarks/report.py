"""docs/benchmarks.md: one section for each benchmark, written by the run that measured it; the others stay as they are."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from benchmarks.table import Row, markdown

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
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
    return f"## {name}\n\n{purpose}\n\n`python -m benchmarks {name}`\n\n{markdown(rows)}\n{notes}"


def page(before: str, sections: Mapping[str, str]) -> str:
    """Return the page with these sections: in place of those of the same name, or at the end."""
    kept = {part.split("\n", 1)[0]: f"## {part.rstrip()}\n" for part in re.split(r"^## ", before, flags=re.MULTILINE)[1:]}
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.python_implementation()} {platform.python_version()}"
    return "\n".join([HEAD.format(machine=machine), *(kept | dict(sections)).values()])


def write(sections: Mapping[str, str]) -> None:
    """Put sections into the page."""
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    PAGE.write_text(page(before, sections), encoding="utf-8")
