"""Every study of the catalogue, in its small version and without Spark: it runs, and all that it promises comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from thence.studies.claims import judge
from thence.studies.report import write_report
from thence.studies.results import Folder
from thence.studies.rounds import Alone, run_study
from thence.studies.study import study_named, study_names


@pytest.mark.parametrize("name", study_names())
def test_the_whole_version_can_be_read(name: str) -> None:
    study = study_named(name)
    assert study.title
    assert study.about
    assert study.claims
    assert study.plots
    assert all(claim.id and claim.text for claim in study.claims)
    assert all(measure.text for measure in study.measures.values())
    assert study.repetitions.of
    assert study.repetitions.least >= 2, "of one run there is no interval"


@pytest.mark.parametrize("name", study_names())
def test_the_small_version_runs(name: str, tmp_path: Path) -> None:
    study = study_named(name, small=True)
    folder = Folder(tmp_path / "run")
    folder.begin(study, "none")
    outcome = run_study(study, folder, Alone())
    assert outcome.failures == ()
    assert len(outcome.means) == sum(1 for _ in study.points())
    for means in outcome.means.values():
        assert set(means) == set(study.measures)
    for measure in study.measures:
        assert any(means[measure].runs for means in outcome.means.values()), f"{measure} is nowhere measured"
    judged = judge(study, outcome.means)
    assert len(judged) == len(study.claims)
    assert all(one.verdict in {"holds", "does not hold", "not decided"} for one in judged)
    pages = write_report(folder, tmp_path / "report")
    assert all(
        one.claim.text in pages[0].read_text(encoding="utf-8").replace("&lt;", "<").replace("&amp;", "&") for one in judged
    )
