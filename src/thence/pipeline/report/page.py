"""Reports as one HTML file, filled in by Jinja2.

A file has no script, no font and no link to anywhere, so that it can be kept, mailed and opened from disk.

Rules: the templates escape every text, whatever it is; same values, same bytes.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from thence.errors import StorageError
from thence.pipeline.report.figures import Tables, read_tables
from thence.pipeline.report.plots import inline
from thence.pipeline.report.sections import measurements, notes, order, summary
from thence.pipeline.report.text import escaped, needed
from thence.pipeline.result import AuditResult

if TYPE_CHECKING:
    from jinja2 import Environment

VERDICTS: Final = {"holds": "kept", "does not hold": "violated", "not decided": "open"}


def write_report(metrics: str | Path, out: str | Path, audit: AuditResult | None = None, *, title: str | None = None) -> None:
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


def page(tables: Tables, audit: AuditResult | None = None, title: str = "Report on a trace") -> str:
    """Return the report on a trace."""
    sections = [*(order(audit) if audit else []), *measurements(tables)]
    said = {"summary": summary(tables), "notes": notes(tables, audit)}
    return rendered("trace.html", title=title, audit=audit, sections=sections, **said)


def rendered(template: str, **values: Any) -> str:
    """Return a template of ``templates`` with its values filled in."""
    return str(environment().get_template(template).render(values))


@cache
def environment() -> Environment:
    needed("jinja2")
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def marked(text: str) -> Markup:
        """Return escaped text, with code and strong words marked."""
        code = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped(text))
        return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", code))  # noqa: S704  It is escaped.

    def kind(cell: str, is_text: bool, marks: bool) -> dict[str, str | None]:
        """Return the attributes of a cell."""
        kinds = ["t" if is_text else "", VERDICTS.get(cell, "") if marks else ""]
        return {"class": " ".join(filter(None, kinds)) or None}

    loader = PackageLoader("thence.pipeline.report")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"marked": marked, "kind": kind, "inline": lambda plot: Markup(inline(plot))}  # noqa: S704  Likewise.
    return made
