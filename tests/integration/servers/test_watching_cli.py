"""``thence status --watch`` and ``thence top``: live on a terminal, one frame elsewhere; shell completion and help."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer
from typer.main import get_command

from tests.support.servers.running import flat, fleet, url
from tests.support.servers.terminal import Terminal
from tests.unit.cli import refusal, run
from thence.cli.main import COMMANDS, CommandLine
from thence.cli.servers import top
from thence.cli.servers.up import Fleet


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(flat("s1", "s2"), tmp_path_factory.mktemp("fleet")) as started:
        yield started


# --- live --------------------------------------------------------------------------------------------------------------


def test_status_is_shown_again_on_a_terminal(running: Fleet) -> None:
    terminal = Terminal("status", url(running.topology, "s1"), "--watch", "--every", "0.1")
    terminal.until(3, "s1 of flat, version 1")
    assert terminal.interrupt() == 0


def test_status_is_shown_once_elsewhere(running: Fleet) -> None:
    ended = run("status", url(running.topology, "s1"), "--watch")
    assert ended.code == 0
    assert ended.out.count("s1 of flat, version 1") == 1


def test_top_on_a_terminal(running: Fleet) -> None:
    terminal = Terminal("top", str(running.data / "topology.toml"), "--every", "0.1")
    terminal.until(3, "flat: 2 of 2 servers answered")
    assert terminal.interrupt() == 0
    assert "bytes queued" in terminal.shown


def test_top_elsewhere_prints_one_frame_and_says_what_is_wrong(running: Fleet) -> None:
    file = running.data / "topology.toml"
    ended = run("top", file)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count("2 of 2 servers answered") == 1
    lines = [line.split() for line in ended.out.splitlines()]
    assert [line[:2] for line in lines if line[:1] == ["s1"]] == [["s1", "well"], ["s1", "s2"]]
    assert ["s2", "s1", "connected"] in [line[:3] for line in lines]
    other = file.with_name("other.toml")
    other.write_text(file.read_text(encoding="utf-8").replace(running.topology.addresses["s2"], "127.0.0.1:1"), encoding="utf-8")
    ended = run("top", other)
    assert ended.code == 1
    assert "flat: 1 of 2 servers answered" in ended.out
    assert re.search(r"^ ?s2 +away +-", ended.out, re.MULTILINE)
    assert re.search(r"^s2: ", ended.out, re.MULTILINE)
    assert "no such file" in refusal("top", file.with_name("none.toml")).lower()


def test_rates_are_differences() -> None:
    def said(messages: int, frames: int, trouble: str = "") -> top.Status:
        peer = {"name": "s2", "connected": not trouble, "trouble": trouble, "held_for_dead": False}
        traffic = {"frames_out": frames, "bytes_out": 1000 * frames, "queued_frames": 7, "queued_bytes": 700}
        status = json.loads(json.dumps({"stalled": "", "up_seconds": 10.0, "change": {"phase": "normal"}, "clients": []}))
        counts = {"letters_accepted": messages, "letters_delivered": 0, "messages_forwarded": 0, "waiting_count": 3}
        waits = {"oldest_wait_seconds": 1.25, "held_deliveries": 0, "store": {"durable": False}}
        return {**status, **counts, **waits, "neighbours": [{**peer, **traffic}]}

    before = top.Look(10.0, {"s1": said(100, 10), "s3": "away"})
    now = top.Look(12.0, {"s1": said(400, 30), "s3": said(1, 1, "connection lost")})
    rows = [list(map(str, top.server_row(name, before, now))) for name in now.said]
    assert rows[0][:5] == ["s1", "well", "10 s", "150", "0"]
    assert rows[1][3] == "-", "the look before knows nothing of it"
    links = [list(map(str, row)) for row in top.link_rows(before, now)]
    assert links == [["s1", "s2", "connected", "10", "10,000", "7", "700"], ["s3", "s2", "down", "-", "-", "7", "700"]]
    assert list(top.troubles(now)) == ["s3 to s2: connection lost"]
    again = top.Look(13.0, {"s1": said(5, 1)})
    assert top.server_row("s1", now, again)[3] == "-", "it was started again"


# --- completion --------------------------------------------------------------------------------------------------------


def completed(words: str) -> list[str]:
    """Return what a shell would offer behind these words."""
    environment = {**os.environ, "_THENCE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-m", "thence.cli.main"]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("thence sta", ["status"]),
        ("thence serve --metr", ["--metrics"]),
        ("thence store ver", ["verify"]),
        ("thence serve x.toml --durability ", ["disk", "memory"]),
    ],
)
def test_the_shell_completes_commands_options_and_values(words: str, offered: list[str]) -> None:
    assert completed(words) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(shell: str) -> None:
    environment = {**os.environ, "_THENCE_COMPLETE": f"source_{shell}"}
    command = [sys.executable, "-m", "thence.cli.main"]
    script = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    assert f"_THENCE_COMPLETE=complete_{shell}" in script


# --- help --------------------------------------------------------------------------------------------------------------


def pages(entry: CommandLine) -> dict[str, str]:
    """Return the help of a command, or of those that belong to it."""
    app = importlib.import_module(entry.module).command
    if not isinstance(app, typer.Typer):
        return {entry.name: app.__doc__ or ""}
    commands = getattr(get_command(app), "commands", {})
    return {f"{entry.name} {name}": command.help or "" for name, command in commands.items()}


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: str(entry.name))
def test_help_says_what_how_it_exits_and_an_example(entry: CommandLine) -> None:
    found = pages(entry)
    assert found
    for name, text in found.items():
        first, *rest = text.strip().splitlines()
        assert first.endswith("."), first
        assert re.search(r"Exits\s+with\s+[012]\b", text), f"how does {name} exit?"
        assert f"Example: thence {name}" in text, name
        prose = [line.strip() for line in rest if not line.strip().startswith("Example")]
        assert max(map(len, prose)) <= 76, "a terminal has 80 columns"
