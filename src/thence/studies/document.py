"""A report as a value, and as Markdown with its plots and its data in files beside it.

Rules: a report consists of a few kinds of blocks. Text may hold `code` and **strong** words; everything else in it is shown as it
is. A table with a file is data, of which a page shows a part.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from thence.pipeline.report.plots import Plot

MAX_NUMBERS: Final = 8
"""A table of data shows at most so many columns of numbers on a page."""


class Heading(NamedTuple):
    """The title of a section."""

    text: str


class Paragraph(NamedTuple):
    """Some sentences."""

    text: str


class Items(NamedTuple):
    """A list."""

    texts: Sequence[str]


class Code(NamedTuple):
    """Commands to be copied."""

    text: str


class Table(NamedTuple):
    """Rows of text; the first ``text`` columns are words, the others numbers.

    A table with a ``file`` is data: the file has all of it, and the Markdown page shows its first ``shown`` rows.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: int
    file: str = ""
    shown: int = 12


class Figure(NamedTuple):
    """A plot, which in Markdown is a file of its own."""

    file: str
    plot: Plot
    note: str


Block = Heading | Paragraph | Items | Code | Table | Figure


class Document(NamedTuple):
    """A whole report."""

    title: str
    blocks: Sequence[Block]

    def figures(self) -> Iterator[Figure]:
        """Give all plots."""
        return (block for block in self.blocks if isinstance(block, Figure))

    def data(self) -> Iterator[Table]:
        """Return the tables that have a file of their own."""
        return (block for block in self.blocks if isinstance(block, Table) and block.file)


def markdown(document: Document) -> str:
    """Return the page."""
    return "\n\n".join([f"# {_text(document.title)}", *map(rendered, document.blocks)]) + "\n"


def rendered(block: Block) -> str:
    """Return one block as Markdown."""
    match block:
        case Heading(text):
            return f"## {_text(text)}"
        case Paragraph(text):
            return _text(text)
        case Items(texts):
            return "\n".join(f"* {_text(text)}" for text in texts)
        case Code(text):
            return f"```sh\n{text}\n```"
        case Figure(file, plot, note):
            return f"![{_text(plot.title)}]({file})" + (f"\n\n{_text(plot.title)}, {_text(note)}." if note else "")
        case Table(file=""):
            return _table(block)
        case Table():
            return _part(block)


def data(table: Table) -> str:
    """Return all of a table as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.columns, *table.rows])
    return text.getvalue()


def _part(table: Table) -> str:
    """Return the first rows and columns of a table, and where all of it is."""
    wide = table.text + MAX_NUMBERS
    part = Table(table.columns[:wide], [row[:wide] for row in table.rows[: table.shown]], table.text)
    link = f"[{table.file}]({table.file})"
    size = f"{len(table.rows):,} rows of {len(table.columns)} columns"
    return f"{_table(part)}\n\nAll {size}: {link}." if table.shown else f"All {size}: {link}."


def _table(table: Table) -> str:
    rule = ["---" if place < table.text else "---:" for place in range(len(table.columns))]
    rows = [[_cell(cell) for cell in row] for row in [table.columns, *table.rows]]
    lines = [rows[0], rule, *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(text: str) -> str:
    """Return a text in which no sign is taken for a tag; within code none is anyway."""
    pieces = text.split("`")
    return "`".join(
        piece if place % 2 else piece.replace("&", "&amp;").replace("<", "&lt;") for place, piece in enumerate(pieces)
    )


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|").replace("\n", " ")
