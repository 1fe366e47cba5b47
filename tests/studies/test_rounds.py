"""Rounds, resuming, failures and traces, in this process."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.studies.made import same_tables, study, tables
from thence.errors import ConfigError
from thence.studies.engine import Engine, Here
from thence.studies.results import Folder
from thence.studies.rounds import Alone, RunClock, StudyProgress, run_study
from thence.studies.runs import RunRow, RunTask, replay_command, run_once, run_task, same, trace_folder
from thence.studies.statistics import repetitions_needed
from thence.studies.study import Study, canonical, seed_of
from thence.trace.files import read_trace


def begun(path: Path, made: Study) -> Folder:
    folder = Folder(path)
    folder.begin(made, "none")
    return folder


def test_each_point_is_repeated_until_its_interval_is_narrow_or_the_most_is_reached(tmp_path: Path) -> None:
    made = study()
    outcome = run_study(made, begun(tmp_path, made), Alone())
    rule, counts = made.repetitions, set()
    for point in made.points():
        wait = outcome.means[canonical(point)]["wait"]
        assert rule.least <= wait.runs <= rule.most
        assert wait.half_width <= rule.share * wait.mean or wait.runs == rule.most
        counts.add(wait.runs)
    assert len(counts) > 2
    assert outcome.runs == sum(of["wait"].runs for of in outcome.means.values())


def test_a_round_at_most_doubles(tmp_path: Path) -> None:
    made = study(("share = 0.1", "share = 0.001"), ("most = 20", "most = 11"))
    told: list[StudyProgress] = []
    run_study(made, begun(tmp_path, made), Alone(), tell=told.append)
    rounds = {one.round: one.total for one in told}
    assert rounds == {"first runs": 5, "round 1": 15, "round 2": 20, "round 3": 15}
    assert all(one.at_least for one in told if one.round in {"first runs", "round 1"})
    assert not any(one.at_least for one in told if one.round in {"round 2", "round 3"})
    assert told[-1].left_s == 0
    assert all(math.isnan(one.left_s) or one.left_s >= 0 for one in told)


def test_rows_hold_seeds_and_measures_of_the_runs(tmp_path: Path) -> None:
    made = study()
    folder = begun(tmp_path, made)
    run_study(made, folder, Alone())
    rows = folder.rows()
    assert len(rows) == tables(folder)[0].num_rows
    for (name, repetition), row in list(rows.items())[::7]:
        point = json.loads(name)
        assert row.seed == seed_of("queue", point, repetition)
        again = run_once(made, point, repetition)
        assert all(same(again.measures[measure], value) for measure, value in row.measures.items())
        assert (row.events, row.error) == (400, None)


class Stops(Exception):
    """What a killed driver feels."""


class KilledAfter:
    """A crew whose driver is gone after so many tasks; what was written stays."""

    cores = 1

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks

    def engine(self, folder: Folder) -> Engine:
        killed = self

        class Killed(Here):
            def each(self, step, function, things, progress=None):  # type: ignore[no-untyped-def]
                results = []
                for thing in things:
                    if not killed.tasks:
                        raise Stops
                    killed.tasks -= 1
                    results.append(function(thing))
                return results

        return Killed()


def test_a_study_that_is_killed_again_and_again_comes_to_the_same_tables(tmp_path: Path) -> None:
    made = study()
    whole, cut = begun(tmp_path / "whole", made), begun(tmp_path / "cut", made)
    run_study(made, whole, Alone())
    kills = 0
    while True:
        before = len(cut.rows())
        try:
            run_study(made, cut, KilledAfter(2 + kills % 3))
            break
        except Stops:
            kills += 1
            assert len(cut.rows()) > before
            with pytest.raises(ConfigError, match="not done yet; thence study resume"):
                cut.means()
    assert kills > 5
    assert same_tables(whole, cut)


def test_resuming_runs_nothing_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    made = study(("customers = 400", f'customers = 400\nlog = "{log}"'))
    folder = begun(tmp_path / "run", made)
    run_study(made, folder, Alone())
    before = log.read_text(encoding="utf-8")
    run_study(made, folder, Alone())
    assert log.read_text(encoding="utf-8") == before
    seeds = [line.split()[1] for line in before.splitlines()]
    assert len(seeds) == len(set(seeds)) == tables(folder)[0].num_rows


def test_runs_of_a_later_round_do_not_count_before_their_round(tmp_path: Path) -> None:
    """A study that was cut short may hold more repetitions than its rounds come to; the tables have those of the rounds."""
    made = study()
    whole, more = begun(tmp_path / "whole", made), begun(tmp_path / "more", made)
    run_study(made, whole, Alone())
    name = canonical(next(iter(made.points())))
    run_task(RunTask(made, str(more.path), "none", tuple((name, repetition) for repetition in range(2, 20))))
    run_study(made, more, Alone())
    assert same_tables(whole, more)
    assert len(more.rows()) > len(whole.rows())


def test_a_model_that_raises_costs_its_own_runs_only(tmp_path: Path) -> None:
    failing = study(("customers = 400", "customers = 400\nfail = 0.4"))
    folder = begun(tmp_path, failing)
    outcome = run_study(failing, folder, Alone())
    assert {(json.loads(failure.point)["load"], failure.error) for failure in outcome.failures} == {
        (0.4, "ZeroDivisionError: asked to fail")
    }
    assert len(outcome.failures) == 2 * failing.repetitions.least
    assert {json.loads(point)["load"] for point in outcome.means} == {0.2, 0.6}
    assert folder.cost().failures == tuple(sorted(outcome.failures, key=lambda failure: (failure.point, failure.repetition)))


def test_when_every_run_fails_there_is_still_an_end(tmp_path: Path) -> None:
    made = study(("[measures.wait]", "[measures.wait]\n[measures.other]"))
    outcome = run_study(made, begun(tmp_path, made), Alone())
    assert outcome.runs == 0
    assert "did not return the measure 'other' (it returned wait, formula, nothing, events)" in outcome.failures[0].error


def test_what_failed_is_tried_again_by_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = study()
    folder, whole = begun(tmp_path / "run", made), begun(tmp_path / "whole", made)

    def once(study: Study, point: dict[str, object], repetition: int) -> RunRow:
        row = run_once(study, point, repetition)  # type: ignore[arg-type]
        return row._replace(error="out of luck", measures={}) if repetition == 1 else row

    with monkeypatch.context() as patch:
        patch.setattr("thence.studies.runs.run_once", once)
        assert len(run_study(made, folder, Alone()).failures) == 5
    assert run_study(made, folder, Alone()).failures == ()
    run_study(made, whole, Alone())
    assert same_tables(folder, whole)


def test_traces_of_first_runs(tmp_path: Path) -> None:
    made = study(("most = 20", "most = 4"))
    folder = Folder(tmp_path)
    folder.begin(made, "first")
    run_study(made, folder, Alone(), "first")
    assert len(list((tmp_path / "traces").iterdir())) == 5
    point = next(iter(made.points()))
    events = read_trace(trace_folder(tmp_path, canonical(point), 0))
    assert len(events) == 400
    assert {event.run for event in events} == {"service=random,load=0.2/0"}


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty, and holds no study"):
        begun(tmp_path, study())
    with pytest.raises(ConfigError, match="holds no study; thence study run NAME"):
        Folder(tmp_path).study()


def test_a_second_study_needs_to_be_told_to_begin_anew(tmp_path: Path) -> None:
    made = study(("most = 20", "most = 4"))
    folder = begun(tmp_path, made)
    run_study(made, folder, Alone())
    with pytest.raises(ConfigError, match="holds a study already"):
        begun(tmp_path, made)
    folder.begin(made, "none", fresh=True)
    assert folder.rows() == {}


def test_tasks_are_about_a_second_and_the_longest_come_first() -> None:
    clock = RunClock(cores=2)
    costs = {"slow": 3.0, "middle": 0.4, "quick": 0.01}
    for name, seconds in costs.items():
        clock.ran(RunRow("s", name, 0, 0, {}, seconds, None, None))
    keys = [(name, repetition) for name in costs for repetition in range(1, 201)]
    batches = clock.batches(keys)
    assert sorted(key for batch in batches for key in batch) == sorted(keys)
    sizes = {tuple(sorted({name for name, _ in batch})): len(batch) for batch in reversed(batches)}
    assert sizes["slow",] == 1
    assert sizes["middle",] == 2
    assert 50 <= sizes["quick",] <= 100
    first = [batch[0][0] for batch in batches]
    assert first == sorted(first, key=lambda name: -costs[name])
    assert clock.wall_s(keys, 0, 0) == pytest.approx(200 * sum(costs.values()) / 2)
    unknown = RunClock(cores=2)
    assert len(unknown.batches(keys)) == len(keys)
    assert math.isnan(unknown.wall_s(keys, 1.0, 0))
    assert unknown.wall_s(keys[:30], 4.0, 20) == pytest.approx(6)


def test_the_command_for_a_run_names_it() -> None:
    made = study(small=True, source="my studies/queue.toml")
    point = next(iter(made.points()))
    expected = "thence study replay 'my studies/queue.toml' --small --point service=random,load=0.2 --repetition 3"
    assert replay_command(made, point, 3) == expected


def test_the_rule_looks_at_named_measures_only(tmp_path: Path) -> None:
    made = study(('of = ["wait"]', 'of = ["formula", "nothing"]'))
    outcome = run_study(made, begun(tmp_path, made), Alone())
    assert outcome.runs == 5 * made.repetitions.least
    wide = [of["wait"] for of in outcome.means.values()]
    assert any(repetitions_needed(one, made.repetitions.share) > one.runs for one in wide)
