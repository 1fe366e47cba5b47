"""The report: the numbers of the tables, nothing that a name could smuggle in, and pages that stand alone. No Spark here."""

from __future__ import annotations

import doctest
import io
import math
import re
import unicodedata
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.support.pipeline.made_tables import blank, empty, made, store
from tests.support.traces import parse
from tests.unit.cli import run as run_cli
from thence.errors import ConfigError, StorageError, TraceError
from thence.pipeline import audit as auditing
from thence.pipeline import session
from thence.pipeline.report import AuditResult, figures, plots, print_report, sections, write_report
from thence.pipeline.report import page as page_module
from thence.pipeline.report import text as texts
from thence.pipeline.report.figures import MAX_BARS, MAX_MATRIX, Tables, read_tables
from thence.pipeline.report.page import page
from thence.pipeline.report.terminal import show
from thence.pipeline.report.text import escaped, shown
from thence.trace.judge import judge
from thence.trace.verdict import Violation

HOSTILE = [
    '"><script>alert(1)</script>',
    "</title></svg></style><img src=x onerror=alert(2)>",
    "' onmouseover='alert(3)",
    "\u202etxt.exe",
    "\x1b[31mred\x1b]0;title\x07",
    "<!-- ]]> &amp; &#60;",
    "x" * 500,
    "",
    "[bold]not markup[/bold]",
    "line\nbreak\r\u2028",
]


# --- words -------------------------------------------------------------------------------------------------------------


def test_the_examples_hold() -> None:
    for module in (texts, plots):
        found = doctest.testmod(module)
        assert found.attempted
        assert found.failed == 0


@given(st.text(), st.integers(3, 60))
def test_a_name_is_short_and_steers_nothing(name: str, most: int) -> None:
    text = shown(name, most=most)
    assert 0 < len(text) <= max(most, len("(empty)"))
    assert not {unicodedata.category(item) for item in text} & {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
    assert not set(text) & {"\x1b", "\n", "\r", "\x07", "\u202e", "\u2066", "\u2028"}
    assert not set(escaped(text)) & set("<>\"'")


# --- figures -----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 6), st.integers(2, 12))
def test_a_matrix_is_small_and_loses_nothing(processes: int, domains: int, most: int) -> None:
    tables = made([f"p{number}" for number in range(processes)], [f"d{number}" for number in range(domains)])
    found = figures.matrix(tables, most)
    assert len(found.lines) == len(found.cells) <= most
    assert sum(map(sum, found.cells)) == sum(row["deliveries"] for row in tables.traffic)
    if processes <= most:
        assert (found.of, found.summed, len(found.lines)) == ("processes", 0, processes)
    elif domains > 1:
        assert found.of == "domains"
    else:
        assert (found.of, found.summed) == ("processes", processes - most + 1)
        assert found.lines[-1] == "others"


def test_lines_of_a_matrix_are_in_the_order_that_people_expect() -> None:
    assert figures.matrix(made(["p10", "p2", "q1", "p1"], ["d"])).lines == ["p1", "p2", "p10", "q1"]


def test_runs_are_put_on_top_of_each_other() -> None:
    found = figures.series(made(["a"], ["d"], runs=3))
    assert found is not None
    assert found.deliveries_per_s == [9000, 3000]
    assert found.sends_per_s == [6000, 1000]
    # What the two short runs never delivered is still in flight when the long one ends.
    assert found.in_flight == [15, 1 + 2 * 5]


def test_the_hottest_are_named_first_with_all_their_domains() -> None:
    tables = made(["a", "b"], ["d"])
    more = tables._replace(load=[*tables.load, blank("load", domain="e", process="a", sends=5, deliveries=5, bytes=7)])
    first, second = figures.hottest(more)
    assert (first.process, first.domains, first.sends, first.deliveries, first.bytes, first.led) == (
        "a",
        ("d", "e"),
        6,
        7,
        1007,
        1,
    )
    assert (second.process, second.led) == ("b", 0)
    assert second.share == pytest.approx(4 / 17)


def test_of_very_many_pairs_only_domains_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = made([f"p{number}" for number in range(30)], ["north", "south"])
    folder = store(tables, tmp_path)
    whole = figures.matrix(read_tables(folder))
    monkeypatch.setattr(figures, "MAX_PAIRS", 10)
    assert len(read_tables(folder).traffic) == 4
    assert figures.matrix(read_tables(folder)).cells == whole.cells


# --- plots -------------------------------------------------------------------------------------------------------------


def drawn(plot: plots.Plot) -> ET.Element:
    return ET.fromstring(plots.inline(plot))


def group(root: ET.Element, name: str) -> ET.Element:
    """The part of a plot with this id."""
    return next(part for part in root.iter("g") if part.get("id") == name)


def corners(path: ET.Element) -> list[tuple[float, float]]:
    """The points of a path."""
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.get("d", ""))]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_a_line_goes_where_its_values_are() -> None:
    root = drawn(plots.LinePlot("t", "a", [plots.PlotLine("up", [(0, 0), (5, 50), (10, 100)])], "x"))
    (path,) = group(root, "curve1").iter("path")
    (left, bottom), (x, y), (right, top) = corners(path)
    assert left < right
    assert top < bottom, "up is less in SVG"
    assert (x, y) == pytest.approx(((left + right) / 2, (bottom + top) / 2), abs=0.01)


