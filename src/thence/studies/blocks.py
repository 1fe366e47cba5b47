"""What a report consists of: a few kinds of blocks, which become Markdown or HTML.

Text may hold `code` and **strong** words; everything else in it is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


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
    """Rows of text; the first ``text`` columns are words, the others numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: int


class Figure(NamedTuple):
    """A plot, which in Markdown is a file of its own."""

    file: str
    title: str
    svg: str
    note: str


class Folded(NamedTuple):
    """Blocks that are shown when asked for."""

    title: str
    blocks: Sequence[Block]


Block = Heading | Paragraph | Items | Code | Table | Figure | Folded


class Document(NamedTuple):
    """A whole report."""

    title: str
    blocks: Sequence[Block]

    def figures(self) -> Iterator[Figure]:
        """All plots."""
        return (block for block in self.blocks if isinstance(block, Figure))
