"""What a report consists of: a few kinds of blocks, which become Markdown or HTML.

Text may hold `code` and **strong** words; everything else in it is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from thence.pipeline.reporting.plots import Plot


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
        """All plots."""
        return (block for block in self.blocks if isinstance(block, Figure))

    def data(self) -> Iterator[Table]:
        """Return the tables that have a file of their own."""
        return (block for block in self.blocks if isinstance(block, Table) and block.file)