def test_what_cannot_be_shown_is_left_out() -> None:
    line = plots.PlotLine("m", [(0, 5), (1, 0), (2, math.nan), (4, 10), (8, 20)], [0, 0, 0, math.nan, 30])
    root = drawn(plots.LinePlot("t", "a", [line], "x", log="xy"))
    assert len(corners(next(group(root, "curve1").iter("path")))) >= 2
    assert len(list(group(root, "intervals1").iter("path"))) == 1
    assert "nothing was measured here" in plots.svg(
        plots.LinePlot("t", "a", [line._replace(points=[(1, math.nan)], errors=[0])], "x")
    )


def test_bars_are_as_long_as_their_values() -> None:
    root = drawn(
        plots.BarPlot("t", "a", [plots.PlotBar("a", "long a", [30, 10], "40"), plots.PlotBar("b", "long b", [20], "20")])
    )
    widths: dict[str, list[float]] = {}
    for part in root.iter("g"):
        if part.get("id", "").startswith("tip"):
            xs = [x for x, _ in corners(next(part.iter("path")))]
            widths.setdefault(part.findtext("title", ""), []).append(max(xs) - min(xs))
    one, two = widths["long a: 40"]
    assert one / two == pytest.approx(3, rel=0.01)
    assert (one + two) / sum(widths["long b: 20"]) == pytest.approx(2, rel=0.01)


def test_a_cell_is_the_darker_the_more_there_is() -> None:
    names = ["a", "b", "rest"]
    root = drawn(plots.HeatPlot("t", "a", names, names, [[0, 1, 900], [5, 10, 0], [0, 0, 0]], 2, str))
    cells = {part.findtext("title", ""): next(part.iter("path")) for part in root.iter("g") if part.get("id", "")[:3] == "tip"}
    shades = {
        title: float((re.findall(r"opacity: ([\d.]+)", cell.get("style", "")) or ["1"])[0]) for title, cell in cells.items()
    }
    assert len(cells) == 9
    assert shades["a to a: 0"] == 0
    assert shades["a to b: 1"] < shades["b to a: 5"] < shades["b to b: 10"] == shades["a to rest: 900"] == 1


NAMES = [*map(shown, HOSTILE), "_hidden", "$x^", "$\\frac{", "名前 😀", "#1f6feb"]
ALL = " ".join(NAMES)


