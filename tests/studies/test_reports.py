"""The reports in docs/research/studies: one for each study, of the whole version, with every claim of its file and a verdict on
it."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from thence.studies.claims import words
from thence.studies.results import means_of
from thence.studies.runs import replay_command, run_once
from thence.studies.study import CATALOGUE, canonical, study_named, study_names

REPORTS = Path(__file__).parents[2] / "docs" / "research" / "studies"
PAGE = REPORTS.with_suffix(".md")
VERDICTS = {"holds", "does not hold", "not decided"}
OF_THE_PAPERS = {"I7", "I8", "D7", "D8", "C6", "C7", "C8", "G3", "G5", "M6", "M7", "M8", "M10", "M11"}
"""The rows of the papers' claims that are shown by a study."""


def claims_in(text: str) -> list[tuple[str, str, str]]:
    """Id, words and verdict of each row of the table of claims."""
    table = text.split("## Claims")[1].split("\n\n")[1]
    rows = [re.split(r"(?<!\\) \| ", row.strip("| ")) for row in table.splitlines()[2:]]
    return [(row[0], row[1].replace("&lt;", "<").replace("&amp;", "&").replace("\\|", "|"), row[2]) for row in rows]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", study_names())
def test_every_claim_of_a_study_has_its_verdict(name: str) -> None:
    study = study_named(name)
    text = (REPORTS / f"{name}.md").read_text(encoding="utf-8")
    assert f"thence study run {name}\nthence study report study-runs/{name} --to docs/research/studies" in text
    assert "small version" not in text
    found = claims_in(text)
    assert [(row[0], row[1]) for row in found] == [(claim.id, claim.text) for claim in study.claims]
    assert {verdict for *_, verdict in found} <= VERDICTS
    assert f"{sum(1 for _ in study.points())} points" in text
    for number in range(1, len(study.plots) + 1):
        assert f"({name}-{number}.svg)" in text
        assert (REPORTS / f"{name}-{number}.svg").is_file()


@pytest.mark.parametrize("name", study_names())
def test_the_data_of_a_study_is_whole(name: str) -> None:
    """Each point has a row, and the verdict on each claim follows from the rows on it."""
    study = study_named(name)
    points, claims = (rows_of(REPORTS / "data" / f"{name}-{kind}.csv") for kind in ("points", "claims"))
    assert [row["replay"] for row in points] == [replay_command(study, point, 0) for point in study.points()]
    text = (REPORTS / f"{name}.md").read_text(encoding="utf-8")
    for kind, rows in (("points", points), ("claims", claims)):
        assert f"All {len(rows):,} rows of {len(rows[0])} columns: [data/{name}-{kind}.csv]" in text
    for place, (claim, verdict) in enumerate(zip(study.claims, claims_in(text), strict=True)):
        found = {row["verdict"] for row in claims if (row["id"], row["claim"]) == (claim.id, claim.text)}
        assert verdict[2] == next(one for one in ("does not hold", "not decided", "holds") if one in found), place


def tables(text: str) -> list[list[list[str]]]:
    """Return the cells of every table, its head first and without its rule."""
    found = [part.splitlines() for part in text.split("\n\n") if part.startswith("| ")]
    rows = [[line for at, line in enumerate(part) if at != 1] for part in found]
    return [[[plain(cell) for cell in re.split(r"(?<!\\) \| ", line.strip("| "))] for line in part] for part in rows]


def plain(cell: str) -> str:
    """Return a cell of a table as it stands in the data."""
    return cell.strip().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("\\|", "|")


def contradictions(text: str, points: list[dict[str, str]], claims: list[dict[str, str]]) -> list[list[str]]:
    """Return the rows of a report that its data does not have: of its table of claims, and of its table of points."""
    said = {(row["id"], row["claim"], row["measured"], row["formula or other side"], row["difference"]) for row in claims}
    wrong = []
    for head, *rows in tables(text):
        if head[:2] == ["id", "claim"]:
            wrong += [row for row in rows if "nothing to compare" not in row and (row[0], row[1], *row[4:7]) not in said]
        if is_of_points(head):
            measured = [[plain(row[name]) for name in head] for row in points]
            wrong += [row for row in rows if row not in measured]
    return wrong


def is_of_points(head: list[str]) -> bool:
    return "runs" in head


@pytest.mark.parametrize("name", study_names())
def test_the_figures_of_a_report_are_those_of_its_data(name: str) -> None:
    points, claims = (rows_of(REPORTS / "data" / f"{name}-{kind}.csv") for kind in ("points", "claims"))
    text = (REPORTS / f"{name}.md").read_text(encoding="utf-8")
    assert contradictions(text, points, claims) == []
    (shown,) = (rows for head, *rows in tables(text) if is_of_points(head))
    line = f"| {' | '.join(shown[0])} |"
    assert text.count(line) == 1
    changed = [*shown[0][:-1], "-1"]
    assert contradictions(text.replace(line, f"| {' | '.join(changed)} |"), points, claims) == [changed], "not noticed"


