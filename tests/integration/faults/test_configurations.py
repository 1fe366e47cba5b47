"""The command that starts each paper's configuration as running servers, typed as docs/research/configurations.md writes it.

While clients write to each other all servers are killed with SIGKILL at once, and come back on their data. Nothing is lost,
doubled or out of order. What goes on without one of them meanwhile is in the tests of takeover.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import thence
from tests.support.servers.running import PATIENCE_S, assert_kept, until, url, wait_for_server
from thence.core.topology.model import Topology
from thence.runtime.files import read_topology

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "research" / "configurations.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
COMMAND = re.compile(r"`thence up (\S+\.toml)( [^`]+)?`")
COMMANDS = {paper: found.groups(default="") for paper, text in SECTIONS.items() if (found := COMMAND.search(text))}
"""By paper: the file, and the options."""
IN_TEST = ("domains",)
"""The others run in ``make test-all``; those that go on without whoever died have tests of their own for that."""
PAPERS = [paper if paper in IN_TEST else pytest.param(paper, marks=pytest.mark.campaign) for paper in COMMANDS]
MESSAGES = 30


def process_of(data: Path) -> int:
    """Return the process that has the store, 0 while nobody has it."""
    lock = data / "lock"
    return int((lock.read_text(encoding="ascii") if lock.exists() else "") or 0)


async def talk(fabric: Topology, ends: tuple[str, str], data: Path) -> None:
    """Let a client at one end write to one at the other, kill all servers in between, and wait until all has come."""
    first, last = ends
    async with thence.connect(url(fabric, first), "first") as writer, thence.connect(url(fabric, last), "last") as reader:
        await writer.known("last")
        for number in range(MESSAGES):
            await writer.send("last", b"%d" % number)
            if number == MESSAGES // 2:
                killed = {name: process_of(data / name) for name in fabric.processes}
                for process in killed.values():
                    os.kill(process, signal.SIGKILL)
        got = [(await reader.receive(PATIENCE_S)).body for _ in range(MESSAGES)]
        reader.done()
        await until(lambda: all(process_of(data / name) not in {0, process} for name, process in killed.items()))
    assert got == [b"%d" % number for number in range(MESSAGES)]


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_the_command_of_a_paper_starts_it_and_all_of_it_may_be_killed(paper: str, tmp_path: Path) -> None:
    file, options = COMMANDS[paper]
    given = read_topology(ROOT / file)
    ends = next((one, other) for one in given.senders for other in reversed(given.senders) if not {one, other} & {*given.relays})
    command = [sys.executable, "-m", "thence.cli.main", "up", str(ROOT / file), *options.split(), "--trace", "trace"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as up:
        try:
            data, deadline = tmp_path / "data", time.monotonic() + PATIENCE_S
            while not (data / "topology.toml").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            fabric = read_topology(data / "topology.toml")
            for name in fabric.processes:
                wait_for_server(fabric, name)
            asyncio.run(talk(fabric, ends, data))
            for name in fabric.processes:
                wait_for_server(fabric, name)
            up.send_signal(signal.SIGINT)
            _, said = up.communicate(timeout=PATIENCE_S)
        finally:
            up.terminate()
    assert all(f"{name} was ended by SIGKILL: it is started again" in said for name in given.processes)
    assert_kept(tmp_path / "trace", sends=MESSAGES)


def test_every_paper_has_its_command() -> None:
    assert {*COMMANDS} == {"daisy", "clusters", "domains", "interconnect", "gateways"}
