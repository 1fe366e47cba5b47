"""Where each is best: of the values of one parameter, the one with the lowest mean, at every combination of the others.

Rules: lower is better. Values whose 95 % intervals overlap that of the best one cannot be told from it, and are named with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from thence.studies.blocks import Table
from thence.studies.claims import words
from thence.studies.results import Means
from thence.studies.statistics import Summary
from thence.studies.study import Ranking, Study, Value, canonical, matches, shown


def rank(study: Study, ranking: Ranking, means: Means) -> Table:
    """One table: a row for each combination of the other parameters, a column for each measure."""
    points = [point for point in study.points() if matches(point, ranking.where)]
    others = [name for name in study.grid if name != ranking.of and len({point[name] for point in points}) > 1]
    found: dict[tuple[Value, ...], dict[str, Mapping[str, Summary]]] = {}
    for point in points:
        at = tuple(point[name] for name in others)
        found.setdefault(at, {})[shown(point[ranking.of])] = means.get(canonical(point), {})
    rows = [
        (*(shown(value) for value in at), *(_best(measure, sides) for measure in ranking.measures)) for at, sides in found.items()
    ]
    units = [study.measures[name].unit for name in ranking.measures]
    columns = [f"{name} ({unit})" if unit else name for name, unit in zip(ranking.measures, units, strict=True)]
    return Table((*others, *columns), rows, text=len(others) + len(columns))


def _best(measure: str, sides: Mapping[str, Mapping[str, Summary]]) -> str:
    known = {name: of[measure] for name, of in sides.items() if measure in of and of[measure].is_known}
    if not known:
        return "-"
    best = min(known, key=lambda name: known[name].mean)
    alike = [name for name, summary in known.items() if name != best and summary.low <= known[best].high]
    return f"**{best}** {words(known[best])}" + (f"; alike: {', '.join(alike)}" if alike else "")