QUICK = {"domains", "flat", "fours", "1 copy", "bus", "own vectors", "causal", 1}
"""Values of the first parameter of a study that are tried here; others are for ``make test-all``."""
SLOW = {("daisy-load", "flat"), ("all-together", "flat")}


def samples() -> list[Any]:
    """Return the first point of each value of the first parameter that varies."""
    found = []
    for name in study_names():
        study = study_named(name)
        first = next(parameter for parameter, values in study.grid.items() if len(values) > 1)
        points = list(study.points())
        for place in {point[first]: place for place, point in reversed([*enumerate(points)])}.values():
            value = points[place][first]
            quick = value in QUICK and (name, value) not in SLOW
            marks = [] if quick else [pytest.mark.campaign]
            found.append(pytest.param(name, place, id=f"{name}, {value}", marks=marks))
    return found


@pytest.mark.parametrize(("name", "place"), samples())
def test_a_report_has_the_figures_of_this_version(name: str, place: int) -> None:
    """Same point and seed, same measures: so the runs of a point give its row again, unless the code has changed since."""
    study = study_named(name)
    row = rows_of(REPORTS / "data" / f"{name}-points.csv")[place]
    point = list(study.points())[place]
    runs = [run_once(study, point, repetition) for repetition in range(int(row["runs"]))]
    assert [run.error for run in runs if run.error] == []
    means = means_of(runs)[canonical(point)]
    measures = {column: column.partition(" (")[0] for column in row if column.partition(" (")[0] in study.measures}
    assert {column: words(means[measure]) for column, measure in measures.items()} == {column: row[column] for column in measures}


def test_the_page_counts_the_runs_of_all_reports() -> None:
    runs = [
        int(re.search(r"In all ([\d,]+) runs", (REPORTS / f"{name}.md").read_text(encoding="utf-8"))[1].replace(",", ""))  # type: ignore[index]
        for name in study_names()
    ]
    assert f"together are {sum(runs):,} runs" in " ".join(PAGE.read_text(encoding="utf-8").split())


def verdicts() -> dict[tuple[str, str], str]:
    """Return the verdict on each claim, by report and words."""
    texts = {name: (REPORTS / f"{name}.md").read_text(encoding="utf-8") for name in study_names()}
    return {(name, claim): verdict for name, text in texts.items() for _, claim, verdict in claims_in(text)}


def unexplained(page: str, before: list[dict[str, str]], now: dict[tuple[str, str], str]) -> list[list[str]]:
    """Return the verdicts that changed without a row that says why, and the rows that do not say what became of one."""
    (rows,) = (rows for head, *rows in tables(page) if head[:2] == ["report", "claim, before"])
    was = {(row["report"], row["claim"]): row["verdict"] for row in before}
    told = {(row[0], row[1]) for row in rows}
    wrong = [[*key, verdict] for key, verdict in was.items() if now.get(key) != verdict and key not in told]
    for report, claim, verdict, later, new, why in rows:
        found = now.get((report, claim if later in {"the same", "-"} else later), "gone")
        if was.get((report, claim)) != verdict or found != new or not why:
            wrong.append([report, claim, verdict])
    return wrong


def test_every_changed_verdict_is_listed_with_its_reason() -> None:
    page, before = PAGE.read_text(encoding="utf-8"), rows_of(REPORTS.parent / "data" / "verdicts_before.csv")
    assert unexplained(page, before, verdicts()) == []
    changed = {**verdicts(), ("clusters-layers", "none"): "holds", (before[0]["report"], before[0]["claim"]): "not decided"}
    assert unexplained(page, before, changed) == [[before[0]["report"], before[0]["claim"], before[0]["verdict"]]], "not noticed"


def test_no_page_has_a_twin() -> None:
    assert not list(REPORTS.parent.rglob("*.html"))


def test_what_the_papers_claim_is_decided() -> None:
    verdicts: dict[str, set[str]] = {}
    for name in study_names():
        for row, _, verdict in claims_in((REPORTS / f"{name}.md").read_text(encoding="utf-8")):
            verdicts.setdefault(row, set()).add(verdict)
    assert set(verdicts) >= OF_THE_PAPERS
    assert all(verdicts[row] & {"holds", "does not hold"} for row in OF_THE_PAPERS)


def test_the_page_lists_the_reports() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {path.stem for path in CATALOGUE.glob("*.toml")} == set(re.findall(r"\(studies/([a-z-]+)\.md\)", text))
