"""The report on a study: what was claimed and what was measured, side by side, with all numbers and how to get them again.

Rules:

* Same results, same bytes: no date, no name of a machine, nothing of this run but what is in the folder.
* Every number can be had again: the command for the whole, and a command for each point.
* What failed is said at the top.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from thence.pipeline.reporting.charts import standing_alone
from thence.pipeline.reporting.wording import number, plural, share
from thence.studies.blocks import Block, Code, Document, Figure, Folded, Heading, Items, Paragraph, Table
from thence.studies.claims import Judged, judge, words
from thence.studies.html import html
from thence.studies.markdown import markdown
from thence.studies.plots import draw
from thence.studies.rankings import rank
from thence.studies.results import Cost, Folder, Means
from thence.studies.runs import replay_command
from thence.studies.study import Point, Study, canonical, shown

RUNS: Final = "study-runs"
MAX_TABLE_ROWS: Final = 40
"""A longer table of points is cut into one for each value of the first parameter that varies."""
MAX_COLUMNS: Final = 8
"""So many measures stand in one table; the others in a further one."""
MAX_FAILURES: Final = 10


def write_report(folder: Folder, to: Path) -> list[Path]:
    """Write the report on the study of a folder; return the files, Markdown first."""
    study, _ = folder.study()
    document = compose(study, folder.means(), folder.cost())
    to.mkdir(parents=True, exist_ok=True)
    for path in to.iterdir():
        if re.fullmatch(re.escape(study.name) + r"-\d+\.svg", path.name):
            path.unlink()
    whole = f"{study.name}.html"
    files = {f"{study.name}.md": markdown(document, whole), whole: html(document)}
    files |= {figure.file: standing_alone(figure.svg) for figure in document.figures()}
    for name, text in files.items():
        (to / name).write_text(text, encoding="utf-8")
    return [to / name for name in files]


def compose(study: Study, means: Means, cost: Cost) -> Document:
    """The whole report as a value."""
    return Document(
        study.title,
        [
            *_opening(study, cost),
            *_claims(judge(study, means)),
            *_rankings(study, means),
            *_plots(study, means),
            *_points(study, means),
            *_again(study),
        ],
    )


def _opening(study: Study, cost: Cost) -> Iterator[Block]:
    if study.is_small:
        yield Paragraph("This is the small version of the study, which shows that it runs: its numbers decide little.")
    if cost.failures:
        count = len(cost.failures)
        yield Paragraph(f"**{plural(count, 'run')} failed**, and the numbers below are without them:")
        points = [(json.loads(failure.point), failure) for failure in cost.failures[:MAX_FAILURES]]
        shown_ones = [f"{study.label(point)}, repetition {failure.repetition}: {failure.error}" for point, failure in points]
        yield Items([*shown_ones, *([f"… and {count - MAX_FAILURES} more"] if count > MAX_FAILURES else [])])
    if study.paper:
        yield Paragraph(f"Source: {study.paper}.")
    yield from _about(study.about)
    if study.parameters:
        fixed = ", ".join(f"`{name}` {shown(value)}" for name, value in study.parameters.items())
        yield Paragraph(f"The same at every point: {fixed}.")
    rule = study.repetitions
    of = ", ".join(f"`{name}`" for name in rule.of)
    until = f" until the half width of the 95 % interval is under {share(rule.share)} of the mean of {of}" if of else ""
    events = f", {cost.events:,} simulated events" if cost.events else ""
    count_of_points = plural(sum(1 for _ in study.points()), "point")
    yield Paragraph(
        f"{count_of_points}, each run {rule.least} to {rule.most} times{until}. Intervals are of Student's t, 95 %. "
        f"In all {plural(cost.runs, 'run')}{events}, {number(round(cost.seconds))} s of one core."
    )
    yield Paragraph("This page is written by:")
    small = " --small" if study.is_small else ""
    yield Code(f"thence study run {study.source}{small}\nthence study report {RUNS}/{study.name} --to docs/studies")


def _about(text: str) -> Iterator[Block]:
    """What the file says of itself: paragraphs, lists of lines that begin with a star, and tables."""
    for part in re.split(r"\n\s*\n", text.strip()):
        lines = part.strip().splitlines()
        if all(line.startswith("|") for line in lines) and len(lines) > 1:
            columns, _, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
            yield Table(columns, rows, text=len(columns))
        elif lines and lines[0].startswith("* "):
            yield Items([" ".join(item.split()) for item in re.split(r"^\* ", part.strip(), flags=re.MULTILINE)[1:]])
        elif lines:
            yield Paragraph(" ".join(part.split()))


def _claims(judged: list[Judged]) -> Iterator[Block]:
    if not judged:
        return
    yield Heading("Claims")
    rows = []
    for one in judged:
        telling = one.telling
        told = (telling.measured, telling.beside, telling.difference, telling.where) if telling else ("-", "-", "-", "-")
        rows.append((one.claim.id, one.claim.text or one.claim.measure, one.verdict, one.places, *told))
    columns = ("id", "claim", "verdict", "at places", "measured", "formula or other side", "difference", "at (the most telling)")
    yield Table(columns, rows, text=8)
    notes = [f"**{one.claim.id or one.claim.text}**: {' '.join(one.claim.note.split())}" for one in judged if one.claim.note]
    if notes:
        yield Items(notes)
    for one in judged:
        if len(one.comparisons) > 1:
            name = f"{one.claim.id}: {one.claim.text or one.claim.measure}" if one.claim.id else one.claim.text
            places = [(found.where, found.measured, found.beside, found.difference, found.verdict) for found in one.comparisons]
            table = Table(("at", "measured", "formula or other side", "difference", "verdict"), places, text=5)
            yield Folded(f"{name} ({one.verdict}, {one.places})", [table])


def _rankings(study: Study, means: Means) -> Iterator[Block]:
    for ranking in study.rankings:
        yield Heading(ranking.title)
        yield Paragraph(f"The lowest mean by `{ranking.of}`; *alike* are those that the 95 % intervals do not tell from it.")
        yield rank(study, ranking, means)


def _plots(study: Study, means: Means) -> Iterator[Block]:
    if study.plots:
        yield Heading("Plots")
    for place, plot in enumerate(study.plots, 1):
        drawn = draw(study, plot, means)
        yield Figure(f"{study.name}-{place}.svg", drawn.title, drawn.svg, drawn.note)


def _points(study: Study, means: Means) -> Iterator[Block]:
    yield Heading("All points")
    used = [name for name in study.measures if any(of[name].runs for of in means.values() if name in of)]
    yield Items(
        [
            f"`{name}`{f' ({measure.unit})' if measure.unit else ''}: {measure.text or 'not described'}"
            + ("" if name in used else "; nowhere measured")
            for name, measure in study.measures.items()
        ]
    )
    points = list(study.points())
    varying = [name for name, values in study.grid.items() if len(values) > 1]
    split = varying[0] if len(points) > MAX_TABLE_ROWS and len(varying) > 1 else None
    for value in study.grid[split] if split else [None]:
        chosen = [point for point in points if split is None or point[split] == value]
        tables: list[Block] = []
        for first in range(0, len(used), MAX_COLUMNS):
            names = [name for name in varying if name != split]
            tables.append(_table_of_points(study, means, chosen, names, used[first : first + MAX_COLUMNS]))
        if split is not None and value is not None:
            yield Folded(f"{split} {shown(value)}: {plural(len(chosen), 'point')}", tables)
        else:
            yield from tables


def _table_of_points(study: Study, means: Means, points: list[Point], names: list[str], measures: list[str]) -> Table:
    rows = []
    for point in points:
        of = means.get(canonical(point), {})
        told = [words(of[measure]) if measure in of else "-" for measure in measures]
        rows.append((*(shown(point[name]) for name in names), *told, str(max((one.runs for one in of.values()), default=0))))
    units = [f"{name} ({study.measures[name].unit})" if study.measures[name].unit else name for name in measures]
    return Table((*names, *units, "runs"), rows, text=len(names))


def _again(study: Study) -> Iterator[Block]:
    yield Heading("One run again")
    yield Paragraph(
        "Each command does one run alone, without Spark, and prints the numbers that this study has for it. "
        "`--repetition` takes any of its repetitions, and `--trace DIR` writes the trace of it, where the model has one."
    )
    commands = [replay_command(study, point, 0) for point in study.points()]
    yield Code(commands[0])
    if len(commands) > 1:
        yield Folded(f"all {len(commands)} points", [Code("\n".join(commands))])
