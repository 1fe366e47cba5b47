"""Figures in the pages on research are those of the data beside them: of benchmarks, of counts, and where errata quote them."""

from __future__ import annotations

import csv
import re
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import counts, servers_growth, servers_series
from benchmarks.__main__ import BENCHMARKS, LONG
from benchmarks.fits import fit
from tests.studies.test_reports import tables

RESEARCH = Path(__file__).parents[2] / "docs" / "research"
DATA = RESEARCH / "data"
BENCHMARKS_PAGE = (RESEARCH / "benchmarks.md").read_text(encoding="utf-8")
SECTIONS = {part.split("\n", 1)[0]: part for part in re.split(r"^## ", BENCHMARKS_PAGE, flags=re.MULTILINE)[1:]}


def rows_of(name: str) -> list[list[str]]:
    """Return the rows of a file with data."""
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def strange(text: str, rows: list[list[str]]) -> list[list[str]]:
    """Return the rows of the first table of a text that are not among these."""
    shown = [[cell.strip(" |") for cell in row] for row in tables(text)[0][1:]]
    assert shown
    return [row for row in shown if [*row, *[""] * (len(rows[0]) - len(row))] not in rows]


@pytest.mark.parametrize("name", [*BENCHMARKS, *LONG])
def test_a_benchmark_shows_rows_of_its_data_and_its_own_notes(name: str) -> None:
    assert strange(SECTIONS[name], rows_of(name)) == []
    notes = getattr(import_module(f"benchmarks.{name}"), "NOTES", "")
    assert " ".join(notes.split()) in " ".join(SECTIONS[name].split())


def test_the_growth_of_running_servers_is_told_as_the_lines_through_their_data() -> None:
    """M6, M7: with the square in one domain, and linearly with domains on a bus; refitted from the rows with bytes."""
    told = " ".join(servers_growth.NOTES.split())
    costs = {
        column: {
            int(row[0].split()[0]): float(row[column].split()[0].replace(",", ""))
            for row in rows_of("servers_growth")
            if re.match(r"\d+ servers, flat, full: bytes", row[0]) and int(row[0].split()[0]) >= servers_growth.FIRST
        }
        for column in (1, 2)
    }
    bus, flat = fit(1, costs[1]), fit(2, costs[2])
    assert len(costs[1]) == len(servers_growth.SIZES) - 1
    assert max(bus.off, flat.off) < 0.03
    assert fit(1, costs[2]).off > 1, "one domain is no line"
    assert f"{str(flat).partition(',')[0]} bytes in one domain, and {str(bus).partition(',')[0]} in √n domains" in told


def test_what_running_servers_write_is_told_as_in_their_data() -> None:
    """M6, M7, M11: the rows with the lines through what a remote round trip writes to disks."""
    (row,) = (row for row in rows_of("servers_series") if row[0].endswith("full, remote: disk") and row[0].startswith("from"))
    bus, flat = (cell.rpartition(", at most")[0] for cell in row[1:3])
    assert f"{flat} bytes in one domain and {bus} on the bus" in " ".join(servers_series.NOTES.split())


def test_counts_shows_rows_of_its_data() -> None:
    text, rows = (RESEARCH / "counts.md").read_text(encoding="utf-8"), rows_of("counts")
    assert strange(text, rows) == []
    assert strange(text.replace("| 1,003,995 |", "| 1,003,994 |"), rows) != [], "not noticed"


def test_counts_are_those_of_this_version() -> None:
    """What is counted depends on nothing but the code: the smallest size of all configurations is counted again."""
    smallest, *_ = counts.SIZES
    kept = rows_of("counts")[:: len(counts.SIZES)]
    assert [list(row) for row in counts.rows([smallest])] == kept
    assert kept


def test_the_errata_quote_what_markers_cost() -> None:
    (row,) = (row for row in rows_of("counts") if "(grouped)" in row[0] and row[1] == "4,000")
    frames, control_bytes = float(row[4]), float(row[7].replace(",", ""))
    assert f"{frames:.0f} frames and {control_bytes / 1e3:.0f} kB" in (RESEARCH / "errata.md").read_text(encoding="utf-8")


def shares(scheme: str) -> list[float]:
    """Return which part of concurrent cross-subgroup pairs a scheme puts into an order, where subgroups are several processes."""
    path = RESEARCH / "studies" / "data" / "gateways-concurrency-points.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["scheme"], row["subgroups"]) == (scheme, "4")]
    return [float(row["false_share (share)"].split()[0]) for row in rows]


def test_the_errata_quote_what_is_ordered_in_vain() -> None:
    clock = shares("gateway clock")
    (own,) = {f"{100 * share:.0f}" for share in shares("own vectors")}
    said = f"the clock orders {100 * min(clock):.0f} to {100 * max(clock):.0f} of 100 in vain, own vectors {own}:"
    assert said in (RESEARCH / "errata.md").read_text(encoding="utf-8")
