"""The command line as a whole: its table of commands, exit codes, and errors of one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import thence
from tests.house.tree import ROOT, run_python
from thence import errors
from thence.cli import main as cli


def run_cli(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    code = ended.value.code
    assert isinstance(code, int)
    return code


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("--help") == 0
    printed = capsys.readouterr().out
    assert all(entry.name in printed for entry in cli.COMMANDS)
    assert "Exit codes" in printed


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("--version") == 0
    assert capsys.readouterr().out == f"thence {thence.__version__}\n"


def test_help_is_quick_because_it_imports_no_command(tmp_path: Path) -> None:
    code = """
        import sys
        from thence.cli.main import main
        try:
            main(["--help"])
        except SystemExit:
            print("loaded", *[name for name in sys.modules])
        """
    loaded = set(run_python(code, tmp_path).split("loaded")[1].split())
    assert {"pyarrow", "numpy", "pyspark", "thence.core", "thence.sim"}.isdisjoint(loaded)


@pytest.mark.parametrize("entry", cli.COMMANDS, ids=lambda entry: str(entry.name))
def test_a_command_of_the_table_is_there(entry: cli.CommandLine, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(entry.name, "--help") == 0
    assert f"thence {entry.name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("raised", "code", "printed"),
    [
        (errors.ConfigError("no domain\n 'X'"), 2, "thence: error: no domain 'X'\n"),
        (FileNotFoundError(2, "No such file", "run.jsonl"), 2, "thence: error: [Errno 2] No such file: 'run.jsonl'\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_one_line_and_its_exit_code(
    raised: BaseException,
    code: int,
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("THENCE_DEBUG", raising=False)
    plant_command(monkeypatch, raised)
    assert run_cli("demo") == code
    assert capsys.readouterr().err == printed


def test_an_interrupt_during_imports_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n", encoding="utf-8")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, function = settings["project"]["scripts"]["thence"].partition(":")
    for start in (["-c", f"from {module} import {function}; {function}()"], ["-m", "thence"]):
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'src'}"}
        done = subprocess.run([sys.executable, *start, "--help"], capture_output=True, text=True, env=environment, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("THENCE_DEBUG", "1")
    plant_command(monkeypatch, errors.UsageError("wrong"))
    assert run_cli("demo") == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_does_not_look_like_a_verdict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plant_command(monkeypatch, ZeroDivisionError("oops"))
    assert run_cli("demo") == 2
    assert "this is a bug in thence: ZeroDivisionError: oops" in capsys.readouterr().err


def test_wrong_usage_is_exit_code_2() -> None:
    assert run_cli("no-such-command") == 2
    assert run_cli("--no-such-option") == 2


def plant_command(monkeypatch: pytest.MonkeyPatch, raised: BaseException) -> None:
    def command() -> None:
        raise raised

    planted = type(sys)("thence.cli.messages.demo")
    vars(planted)["command"] = command
    monkeypatch.setitem(sys.modules, "thence.cli.messages.demo", planted)


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", b"\\u20ac \\u00e9 \\ud83d\\ude42\n"), ("latin-1", b"\\u20ac \xe9 \\ud83d\\ude42\n")]
)
def test_what_a_terminal_cannot_show_is_escaped_and_ends_nobody(encoding: str, shown: bytes) -> None:
    code = """
from thence.cli import console, main
main._escape_what_cannot_be_written()
console.say("€ é 🙂")
console.say_json('"€ é 🙂"')
console.err.print("€ é 🙂")
"""
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
    plain, as_json = ran.stdout.splitlines(keepends=True)
    assert plain == shown
    # Where the system says ASCII, click writes UTF-8 by itself.
    assert json.loads(as_json.decode("utf-8" if encoding == "ascii" else encoding)) == "€ é 🙂"
    assert ran.stderr == shown
