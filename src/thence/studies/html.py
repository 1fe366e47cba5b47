"""A report as one HTML file, with its plots inside: no script, no font, no link to anywhere."""

from __future__ import annotations

import re
from typing import Final

from thence.pipeline.reporting.charts import CHART_STYLE
from thence.pipeline.reporting.page import POLICY, STYLE
from thence.pipeline.reporting.wording import escaped
from thence.studies.blocks import Block, Code, Document, Figure, Folded, Heading, Items, Paragraph, Table

MORE_STYLE: Final = (
    "pre{background:var(--card);border:1px solid var(--rule);border-radius:.4rem;padding:.6rem .8rem;"
    "overflow-x:auto;font-size:.8rem}"
    "code{font-size:.85em}ul{max-width:60rem;color:var(--soft)}strong{color:var(--ink)}figure{margin:1rem 0}"
    "summary{cursor:pointer;margin:.4rem 0}"
)
VERDICTS: Final = {"holds": "kept", "does not hold": "violated", "not decided": "open"}


def html(document: Document) -> str:
    """The whole file."""
    title = escaped(document.title)
    body = "\n".join(_block(block) for block in document.blocks)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(POLICY)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<style>{STYLE}{MORE_STYLE}{CHART_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n{body}\n</body></html>\n"
    )


def _block(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{_text(text)}</h2>"
        case Paragraph(text):
            return f"<p>{_text(text)}</p>"
        case Items(texts):
            return f"<ul>{''.join(f'<li>{_text(text)}</li>' for text in texts)}</ul>"
        case Code(text):
            return f"<pre>{escaped(text)}</pre>"
        case Figure(_, title, svg, note):
            said = f"{title}, {note}" if note else title
            return f"<figure><figcaption>{_text(said)}</figcaption>{svg}</figure>"
        case Folded(title, blocks):
            return f"<details><summary>{_text(title)}</summary>{''.join(_block(one) for one in blocks)}</details>"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    head = "".join(_cell("th", place < table.text, name) for place, name in enumerate(table.columns))
    rows = "".join(
        f"<tr>{''.join(_cell('td', place < table.text, cell) for place, cell in enumerate(row))}</tr>" for row in table.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(tag: str, is_text: bool, text: str) -> str:
    kinds = [*(["t"] if is_text else []), *([VERDICTS[text]] if text in VERDICTS else [])]
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    return f"<{tag}{kind}>{_text(text)}</{tag}>"


def _text(text: str) -> str:
    """Escaped text, with code and strong words marked."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped(text))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", marked)
