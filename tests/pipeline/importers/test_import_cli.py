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
    *told, caveat = ended.out.splitlines()
    assert told == [
        "taken for shiviz: looks like an Akka log",
        f"{tmp_path}/trace: 212 events, 4 processes, 48 messages, 1 run",
        "from 1 file with 117 lines, 1 ignored",
    ]
    assert caveat.startswith("note: fifo, causal, creation, duplication, completeness in doubt: messages were derived")
    judged = run("judge", tmp_path / "trace")
    assert (judged.code, judged.out.splitlines()[-1]) == (0, caveat)
    told_as_json = json.loads(run("judge", tmp_path / "trace", "--json").out)
    assert (told_as_json["verdict"], told_as_json["notes"]) == ("kept", [caveat.removeprefix("note: ")])
    assert run("judge", tmp_path / "trace", "--require", "fifo", "--json").code == 0


def test_an_audit_repeats_what_is_in_doubt(tmp_path: Path) -> None:
    source = tmp_path / "reads.jsonl"
    rows = [
        {"topic": "t", "partition": 0, "offset": 0, "ts": 1},
        {"topic": "t", "partition": 0, "offset": 0, "ts": 2, "consumer": "c"},
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert refusal("audit", source).endswith("with 'consumer' it is a read) fits")
    direct = json.loads(run("audit", source, "--preset", "kafka", "--json").out)
    caveats = json.loads(run("import", source, "--preset", "kafka", "--out", tmp_path / "trace", "--json").out)["caveats"]
    audited = json.loads(run("audit", tmp_path / "trace", "--json").out)
    assert len(caveats) == 5
    for told in (direct, audited):
        assert (told["verdict"], told["notes"][:5]) == ("kept", caveats)
    assert f"note: {caveats[0]}" in run("audit", tmp_path / "trace").out.splitlines()


def test_a_verdict_on_a_trace_without_notes_has_none(tmp_path: Path) -> None:
    source = tmp_path / "x.jsonl"
    source.write_text('{"process":"a","index":0,"kind":"x"}\n', encoding="utf-8")
    assert run("import", source, "--out", tmp_path / "trace").code == 0
    for trace in (source, tmp_path / "trace"):
        assert "notes" not in json.loads(run("judge", trace, "--json").out)
        assert "note:" not in run("judge", trace).out


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
