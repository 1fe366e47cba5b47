"""A chart of measured lines as SVG: means with their intervals, several lines, linear or logarithmic axes.

For studies, beside the small plots of ``plots``. A chart can stand in a page, and as a file of its own.

Rules: those of ``plots``; besides, a value that does not exist (``nan``), or that a logarithmic axis cannot show, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from thence.pipeline.reporting.plots import LEFT, WIDTH, Tick, framed, lettering, nice_ticks
from thence.pipeline.reporting.wording import number

CHART_HEIGHT: Final = 320
CHART_BOTTOM: Final = 42
CHART_RIGHT: Final = 20
LEGEND_STEP: Final = 16
COLOURS: Final = 8
"""So many colours; after that they repeat, with other dashes."""
DASHES: Final = ("", "6 3", "2 3", "9 3 2 3")
MAX_CATEGORY: Final = 14
"""Of longer names of a category, only the beginning is shown below the axis."""
MOST_TICKS: Final = 7
"""On a logarithmic axis."""
TOLERANCE: Final = 1e-9
SMALLEST_PLAIN: Final = 1e-3
LARGEST_PLAIN: Final = 1e6
"""Numbers beyond these are written with a power of ten beside an axis."""
CHART_TOP: Final = 28
KEY_CHARACTER: Final = 7.6
"""About how wide a letter of the legend is."""

_LIGHT: Final = ("#1f6feb", "#b35900", "#1a7f37", "#a0339f", "#b42318", "#0f7c86", "#6e6a00", "#57606a")
_DARK: Final = ("#6cb0ff", "#f0a35e", "#56d364", "#e08ae0", "#ff8a7a", "#4fc7d1", "#cfc84a", "#9aa7b4")


def _colours(shades: Sequence[str]) -> str:
    return "".join(
        f".chart .c{place}{{stroke:{shade}}}.chart .dot.c{place},.chart text.c{place}{{fill:{shade};stroke:none}}"
        for place, shade in enumerate(shades, 1)
    )


CHART_STYLE: Final = (
    ".chart .line{fill:none;stroke-width:2;stroke-linejoin:round}.chart .bar95{fill:none;stroke-width:1.2}"
    ".chart text.key{font-weight:600}" + _colours(_LIGHT) + f"@media (prefers-color-scheme:dark){{{_colours(_DARK)}}}"
)
"""What a page with charts needs."""

FILE_STYLE: Final = (
    "svg{background:#fff;font:12px sans-serif}text{fill:#1b1f24}.tick,.name{fill:#57606a}.grid{stroke:#d8dee4;fill:none}"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}.bar95{fill:none;stroke-width:1.2}text.key{font-weight:600}"
    + _colours(_LIGHT)
)
"""What a chart that is a file of its own brings along."""


class Dot(NamedTuple):
    """A measured point; ``x`` is a number, or the name of a category."""

    x: float | str
    y: float
    half_width: float = 0.0


class Curve(NamedTuple):
    """A named line. Those of one ``colour`` belong together and differ by ``dash``."""

    name: str
    dots: Sequence[Dot]
    colour: int
    dash: int = 0


class Axis(NamedTuple):
    """From values to places, and what is written along it."""

    place: Callable[[float], float]
    ticks: Sequence[Tick]


def chart(title: str, about: str, curves: Sequence[Curve], *, x_name: str, y_name: str, log: Literal["", "x", "y", "xy"]) -> str:
    """Draw curves with their intervals; the legend stands below."""
    categories = list(dict.fromkeys(dot.x for curve in curves for dot in curve.dots if isinstance(dot.x, str)))
    log_x, log_y = "x" in log and not categories, "y" in log
    drawn = [(curve, _good(curve, categories, log_x=log_x, log_y=log_y)) for curve in curves]
    xs = [x for _, dots in drawn for x, _, _ in dots]
    ys = [y for _, dots in drawn for _, y, _ in dots]
    ends = [end for _, dots in drawn for _, y, half in dots for end in (y - half, y + half) if not log_y or end > 0]
    legend, height = _legend(curves)
    if not xs:
        return framed(title, about, lettering(LEFT, 40, "nothing was measured here", "name"), 60, "plot chart")
    if categories:
        across = _category_axis(categories)
    else:
        across = _axis(xs, LEFT, WIDTH - CHART_RIGHT, log=log_x, from_zero=False)
    up = _axis([*ys, *ends], CHART_HEIGHT - CHART_BOTTOM, CHART_TOP, log=log_y, from_zero=True)
    parts = [_frame(across, up, x_name, y_name)]
    parts += [
        _curve(curve, [(across.place(x), y, half) for x, y, half in dots], up, log_y=log_y) for curve, dots in drawn if dots
    ]
    return framed(title, about, "".join(parts) + legend, CHART_HEIGHT + height, "plot chart")


def standing_alone(svg: str) -> str:
    """A chart as a file of its own."""
    start, behind = svg.split(">", 1)
    named = start.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{named}><style>{FILE_STYLE}</style>{behind}\n"


def _good(curve: Curve, categories: Sequence[str | float], *, log_x: bool, log_y: bool) -> list[tuple[float, float, float]]:
    """What can be shown of a curve, from left to right."""
    found = []
    for dot in curve.dots:
        x = float(categories.index(dot.x)) if isinstance(dot.x, str) else float(dot.x)
        half = dot.half_width if math.isfinite(dot.half_width) else 0.0
        if math.isfinite(dot.y) and not (log_x and x <= 0) and not (log_y and dot.y <= 0):
            found.append((x, dot.y, half))
    return sorted(found)


def _category_axis(categories: Sequence[str | float]) -> Axis:
    step = (WIDTH - CHART_RIGHT - LEFT) / len(categories)
    ticks = [Tick(place, _cut(str(name))) for place, name in enumerate(categories)]
    return Axis(lambda x: LEFT + (x + 0.5) * step, ticks)


def _cut(name: str) -> str:
    return name if len(name) <= MAX_CATEGORY else f"{name[: MAX_CATEGORY - 1]}…"


def _axis(values: Sequence[float], start: float, end: float, *, log: bool, from_zero: bool) -> Axis:
    low, high = min(values), max(values)
    if log:
        at_ticks = _log_ticks(low, high)
        first, last = math.log10(at_ticks[0]), math.log10(at_ticks[-1])
        ticks = [Tick(at, _short(at)) for at in at_ticks]
        return Axis(lambda at: start + (math.log10(at) - first) / (last - first) * (end - start), ticks)
    places = nice_ticks(min(0.0, low) if from_zero else low, high)
    bottom, span = places[0], places[-1] - places[0]
    return Axis(lambda at: start + (at - bottom) / span * (end - start), [Tick(at, _short(round(at, 10))) for at in places])


def _log_ticks(low: float, high: float) -> list[float]:
    """Round numbers around the values: 1, 2, 5, 10 where there is room, else powers of ten only.

    >>> _log_ticks(0.3, 4.0)
    [0.2, 0.5, 1.0, 2.0, 5.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1
    step = max(1, math.ceil((last - first) / MOST_TICKS))
    factors = (1, 2, 5) if (math.log10(high / low)) * 3 <= MOST_TICKS else (1,)
    every = [float(f"{factor}e{power}") for power in range(first, last + step, step) for factor in factors]
    below = max([at for at in every if at <= low * (1 + TOLERANCE)], default=every[0])
    above = min([at for at in every if at >= high * (1 - TOLERANCE) and at > below], default=every[-1])
    return [at for at in every if below <= at <= above]


def _short(value: float) -> str:
    """A number beside an axis.

    >>> _short(2500.0), _short(3_000_000.0), _short(0.0001), _short(0.5)
    ('2,500', '3e6', '1e-4', '0.5')
    """
    if value and not SMALLEST_PLAIN <= abs(value) < LARGEST_PLAIN:
        digits, power = f"{value:.2e}".split("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
    return number(value)


def _frame(across: Axis, up: Axis, x_name: str, y_name: str) -> str:
    floor = CHART_HEIGHT - CHART_BOTTOM
    parts = [
        f'<path class="grid" d="M{LEFT} {up.place(tick.at):.1f}H{WIDTH - CHART_RIGHT}"/>'
        + lettering(LEFT - 8, up.place(tick.at) + 4, tick.text, "tick", "end")
        for tick in up.ticks
    ]
    parts += [
        f'<path class="grid" d="M{across.place(tick.at):.1f} {floor}v5"/>'
        + lettering(across.place(tick.at), floor + 18, tick.text, "tick", "middle")
        for tick in across.ticks
    ]
    parts.append(lettering((LEFT + WIDTH - CHART_RIGHT) / 2, CHART_HEIGHT - 6, x_name, "name", "middle"))
    parts.append(lettering(8, 14, y_name, "name"))
    return "".join(parts)


def _curve(curve: Curve, dots: Sequence[tuple[float, float, float]], up: Axis, *, log_y: bool) -> str:
    kind = f"c{curve.colour % COLOURS + 1}"
    lowest = CHART_HEIGHT - CHART_BOTTOM
    path = "".join(f"{'L' if place else 'M'}{x:.1f} {up.place(y):.1f}" for place, (x, y, _) in enumerate(dots))
    bars = ""
    for x, y, half in dots:
        if half > 0:
            bottom = lowest if log_y and y - half <= 0 else up.place(y - half)
            bars += f"M{x - 3:.1f} {up.place(y + half):.1f}h6m-3 0V{bottom:.1f}m-3 0h6"
    return (
        f'<path class="line {kind}"{_dashes(curve)} d="{path}"/>'
        + (f'<path class="bar95 {kind}" d="{bars}"/>' if bars else "")
        + "".join(f'<circle class="dot {kind}" cx="{x:.1f}" cy="{up.place(y):.1f}" r="2.6"/>' for x, y, _ in dots)
    )


def _dashes(curve: Curve) -> str:
    pattern = DASHES[(curve.dash + curve.colour // COLOURS) % len(DASHES)]
    return f' stroke-dasharray="{pattern}"' if pattern else ""


def _legend(curves: Sequence[Curve]) -> tuple[str, float]:
    """The names of the curves below the chart, as many in a line as there is room for; and how high that is."""
    parts, x, y = [], float(LEFT), CHART_HEIGHT + 10.0
    for curve in curves:
        width = 44 + KEY_CHARACTER * len(curve.name)
        if x > LEFT and x + width > WIDTH - CHART_RIGHT:
            x, y = float(LEFT), y + LEGEND_STEP
        kind = f"c{curve.colour % COLOURS + 1}"
        parts.append(f'<path class="line {kind}"{_dashes(curve)} d="M{x:.1f} {y - 4:.1f}h22"/>')
        parts.append(lettering(x + 28, y, curve.name, f"key {kind}"))
        x += width
    return "".join(parts), y + 8 - CHART_HEIGHT
