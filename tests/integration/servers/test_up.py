"""``thence up`` as a whole: servers that stop when it does, however it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.support.servers.running import PATIENCE_S, wait_for_server
from thence.runtime.files import read_topology

PAIR = 'name = "pair"\n[domains.all]\nmembers = ["s1", "s2"]\n'
THENCE = (sys.executable, "-m", "thence.cli.main")


def test_no_server_outlives_a_command_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "pair.toml").write_text(PAIR, encoding="utf-8")
    command = [*THENCE, "up", str(tmp_path / "pair.toml"), "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as up:
        try:
            assert up.stdout is not None
            assert [up.stdout.readline().split()[0] for _ in "12"] == ["s1", "s2"]
            fabric = read_topology(tmp_path / "data" / "topology.toml")
            for name in fabric.processes:
                wait_for_server(fabric, name)
        finally:
            up.kill()
    deadline = time.monotonic() + PATIENCE_S
    while (left := [name for name, address in fabric.addresses.items() if is_there(address)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, "they are still there"


def test_a_server_that_dies_is_started_again_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "pair.toml").write_text(PAIR, encoding="utf-8")
    command = [*THENCE, "up", str(tmp_path / "pair.toml"), "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as up:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not (tmp_path / "data" / "topology.toml").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            fabric = read_topology(tmp_path / "data" / "topology.toml")
            for name in fabric.processes:
                wait_for_server(fabric, name)
            first, other = (process_of(tmp_path / "data" / name) for name in ("s1", "s2"))
            os.kill(first, signal.SIGKILL)
            while process_of(tmp_path / "data" / "s1") == first and time.monotonic() < deadline:
                time.sleep(0.05)
            wait_for_server(fabric, "s1")
            wait_for_server(fabric, "s2")
            assert process_of(tmp_path / "data" / "s2") == other, "it was left alone"
            up.send_signal(signal.SIGINT)
            _, said = up.communicate(timeout=PATIENCE_S)
        finally:
            up.terminate()
    assert "thence: error: s1 was ended by SIGKILL: it is started again in 0.5 s, and the others go on\n" in said
    assert up.returncode == 1


def process_of(data: Path) -> int:
    """Return the process that has the store."""
    return int((data / "lock").read_text(encoding="ascii") or 0)


def is_there(address: str) -> bool:
    """Return whether somebody listens."""
    host, port = address.split(":")
    with socket.socket() as one:
        return one.connect_ex((host, int(port))) == 0


def test_a_server_stops_with_nobody_but_whoever_started_it(tmp_path: Path) -> None:
    (tmp_path / "pair.toml").write_text(PAIR, encoding="utf-8")
    command = [*THENCE, "serve", str(tmp_path / "pair.toml"), "--server", "s1", "--durability", "memory", "--stop-with", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert "--stop-with 1: this process was started by" in done.stderr


def test_no_server_leaves_the_folder_of_the_fabric(tmp_path: Path) -> None:
    (tmp_path / "pair.toml").write_text('name = "pair"\n[domains.all]\nmembers = ["s1", "../s2"]\n', encoding="utf-8")
    command = [*THENCE, "up", str(tmp_path / "pair.toml"), "--data", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert "pair.toml:3: '../s2' is no name: servers keep their data in folders called after them" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pair.toml"]
