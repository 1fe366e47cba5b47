"""Servers as processes that are killed and started again by a campaign, and never left behind."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.campaigns.crash_plan import release_addresses

STOP_WITHIN_S: Final = 60.0

PR_SET_PDEATHSIG: Final = 1


class Outcome(NamedTuple):
    """What came of a run."""

    counts: Counter[str]
    faults: Counter[str]
    wrong: list[str]
    folder: Path
    seconds: float
    healing_s: float
    """How long it took from the end of the faults until everything had arrived."""
    never: Sequence[str] = ()
    """The kinds of faults that never happened."""


def in_folder(folder: Path | None, run: Callable[[Path], Coroutine[None, None, Outcome]]) -> Outcome:
    """Make a run in a folder, or in one of its own, which goes if nothing was wrong; its addresses are kept until it ends."""
    where = Path(tempfile.mkdtemp(prefix="thence-crashes-")) if folder is None else folder
    try:
        outcome = asyncio.run(run(where))
    finally:
        release_addresses()
    if not outcome.wrong:
        shutil.rmtree(where)
    return outcome


def start_process(
    folder: Path, name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a Python program, with its log in ``folder/logs``, and with this in its environment beside what there is."""
    with (folder / "logs" / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **(environment or {})},
            preexec_fn=_die_with_parent,  # noqa: PLW1509  There are no threads here.
        )


def _die_with_parent() -> None:
    """Ask the system for a kill when the parent dies, so that nothing is left behind by a test that was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def kill_processes(processes: Collection[subprocess.Popen[bytes]]) -> None:
    """Leave nobody behind."""
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


def memory_of(pid: int, which: str = "VmRSS") -> int:
    """Return how much memory a process has, or has had at most (``VmHWM``), in bytes."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields[which].split()[0]) * 1024


def last_words(folder: Path, name: str) -> str:
    """Return the end of a program's log."""
    return (folder / "logs" / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-600:].strip()


def tracebacks(folder: Path) -> list[str]:
    """Return the tracebacks in the logs of servers: whatever happens to one, it says so in words."""
    found = []
    for path in sorted((folder / "logs").glob("*.log")):
        told = path.read_text(encoding="utf-8", errors="replace")
        count = told.count("Traceback (most recent call last)")
        if count and not path.name.startswith("clients-"):
            found.append(f"{count} tracebacks in {path.name}, the last one: {told.rpartition('Traceback')[2][:1_500]}")
    return found


class Processes(ABC):
    """The servers of a run, each with its log in ``folder/logs``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wrong: list[str] = []
        self.busy: set[str] = set()
        """Servers that are down on purpose."""
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    @abstractmethod
    def arguments(self, name: str) -> list[str]:
        """Return what a server is started with."""

    def start_server(self, name: str) -> None:
        """Start a server, or start it again."""
        self._servers[name] = start_process(self.folder, name, self.arguments(name))
        self.busy.discard(name)

    def kill_server(self, name: str) -> None:
        """Kill a server, without a word."""
        self.busy.add(name)
        self._servers[name].kill()
        self._servers[name].wait()

    def look_for_the_dead(self) -> None:
        """Notice who ended though nobody told it to, and start it again."""
        for name, process in list(self._servers.items()):
            if name not in self.busy and process.poll() is not None:
                self.wrong.append(f"{name} ended by itself with {process.returncode}: {last_words(self.folder, name)}")
                self.start_server(name)

    async def stop_servers(self) -> None:
        """Let all servers end in peace."""
        for process in self._servers.values():
            process.terminate()
        deadline = time.monotonic() + STOP_WITHIN_S
        for name, process in self._servers.items():
            while process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110  A process tells nobody.
                await asyncio.sleep(0.05)
            if process.returncode != 0:
                self.wrong.append(f"{name} stopped with {process.returncode}: {last_words(self.folder, name)}")

    def kill_all(self) -> None:
        """Leave nobody behind."""
        kill_processes(self._servers.values())