@pytest.mark.parametrize(
    "plot",
    [
        plots.LinePlot(ALL, ALL, [plots.PlotLine(name, [(1, 1), (2, 2)], [1, 1]) for name in NAMES], ALL, ALL),
        plots.LinePlot("t", "a", [plots.PlotLine(name, [(name[:9], 1), ("y", 2)]) for name in NAMES], "x"),
        plots.BarPlot(ALL, ALL, [plots.PlotBar(name, name, [1, 2], name) for name in NAMES], ["a", "b"]),
        plots.HeatPlot(ALL, ALL, NAMES, NAMES, [[1] * len(NAMES)] * len(NAMES), 1, str),
    ],
)
def test_every_name_is_shown_as_it_is(plot: plots.Plot) -> None:
    assert {text.text for text in drawn(plot).iter("text")} >= set(NAMES)
    assert plots.svg(plot) == plots.svg(plot), "same plot, same bytes"


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_what_is_missing_names_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the page needs them; the terminal and the import do not."""
    monkeypatch.setattr(texts, "find_spec", lambda name: None if name == package else name)
    page_module.environment.cache_clear()
    with pytest.raises(ConfigError, match=rf"reports and studies need {package}: pip install 'thence\[report\]'"):
        page(made(["a", "b"], ["d"]))
    show(made(["a", "b"], ["d"]), None, Console(file=io.StringIO()))


# --- the page ----------------------------------------------------------------------------------------------------------


class Reader(HTMLParser):
    """What a browser would make of a page: tags, attributes, the text of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.values: list[str] = []
        self.links: set[str] = set()
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.values += [value or "" for _, value in attrs]
        self.links |= {value or "" for name, value in attrs if name in ("href", "clip-path")}

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError("there is a comment")


# fmt: off
TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "h1", "h2", "p", "div", "dl", "dt",
    "dd", "ul", "li", "figure", "figcaption", "svg", "desc", "g", "path", "rect", "text", "table", "thead", "tbody", "tr", "th",
    "td", "defs", "clippath", "use",
}
ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "class", "viewbox", "role", "aria-label", "x", "y", "d", "width",
    "height", "transform", "text-anchor", "scope", "style", "id", "href", "clip-path", "version", "type",
}
# fmt: on


def hostile_tables() -> Tables:
    return made(HOSTILE, HOSTILE)


def hostile_audit() -> AuditResult:
    rows = [
        Violation(property="causal", process=name, later=name, earlier=name, missing=2, chain=(name,) * 20, run=name, detail=name)
        for name in HOSTILE
    ]
    return AuditResult(events=9, properties={"causal": 500}, violations=rows, bad_rows=4, seconds={HOSTILE[0]: 1.5})


def test_a_hostile_name_is_only_text() -> None:
    written = page(hostile_tables(), hostile_audit(), HOSTILE[1])
    found = Reader(written)
    assert found.tags <= TAGS
    assert found.attributes <= ATTRIBUTES
    assert shown(HOSTILE[0]) in found.text, "the name is there, as text"
    assert "\x1b" not in written
    assert "\u202e" not in written
    assert "default-src 'none'" in " ".join(found.values)
    assert {name for name in found.links if not re.fullmatch(r"#\w+|url\(#\w+\)", name)} == set(), "links stay in the page"


def test_a_page_stands_alone() -> None:
    written = page(made(["a", "b"], ["d"]))
    assert not re.search(r"https?:|url\((?!#)|@import|src=|href=\"(?!#)|<script|<link", written)
    assert written.startswith("<!doctype html>")
    assert "prefers-color-scheme:dark" in written
    assert "@media print" in written
    assert written == page(made(["a", "b"], ["d"])), "same tables, same bytes"


@pytest.mark.parametrize("tables", [made(["a", "b"], ["d"]), hostile_tables(), made([f"p{n}" for n in range(60)], ["d"], runs=4)])
def test_every_plot_is_whole_has_words_and_a_table_beside_it(tables: Tables) -> None:
    found = [plot for section in sections.measurements(tables) for plot in section.plots]
    assert len(found) == 8
    for svg in map(plots.inline, found):
        root = ET.fromstring(svg)
        assert root.get("role") == "img"
        assert (root.findtext("title") or "") in (root.get("aria-label") or "")
        assert len(root.findtext("desc") or "") > 5
        assert "nan" not in svg
        assert "inf" not in svg.replace("in flight", "")
    assert all(section.rows for section in sections.measurements(tables))


