"""The pages on trace and judge say what the code does."""

import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from thence.cli.traces.judge import command
from thence.trace.events import COLUMNS, REQUIRED
from thence.trace.verdict import PROPERTIES

DOCS = Path(__file__).parents[3] / "docs"


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)


def words(printed: str) -> list[list[str]]:
    """The words of each line; rules and the width of columns do not matter."""
    return [line.split() for line in printed.splitlines() if line.strip(" ─")]


def test_the_table_of_columns_is_complete() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page("reference/trace"), re.MULTILINE)
    assert tuple(name for name, _ in rows) == COLUMNS
    assert tuple(name for name, words in rows if "required" in words) == REQUIRED


def test_the_table_of_properties_is_complete() -> None:
    assert tuple(re.findall(r"^\| `([\w-]+)` \|", page("how-to/judge"), re.MULTILINE)) == PROPERTIES


def test_the_example_of_the_judge_is_what_it_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.jsonl").write_text(blocks("reference/trace", "jsonl")[0], encoding="utf-8")
    call, _, printed = blocks("how-to/judge", "console")[0].partition("\n")
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, call.split()[3:])
    assert words(result.stdout) == words(printed)


def test_the_example_of_writing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("reference/trace", "python")
    exec(code, {})
    assert Path("run.jsonl").is_file()
