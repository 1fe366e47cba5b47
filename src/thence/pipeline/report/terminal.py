"""The report on a terminal: the same sections, as tables. Names are text, never markup."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from thence.pipeline.report.figures import Tables, read_tables
from thence.pipeline.report.sections import Section, measurements, notes, order, summary
from thence.pipeline.result import AuditResult


def print_report(
    metrics: str | Path, audit: AuditResult | None = None, console: Console | None = None, *, with_order: bool = True
) -> None:
    """Print the report on the terminal; without ``with_order`` only the verdict of what was found about order."""
    show(read_tables(metrics), audit, console, with_order=with_order)


def show(tables: Tables, audit: AuditResult | None = None, console: Console | None = None, *, with_order: bool = True) -> None:
    """Print the report on tables that were read."""
    parts: list[RenderableType] = [_verdict(audit)]
    parts.append(Text("   ").join(Text.assemble((value, "bold"), f" {name}") for name, value in summary(tables)))
    parts += [Text(f"! {note}", style="yellow") for note in notes(tables, audit)]
    for section in [*(order(audit) if audit and with_order else []), *measurements(tables)]:
        parts += [Text(""), Text(section.title, style="bold"), Text(section.lead, style="dim")]
        if section.rows:
            parts.append(Padding(_table(section), (0, 0, 0, 1)))
    (console or Console(highlight=False, markup=False, emoji=False)).print(Group(*parts))


def _verdict(audit: AuditResult | None) -> Text:
    if audit is None:
        return Text("order was not judged", style="dim")
    return Text("order was kept", style="bold green") if audit.verdict == "kept" else Text("order was violated", style="bold red")


def _table(section: Section) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(section.columns):
        table.add_column(name, justify="left" if place < section.text else "right", overflow="fold")
    for row in section.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
