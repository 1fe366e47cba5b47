"""The design notes are true: every ordering has one, its figures are what is measured, and its commands run."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages.stamp_sizes import NOTES, table, written_in
from thence.core.ordering import ORDERINGS

ROOT = NOTES.parents[2]
THENCE = (sys.executable, "-c", "from thence.cli.main import main; main()")


def note(name: str) -> str:
    return (NOTES / f"{name}.md").read_text(encoding="utf-8")


def commands(name: str) -> list[str]:
    """Return the commands of a note, one by one."""
    blocks = re.findall(r"```\n(.*?)```", note(name), re.DOTALL)
    return [part.strip() for block in blocks for line in block.splitlines() for part in line.split(";")]


@pytest.mark.parametrize("name", ORDERINGS)
def test_code_and_note_know_each_other(name: str) -> None:
    source = (ROOT / "src/thence/core/ordering" / f"{name}.py").read_text(encoding="utf-8")
    assert f"docs/concepts/orderings/{name}.md" in (ast.get_docstring(ast.parse(source)) or "")
    assert f"`src/thence/core/ordering/{name}.py`" in note(name)


@pytest.mark.parametrize("name", ORDERINGS)
def test_every_file_that_is_named_exists(name: str) -> None:
    text = note(name)
    named = re.findall(r"\b(?:tests|src|docs)/[\w/]+\.\w+", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
    planted = (ROOT / "tests/support/planted/planted_orderings.py").read_text(encoding="utf-8")
    classes = re.findall(r"`([A-Z]\w+)`", text)
    assert [bug for bug in classes if f"class {bug}(" not in planted] == []


@pytest.mark.parametrize("name", ORDERINGS)
def test_the_sizes_are_what_is_measured(name: str) -> None:
    assert written_in(note(name)) == table(name), "write them anew: .venv/bin/python -m tests.support.pages.stamp_sizes --write"


@pytest.mark.parametrize("name", ORDERINGS)
def test_the_commands_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    assert commands(name)
    for command in commands(name):
        program, *arguments = shlex.split(command)
        assert program == "thence"
        found = subprocess.run([*THENCE, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert found.returncode in {0, 1}, f"{command}\n{found.stderr}"
