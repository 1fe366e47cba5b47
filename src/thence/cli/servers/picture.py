"""A fabric as an SVG picture: domains as rectangles, relays between them, links as parallel lines.

Our own SVG, since where things stand is most of it and ours in any case; matplotlib would save the few functions that write a
shape, and make ``topology show`` need the extra ``report``.

Rules:

* A relay is drawn once, between the domains that share it. A link is one line for each pair of its relays, with their names
  at its ends; solid if it keeps causal order, else broken.
* What closes a cycle (in a forced fabric, or where senders have ways of their own) is drawn as a dashed curve.
* The picture is a function of the fabric alone, to the last byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final

from thence.cli.servers.drawing import Branch, Joint, branches
from thence.core.ordering import ordering_named
from thence.core.topology.model import Link, Topology
from thence.errors import UsageError

MAX_DRAWN_PROCESSES = 5_000
"""A larger fabric is no picture any more."""

PILL_HEIGHT: Final = 24
PILL_GAP: Final = 8
CHARACTER: Final = 7.0
"""About how wide a character is at the size used, in pixels: wide enough for every name to fit."""
TITLE_HEIGHT: Final = 26
PADDING: Final = 14
ROW_WIDTH: Final = 200
"""How wide a row of members may get before the next one begins."""
BETWEEN_ROWS: Final = 76
BETWEEN_DOMAINS: Final = 28
LINE_SPACING: Final = 46
MARGIN: Final = 24
EXTRA_HEIGHT: Final = 60
"""How far below everything else a curve that closes a cycle may hang."""

COLOURS: Final = ("#4c78a8", "#59a14f", "#b07aa1", "#e0a030", "#76b7b2", "#9c755f", "#8c8c8c", "#d37295")
RELAY_COLOUR: Final = "#d62728"
LINK_COLOUR: Final = "#333333"
STYLE: Final = (
    "text{font:12px ui-sans-serif,system-ui,sans-serif;text-anchor:middle}"
    ".title{font-weight:600}.small{font-size:10px}.halo{paint-order:stroke;stroke:#fff;stroke-width:4px}"
)


@dataclass
class _Rectangle:
    """A domain with its place in the picture."""

    branch: Branch
    members: list[str]
    rows: list[list[str]]
    width: float
    height: float
    span: float
    """How wide it is with everything below it."""
    ways: list[tuple[Joint, list[_Rectangle]]]
    x: float = 0.0
    y: float = 0.0

    @property
    def middle(self) -> float:
        """Where its middle is, from left to right."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """Where it ends."""
        return self.y + self.height


def as_svg(topology: Topology) -> str:
    """Return the picture."""
    if len(topology.processes) > MAX_DRAWN_PROCESSES:
        raise UsageError(
            f"{len(topology.processes)} processes are no picture any more; MAX_DRAWN_PROCESSES is {MAX_DRAWN_PROCESSES}"
        )
    root, extra = branches(topology)
    here = _measure(topology, root)
    _place(here, MARGIN, MARGIN + TITLE_HEIGHT)
    domains = list(_all(here))
    below = max(part.bottom for part in domains) + MARGIN + (EXTRA_HEIGHT + 9 * len(extra) if extra else 0)
    inner = [f"{name} (inside {outer}: carries no traffic)" for name, outer in topology.inner.items()]
    height = below + 18 * len(inner)
    width = max(here.span + 2 * MARGIN, 320.0)
    orderings = list(dict.fromkeys(ordering_named(domain.ordering).traits.name for domain in topology.domains.values()))
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(orderings)}
    heading = f"{topology.name} · promises {topology.promise}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}">',
        f"<title>{escape(topology.name)}</title><style>{STYLE}</style>",
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
        _text(heading, width / 2, MARGIN, "title"),
    ]
    places: dict[str, tuple[float, float]] = {}
    at_link = {name for link in topology.links.values() for name in link.members}
    for part in domains:
        parts += _draw_domain(topology, part, colours)
        for row, names in enumerate(part.rows):
            parts += _draw_row(part, row, names, at_link)
    for part in domains:
        for joint, below_it in part.ways:
            parts += _draw_link(part, joint.link, below_it[0]) if joint.link else _draw_relay(part, joint, below_it, places)
    parts += _draw_extra(topology, domains, places, extra)
    parts += [_text(text, width / 2, below + 18 * at, "small") for at, text in enumerate(inner)]
    return "\n".join([*parts, "</svg>", ""])


def _measure(topology: Topology, branch: Branch) -> _Rectangle:
    """Return the rectangle of a domain and all below it, with sizes and without places."""
    members = [name for name in topology.domains[branch.domain].members if len(topology.homes[name]) < 2]
    rows: list[list[str]] = []
    for name in members:
        if not rows or _row_width([*rows[-1], name]) > max(ROW_WIDTH, len(members) * 8):
            rows.append([])
        rows[-1].append(name)
    ways = [(joint, [_measure(topology, below) for below in joint.below]) for joint in branch.joints]
    title = (len(branch.domain) + len(ordering_named(topology.domains[branch.domain].ordering).traits.name) + 3) * CHARACTER
    width = max([title, *(_row_width(row) for row in rows)]) + 2 * PADDING
    spans = sum(_way_span(joint, domains) for joint, domains in ways) + BETWEEN_DOMAINS * max(0, len(ways) - 1)
    # So wide that every relay and every line below it begins at this rectangle.
    inner_span = spans - sum(_way_span(*way) / 2 for way in (ways[0], ways[-1])) + 2 * LINE_SPACING if len(ways) > 1 else 0.0
    widest_link = max((LINE_SPACING * len(joint.link.relays) for joint, _ in ways if joint.link), default=0.0)
    width = max(width, inner_span, widest_link + PADDING)
    height = TITLE_HEIGHT + PADDING / 2 + len(rows) * (PILL_HEIGHT + PILL_GAP) + (PADDING / 2 if rows else 0)
    return _Rectangle(branch, members, rows, width, height, max(width, spans), ways)


def _row_width(names: list[str]) -> float:
    return sum(_pill_width(name) for name in names) + PILL_GAP * (len(names) - 1)


def _pill_width(name: str) -> float:
    return max(PILL_HEIGHT * 1.2, len(name) * CHARACTER + 14)


def _way_span(joint: Joint, domains: list[_Rectangle]) -> float:
    spans = sum(here.span for here in domains) + BETWEEN_DOMAINS * max(0, len(domains) - 1)
    return max(spans, LINE_SPACING * len(joint.link.relays) if joint.link else _pill_width(joint.name))


def _place(here: _Rectangle, left: float, top: float) -> None:
    """Give places to a rectangle and all below it, within its span."""
    here.x, here.y = left + (here.span - here.width) / 2, top
    spans = sum(_way_span(*way) for way in here.ways) + BETWEEN_DOMAINS * max(0, len(here.ways) - 1)
    at = left + (here.span - spans) / 2
    for joint, below in here.ways:
        wide = _way_span(joint, below)
        used = sum(part.span for part in below) + BETWEEN_DOMAINS * max(0, len(below) - 1)
        inside = at + (wide - used) / 2
        for part in below:
            _place(part, inside, here.bottom + BETWEEN_ROWS)
            inside += part.span + BETWEEN_DOMAINS
        at += wide + BETWEEN_DOMAINS


def _all(here: _Rectangle) -> Iterator[_Rectangle]:
    yield here
    for _, below in here.ways:
        for part in below:
            yield from _all(part)


def _draw_domain(topology: Topology, here: _Rectangle, colours: dict[str, str]) -> list[str]:
    ordering = ordering_named(topology.domains[here.branch.domain].ordering).traits.name
    colour = colours[ordering]
    frame = (
        f'<rect x="{here.x:g}" y="{here.y:g}" width="{here.width:g}" height="{here.height:g}" rx="14" fill="{colour}" '
        f'fill-opacity="0.13" stroke="{colour}" stroke-width="1.5"/>'
    )
    title = (
        f'<text x="{here.middle:g}" y="{here.y + TITLE_HEIGHT / 2 + 2:g}" dy="0.35em" fill="{colour}">'
        f'<tspan class="title" fill="#222">{escape(here.branch.domain)}</tspan> · {escape(ordering)}</text>'
    )
    return [frame, title]


def _draw_row(here: _Rectangle, row: int, names: list[str], at_link: set[str]) -> list[str]:
    parts = []
    x = here.middle - _row_width(names) / 2
    y = here.y + TITLE_HEIGHT + PADDING / 2 + row * (PILL_HEIGHT + PILL_GAP) + PILL_HEIGHT / 2
    for name in names:
        wide = _pill_width(name)
        parts.append(_pill(name, x + wide / 2, y, LINK_COLOUR if name in at_link else "#888", "#fff"))
        x += wide + PILL_GAP
    return parts


def _pill(name: str, x: float, y: float, stroke: str, fill: str) -> str:
    wide = _pill_width(name)
    return (
        f'<rect x="{x - wide / 2:g}" y="{y - PILL_HEIGHT / 2:g}" width="{wide:g}" height="{PILL_HEIGHT}" rx="12" '
        f'fill="{fill}" stroke="{stroke}" stroke-width="1.4"/>{_text(name, x, y)}'
    )


def _text(text: str, x: float, y: float, style: str = "", more: str = "") -> str:
    """Return text with its middle at a point."""
    return f'<text class="{style}" x="{x:g}" y="{y:g}" dy="0.35em"{more}>{escape(text)}</text>'.replace(' class=""', "")


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" stroke-width="2"{more}/>'


def _draw_relay(here: _Rectangle, joint: Joint, below: list[_Rectangle], places: dict[str, tuple[float, float]]) -> list[str]:
    """Return a relay in the gap, tied to the domain above and to those below."""
    x = sum(part.middle for part in below) / len(below) if below else here.middle
    x = min(max(x, here.x + PADDING), here.x + here.width - PADDING)
    y = here.bottom + BETWEEN_ROWS / 2
    places[joint.name] = (x, y)
    parts = [_line(x, here.bottom, x, y, RELAY_COLOUR)]
    parts += [_line(x, y, part.middle, part.y, RELAY_COLOUR) for part in below]
    return [*parts, _pill(joint.name, x, y, RELAY_COLOUR, "#ffecec")]


def _draw_link(here: _Rectangle, link: Link, below: _Rectangle) -> list[str]:
    """Return one line for each pair of relays, side by side, each end with the name of its relay."""
    near = link.between.index(here.branch.domain)
    parts = []
    middle = min(max(below.middle, here.x + LINE_SPACING / 2), here.x + here.width - LINE_SPACING / 2)
    dash = "" if link.mode == "causal" else ' stroke-dasharray="7 3"'
    for at, pair in enumerate(link.relays):
        shift = (at - (len(link.relays) - 1) / 2) * LINE_SPACING
        above_x, below_x = middle + shift, below.middle + shift
        parts.append(_line(above_x, here.bottom, below_x, below.y, LINK_COLOUR, dash))
        parts.append(_text(pair[near], above_x, here.bottom + 12, "small halo"))
        parts.append(_text(pair[1 - near], below_x, below.y - 12, "small halo"))
    x, y = (middle + below.middle) / 2, (here.bottom + below.y) / 2
    return [*parts, _text(f"{link.name} · {link.mode}", x, y, "small halo", ' fill="#555"')]


class _Ports:
    """Where the next line may touch a rectangle: each a little beside the one before."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def next(self, here: _Rectangle) -> float:
        """Return a place from left to right that has not been given away."""
        used = self._used[here.branch.domain] = self._used.get(here.branch.domain, 0) + 1
        return here.middle + (used // 2 * 18) * (1 if used % 2 else -1) + LINE_SPACING / 3


def _draw_extra(
    topology: Topology, domains: list[_Rectangle], places: dict[str, tuple[float, float]], extra: list[tuple[str, str]]
) -> list[str]:
    """Return what closes a cycle: dashed, straight down where one end is above the other, else in a curve below both."""
    by_name = {here.branch.domain: here for here in domains}
    ports = _Ports()
    parts = []
    for at, (joint, domain) in enumerate(extra):
        colour = COLOURS[(at + 1) % len(COLOURS)]
        end = by_name[domain]
        if " " in joint:
            link = topology.links[joint.removeprefix("link ")]
            start = by_name[link.far(domain)]
            upper, lower = (start, end) if start.y <= end.y else (end, start)
            x1, x2, y1 = ports.next(upper), ports.next(lower), upper.bottom
        else:
            lower = end
            (x1, y1), x2 = places[joint], ports.next(end)
        y2 = lower.y if lower.y > y1 else lower.bottom
        first, second = (y1 + 24, y2 - 24) if lower.y > y1 else (max(y1, y2) + EXTRA_HEIGHT + 12 * at,) * 2
        share = 0.25 + 0.25 * (at % 3)
        label_x = _on_curve(share, x1, x1, x2, x2)
        label_y = _on_curve(share, y1, first, second, y2)
        path = f"M{x1:g} {y1:g} C{x1:g} {first:g} {x2:g} {second:g} {x2:g} {y2:g}"
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="4 4"/>')
        parts.append(_text(joint.removeprefix("link "), label_x, label_y, "small halo", f' fill="{colour}"'))
    return parts


def _on_curve(share: float, *points: float) -> float:
    """Return a point of a Bézier curve, so far along it, in one direction."""
    values = list(points)
    while len(values) > 1:
        values = [one + share * (other - one) for one, other in pairwise(values)]
    return values[0]
