"""Workers that run together, how their reports become figures, and the page that holds these."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

import pytest

from benchmarks import peers, report, servers_growth
from benchmarks.__main__ import BENCHMARKS, LONG
from benchmarks.fits import Fit, fit
from benchmarks.peers.counting import Part, percentile, rate
from benchmarks.peers.processes import Turn, Worker, WorkerFailed, run
from benchmarks.servers_growth import Growth, Trip, asked, bus, flat, wire_bytes
from benchmarks.table import Row


async def echo(turn: Turn, *, word: str) -> str:
    await turn.all()
    if word == "fail":
        raise ValueError("as asked")
    return word


def test_workers_report_in_their_order_and_a_failure_is_told() -> None:
    reports = run([Worker(echo, {"word": "a"}), Worker(echo, {"word": "b"})])
    assert [report.said for report in reports] == ["a", "b"]
    with pytest.raises(WorkerFailed, match="as asked"):
        run([Worker(echo, {"word": "fail"})])


def test_a_rate_is_from_the_first_send_to_the_last_delivery() -> None:
    assert rate([Part(0, 10.0, 11.0), Part(30, math.inf, 13.0), Part(30, 10.5, 12.0)]) == 20
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 3.0


def test_growth_is_judged_by_a_line() -> None:
    """24.1 n + 517 is exactly linear; its exponent from 25 to 150 servers is 0.7."""
    found = fit(1, {servers: 24.1 * servers + 517 for servers in (25, 49, 100, 150)})
    assert str(found) == "24.1 n + 517, at most 0.0% off"
    assert fit(1, {servers: 8.0 * servers**2 for servers in (25, 49, 100, 150)}).off > 0.5
    growth = Growth("flat, full", {servers: Trip(1.0, 1.0, 4.0 * servers**2) for servers in (9, 25, 49)})
    assert growth.fit(wire_bytes) == pytest.approx(Fit(2, 4.0, 0.0, 0.0))
    assert "49 servers" in servers_growth.draw([growth], "title", wire_bytes, str)


def test_who_is_asked_is_remote() -> None:
    assert asked(flat(4, "full")) == ("p0", ["p1", "p2", "p3"])
    asks, answers = asked(bus(2, 3))
    assert (asks, answers) == ("p1-2", ["p2-2", "p2-3"])


def test_a_section_takes_the_place_of_its_older_self() -> None:
    before = report.page("", {"one": "## one\n\nold\n", "two": "## two\n\nkept\n"})
    after = report.page(before, {"one": "## one\n\nnew\n", "three": "## three\n"})
    assert [line for line in after.splitlines() if line.startswith("## ")] == ["## one", "## two", "## three"]
    assert ("old" in after, "new" in after, "kept" in after) == (False, True, True)


def test_a_page_shows_some_rows_and_a_file_has_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(report, "DATA", tmp_path / "data")
    rows = [Row(f"row, {number}", f"{number} s", "2 s", 1.5) for number in range(20)]
    report.write({"peers": report.section("peers", peers, rows)}, {"peers": rows})
    page = report.PAGE.read_text(encoding="utf-8")
    assert len(re.findall(r"^\| row, ", page, re.MULTILINE)) == report.SHOWN
    assert "\n\nAll 20 rows: [peers.csv](data/peers.csv).\n" in page
    with (report.DATA / "peers.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file))[1:] == [[f"row, {number}", f"{number} s", "2 s", "1.50"] for number in range(20)]


def test_every_table_of_the_page_has_its_file() -> None:
    told = re.findall(r"^All (\d+) rows: \[\w+\.csv\]\(data/(\w+)\.csv\)", report.PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for _, name in told} >= {*BENCHMARKS, *LONG}
    for count, name in told:
        with (report.DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            assert len(list(csv.DictReader(file))) == int(count), name


def test_the_notes_say_which_goals_are_reached_and_which_are_not() -> None:
    """Round trips have goals for loops that stay awake; what those that sleep miss stands beside it, as it is in the table."""
    page = report.PAGE.read_text(encoding="utf-8")
    assert peers.NOTES.strip() in page
    (said,) = [part for part in peers.NOTES.split("\n\n") if part.startswith("Reached")]
    reached, missed = said.split("Not reached")
    with (report.DATA / "peers.csv").open(encoding="utf-8", newline="") as file:
        table = [row for row in csv.DictReader(file) if row["peer"].startswith("nats-py core: ")]
    rows = [
        (row["what"], row["ratio"]) for row in table if row["what"].startswith("round trip") and "processor" not in row["what"]
    ]
    assert re.findall(r"\d\.\d\d", reached) == [ratio for what, ratio in rows if "goal" in what]
    assert re.findall(r"\d\.\d\d", missed) == [ratio for what, ratio in rows if "sleep" in what]
