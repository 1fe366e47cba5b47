"""Plots: what they show as values, and their pictures as SVG, drawn by matplotlib.

Rules:

* A plot is a value. Only :func:`svg` and :func:`inline` need matplotlib, so a report on a terminal does without it.
* Same plot, same bytes: fixed settings, no date, no random ids, the font that matplotlib brings along.
* Every text is shown as it is: no name is taken for a formula, and matplotlib escapes it.
* A value that does not exist (``nan``), or that a logarithmic axis cannot show, is left out.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from thence.pipeline.report.text import escaped, needed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH: Final = 640
HEIGHT: Final = 300
"""In points, of which matplotlib has 72 in an inch."""
ROW: Final = 18
"""How high a row of a legend is."""
CHARACTER: Final = 7
"""About how wide a character is."""
MAX_CATEGORY: Final = 14
"""Of longer names of a category, only the beginning is shown below the axis."""
MAX_CELL: Final = 34
NUMBERS_UP_TO: Final = 12
"""Up to so many lines each cell of a heat map has room for its number."""
FAINTEST: Final = 0.08
FEW_DECADES: Final = 2
"""A logarithmic axis of no more has ticks at 1, 2 and 5."""

PAPER: Final = "#ffffff"
INK: Final = "#1b1f24"
SOFT: Final = "#57606a"
RULE: Final = "#d8dee4"
COLOURS: Final = ("#1f6feb", "#b35900", "#1a7f37", "#a0339f", "#b42318", "#0f7c86", "#6e6a00", "#56606b")
"""After the last one they repeat, with other dashes."""
DASHES: Final = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
THEMED: Final = {PAPER: "paper", INK: "ink", SOFT: "soft", RULE: "rule"} | {
    shade: f"c{place}" for place, shade in enumerate(COLOURS, 1)
}
"""The variables of a page that stand for the colours, so that a dark page has light lines."""

SETTINGS: Final[dict[str, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "thence",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 11,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.linewidth": 1,
    "grid.color": RULE,
    "legend.frameon": False,
    "legend.handlelength": 3,
    "lines.linewidth": 1.8,
}

Words = Callable[[float], str]


def plain(value: float) -> str:
    """Return a number beside an axis.

    >>> plain(2500.0), plain(3_000_000.0), plain(0.5)
    ('2,500', '3e+06', '0.5')
    """
    return f"{value:,g}"


class PlotLine(NamedTuple):
    """A named line through points; ``errors`` are the half widths of their intervals. ``x`` may name a category.

    Lines of one ``colour`` belong together and differ by ``dash``. A ``filled`` one is filled down to zero.
    """

    name: str
    points: Sequence[tuple[float | str, float]]
    errors: Sequence[float] = ()
    colour: int = 0
    dash: int = 0
    filled: bool = False


class LinePlot(NamedTuple):
    """Lines over one axis, with a legend below."""

    title: str
    about: str
    lines: Sequence[PlotLine]
    x_name: str
    y_name: str = ""
    log: Literal["", "x", "y", "xy"] = ""
    x_words: Words = plain
    y_words: Words = plain
    x_ticks: Mapping[float, str] | None = None


class PlotBar(NamedTuple):
    """A named bar of one or several parts, one after the other."""

    name: str
    full_name: str
    parts: Sequence[float]
    label: str


class BarPlot(NamedTuple):
    """Lying bars from zero, each with its value behind it; ``legend`` names their parts."""

    title: str
    about: str
    bars: Sequence[PlotBar]
    legend: Sequence[str] = ()


class HeatPlot(NamedTuple):
    """A field of cells, the darker the larger their number is, with short and full names of its lines."""

    title: str
    about: str
    names: Sequence[str]
    full_names: Sequence[str]
    cells: Sequence[Sequence[int]]
    plain: int
    """So many of the lines count for the shades; the others, sums of many, are as dark as can be."""
    words: Words
    columns: tuple[Sequence[str], Sequence[str]] | None = None
    """Short and full names of the columns, where they are not those of the lines."""


Plot = LinePlot | BarPlot | HeatPlot


def svg(plot: Plot) -> str:
    """Return the plot as a file of its own."""
    text, tips = _drawn(plot)
    start, _, body = text.partition("<svg")[2].partition(">")
    tipped = re.sub(r'<g id="tip(\d+)">', lambda found: f"{found[0]}<title>{escaped(tips[int(found[1])])}</title>", body)
    label = escaped(f"{plot.title}. {plot.about}")
    return (
        f'<svg class="plot" role="img" aria-label="{label}"{start}>'
        f"<title>{escaped(plot.title)}</title><desc>{escaped(plot.about)}</desc>{tipped}"
    )


def _drawn(plot: Plot) -> tuple[str, Tips]:
    needed("matplotlib")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of characters that the font lacks: the reader's font may have them.
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        figure, text = Figure(layout="constrained"), io.StringIO()
        if isinstance(plot, LinePlot):
            height, tips = _lines(figure, plot)
        else:
            height, tips = _bars(figure, plot) if isinstance(plot, BarPlot) else _heat(figure, plot)
        figure.set_size_inches(WIDTH / 72, height / 72)
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        return text.getvalue(), tips
    raise AssertionError("a context of matplotlib hides no error")


def inline(plot: Plot) -> str:
    """Return the plot as part of a page, in the colours of the page."""
    bare = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg(plot).replace("xlink:href", "href"))
    return re.sub(r'(?<=style=")[^"<>]*', lambda style: _themed(style[0]), bare)


def _themed(style: str) -> str:
    return re.sub("#[0-9a-f]{6}", lambda shade: f"var(--{THEMED[shade[0]]})" if shade[0] in THEMED else shade[0], style)


Tips = Sequence[str]
"""What is shown of a part of a plot when somebody points at it."""


def _lines(figure: Figure, plot: LinePlot) -> tuple[float, Tips]:
    axes = figure.add_subplot()
    categories = list(dict.fromkeys(x for line in plot.lines for x, _ in line.points if isinstance(x, str)))
    log_x, log_y = "x" in plot.log and not categories, "y" in plot.log
    shown = [_good(line, categories, log_x=log_x, log_y=log_y) for line in plot.lines]
    if not any(shown):
        axes.set_axis_off()
        axes.text(0, 0.5, "nothing was measured here")
        return 60, ()
    axes.set_xscale("log" if log_x else "linear")
    axes.set_yscale("log" if log_y else "linear")
    for number, (line, dots) in enumerate(zip(plot.lines, shown, strict=True), 1):
        _line(axes, number, line, dots)
    if not log_y:
        axes.set_ylim(bottom=min(0, *(y - error for dots in shown for _, y, error in dots)))
    _ticks(axes.xaxis, plot.x_words, log=log_x)
    _ticks(axes.yaxis, plot.y_words, log=log_y)
    if categories:
        axes.set_xticks(range(len(categories)), [_cut(str(name)) for name in categories])
    elif plot.x_ticks is not None:
        axes.set_xticks(list(plot.x_ticks), list(plot.x_ticks.values()))
    axes.grid(axis="y")
    axes.set_xlabel(plot.x_name)
    axes.set_title(plot.y_name, loc="left", fontsize=11, color=SOFT)
    return HEIGHT + _legend(figure, axes, [line.name for line in plot.lines]), ()


def _good(line: PlotLine, categories: Sequence[str], *, log_x: bool, log_y: bool) -> list[tuple[float, float, float]]:
    """Return what can be shown of a line, from left to right: place, value, half width."""
    errors = line.errors or [0.0] * len(line.points)
    dots = [
        (float(categories.index(x)) if isinstance(x, str) else float(x), y, error if math.isfinite(error) else 0.0)
        for (x, y), error in zip(line.points, errors, strict=True)
    ]
    return sorted(dot for dot in dots if math.isfinite(dot[1]) and not (log_x and dot[0] <= 0) and not (log_y and dot[1] <= 0))


def _line(axes: Axes, number: int, line: PlotLine, dots: Sequence[tuple[float, float, float]]) -> None:
    colour, dash = COLOURS[line.colour % len(COLOURS)], DASHES[(line.dash + line.colour // len(COLOURS)) % len(DASHES)]
    xs, ys = [x for x, _, _ in dots], [y for _, y, _ in dots]
    measured = bool(line.errors)
    axes.plot(xs, ys, color=colour, linestyle=dash, marker="o" if measured else "", markersize=4, gid=f"curve{number}")
    if line.filled:
        axes.fill_between(xs, ys, color=colour, alpha=0.18, linewidth=0)
    sure = [dot for dot in dots if dot[2] > 0]
    if sure:
        at, middle, half = (list(column) for column in zip(*sure, strict=True))
        _, _, (bars,) = axes.errorbar(at, middle, half, fmt="none", ecolor=colour, elinewidth=1.2, capsize=3)
        bars.set_gid(f"intervals{number}")


def _ticks(axis: Axis, words: Words, *, log: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if log:
        low, high = axis.get_data_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low <= 10**FEW_DECADES else (1,), numticks=8))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(round(value, 10))))


def _cut(name: str) -> str:
    return name if len(name) <= MAX_CATEGORY else f"{name[: MAX_CATEGORY - 1]}…"


def _legend(figure: Figure, axes: Axes, names: Sequence[str]) -> float:
    """Name what is drawn, below it, as many names in a row as there is room for; return how high that is."""
    columns = max(1, min(len(names), WIDTH // (44 + CHARACTER * max(map(len, names)))))
    drawn: Sequence[Any] = axes.get_lines()[: len(names)] or axes.containers
    keys = figure.legend(drawn, [""] * len(names), loc="outside lower center", ncols=columns)
    for text, name in zip(keys.get_texts(), names, strict=True):
        text.set_text(name)  # Not at once: names that begin with an underscore would be left out.
    return ROW * math.ceil(len(names) / columns)


def _bars(figure: Figure, plot: BarPlot) -> tuple[float, Tips]:
    axes = figure.add_subplot()
    axes.set_axis_off()
    starts = [0.0] * len(plot.bars)
    parts = max(len(bar.parts) for bar in plot.bars)
    for part in range(parts):
        widths = [bar.parts[part] if part < len(bar.parts) else 0.0 for bar in plot.bars]
        drawn = axes.barh(range(len(plot.bars)), widths, height=0.66, left=starts, color=COLOURS[part])
        for number, rectangle in enumerate(drawn):
            rectangle.set_gid(f"tip{number}")
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
        if part == parts - 1:
            axes.bar_label(drawn, [bar.label for bar in plot.bars], padding=6)
    for place, bar in enumerate(plot.bars):
        axes.annotate(bar.name, (0, place), (-8, 0), textcoords="offset points", ha="right", va="center", color=SOFT)
    axes.invert_yaxis()
    legend = _legend(figure, axes, plot.legend) if plot.legend else 0
    return 24 * len(plot.bars) + 16 + legend, [f"{bar.full_name}: {bar.label}" for bar in plot.bars]


def _heat(figure: Figure, plot: HeatPlot) -> tuple[float, Tips]:
    from matplotlib.patches import Rectangle

    axes = figure.add_subplot(aspect="equal")
    names, full_names = plot.columns or (plot.names, plot.full_names)
    lines, columns = len(plot.names), len(names)
    largest = max((value for row in plot.cells[: plot.plain] for value in row[: plot.plain]), default=0) or 1
    tips: list[str] = []
    for row, values in enumerate(plot.cells):
        for column, value in enumerate(values):
            strength = min(1.0, value / largest)
            opacity = FAINTEST + (1 - FAINTEST) * strength if strength else 0
            mark = Rectangle((column, row), 0.95, 0.95, facecolor=COLOURS[0], alpha=opacity, linewidth=0, gid=f"tip{len(tips)}")
            axes.add_patch(mark)
            tips.append(f"{plot.full_names[row]} to {full_names[column]}: {plot.words(value)}")
            if strength and max(lines, columns) <= NUMBERS_UP_TO:
                shade = PAPER if opacity > 0.55 else INK
                axes.text(column + 0.5, row + 0.5, plot.words(value), ha="center", va="center", fontsize=9, color=shade)
    axes.set(xlim=(0, columns), ylim=(lines, 0), ylabel="from", xlabel=f"darkest: {plot.words(largest)} or more")
    axes.set_xticks([place + 0.5 for place in range(columns)], names, rotation=55, ha="left", rotation_mode="anchor")
    axes.set_yticks([place + 0.5 for place in range(lines)], plot.names)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.set_title("to", fontsize=11, color=SOFT)
    return lines * min(MAX_CELL, (WIDTH - 160) / columns) + 150, tips
