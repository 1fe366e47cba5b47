"""Small plots as SVG: lines, bars and a heat map, drawn to stand inside a page.

Our own, since five shapes are all that the report needs: what comes out is a few kilobytes, takes its colours from the
page (light, dark, printed), and has a title and a description for whoever cannot see it.

Rules: everything that is text goes through :func:`escaped`; same data, same bytes; no script, no link, no font.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from thence.pipeline.reporting.wording import escaped

WIDTH: Final = 640
HEIGHT: Final = 260
LEFT: Final = 64
RIGHT: Final = 92
"""Room for the name of a line behind its end."""
TOP: Final = 14
BOTTOM: Final = 38
CHARACTER: Final = 6.6
"""About how wide a letter is."""

Words = Callable[[float], str]


class Line(NamedTuple):
    """A named line through points; ``filled`` down to zero."""

    name: str
    points: Sequence[tuple[float, float]]
    filled: bool = False


class Tick(NamedTuple):
    """A mark on an axis."""

    at: float
    text: str


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from at or below ``low`` to at or above ``high``, at most ``most`` steps apart.

    >>> nice_ticks(0, 87)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    span = high - low
    if not span > 0:
        low, span = min(low, 0.0), abs(high) or 1.0
        high = low + span
    step = 10.0 ** math.floor(math.log10(span / most))
    while True:
        for factor in (1, 2, 2.5, 5, 10):
            first, last = math.floor(low / (step * factor)), math.ceil(high / (step * factor))
            if last - first <= most:
                return [number * step * factor for number in range(first, last + 1)]
        step *= 10


def tail_place(percent: float) -> float:
    """Where a percentile stands on an axis that gives each further nine the same room."""
    return -math.log10(1 - percent / 100)


def framed(title: str, about: str, body: str, height: float = HEIGHT, kind: str = "plot") -> str:
    """A whole plot around what is drawn in it."""
    return (
        f'<svg class="{kind}" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escaped(f"{title}. {about}")}">'
        f"<title>{escaped(title)}</title><desc>{escaped(about)}</desc>{body}</svg>"
    )


def lettering(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    """Text at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escaped(text)}</text>'


def line_plot(title: str, about: str, lines: Sequence[Line], *, x_ticks: Sequence[Tick], y_words: Words, x_name: str) -> str:
    """Lines over one axis; each is named at its end, in its colour and with its own dashes."""
    values = [y for line in lines for _, y in line.points]
    ticks = nice_ticks(min(0.0, *values), max(values)) if len(values) > 1 else nice_ticks(0, max([1.0, *values]))
    places = [tick.at for tick in x_ticks] + [x for line in lines for x, _ in line.points]
    low_x, span_x = min(places), (max(places) - min(places)) or 1
    low_y, span_y = ticks[0], ticks[-1] - ticks[0]

    def across(x: float) -> float:
        return LEFT + (x - low_x) / span_x * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - (y - low_y) / span_y * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<path class="grid" d="M{LEFT} {up(tick):.1f}H{WIDTH - RIGHT}"/>'
        + lettering(LEFT - 8, up(tick) + 4, y_words(tick), "tick", "end")
        for tick in ticks
    ]
    parts += [
        f'<path class="grid" d="M{across(tick.at):.1f} {HEIGHT - BOTTOM}v5"/>'
        + lettering(across(tick.at), HEIGHT - BOTTOM + 18, tick.text, "tick", "middle")
        for tick in x_ticks
    ]
    parts.append(lettering((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, x_name, "name", "middle"))
    ends = apart([up(line.points[-1][1]) for line in lines])
    for number, (line, end) in enumerate(zip(lines, ends, strict=True), 1):
        path = "".join(f"{'L' if place else 'M'}{across(x):.1f} {up(y):.1f}" for place, (x, y) in enumerate(line.points))
        if line.filled:
            base = f"{up(0):.1f}"
            first, last = across(line.points[0][0]), across(line.points[-1][0])
            parts.append(f'<path class="fill s{number}" d="{path}L{last:.1f} {base}L{first:.1f} {base}Z"/>')
        parts.append(f'<path class="line s{number}" d="{path}"/>')
        parts.append(lettering(WIDTH - RIGHT + 6, end + 4, line.name, f"label s{number}"))
    return framed(title, about, "".join(parts))


def apart(places: Sequence[float], distance: float = 15) -> list[float]:
    """The places, moved so far apart that text at them can be read."""
    moved = list(places)
    order = sorted(range(len(places)), key=lambda number: places[number])
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + distance)
    return moved


class Bar(NamedTuple):
    """A named bar of one or several parts, one after the other."""

    name: str
    full_name: str
    parts: Sequence[float]
    label: str


BAR_HEIGHT: Final = 16
BAR_STEP: Final = 24
BAR_LEFT: Final = 150
BAR_RIGHT: Final = 130


