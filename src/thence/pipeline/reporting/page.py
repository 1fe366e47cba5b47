"""The report as one HTML file: no script, no font, no link to anywhere, so that it can be kept, mailed and opened from disk.

Rules: every piece of text goes through :func:`escaped`, whatever it is; the page forbids itself to load or run anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from thence.pipeline.reporting.audit import Audit
from thence.pipeline.reporting.figures import Tables
from thence.pipeline.reporting.sections import Section, measurements, notes, order, summary
from thence.pipeline.reporting.wording import escaped

STYLE: Final = """
:root{color-scheme:light dark;--paper:#fff;--card:#f6f7f9;--ink:#1b1f24;--soft:#57606a;--rule:#d8dee4;--one:#1f6feb;--two:#b35900;
--good:#1a7f37;--bad:#b42318;--on-one:#fff}
@media (prefers-color-scheme:dark){:root{--paper:#0f1419;--card:#182029;--ink:#e6eaef;--soft:#9aa7b4;--rule:#2c3742;--one:#6cb0ff;
--two:#f0a35e;--good:#56d364;--bad:#ff8a7a;--on-one:#0f1419}}
*{box-sizing:border-box}
body{margin:0 auto;padding:2rem 1.25rem 4rem;max-width:74rem;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
h1{font-size:1.6rem;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.5rem 0 .25rem;padding-top:1rem;border-top:1px solid var(--rule)}
p{margin:.25rem 0 1rem;color:var(--soft);max-width:60rem}
.verdict{display:inline-block;margin:.75rem 0;padding:.3rem .8rem;border:2px solid;border-radius:.4rem;font-weight:600}
.kept{color:var(--good)}.violated{color:var(--bad)}.open{color:var(--soft)}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
dl div{background:var(--card);border:1px solid var(--rule);border-radius:.4rem;padding:.6rem .8rem}
dt{color:var(--soft);font-size:.8rem}dd{margin:0;font-size:1.25rem;font-weight:600;font-variant-numeric:tabular-nums}
.notes{margin:1rem 0;padding:.6rem 1rem .6rem 2rem;background:var(--card);border-left:4px solid var(--two);border-radius:.2rem}
.both{display:grid;gap:1.5rem 2rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,29rem),1fr));align-items:start}
.wide{grid-column:1/-1}
figure{margin:0;min-width:0}figcaption{font-weight:600;font-size:.9rem;margin-bottom:.3rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{padding:.28rem .6rem .28rem 0;text-align:right;border-bottom:1px solid var(--rule);vertical-align:top}
th{color:var(--soft);font-weight:600;vertical-align:bottom}
th.t,td.t{text-align:left;overflow-wrap:anywhere}td{white-space:nowrap}td.t{white-space:normal;min-width:4rem}
svg.plot{display:block;width:100%;max-width:48rem;height:auto;font-size:12px}
svg text{fill:var(--ink)}svg .tick,svg .name{fill:var(--soft)}
svg .grid{stroke:var(--rule);fill:none}
svg .line{fill:none;stroke-width:2;stroke-linejoin:round}
svg .line.s1{stroke:var(--one)}svg .line.s2{stroke:var(--two);stroke-dasharray:6 3}
svg .fill{opacity:.18;stroke:none}svg .fill.s1,svg .bar.s1,svg .cell{fill:var(--one)}svg .bar.s2{fill:var(--two)}
svg .label.s1{fill:var(--one);font-weight:600}svg .label.s2{fill:var(--two);font-weight:600}
svg .empty{fill:none;stroke:var(--rule);stroke-width:.5}svg .in{font-size:10px}svg .in.dark{fill:var(--on-one)}
footer{margin-top:3rem;color:var(--soft);font-size:.8rem}
@media print{:root{--paper:#fff;--card:#fff;--ink:#000;--soft:#333;--rule:#bbb;--one:#1f6feb;--two:#b35900;
--good:#1a7f37;--bad:#b42318;--on-one:#fff}body{max-width:none;padding:0;font-size:10pt}section{break-inside:avoid-page}.scroll{overflow:visible}td,th{white-space:normal}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

NARROW_COLUMNS: Final = 7
"""A table of no more columns stands beside its plot, a wider one below it."""

FOOTER: Final = "Times are of the clocks of the processes, and never decide an order. First deliveries count. Made by thence."

_VERDICTS: Final = {"kept": "✓ order was kept", "violated": "✗ order was violated"}


def page(tables: Tables, audit: Audit | None = None, title: str = "Report on a trace") -> str:
    """The whole file."""
    judged = order(audit) if audit else []
    body = [
        f"<header><h1>{escaped(title)}</h1>{_verdict(audit)}{_tiles(summary(tables))}{_notes(notes(tables, audit))}</header>",
        "<main>",
        *(_section(section) for section in [*judged, *measurements(tables)]),
        "</main>",
        f"<footer>{FOOTER}</footer>",
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escaped(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(POLICY)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _verdict(audit: Audit | None) -> str:
    if audit is None:
        return '<div class="verdict open">order was not judged</div>'
    return f'<div class="verdict {escaped(audit.verdict)}">{escaped(_VERDICTS[audit.verdict])}</div>'


def _tiles(tiles: Sequence[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in tiles) + "</dl>"


def _notes(said: Sequence[str]) -> str:
    return f'<ul class="notes">{"".join(f"<li>{escaped(note)}</li>" for note in said)}</ul>' if said else ""


def _section(section: Section) -> str:
    plots = "".join(f"<figure>{_caption(svg)}{svg}</figure>" for svg in section.plots)
    lead = f"<p>{escaped(section.lead)}</p>" if section.lead else ""
    return f'<section><h2>{escaped(section.title)}</h2>{lead}<div class="both">{plots}{_table(section)}</div></section>'


def _caption(svg: str) -> str:
    """The title that the plot itself has, which is escaped already."""
    return f"<figcaption>{svg.split('<title>', 1)[1].split('</title>', 1)[0]}</figcaption>"


def _table(section: Section) -> str:
    if not section.rows:
        return ""
    head = "".join(_cell("th", place < section.text, name, ' scope="col"') for place, name in enumerate(section.columns))
    rows = "".join(
        f"<tr>{''.join(_cell('td', place < section.text, cell) for place, cell in enumerate(row))}</tr>" for row in section.rows
    )
    label = escaped(section.title)
    kind = "scroll wide" if len(section.columns) > NARROW_COLUMNS else "scroll"
    return f'<div class="{kind}"><table aria-label="{label}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(tag: str, is_text: bool, text: str, more: str = "") -> str:
    kind = ' class="t"' if is_text else ""
    return f"<{tag}{kind}{more}>{escaped(text)}</{tag}>"
