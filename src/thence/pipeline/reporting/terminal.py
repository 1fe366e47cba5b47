"""The report on a terminal: the same sections, as tables. Names are text, never markup."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from thence.pipeline.reporting.audit import Audit
from thence.pipeline.reporting.figures import Tables
from thence.pipeline.reporting.sections import Section, measurements, notes, order, summary


def render(tables: Tables, audit: Audit | None = None, *, order_told: bool = False) -> RenderableType:
    """What to print; ``order_told`` leaves out the sections on order."""
    parts: list[RenderableType] = [_verdict(audit)]
    parts.append(Text("   ").join(Text.assemble((value, "bold"), f" {name}") for name, value in summary(tables)))
    parts += [Text(f"! {note}", style="yellow") for note in notes(tables, audit)]
    for section in [*(order(audit) if audit and not order_told else []), *measurements(tables)]:
        parts += [Text(""), Text(section.title, style="bold"), Text(section.lead, style="dim")]
        if section.rows:
            parts.append(Padding(_table(section), (0, 0, 0, 1)))
    return Group(*parts)


def show(tables: Tables, audit: Audit | None = None, console: Console | None = None, *, order_told: bool = False) -> None:
    """Print it."""
    (console or Console(highlight=False, markup=False, emoji=False)).print(render(tables, audit, order_told=order_told))


def _verdict(audit: Audit | None) -> Text:
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