def bar_plot(title: str, about: str, bars: Sequence[Bar], legend: Sequence[str] = ()) -> str:
    """Lying bars from zero, each with its value behind it."""
    longest = max((sum(bar.parts) for bar in bars), default=0) or 1
    top = 26 if legend else 6
    parts = []
    x = float(BAR_LEFT)
    for number, name in enumerate(legend, 1):
        parts.append(
            f'<rect class="bar s{number}" x="{x:.1f}" y="4" width="11" height="11"/>' + lettering(x + 16, 14, name, "label")
        )
        x += 32 + CHARACTER * len(name)
    for row, bar in enumerate(bars):
        y = top + row * BAR_STEP
        start = float(BAR_LEFT)
        parts.append(f"<g><title>{escaped(f'{bar.full_name}: {bar.label}')}</title>")
        parts.append(lettering(BAR_LEFT - 8, y + 12, bar.name, "tick", "end"))
        for number, part in enumerate(bar.parts, 1):
            width = part / longest * (WIDTH - BAR_LEFT - BAR_RIGHT)
            parts.append(
                f'<rect class="bar s{number}" x="{start:.1f}" y="{y}" width="{max(width, 0.5):.1f}" height="{BAR_HEIGHT}"/>'
            )
            start += width
        parts.append(lettering(start + 6, y + 12, bar.label, "value") + "</g>")
    return framed(title, about, "".join(parts), top + len(bars) * BAR_STEP + 4)


class Heat(NamedTuple):
    """A square of cells, with short and full names of its lines."""

    names: Sequence[str]
    full_names: Sequence[str]
    cells: Sequence[Sequence[int]]
    rows_are: str
    columns_are: str
    plain: int
    """So many of the lines count for the shades; the others, sums of many, are as dark as can be."""


HEAT_LEFT: Final = 110
HEAT_RIGHT: Final = 60
"""Room for the slanting name of the last column."""
MAX_CELL: Final = 34
NUMBERS_UP_TO: Final = 12
"""Up to so many lines each cell has room for its number."""
FAINTEST: Final = 0.08


def heat_plot(title: str, about: str, heat: Heat, words: Words) -> str:
    """Cells that are the darker the larger their number is; one that is zero is empty."""
    count = len(heat.names)
    largest = max((value for row in heat.cells[: heat.plain] for value in row[: heat.plain]), default=0) or 1
    cell = min(MAX_CELL, (WIDTH - HEAT_LEFT - HEAT_RIGHT) / max(count, 1))
    top = 20 + min(90, CHARACTER * 0.75 * max((len(name) for name in heat.names), default=0) + 12)
    parts = [lettering(HEAT_LEFT, 12, f"{heat.rows_are} ↓   {heat.columns_are} →", "name")]
    for place, name in enumerate(heat.names):
        x, y = HEAT_LEFT + (place + 0.5) * cell, top + (place + 0.5) * cell
        parts.append(f'<text class="tick" transform="translate({x + 3:.1f} {top - 6:.1f}) rotate(-55)">{escaped(name)}</text>')
        parts.append(lettering(HEAT_LEFT - 8, y + 4, name, "tick", "end"))
    for row, values in enumerate(heat.cells):
        for column, value in enumerate(values):
            x, y = HEAT_LEFT + column * cell, top + row * cell
            parts.append(_cell(heat, row, column, (x, y, cell), min(1.0, value / largest), words(value)))
    bottom = top + count * cell
    return framed(title, about, "".join(parts) + _scale(bottom + 12, words(largest)), bottom + 44, "plot heat")


def _cell(heat: Heat, row: int, column: int, where: tuple[float, float, float], strength: float, value: str) -> str:
    x, y, side = where
    name = f"{heat.full_names[row]} to {heat.full_names[column]}: {value}"
    opacity = FAINTEST + (1 - FAINTEST) * strength if strength else 0
    inside = ""
    if len(heat.names) <= NUMBERS_UP_TO and strength:
        inside = lettering(x + side / 2, y + side / 2 + 3.5, value, "in dark" if opacity > 0.55 else "in", "middle")
    box = f'x="{x:.1f}" y="{y:.1f}" width="{side - 1.5:.1f}" height="{side - 1.5:.1f}"'
    shade = f'<rect class="cell" fill-opacity="{opacity:.2f}" {box}/>' if strength else ""
    return f'<g><title>{escaped(name)}</title><rect class="empty" {box}/>{shade}{inside}</g>'


def _scale(y: float, largest: str) -> str:
    """What the shades mean."""
    steps = 6
    boxes = "".join(
        f'<rect class="cell" fill-opacity="{FAINTEST + (1 - FAINTEST) * step / (steps - 1):.2f}" '
        f'x="{HEAT_LEFT + 24 + step * 20}" y="{y:.1f}" width="20" height="10"/>'
        for step in range(steps)
    )
    return (
        lettering(HEAT_LEFT, y + 9, "few", "tick") + boxes + lettering(HEAT_LEFT + 30 + steps * 20, y + 9, f"{largest}", "tick")
    )
