"""How commands speak: plain where nobody looks, one line where a line is to be copied, and help like a manual page."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

import thence
from tests.unit.cli import run
from thence.cli import console
from thence.cli.main import COMMANDS
from thence.cli.safe_console import SafeConsole

SCRIPT = Path(sys.executable).with_name("thence")
NARROW_COLUMNS = 40


def test_the_installed_script_exits_as_it_should_and_its_output_is_plain() -> None:
    command = [str(SCRIPT), "explore", "--ordering", "fifo", "--require", "causal", "--pattern", "unicast"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert ended.stdout.startswith("# fifo breaks causal")
    assert "\x1b" not in ended.stdout


def test_the_module_is_the_command() -> None:
    ended = subprocess.run([sys.executable, "-m", "thence", "--version"], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"thence {thence.__version__}\n", "")


def test_a_command_whose_input_is_closed_ends_as_ever() -> None:
    command = f'"{SCRIPT}" status thence://127.0.0.1:1 <&-'
    ended = subprocess.run(["sh", "-c", command], check=False, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, "127.0.0.1:1" in ended.stderr) == (2, True), ended.stderr


def test_a_command_whose_output_is_closed_ends_as_ever() -> None:
    ended = subprocess.run(["sh", "-c", f'"{SCRIPT}" orderings >&-'], check=False, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    ended = subprocess.run(["sh", "-c", f'"{SCRIPT}" judge no-such-file >&- 2>&-'], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", "")


def narrow(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    written = io.StringIO()
    plain = Console(file=written, width=NARROW_COLUMNS, force_terminal=True, color_system=None, markup=False, highlight=False)
    monkeypatch.setattr(console, "out", plain)
    return written


def test_what_is_to_be_copied_stays_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    written = narrow(monkeypatch)
    line = "Replay: thence simulate " + "--option [a]=b " * 20
    console.say(line)
    assert written.getvalue() == line + "\n"


def test_a_replay_line_is_not_broken_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written = narrow(monkeypatch)
    assert run("simulate", "--messages", "1", "--delay", "uniform:1ms..5ms", "--gap", "constant:1ms").code == 0
    assert "Replay: thence simulate --messages 1 --gap constant:1ms --delay uniform:1ms..5ms\n" in written.getvalue()


def test_an_error_is_one_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    console.error("first\n  second [bold]third[/bold] " + "x" * 300)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "thence: error: first second [bold]third[/bold] " + "x" * 300 + "\n"


@pytest.mark.parametrize(("number", "words"), [(0, "0 events"), (1, "1 event"), (2_000, "2,000 events")])
def test_numbers_have_their_noun(number: int, words: str) -> None:
    assert console.count(number, "event") == words


def test_numbers_in_tables_are_short_and_flush_right() -> None:
    made = console.table(("name", "value", "mixed"), [("a[b]", 1_234_567, 0.5), ("c", 2.0004, True)])
    assert [column.justify for column in made.columns] == ["left", "right", "left"]
    cells = [[str(cell) for cell in column.cells] for column in made.columns]
    assert cells == [["a[b]", "c"], ["1,234,567", "2"], ["0.5", "yes"]]


def test_progress_is_shown_on_a_terminal_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet, loud = io.StringIO(), io.StringIO()
    for stream, is_terminal in ((quiet, False), (loud, True)):
        monkeypatch.setattr(console, "err", Console(file=stream, force_terminal=is_terminal, width=100))
        with console.progress("simulating", total=10) as advance:
            advance()
            advance(9)
    assert quiet.getvalue() == ""
    assert "simulating" in loud.getvalue()
    assert "10/10" in loud.getvalue()


@pytest.mark.parametrize("command", [[], *([entry.name] for entry in COMMANDS), ["scenario", "run"], ["scenario", "rewrite"]])
def test_help_is_for_people(command: list[str]) -> None:
    ended = run(*command, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert "Show this message and exit." in ended.out
    assert "bool" not in ended.out, "a flag takes no value"


@pytest.mark.parametrize("what", ["text", "styled", "table", "live", "error", "traceback"])
def test_nothing_that_is_shown_is_a_command_to_the_terminal(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    evil = "x\x1b]0;owned\x07\x9b2J\u202e"
    stream = io.StringIO()
    shown = SafeConsole(file=stream, force_terminal=True, width=100, highlight=False, markup=False)
    monkeypatch.setattr(console, "out", shown)
    monkeypatch.setattr(console, "err", shown)
    if what == "live":
        with Live(console=shown, auto_refresh=False) as live:
            live.update(Group(Text(evil), evil, console.table((evil,), [(evil,), (Text(evil),)])), refresh=True)
    else:
        {
            "text": lambda: console.say(evil),
            "styled": lambda: shown.print(Text(evil, style="bold red")),
            "table": lambda: shown.print(console.table((evil,), [(evil,), (Text(evil),)], title=evil)),
            "error": lambda: console.error(evil),
            "traceback": lambda: console.say_traceback(evil),
        }[what]()
    written = stream.getvalue()
    assert "owned" in written
    for command in ("\x1b]", "\x07", "\x9b", "\u202e"):
        assert command not in written
