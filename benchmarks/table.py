"""What every benchmark hands back, and how it is printed: one row per thing measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


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
    head = ("what", "ours", "peer", "ratio")
    lines = [(row.what, row.ours, row.peer, f"{row.ratio:.2f}") for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    rule = ("-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:]))
    return "\n".join(_line(cells, widths) for cells in (head, rule, *lines))


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    first = cells[0].ljust(widths[0])
    rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return f"| {' | '.join((first, *rest))} |"
