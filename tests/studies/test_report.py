"""The report: what it holds, that it is the same twice, and that nothing in it can load or run anything."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.studies.made import study
from thence.studies.blocks import Code, Document, Table
from thence.studies.html import html
from thence.studies.markdown import MAX_ROWS, markdown
from thence.studies.rankings import rank
from thence.studies.report import write_report
from thence.studies.results import Folder
from thence.studies.running import Alone, run_study
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
    assert sorted(files) == ["queue-1.svg", "queue.html", "queue.md"]
    page = files["queue.md"]
    assert page.startswith("# How long one waits\n")
    assert "thence study run queue.toml\nthence study report study-runs/queue --to docs/studies" in page
    verdicts = {row.split(" | ")[0].strip("| "): row.split(" | ")[2] for row in page.splitlines() if row.startswith("| Q")}
    assert verdicts == {"Q1": "holds", "Q2": "holds", "Q3": "does not hold", "Q4": "holds"}
    assert "* **Q3**: They do not: the claim is turned around on purpose." in page
    for point in made.points():
        assert replay_command(made, point, 0) in page
        wait = folder.means()[canonical(point)]["wait"]
        row = next(row for row in page.splitlines() if row.startswith(f"| {point['service']} | {point['load']} |"))
        assert row.endswith(f"| {wait.runs} |")
        assert abs(float(row.split(" | ")[2].split(" ± ")[0]) / wait.mean - 1) < 0.01
    assert "`nothing`: makes no sense; nowhere measured" in page
    assert "![Waits against load](queue-1.svg)" in page
    assert "```console" not in page


def test_the_html_file_stands_alone(folder: Folder, tmp_path: Path) -> None:
    page = written(folder, tmp_path)["queue.html"]
    assert not re.search(r"<script|<link|<img|src=|href=|url\(|@import", page)
    assert page.count("<svg") == 1
    assert "default-src &#x27;none&#x27;" in page
    assert '<td class="t violated">does not hold</td>' in page
    assert "A queue with <code>one</code> server." in page


def test_a_plot_is_a_file_of_its_own(folder: Folder, tmp_path: Path) -> None:
    svg = ET.fromstring(written(folder, tmp_path)["queue-1.svg"])
    space = "{http://www.w3.org/2000/svg}"
    assert svg.tag == f"{space}svg"
    texts = [text.text for text in svg.iter(f"{space}text")]
    assert {"random, wait", "random, formula", "fixed, wait", "fixed, formula", "load"} <= set(texts)
    bars = [path for path in svg.iter(f"{space}path") if "bar95" in path.get("class", "")]
    assert [bar.get("d", "").count("M") for bar in bars] == [3, 2]
    dots = list(svg.iter(f"{space}circle"))
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


def test_many_points_are_cut_into_tables(tmp_path: Path) -> None:
    loads = ", ".join(f"0.{number:02d}" for number in range(10, 40))
    made = study(
        ("load = [0.2, 0.4, 0.6]", f"load = [{loads}]"),
        ("customers = 400", "customers = 20"),
        ("least = 4", "least = 2"),
        ("most = 20", "most = 2"),
        ("load = [0.2, 0.6]", "load = [0.2]"),
    )
    page = written(finished(tmp_path / "run", made), tmp_path / "to")["queue.md"]
    assert "<summary>service random: 30 points</summary>" in page
    assert "<summary>service fixed: 30 points</summary>" in page


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


def test_a_long_table_is_cut_in_markdown_and_whole_in_html() -> None:
    rows = [(f"r{number}", "1") for number in range(MAX_ROWS + 5)]
    document = Document("long", [Table(("name", "value"), rows, text=1), Code("\n".join(name for name, _ in rows))])
    text = markdown(document, "long.html")
    assert f"| r{MAX_ROWS - 1} | 1 |" in text
    assert f"r{MAX_ROWS}\n" not in text
    assert text.count("… and 5 more, in [long.html](long.html).") == 2
    assert f"r{MAX_ROWS + 4}" in html(document)


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
