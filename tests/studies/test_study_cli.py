"""``thence study``, called as users call it, without Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.studies.made import TEXT, same_tables
from tests.unit.cli import refusal, run
from thence.cli.traces.study import left
from thence.studies.results import Folder
from thence.studies.rounds import StudyProgress
from thence.studies.study import canonical, study_named, study_names
from thence.trace.files import read_trace


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "queue.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_run_report_replay(file: Path, tmp_path: Path) -> None:
    ran = run("study", "run", file, "--out", tmp_path / "run", "--master", "here", "--traces", "first")
    assert ran.code == 0, ran.err
    assert re.search(r"Q3 +waits fall with load +does not hold", ran.out)
    assert "queue, first runs: " in ran.err
    reported = run("study", "report", tmp_path / "run", "--to", tmp_path / "docs")
    assert (reported.code, sorted(path.name for path in (tmp_path / "docs").iterdir())) == (
        0,
        ["data", "queue-1.svg", "queue.html", "queue.md"],
    )
    page = (tmp_path / "docs" / "queue.md").read_text(encoding="utf-8")
    command = next(line for line in page.splitlines() if line.startswith("thence study replay"))
    replayed = run(*command.split()[1:], "--trace", tmp_path / "trace")
    assert replayed.code == 0
    point = study_named(str(file)).point_labelled("service=random,load=0.2")
    row = Folder(tmp_path / "run").rows()[canonical(point), 0]
    assert f"seed {row.seed}" in replayed.out
    assert re.search(rf"wait +{re.escape(repr(row.measures['wait']))} +s", replayed.out)
    assert len(read_trace(tmp_path / "trace")) == 400


def test_resume_and_fresh(file: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    assert run("study", "run", file, "--out", first, "--master", "here").code == 0
    assert run("study", "run", file, "--out", second, "--master", "here").code == 0
    for path in sorted((second / "results").iterdir())[::2]:
        path.unlink()
    assert run("study", "resume", second, "--master", "here").code == 0
    assert same_tables(Folder(first), Folder(second))
    assert "holds a study already; thence study resume" in refusal("study", "run", file, "--out", first, "--master", "here")
    assert run("study", "run", file, "--out", first, "--master", "here", "--fresh", "--small").code == 0
    assert len(Folder(first).rows()) == 6


def test_runs_that_fail_are_told_with_their_commands(file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT.replace("customers = 400", "customers = 400\nfail = 0.4"), encoding="utf-8")
    ran = run("study", "run", file, "--out", tmp_path / "run", "--master", "here")
    assert ran.code == 1
    assert "8 runs failed" in ran.err
    command = f"thence study replay {file} --point service=random,load=0.4 --repetition 0"
    assert command in ran.err
    assert "service=random,load=0.4, repetition 0: ZeroDivisionError: asked to fail" in ran.err
    assert "the run failed: ZeroDivisionError: asked to fail" in refusal(*command.split()[1:])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "no-such-study", "--master", "here"], "no study 'no-such-study'"),
        (["run", "no-such.toml", "--master", "here"], "no-such.toml: no such file"),
        (["report", "nowhere"], "nowhere: holds no study"),
        (["resume", "nowhere", "--master", "here"], "nowhere: holds no study"),
        (["replay", "FILE", "--point", "service=fixed,load=7"], "must be one of 0.2, 0.4, 0.6"),
    ],
)
def test_what_cannot_be_is_refused(file: Path, arguments: list[str], complaint: str) -> None:
    assert complaint in refusal("study", *(str(file) if word == "FILE" else word for word in arguments))


def test_a_mistake_in_the_file_or_an_unknown_model(file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT.replace("share = 0.1", "shrae = 0.1"), encoding="utf-8")
    complaint = refusal("study", "run", file, "--out", tmp_path / "run", "--master", "here")
    assert complaint == f"{file}: repetitions.shrae: no such key; did you mean 'share'?"
    file.write_text(TEXT.replace('model = "tests.studies.queue"', 'model = "quuee"'), encoding="utf-8")
    assert "no model 'quuee'" in refusal("study", "run", file, "--out", tmp_path / "run", "--master", "here")


def test_the_list_names_every_study() -> None:
    listed = run("study", "list")
    assert listed.code == 0
    assert all(name in listed.out for name in study_names())


def test_the_time_left_is_said_as_far_as_it_is_known() -> None:
    assert left(StudyProgress("round 1", 0, 9, float("nan"), True)) == ""
    assert left(StudyProgress("round 1", 0, 9, 61.2, True)) == "at least 62 s left"
    assert left(StudyProgress("round 2", 0, 9, 599.0, False)) == "about 10 min left"
