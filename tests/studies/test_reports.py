"""The reports in docs/studies: one for each study, of the whole version, with every claim of its file and a verdict on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from thence.studies.study import CATALOGUE, study_named, study_names

REPORTS = Path(__file__).parents[2] / "docs" / "studies"
PAGE = REPORTS.with_suffix(".md")
VERDICTS = {"holds", "does not hold", "not decided"}
OF_THE_PAPERS = {"I7", "I8", "D7", "D8", "C6", "C7", "G3", "G5", "M6", "M7", "M8"}
"""The rows of the papers' claims that are shown by a study."""


def claims_in(text: str) -> list[tuple[str, str, str]]:
    """Id, words and verdict of each row of the table of claims."""
    table = text.split("## Claims")[1].split("\n\n")[1]
    rows = [re.split(r"(?<!\\) \| ", row.strip("| ")) for row in table.splitlines()[2:]]
    return [(row[0], row[1].replace("&lt;", "<").replace("&amp;", "&").replace("\\|", "|"), row[2]) for row in rows]


@pytest.mark.parametrize("name", study_names())
def test_every_claim_of_a_study_has_its_verdict(name: str) -> None:
    study = study_named(name)
    text = (REPORTS / f"{name}.md").read_text(encoding="utf-8")
    assert f"thence study run {name}\nthence study report study-runs/{name} --to docs/studies" in text
    assert "small version" not in text
    found = claims_in(text)
    assert [(row[0], row[1]) for row in found] == [(claim.id, claim.text) for claim in study.claims]
    assert {verdict for *_, verdict in found} <= VERDICTS
    assert f"{sum(1 for _ in study.points())} points" in text
    page = (REPORTS / f"{name}.html").read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:|//)|<script|<link""", page)
    for number in range(1, len(study.plots) + 1):
        assert f"({name}-{number}.svg)" in text
        assert (REPORTS / f"{name}-{number}.svg").is_file()


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
