"""The plots of a study, from its means.

Rules: a line for each combination of ``by``, in one colour; several measures in one plot differ by their dashes, so that a
formula lies beside the simulation of the same colour. Parameters that neither the plot nor ``where`` fixes get lines too,
rather than being mixed into one.
"""

from __future__ import annotations

import math
from typing import Final

from thence.pipeline.reporting.plots import Line, LinePlot
from thence.studies.results import Means
from thence.studies.study import Plot, Point, Study, Value, canonical, matches, shown
from thence.words import counted

MAX_LINES: Final = 24
"""Of more lines nobody could tell one from the other; the rest is in the table, and the plot says so."""


def draw(study: Study, plot: Plot, means: Means) -> tuple[LinePlot, str]:
    """Return one plot of a study, and what there is to say about it."""
    points = [point for point in study.points() if matches(point, plot.where)]
    apart = _apart(study, plot, points)
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
            lines.append(Line(", ".join(names) or measure, points_of, errors, colour, dash))
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


def _apart(study: Study, plot: Plot, points: list[Point]) -> list[str]:
    """The parameters by which lines differ."""
    more = [name for name in study.grid if name not in {plot.x, *plot.by} and len({point[name] for point in points}) > 1]
    return [*plot.by, *more]


def _place(value: Value) -> float | str:
    return shown(value) if isinstance(value, str | bool) else float(value)