def test_the_numbers_are_those_of_the_tables() -> None:
    tables = made(["a", "b"], ["north", "south"])
    text = Reader(page(tables)).text
    for words in ("50 ms", "99 ms", "10", "4", "40 %", "3,000", "16 B"):
        assert words in text, words
    assert "order was not judged" in text


def test_the_price_of_causal_order_is_said_plainly() -> None:
    tables = made(["a", "b"], ["d"])
    run = {**tables.runs[0], "waited": 4}
    found = sections.price(tables._replace(runs=[run]))
    assert found.title == "The price of causal order"
    assert "4 of 10 deliveries waited (40 %); the average over all is 50 ms, which is 100 % of all delay." in found.lead
    assert [row[0] for row in found.rows] == ["all", "topic a", "topic b"]
    assert found.rows[1][-1] == "300 ms"
    skewed = [{**row, "negative": 1} if row["measure"] == "delay_ns" else row for row in tables.distributions]
    assert "of all delay" not in sections.price(tables._replace(runs=[run], distributions=skewed)).lead
    silent = [row for row in tables.distributions if row["measure"] != "wait_ns"]
    assert "does not say when messages arrived" in sections.price(tables._replace(distributions=silent)).lead


def test_rooms_and_users_have_a_matrix() -> None:
    tables = made(["ann", "bob"], ["d"])
    nobody = blank("clients", messages=9, deliveries=99)
    found = figures.rooms(tables._replace(clients=[nobody, *tables.clients]), 2)
    assert (found.clients, found.topics, found.cells) == (["bob", "ann"], [None, "ann"], [[2, 2], [1, 1]])
    assert (found.all_clients, found.all_topics) == (2, 3)
    (section,) = sections.clients(tables)
    assert section.rows[0] == ["bob", "(by name)", "1", "2", "0 B", "7 ms"]
    assert 'aria-label="Traffic by client and topic' in plots.svg(section.plots[0])
    assert sections.clients(tables._replace(clients=[nobody])) == []


def test_a_report_on_nothing_says_so() -> None:
    text = " ".join(Reader(page(empty())).text)
    assert "no delay is known" in text
    assert "No event has a time" in text
    assert "svg" not in Reader(page(empty())).tags


def test_what_is_off_is_said() -> None:
    names = {"negative_delays": 3, "untimed_sends": 1, "untimed_deliveries": 2, "repeated_deliveries": 4, "unsent_deliveries": 5}
    run = blank(
        "runs", run=None, events=50, copies=30, deliveries=20, without_message=6, repeated_sends=7, negative_waits=8, **names
    )
    tables = empty()._replace(runs=[run])
    said = sections.notes(tables, AuditResult(events=50, properties={}, bad_rows=9))
    counted = "3 delays, 8 waits, 1 send, 2 deliveries, 5 deliveries, 4 deliveries, 7 sends, 6 events, 15 copies, 9 rows"
    assert ", ".join(" ".join(note.split()[:2]) for note in said[:-1]) == counted
    assert "how long they waited is not known" in said[-1]
    assert sections.notes(made(["a"], ["d"]), None) == [said[-1]]


def test_percentiles_that_are_near_are_called_so() -> None:
    tables = made(["a"], ["d"])
    near = [{**row, "accuracy": 10_000} for row in tables.distributions]
    assert "at most 1 in 10,000" in sections.notes(tables._replace(distributions=near), None)[-1]


# --- order -------------------------------------------------------------------------------------------------------------

BROKEN = "A send m1 -> C\n A send m2 -> B\n B deliver m2\n B send m3 -> C\n C deliver m3\n C deliver m1"


