"""``thence judge``: what it prints and how it exits."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.support.traces import parse
from thence.cli.traces import judge as judge_file
from thence.trace import write_trace
from thence.trace.judge import DEFAULT_REQUIRED, PROPERTIES

TRIANGLE = """
    A send m1 -> C
    A send m2 -> B
    B deliver m2
    B send m3 -> C
"""
KEPT = TRIANGLE + "C deliver m1\n C deliver m3"
VIOLATED = TRIANGLE + "C deliver m3\n C deliver m1"


def run(*arguments: str | Path) -> Result:
    app = typer.Typer()
    app.command()(judge_file.command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(params=["trace.jsonl", "trace"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def test_a_kept_trace(place: Path) -> None:
    write_trace(place, parse(KEPT))
    result = run(place)
    assert result.exit_code == 0
    assert result.stdout.startswith("kept: 6 events, 0 violations")
    assert [line.split() for line in result.stdout.splitlines() if "causal" in line] == [["causal", "0"]]
    assert "total" not in result.stdout


def test_a_violated_trace_is_explained(place: Path) -> None:
    write_trace(place, parse(VIOLATED))
    result = run(place)
    assert result.exit_code == 1
    assert result.stdout.startswith("violated: 6 events, 1 violation\n")
    assert "causal: C delivered m3 although m1, sent to C causally before it, had not been delivered" in result.stdout
    assert "because A sent m1, then A sent m2, then B delivered m2 and sent m3" in result.stdout


def test_json_has_exactly_the_promised_keys(place: Path) -> None:
    write_trace(place, parse(VIOLATED))
    result = run(place, "--json")
    assert result.exit_code == 1
    printed = json.loads(result.stdout)
    assert list(printed) == ["verdict", "events", "properties", "violations"]
    assert printed["verdict"] == "violated"
    assert printed["events"] == 6
    assert printed["properties"] == {name: int(name == "causal") for name in DEFAULT_REQUIRED}
    assert [row["chain"] for row in printed["violations"]] == [["m1", "m2", "m3"]]


def test_json_of_a_kept_trace(place: Path) -> None:
    write_trace(place, parse(KEPT))
    result = run(place, "--json", "--require", "total, fifo")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "verdict": "kept",
        "events": 6,
        "properties": {"fifo": 0, "total": 0},
        "violations": [],
    }


def test_only_what_is_required_decides(place: Path) -> None:
    write_trace(place, parse(VIOLATED))
    assert run(place, "--require", "fifo,creation").exit_code == 0
    assert run(place, "--require", "fifo,causal").exit_code == 1


@pytest.mark.parametrize("require", ["order", "fifo,order", ",", ""])
def test_an_unknown_property_exits_with_two_and_the_names(place: Path, require: str) -> None:
    write_trace(place, parse(KEPT))
    result = run(place, "--require", require)
    assert result.exit_code == 2
    assert f"the properties are {', '.join(PROPERTIES)}" in result.stderr


def test_a_missing_trace_exits_with_two_and_its_name(tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere.jsonl")
    assert result.exit_code == 2
    assert f"{tmp_path}/nowhere.jsonl: no such file or folder" in result.stderr
    assert result.stdout == ""


def test_bad_lines_exit_with_two_and_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"process":"A","index":"x","kind":"note"}\n7\n', encoding="utf-8")
    result = run(path, "--json")
    assert result.exit_code == 2
    assert f"{path}:1: column 'index': expected an integer, found \"x\"" in result.stderr
    assert f"{path}:2: expected a JSON object, found 7" in result.stderr
    assert result.stdout == ""


def test_a_limit_shortens_what_is_printed(place: Path) -> None:
    write_trace(place, parse("A send m -> B C D E F"))
    result = run(place, "--limit", "2")
    assert result.exit_code == 1
    assert result.stdout.count("never delivered m") == 2
    assert "… and 3 more" in result.stdout
    assert len(json.loads(run(place, "--limit", "2", "--json").stdout)["violations"]) == 5


def test_runs_are_named(place: Path) -> None:
    write_trace(place, parse("[r1]\n A send m -> B\n [r2]\n A send m ->"))
    assert "completeness in run r1: B never delivered m" in run(place).stdout


def test_names_that_would_play_tricks_on_a_terminal_are_shown_escaped(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"process":"\\u001b[31mA[bold]","index":0,"kind":"deliver","message":"m"}', encoding="utf-8")
    result = run(path)
    assert "\x1b" not in result.stdout
    assert "\\x1b[31mA[bold] delivered m" in result.stdout


def test_a_large_trace_is_read_with_a_progress_bar(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_file, "LARGE_TRACE_BYTES", 1)
    write_trace(place, parse(KEPT))
    result = run(place, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["verdict"] == "kept"
