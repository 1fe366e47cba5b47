"""A report as Markdown, with its plots in files beside it.

A table or a list of commands that goes on for pages is cut; the HTML has all of it.
"""

from __future__ import annotations

import html
from typing import Final

from thence.studies.blocks import Block, Code, Document, Figure, Folded, Heading, Items, Paragraph, Table

MAX_ROWS: Final = 60


def markdown(document: Document, whole: str) -> str:
    """The page; ``whole`` is the file that has all of it."""
    return "\n\n".join([f"# {_text(document.title)}", *(_block(block, whole) for block in document.blocks)]) + "\n"


def _block(block: Block, whole: str) -> str:
    match block:
        case Heading(text):
            return f"## {_text(text)}"
        case Paragraph(text):
            return _text(text)
        case Items(texts):
            return "\n".join(f"* {_text(text)}" for text in texts)
        case Code(text):
            lines = text.split("\n")
            return "\n".join(["```sh", *lines[:MAX_ROWS], "```"]) + _more(len(lines), whole)
        case Figure(file, title, _, note):
            return f"![{_text(title)}]({file})" + (f"\n\n{_text(title)}, {_text(note)}." if note else "")
        case Folded(title, blocks):
            inside = "\n\n".join(_block(one, whole) for one in blocks)
            return f"<details>\n<summary>{html.escape(title, quote=False)}</summary>\n\n{inside}\n\n</details>"
        case Table():
            return _table(block) + _more(len(block.rows), whole)


def _more(count: int, whole: str) -> str:
    return f"\n\n… and {count - MAX_ROWS} more, in [{whole}]({whole})." if count > MAX_ROWS else ""


def _table(table: Table) -> str:
    rule = ["---" if place < table.text else "---:" for place in range(len(table.columns))]
    rows = [[_cell(cell) for cell in row] for row in [table.columns, *table.rows[:MAX_ROWS]]]
    lines = [rows[0], rule, *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(text: str) -> str:
    """Text whose signs would be taken for tags, made plain; not within code, where they are plain already."""
    pieces = text.split("`")
    return "`".join(
        piece if place % 2 else piece.replace("&", "&amp;").replace("<", "&lt;") for place, piece in enumerate(pieces)
    )


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|").replace("\n", " ")
