"""The report: what it holds, that it is the same twice, and that nothing in it can load or run anything."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.studies.made import study
from thence.studies.document import MAX_NUMBERS, Document, Table, data, markdown
from thence.studies.plots import rank
from thence.studies.report import html, write_report
from thence.studies.results import Folder
from thence.studies.rounds import Alone, run_study
from thence.studies.runs import replay_command
from thence.studies.statistics import Summary
from thence.studies.study import Study, canonical


def finished(path: Path, made: Study) -> Folder:
    folder = Folder(path)
    folder.begin(made, "none")
    run_study(made, folder, Alone())
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return finished(tmp_path_factory.mktemp("report") / "run", study())


def written(folder: Folder, to: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in write_report(folder, to)}


def test_the_same_results_give_the_same_bytes(folder: Folder, tmp_path: Path) -> None:
    assert written(folder, tmp_path / "one") == written(folder, tmp_path / "two")


def test_it_holds_claims_numbers_and_commands(folder: Folder, tmp_path: Path) -> None:
    files, made = written(folder, tmp_path), study()
    assert sorted(files) == ["queue-1.svg", "queue-claims.csv", "queue-points.csv", "queue.html", "queue.md"]
    page = files["queue.md"]
    assert page.startswith("# How long one waits\n")
    assert "thence study run queue.toml\nthence study report study-runs/queue --to docs/research/studies" in page
    verdicts = {row.split(" | ")[0].strip("| "): row.split(" | ")[2] for row in page.splitlines() if row.startswith("| Q")}
    assert verdicts == {"Q1": "holds", "Q2": "holds", "Q3": "does not hold", "Q4": "holds"}
    assert "* **Q3**: They do not: the claim is turned around on purpose." in page
    for point in made.points():
        assert replay_command(made, point, 0) in files["queue-points.csv"]
        wait = folder.means()[canonical(point)]["wait"]
        row = next(row for row in page.splitlines() if row.startswith(f"| {point['service']} | {point['load']} |"))
        assert row.split(" | ")[2] == str(wait.runs)
        assert abs(float(row.split(" | ")[3].split(" ± ")[0]) / wait.mean - 1) < 0.01
    assert "| `nothing` | | makes no sense; nowhere measured |" in page.replace("|  |", "| |")
    assert "![Waits against load](queue-1.svg)" in page
    assert "```console" not in page


def test_the_html_file_stands_alone(folder: Folder, tmp_path: Path) -> None:
    page = written(folder, tmp_path)["queue.html"]
    assert not re.search(r"<script|<link|<img|src=|href=\"(?!#)|url\((?!#)|@import|https?:", page)
    assert page.count("<svg") == 1
    assert "default-src 'none'" in page
    assert '<td class="t violated">does not hold</td>' in page
    assert "A queue with <code>one</code> server." in page


def test_a_plot_is_a_file_of_its_own(folder: Folder, tmp_path: Path) -> None:
    svg = ET.fromstring(written(folder, tmp_path)["queue-1.svg"])
    space = "{http://www.w3.org/2000/svg}"
    assert svg.tag == f"{space}svg"
    texts = [text.text for text in svg.iter(f"{space}text")]
    assert {"random, wait", "random, formula", "fixed, wait", "fixed, formula", "load"} <= set(texts)
    groups = {group.get("id", ""): group for group in svg.iter(f"{space}g")}
    bars = [len(list(group.iter(f"{space}path"))) for name, group in groups.items() if name.startswith("intervals")]
    assert bars == [3, 2]
    dots = [use for name, group in groups.items() if name.startswith("curve") for use in group.iter(f"{space}use")]
    assert len(dots) == 10


def test_plots_of_an_earlier_report_go(folder: Folder, tmp_path: Path) -> None:
    for name in ("queue-7.svg", "queue-other-1.svg"):
        (tmp_path / name).write_text("old")
    write_report(folder, tmp_path)
    assert not (tmp_path / "queue-7.svg").exists()
    assert (tmp_path / "queue-other-1.svg").exists()


def test_text_that_looks_like_markup_stays_text(tmp_path: Path) -> None:
    made = study(("random service makes longer waits", "a < b | <b>bold</b> & `x<y`"), ("most = 20", "most = 4"))
    files = written(finished(tmp_path / "run", made), tmp_path / "to")
    assert "| a &lt; b \\| &lt;b>bold&lt;/b> &amp; `x<y` |" in files["queue.md"]
    assert "a &lt; b | &lt;b&gt;bold&lt;/b&gt; &amp; <code>x&lt;y</code>" in files["queue.html"]


def test_every_comparison_is_in_the_data(folder: Folder, tmp_path: Path) -> None:
    files = written(folder, tmp_path)
    rows = list(csv.DictReader(io.StringIO(files["queue-claims.csv"])))
    assert {row["id"] for row in rows} == {claim.id for claim in study().claims}
    assert "does not hold" in {row["verdict"] for row in rows if row["id"] == "Q3"}
    assert f"All {len(rows)} rows of 7 columns: [data/queue-claims.csv](data/queue-claims.csv)." in files["queue.md"]


def test_failures_are_said_at_the_top(tmp_path: Path) -> None:
    made = study(("customers = 400", "customers = 400\nfail = 0.2"))
    page = written(finished(tmp_path / "run", made), tmp_path / "to")["queue.md"]
    assert page.index("**8 runs failed**") < page.index("## Claims")
    assert "service=random,load=0.2, repetition 0: ZeroDivisionError: asked to fail" in page


def test_lists_and_tables_of_a_study_stay_lists_and_tables(tmp_path: Path) -> None:
    about = "Some words\\nin two lines.\\n\\n* one\\n  thing\\n* another\\n\\n| name | what |\\n|---|---|\\n| a | b |"
    made = finished(tmp_path / "run", study(('"A queue with `one` server."', f'"{about}"')))
    text, page = (written(made, tmp_path / "to")[name] for name in ("queue.md", "queue.html"))
    assert "Some words in two lines.\n\n* one thing\n* another\n\n| name | what |\n| --- | --- |\n| a | b |" in text
    assert "<li>one thing</li>" in page
    assert re.search("<td[^>]*>b</td>", page)


def test_a_page_shows_part_of_a_table_and_its_file_has_all() -> None:
    columns = ("name", *(f"c{number}" for number in range(MAX_NUMBERS + 2)))
    rows = [(f"r{row}", *(f"{row}.{number}" for number in range(MAX_NUMBERS + 2))) for row in range(20)]
    table = Table(columns, rows, 1, "data/long.csv", shown=5)
    page = markdown(Document("long", [table]))
    assert page.splitlines()[-3].startswith("| r4 | 4.0 |")
    assert page.splitlines()[-3].endswith(f" | 4.{MAX_NUMBERS - 1} |")
    assert page.endswith(f"\n\nAll 20 rows of {MAX_NUMBERS + 3} columns: [data/long.csv](data/long.csv).\n")
    assert list(csv.reader(io.StringIO(data(table)))) == [list(row) for row in (columns, *rows)]
    assert f"19.{MAX_NUMBERS + 1}" in html(Document("long", [table]))
    assert "| r19 |" in markdown(Document("long", [table._replace(file="")]))


def test_a_ranking_names_the_best_and_what_cannot_be_told_from_it() -> None:
    made = study(("[[plots]]", '[[rankings]]\ntitle = "Best"\nof = "service"\nmeasures = ["wait"]\n\n[[plots]]'))
    at = {(point["service"], point["load"]): canonical(point) for point in made.points()}
    low, near, high = Summary(5, 1.0, 0.1, 0.2), Summary(5, 1.3, 0.1, 0.2), Summary(5, 2.0, 0.1, 0.2)
    means = {at["random", 0.2]: {"wait": high}, at["fixed", 0.2]: {"wait": low}}
    means |= {at["random", 0.4]: {"wait": near}, at["fixed", 0.4]: {"wait": low}, at["random", 0.6]: {"wait": high}}
    assert rank(made, made.rankings[0], means).rows == [
        ("0.2", "**fixed** 1 ± 0.2"),
        ("0.4", "**fixed** 1 ± 0.2; alike: random"),
        ("0.6", "**random** 2 ± 0.2"),
    ]
