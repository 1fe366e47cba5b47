"""What every benchmark hands back, and how it is printed: one row per thing measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

HEAD: Final = ("what", "ours", "peer", "ratio")


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: ``ours`` against ``peer``, both with their unit, and the ratio (above 1: ours is better).

    With a ``goal`` the ratio has to reach it, or the run ends with exit code 1.
    """

    what: str
    ours: str
    peer: str
    ratio: float
    goal: float | None = None


def judged(rows: Iterable[Row]) -> bool:
    """Print of each row with a goal whether it was reached; return whether all were."""
    kept = True
    for row in rows:
        if row.goal is not None:
            reached = row.ratio >= row.goal
            kept = kept and reached
            print(f"{'kept' if reached else 'MISSED'}: {row.what}: {row.ours}, {row.peer} at most")
    return kept


def markdown(rows: Iterable[Row]) -> str:
    """The rows as a table that reads well both as text and as Markdown."""
    lines = cells(rows)
    widths = [max(map(len, column)) for column in zip(HEAD, *lines, strict=True)]
    rule = ("-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:]))
    return "\n".join(_line(line, widths) for line in (HEAD, rule, *lines))


def cells(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """Return each row as words."""
    return [(row.what, row.ours, row.peer, f"{row.ratio:.2f}") for row in rows]


def as_csv(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    first = cells[0].ljust(widths[0])
    rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return f"| {' | '.join((first, *rest))} |"
