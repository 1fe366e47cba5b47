"""The plots of a study: from its means to charts.

Rules: a line for each combination of ``by``, in one colour; several measures in one plot differ by their dashes, so that a
formula lies beside the simulation of the same colour. Parameters that neither the plot nor ``where`` fixes get lines too,
rather than being mixed into one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from thence.pipeline.reporting.charts import Curve, Dot, chart
from thence.studies.results import Means
from thence.studies.study import Plot, Point, Study, Value, canonical, matches, shown

MAX_LINES: Final = 24
"""Of more lines nobody could tell one from the other; the rest is in the table, and the plot says so."""


class Drawn(NamedTuple):
    """A plot, and what there is to say about it."""

    title: str
    svg: str
    note: str


def draw(study: Study, plot: Plot, means: Means) -> Drawn:
    """One plot of a study."""
    points = [point for point in study.points() if matches(point, plot.where)]
    apart = _apart(study, plot, points)
    groups: dict[tuple[Value, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(point[name] for name in apart), []).append(point)
    curves = []
    for colour, (values, members) in enumerate(groups.items()):
        for dash, measure in enumerate(plot.y):
            dots = [_dot(point, plot.x, measure, means) for point in members]
            names = [shown(value) for value in values] + ([measure] if len(plot.y) > 1 else [])
            curves.append(Curve(", ".join(names) or measure, dots, colour, dash))
    left_out = max(0, len(curves) - MAX_LINES)
    units = list(dict.fromkeys(study.measures[name].unit for name in plot.y))
    y_name = (plot.y[0] if len(plot.y) == 1 else " and ".join(plot.y)) + (
        f" ({units[0]})" if len(units) == 1 and units[0] else ""
    )
    about = f"{'; '.join(study.measures[name].text or name for name in plot.y)}, against {plot.x}, with 95 % intervals"
    svg = chart(plot.title, about, curves[:MAX_LINES], x_name=plot.x, y_name=y_name, log=plot.log)
    where = ", ".join(f"{name} {wanted if isinstance(wanted, list) else shown(wanted)}" for name, wanted in plot.where.items())
    notes = [f"at {where}"] if where else []
    if left_out:
        notes.append(f"{left_out} more lines are in the table only")
    return Drawn(plot.title, svg, "; ".join(notes))


def _apart(study: Study, plot: Plot, points: list[Point]) -> list[str]:
    """The parameters by which lines differ."""
    more = [name for name in study.grid if name not in {plot.x, *plot.by} and len({point[name] for point in points}) > 1]
    return [*plot.by, *more]


def _dot(point: Point, x: str, measure: str, means: Means) -> Dot:
    at = point[x]
    place = shown(at) if isinstance(at, str | bool) else float(at)
    summary = means.get(canonical(point), {}).get(measure)
    if summary is None:
        return Dot(place, float("nan"))
    return Dot(place, summary.mean, summary.half_width)