def test_a_verdict_is_shown_with_its_chain(tmp_path: Path) -> None:
    audit = replace(AuditResult.of(judge(parse(BROKEN))), bad_rows=2, slices=4, seconds={"judge": 0.25})
    write_report(store(made(["a"], ["d"]), tmp_path / "metrics"), tmp_path / "deep" / "report.html", audit)
    text = Reader((tmp_path / "deep" / "report.html").read_text(encoding="utf-8")).text
    for words in ("✗ order was violated", "m1 → m2 → m3", "1 of 6 properties were violated, in 6 events.", "250 ms"):
        assert words in text
    assert "The work was cut into 4 slices." in text
    kept = Reader(page(made(["a"], ["d"]), AuditResult.of(judge(parse("A send m ->"))))).text
    assert "✓ order was kept" in kept
    assert "Violations" not in kept


def test_only_a_sample_is_shown_and_it_says_so() -> None:
    rows = [Violation(property="causal", process=f"p{n}", chain=tuple(f"m{k}" for k in range(30))) for n in range(80)]
    found = sections.order(AuditResult(events=9, properties={"causal": 700}, violations=rows))[1]
    assert (found.lead, len(found.rows)) == ("50 of 700.", sections.MAX_VIOLATIONS)
    assert found.rows[0][6] == "m0 → m1 → m2 → m3 → m4 → m5 → … 18 more … → m24 → m25 → m26 → m27 → m28 → m29"


# --- terminal, files ---------------------------------------------------------------------------------------------------


def test_the_terminal_shows_the_same_and_is_not_steered(tmp_path: Path) -> None:
    out = io.StringIO()
    show(hostile_tables(), hostile_audit(), Console(file=out, width=300, markup=False, emoji=False, highlight=False))
    printed = out.getvalue()
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert "[bold]not markup[/bold]" in printed
    out = io.StringIO()
    print_report(store(made(["a", "b"], ["d"]), tmp_path), None, Console(file=out, width=200))
    for words in ("order was not judged", "50 ms median delay", "Busiest processes", "40 %"):
        assert words in out.getvalue()


@pytest.mark.parametrize(("violations", "verdict"), [(0, "kept"), (3, "violated")])
def test_the_command_gives_one_verdict(violations: int, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(made(["a", "b"], ["d"]), tmp_path / "metrics")
    found = AuditResult(source="trace", events=9, runs=1, processes=2, slices=1, properties={"causal": violations})
    monkeypatch.setattr(auditing, "audit_trace", lambda *_, **__: found)
    monkeypatch.setattr(session, "spark_session", lambda _: None)
    ended = run_cli("audit", "trace", "--report", "--out", tmp_path)
    assert ended.code == (1 if violations else 0)
    assert ended.out.startswith(f"{verdict}: 9 events, {violations} violations\n")
    assert f"order was {verdict}\n" in ended.out
    assert "not judged" not in ended.out
    assert ended.out.count("\n causal ") == 1


def test_long_lists_are_cut() -> None:
    many = made([f"p{n}" for n in range(100)], [f"d{n}" for n in range(100)])
    found = {section.title: section for section in sections.measurements(many)}
    assert len(found["The price of causal order, in bytes"].rows) == len(found["Busiest processes"].rows) == MAX_BARS
    assert "of 100." in found["The price of causal order, in bytes"].lead
    assert "busiest 12 of 100 clients, and 12 of 101 topics" in found["Clients and topics"].lead
    assert "of 100 processes" in found["Busiest processes"].lead
    assert plots.svg(found["Traffic"].plots[0]).count('<g id="tip') == MAX_MATRIX**2


def test_what_is_missing_or_in_the_way_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"metrics/runs: cannot be read as a table of metrics"):
        write_report(tmp_path / "metrics", tmp_path / "report.html")
    folder = store(made(["a"], ["d"]), tmp_path / "metrics")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"file/report\.html: "):
        write_report(folder, tmp_path / "file" / "report.html")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "metrics"]
