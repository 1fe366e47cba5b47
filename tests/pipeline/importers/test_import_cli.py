"""``thence import`` as a command: what it prints and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli import refusal, run

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DATA = Path(__file__).parents[1] / "data"


def test_a_log_becomes_a_trace_that_can_be_judged(tmp_path: Path) -> None:
    ended = run("import", DATA / "shiviz-reliable-broadcast.log", "--out", tmp_path / "trace")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "taken for shiviz: looks like an Akka log",
        f"{tmp_path}/trace: 212 events, 4 processes, 48 messages, 1 run",
        "from 1 file with 117 lines, 1 ignored",
    ]
    assert run("judge", tmp_path / "trace").code == 0


def test_bad_rows_are_told_and_exit_with_1(tmp_path: Path) -> None:
    source = tmp_path / "x.jsonl"
    source.write_text('{"process":"a","index":0,"kind":"x"}\n' + '{"process":"\\u001b"}\n' * 7, encoding="utf-8")
    ended = run("import", source, "--out", tmp_path / "trace")
    assert ended.code == 1
    lines = ended.out.splitlines()
    assert lines[3] == f"7 bad rows set aside in {tmp_path}/trace-bad:"
    assert lines[4].startswith(f"  {source}:2: column 'index': expected an integer, found no such column")
    assert lines[-1] == "  … and 2 more"
    assert len(lines) == 10
    told = json.loads(run("import", source, "--out", tmp_path / "trace", "--json").out)
    assert (told["events"], told["bad"], told["bad_rows"]) == (1, 7, f"{tmp_path}/trace-bad")


def test_what_cannot_be_imported_exits_with_2(tmp_path: Path) -> None:
    assert refusal("import", tmp_path / "no.log", "--out", tmp_path / "trace").endswith("no.log: no such file or folder")
    assert run("import", DATA / "shiviz-chord.log").code == 2
