"""Small traces with a bug planted in each, one file of text for each property, in the form of :mod:`tests.support.traces`.

A line ``== title: property count, …`` begins a trace and says what is wrong with it. Each trace violates its property and
no other, out of all of them, total included. Where a definition implies another, the line says so with both counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from thence.trace.verdict import PROPERTIES

FOLDER: Final = Path(__file__).parent


class Planted(NamedTuple):
    """A trace and what is wrong with it: how many rows of which property."""

    file: str
    title: str
    counts: dict[str, int]
    text: str


def load(name: str) -> list[Planted]:
    """The traces of one file."""
    _, *sections = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").split("\n== ")
    return [_section(name, section) for section in sections]


def _section(file: str, section: str) -> Planted:
    head, _, text = section.partition("\n")
    title, _, counts = head.rpartition(": ")
    words = [entry.split() for entry in counts.split(", ") if entry != "nothing"]
    return Planted(file, title, {name: int(count) for name, count in words}, text)


KEPT: Final = load("kept")
PLANTED: Final = [case for name in PROPERTIES for case in load(name)]
