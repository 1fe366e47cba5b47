"""The report on a trace: metrics and verdict for people, on the terminal or as one HTML file.

Needs neither Spark nor Java: it reads the tables that ``thence.pipeline.metrics.write_metrics`` has written.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from thence.errors import StorageError
from thence.pipeline.reporting.audit import Audit
from thence.pipeline.reporting.figures import read_tables
from thence.pipeline.reporting.page import page
from thence.pipeline.reporting.terminal import show

__all__ = ["Audit", "print_report", "write_report"]


def write_report(metrics: str | Path, out: str | Path, audit: Audit | None = None, *, title: str | None = None) -> None:
    """Write the report on the tables in ``metrics``, and on what was found about order, as one HTML file."""
    text = page(read_tables(metrics), audit, title or f"Report on {Path(metrics).name}")
    target = Path(out)
    partial = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        raise StorageError(f"{target}: {error.strerror or error}") from error


def print_report(
    metrics: str | Path, audit: Audit | None = None, console: Console | None = None, *, order_told: bool = False
) -> None:
    """Print the same on the terminal. ``order_told``: what was found about order is there already, and only the verdict comes."""
    show(read_tables(metrics), audit, console, order_told=order_told)
