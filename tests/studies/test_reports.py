"""The reports in docs/research/studies: one for each study, of the whole version, with every claim of its file and a verdict on
it."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from thence.studies.runs import replay_command
from thence.studies.study import CATALOGUE, study_named, study_names

REPORTS = Path(__file__).parents[2] / "docs" / "research" / "studies"
PAGE = REPORTS.with_suffix(".md")
VERDICTS = {"holds", "does not hold", "not decided"}
OF_THE_PAPERS = {"I7", "I8", "D7", "D8", "C6", "C7", "G3", "G5", "M6", "M7", "M8"}
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
