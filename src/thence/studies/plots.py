"""The plots and rankings of a study, from its means.

Rules:

* A plot has a line for each combination of ``by``, in one colour; several measures in one plot differ by their dashes, so that
  a formula lies beside the simulation of the same colour. Parameters that neither the plot nor ``where`` fixes get lines too.
* A ranking names, of the values of one parameter, the one with the lowest mean, at every combination of the others. Values whose
  95 % intervals overlap that of the best one cannot be told from it, and are named with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from thence.pipeline.report.plots import LinePlot, PlotLine
from thence.studies.claims import words
from thence.studies.document import Table
from thence.studies.results import Means
from thence.studies.statistics import Summary
from thence.studies.study import Plot, Point, Ranking, Study, Value, canonical, matches, shown
from thence.words import counted

MAX_LINES: Final = 24
"""Of more lines nobody could tell one from the other; the rest is in the table, and the plot says so."""


def draw(study: Study, plot: Plot, means: Means) -> tuple[LinePlot, str]:
    """Return one plot of a study, and what there is to say about it."""
    points = [point for point in study.points() if matches(point, plot.where)]
    apart = [*plot.by, *_varying(study, points, {plot.x, *plot.by})]
    groups: dict[tuple[Value, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(point[name] for name in apart), []).append(point)
    lines = []
    for colour, (values, members) in enumerate(groups.items()):
        for dash, measure in enumerate(plot.y):
            found = [means.get(canonical(point), {}).get(measure) for point in members]
            points_of = [(_place(point[plot.x]), of.mean if of else math.nan) for point, of in zip(members, found, strict=True)]
            errors = [of.half_width if of else 0.0 for of in found]
            names = [shown(value) for value in values] + ([measure] if len(plot.y) > 1 else [])
            lines.append(PlotLine(", ".join(names) or measure, points_of, errors, colour, dash))
    left_out = max(0, len(lines) - MAX_LINES)
    units = list(dict.fromkeys(study.measures[name].unit for name in plot.y))
    y_name = (plot.y[0] if len(plot.y) == 1 else " and ".join(plot.y)) + (
        f" ({units[0]})" if len(units) == 1 and units[0] else ""
    )
    about = f"{'; '.join(study.measures[name].text or name for name in plot.y)}, against {plot.x}, with 95 % intervals"
    where = ", ".join(f"{name} {wanted if isinstance(wanted, list) else shown(wanted)}" for name, wanted in plot.where.items())
    notes = [f"at {where}"] if where else []
    if left_out:
        notes.append(f"{counted(left_out, 'more line', 'are')} in the table only")
    return LinePlot(plot.title, about, lines[:MAX_LINES], plot.x, y_name, plot.log), "; ".join(notes)


def _place(value: Value) -> float | str:
    return shown(value) if isinstance(value, str | bool) else float(value)


def rank(study: Study, ranking: Ranking, means: Means) -> Table:
    """Return one table: a row for each combination of the other parameters, a column for each measure."""
    points = [point for point in study.points() if matches(point, ranking.where)]
    others = _varying(study, points, {ranking.of})
    found: dict[tuple[Value, ...], dict[str, Mapping[str, Summary]]] = {}
    for point in points:
        at = tuple(point[name] for name in others)
        found.setdefault(at, {})[shown(point[ranking.of])] = means.get(canonical(point), {})
    rows = [
        (*(shown(value) for value in at), *(_best(measure, sides) for measure in ranking.measures)) for at, sides in found.items()
    ]
    columns = with_units(study, ranking.measures)
    return Table((*others, *columns), rows, text=len(others) + len(columns))


def _best(measure: str, sides: Mapping[str, Mapping[str, Summary]]) -> str:
    known = {name: of[measure] for name, of in sides.items() if measure in of and of[measure].is_known}
    if not known:
        return "-"
    best = min(known, key=lambda name: known[name].mean)
    alike = [name for name, summary in known.items() if name != best and summary.low <= known[best].high]
    return f"**{best}** {words(known[best])}" + (f"; alike: {', '.join(alike)}" if alike else "")


def _varying(study: Study, points: list[Point], without: set[str]) -> list[str]:
    """Return the parameters by which these points differ, without some."""
    return [name for name in study.grid if name not in without and len({point[name] for point in points}) > 1]


def with_units(study: Study, measures: Iterable[str]) -> list[str]:
    """Return measures as heads of columns."""
    return [f"{name} ({study.measures[name].unit})" if study.measures[name].unit else name for name in measures]
