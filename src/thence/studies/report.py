"""The report on a study: what was claimed and what was measured, side by side, with all numbers and how to get them again.

Rules:

* Same results, same bytes: no date, no name of a machine, nothing of this run but what is in the folder.
* Every number can be had again: the command for the whole, and a command for each point.
* What failed is said at the top.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from thence.pipeline.report.page import rendered
from thence.pipeline.report.plots import svg
from thence.pipeline.report.text import number, share
from thence.studies.claims import Judged, judge, words
from thence.studies.document import Block, Code, Document, Figure, Heading, Items, Paragraph, Table, data, markdown
from thence.studies.plots import draw, rank, with_units
from thence.studies.results import Folder, Means, StudyCost
from thence.studies.runs import replay_command
from thence.studies.statistics import Summary
from thence.studies.study import Study, canonical, shown
from thence.words import counted

RUNS: Final = "study-runs"
MAX_FAILURES: Final = 10


def write_report(folder: Folder, to: Path) -> list[Path]:
    """Write the report on the study of a folder; return the files, Markdown first."""
    study, _ = folder.study()
    document = compose(study, folder.means(), folder.cost())
    for path in to.glob("*.svg"):
        if re.fullmatch(re.escape(study.name) + r"-\d+\.svg", path.name):
            path.unlink()
    files = {f"{study.name}.md": markdown(document), f"{study.name}.html": html(document)}
    files |= {figure.file: svg(figure.plot) for figure in document.figures()}
    files |= {table.file: data(table) for table in document.data()}
    for name, text in files.items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_text(text, encoding="utf-8")
    return [to / name for name in files]


def html(document: Document) -> str:
    """Return the report as one HTML file, with its plots inside."""
    return rendered("study.html", title=document.title, blocks=[(type(block).__name__, block) for block in document.blocks])


def compose(study: Study, means: Means, cost: StudyCost) -> Document:
    """Return the whole report as a value."""
    return Document(
        study.title,
        [
            *_opening(study, cost),
            *_claims(study, judge(study, means)),
            *_rankings(study, means),
            *_plots(study, means),
            *_points(study, means),
            *_again(study),
        ],
    )


def _opening(study: Study, cost: StudyCost) -> Iterator[Block]:
    if study.is_small:
        yield Paragraph("This is the small version of the study, which shows that it runs: its numbers decide little.")
    if cost.failures:
        count = len(cost.failures)
        yield Paragraph(f"**{counted(count, 'run')} failed**, and the numbers below are without them:")
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
    count_of_points = counted(sum(1 for _ in study.points()), "point")
    yield Paragraph(
        f"{count_of_points}, each run {rule.least} to {rule.most} times{until}. Intervals are of Student's t, 95 %. "
        f"In all {counted(cost.runs, 'run')}{events}, {number(round(cost.seconds))} s of one core."
    )
    yield Paragraph("This page is written by:")
    small = " --small" if study.is_small else ""
    yield Code(f"thence study run {study.source}{small}\nthence study report {RUNS}/{study.name} --to docs/research/studies")


def _about(text: str) -> Iterator[Block]:
    """Give what the file says of itself: paragraphs, lists of lines that begin with a star, and tables."""
    for part in re.split(r"\n\s*\n", text.strip()):
        lines = part.strip().splitlines()
        if all(line.startswith("|") for line in lines) and len(lines) > 1:
            columns, _, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
            yield Table(columns, rows, text=len(columns))
        elif lines and lines[0].startswith("* "):
            yield Items([" ".join(item.split()) for item in re.split(r"^\* ", part.strip(), flags=re.MULTILINE)[1:]])
        elif lines:
            yield Paragraph(" ".join(part.split()))


def _claims(study: Study, judged: list[Judged]) -> Iterator[Block]:
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
    yield Paragraph("What was compared, at every place:")
    yield comparisons(
        study,
        [
            (one.claim.id, one.claim.text or one.claim.measure, at.where, at.measured, at.beside, at.difference, at.verdict)
            for one in judged
            for at in one.comparisons
        ],
    )


def comparisons(study: Study, rows: list[tuple[str, ...]]) -> Table:
    """Return the table of every comparison of every claim, which is in a file only."""
    columns = ("id", "claim", "at", "measured", "formula or other side", "difference", "verdict")
    return Table(columns, rows, len(columns), f"data/{study.name}-claims.csv", shown=0)


def _rankings(study: Study, means: Means) -> Iterator[Block]:
    for ranking in study.rankings:
        yield Heading(ranking.title)
        yield Paragraph(f"The lowest mean by `{ranking.of}`; *alike* are those that the 95 % intervals do not tell from it.")
        yield rank(study, ranking, means)


def _plots(study: Study, means: Means) -> Iterator[Block]:
    if study.plots:
        yield Heading("Plots")
    for place, plot in enumerate(study.plots, 1):
        yield Figure(f"{study.name}-{place}.svg", *draw(study, plot, means))


def _points(study: Study, means: Means) -> Iterator[Block]:
    yield Heading("All points")
    used = [name for name in study.measures if any(of[name].runs for of in means.values() if name in of)]
    rows = [
        (f"`{name}`", measure.unit, (measure.text or "not described") + ("" if name in used else "; nowhere measured"))
        for name, measure in study.measures.items()
    ]
    yield Table(("measure", "unit", "meaning"), rows, text=3)
    yield table_of_points(
        study, used, {canonical(point): _told(means.get(canonical(point), {}), used) for point in study.points()}
    )


def _told(of: Mapping[str, Summary], measures: list[str]) -> list[str]:
    """Return how often a point was run, and each measure of it in words."""
    runs = max((one.runs for one in of.values()), default=0)
    return [str(runs), *(words(of[name]) if name in of else "-" for name in measures)]


def table_of_points(study: Study, measures: list[str], told: Mapping[str, list[str]]) -> Table:
    """Return a row for each point: its parameters, its runs, its measures, and the command that repeats its first run."""
    names = [name for name, values in study.grid.items() if len(values) > 1]
    rows = [
        (*(shown(point[name]) for name in names), *told[canonical(point)], replay_command(study, point, 0))
        for point in study.points()
    ]
    return Table((*names, "runs", *with_units(study, measures), "replay"), rows, len(names), f"data/{study.name}-points.csv")


def _again(study: Study) -> Iterator[Block]:
    yield Heading("One run again")
    yield Paragraph(
        "The last column of the data has a command for each point. It does one run without Spark and prints its numbers; "
        "`--trace DIR` writes its trace, where the model has one."
    )
    yield Code(replay_command(study, next(study.points()), 0))
