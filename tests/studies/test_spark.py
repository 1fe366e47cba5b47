"""Studies on a real Spark: the same numbers from any number of cores, from a cluster, and after being killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.studies.made import TEXT, same_tables, study
from tests.support.pipeline.cluster import Cluster
from thence.studies.results import Folder, means_of
from thence.studies.rounds import Alone, StudyProgress, WithSpark, run_study
from thence.studies.runs import RunRow
from thence.studies.study import Study, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 240
SLOW = TEXT.replace("customers = 400", "customers = 400\nslow_s = 0.1").replace("most = 20", "most = 8")


def run_here(made: Study, path: Path) -> Folder:
    folder = Folder(path)
    folder.begin(made, "none")
    run_study(made, folder, Alone())
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """What the study comes to in one process, without Spark."""
    return run_here(study(), tmp_path_factory.mktemp("alone"))


def environment() -> dict[str, str]:
    """One in which workers, wherever they start, find thence and the model of the tests."""
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def thence(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "thence.cli.main", *map(str, arguments)]


def run_file(text: str, folder: Path, master: str) -> Folder:
    """Run a study in a process of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "queue.toml").write_text(text, encoding="utf-8")
    command = thence("study", "run", folder / "queue.toml", "--out", folder / "run", "--master", master)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment(), cwd=folder)
    assert done.returncode == 0, done.stderr
    return Folder(folder / "run")


@pytest.mark.usefixtures("spark")
def test_on_two_cores_as_in_one_process(alone: Folder, tmp_path: Path) -> None:
    made, folder = study(), Folder(tmp_path)
    folder.begin(made, "first")
    told: list[StudyProgress] = []
    crew = WithSpark()
    outcome = run_study(made, folder, crew, "first", told.append)
    assert crew.cores == 2
    assert same_tables(folder, alone)
    assert repr(outcome.means) == repr(alone.means())
    assert len(list((tmp_path / "traces").iterdir())) == 5
    assert told[-1].done == told[-1].total
    assert not (tmp_path / ".work").exists()


@pytest.mark.usefixtures("spark")
def test_runs_that_fail_on_spark_cost_nobody_else(tmp_path: Path) -> None:
    made = study(("customers = 400", "customers = 400\nfail = 0.4"))
    whole, folder = run_here(made, tmp_path / "whole"), Folder(tmp_path / "run")
    folder.begin(made, "none")
    outcome = run_study(made, folder, WithSpark())
    assert {json.loads(failure.point)["load"] for failure in outcome.failures} == {0.4}
    assert same_tables(folder, whole)


def test_the_means_are_the_same_however_rows_are_spread(spark: SparkSession, alone: Folder, tmp_path: Path) -> None:
    rows = alone.rows()
    expected = repr(means_of([row for row in rows.values() if row.repetition < 7]))
    frame = spark.read.parquet(str(alone.path / "results"))
    # Doubled, shuffled, in other files, and with a run that failed.
    failed = RunRow("queue", next(iter(rows))[0], 0, 1, {}, 0.0, None, "lost")
    bad = spark.createDataFrame([tuple(failed)], frame.schema)
    bad.union(frame.union(frame).repartition(5)).write.parquet(str(tmp_path / "results"))
    assert repr(means_of([row for row in Folder(tmp_path).rows().values() if row.repetition < 7])) == expected


@pytest.mark.campaign
def test_on_one_core(alone: Folder, tmp_path: Path) -> None:
    assert same_tables(run_file(TEXT, tmp_path / "one", "local[1]"), alone)


@pytest.mark.campaign
def test_on_a_real_cluster(alone: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One master and two workers, each a process of its own, as on three machines."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster", workers=2) as cluster:
        assert same_tables(run_file(TEXT, tmp_path / "study", cluster.url), alone)
        assert cluster.executors >= 2


@pytest.mark.campaign
@pytest.mark.usefixtures("spark")
def test_killed_in_the_middle_and_resumed(tmp_path: Path) -> None:
    """``kill -9`` for the driver and Java at once; then resumed to the end."""
    slow = parse(SLOW, "queue.toml", source="queue.toml")
    whole = run_here(slow, tmp_path / "whole")
    (tmp_path / "queue.toml").write_text(SLOW, encoding="utf-8")
    place = tmp_path / "run"
    first = thence("study", "run", tmp_path / "queue.toml", "--out", place, "--master", "local[2]")
    assert 0 < killed_after(first, place / "results", least=7) < len(whole.rows())
    assert not (place / "means.parquet").exists()
    cut = Folder(place)
    before = set(cut.rows())
    again, settings = cut.study()
    run_study(again, cut, WithSpark(), settings.traces)
    assert before < set(cut.rows())
    assert same_tables(Folder(place), whole)


def killed_after(command: list[str], results: Path, least: int) -> int:
    """Start a study, kill it when it has so many files of results, and return how many runs are in them."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(), start_new_session=True
    )
    try:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and process.poll() is None and len(list(results.glob("*.parquet"))) < least:
            time.sleep(0.02)
        assert process.poll() is None, "it ended by itself"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(timeout=30) == -signal.SIGKILL
    return len(Folder(results.parent).rows())
