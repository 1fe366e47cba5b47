"""The systemd unit and the container file: they are what systemd takes, and what they start runs, answers and stops."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from tests.support.programs import need
from tests.support.servers.running import PATIENCE_S, flat
from thence.cli.servers import serve
from thence.cli.servers.up import free_addresses
from thence.core.topology.toml import write

PACKAGING = Path(__file__).resolve().parents[3] / "packaging"
UNIT = PACKAGING / "systemd" / "thence@.service"
CONTAINERFILE = PACKAGING / "Containerfile"
MAX_EXPOSURE = 2.0
"""How much systemd may find open of the ten that a unit without any protection has."""


def unit_command() -> list[str]:
    """Return what the unit starts, without the program."""
    (line,) = re.findall(r"^ExecStart=(.+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    program, *words = shlex.split(line)
    assert program == "/usr/bin/thence"
    return words


def instruction(name: str) -> list[str]:
    """Return the words of an instruction of the container file that is written as a list."""
    (found,) = re.findall(rf"^{name}.*?(\[.*\])$", CONTAINERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    return [str(word) for word in json.loads(found)]


def with_values(words: list[str], values: dict[str, str]) -> list[str]:
    """Put in what systemd, or whoever starts the container, would; a word that is all of a value may become several."""
    filled: list[str] = []
    for word in words:
        replaced = word
        for name, value in values.items():
            replaced = replaced.replace(name, value)
        filled += replaced.split() if word in values else [replaced]
    return filled


def runs_and_stops(words: list[str], metrics: str) -> str:
    """Start a server, wait until it is ready, stop it; return its log."""
    process = subprocess.Popen([sys.executable, "-m", "thence.cli.main", *words], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert process.poll() is None, process.communicate()[1]
            try:
                with urllib.request.urlopen(f"http://{metrics}/readyz", timeout=PATIENCE_S) as answer:
                    assert answer.read() == b"ready\n"
                    break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        log = process.communicate(timeout=PATIENCE_S)[1]
        assert process.returncode == 0, log
        return log
    finally:
        process.kill()


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path, str]:
    """Return a topology, where a store goes, and an address for metrics."""
    file = tmp_path / "topology.toml"
    file.write_text(write(flat("s1")), encoding="utf-8")
    return file, tmp_path / "data", free_addresses(1)[0]


# --- systemd -----------------------------------------------------------------------------------------------------------


def test_what_the_unit_starts_runs_and_stops(places: tuple[Path, Path, str]) -> None:
    file, data, metrics = places
    values = {
        "/etc/thence/topology.toml": str(file),
        "%i": "s1",
        "${STATE_DIRECTORY}": str(data),
        "$THENCE_OPTIONS": f"--metrics {metrics}",
    }
    log = runs_and_stops(with_values(unit_command(), values), metrics)
    assert json.loads(log.splitlines()[0])["server"] == "s1"
    assert list(data.glob("s*-*"))


def test_systemd_takes_the_unit_and_finds_little_open(tmp_path: Path) -> None:
    need("systemd-analyze")
    unit = tmp_path / "thence@s1.service"
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/usr/bin/thence", "/bin/sh"), encoding="utf-8")
    environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], check=False, capture_output=True, text=True, env=environment
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)]
    looked = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", looked.stdout)
    assert float(exposure) <= MAX_EXPOSURE


# --- containers --------------------------------------------------------------------------------------------------------


def test_what_the_container_starts_runs_and_stops(places: tuple[Path, Path, str]) -> None:
    file, data, metrics = places
    program, *words = instruction("ENTRYPOINT")
    assert program == "/venv/bin/thence"
    values = {"/etc/thence/topology.toml": str(file), "/data": str(data), "9401": metrics}
    runs_and_stops([*with_values(words, values), "--server", "s1"], metrics)


def test_the_container_is_asked_where_it_answers() -> None:
    words = instruction("ENTRYPOINT")
    port = words[words.index("--metrics") + 1].rpartition(":")[2]
    assert f"http://127.0.0.1:{port}/healthz" in instruction("HEALTHCHECK")[-1]
    text = CONTAINERFILE.read_text(encoding="utf-8")
    assert re.search(rf"^EXPOSE 7401 {port}$", text, re.MULTILINE)
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        assert all((PACKAGING.parent / name).exists() for name in copied.split()), copied
    assert re.search(r"^USER \d+$", text, re.MULTILINE), "not as root"


def test_options_are_those_of_serve() -> None:
    app = typer.Typer(add_completion=False)
    app.command()(serve.command)
    options = {name for param in get_command(app).params for name in param.opts}
    for words in (unit_command(), instruction("ENTRYPOINT")):
        used = {word for word in words if word.startswith("--")}
        assert used
        assert used <= options
