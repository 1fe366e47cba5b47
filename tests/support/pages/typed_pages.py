"""Pages that are typed as they stand: every file written, every command run, every output compared.

This exists so that whoever types what a page shows, from its top to its end, in an empty folder, gets what the page shows.
Rules for whoever writes such a page:

* A ``python`` or ``toml`` block is a file, shown whole. The paragraph before it ends with its name: `` `directory.toml`: ``.
* The commands of the ``console`` blocks are typed into one bash, which knows jobs: ``&``, ``wait %2`` and ``kill -9 %1`` are
  what they always are. A command must exit with 0, unless ``$ echo $?`` and another code follow.
* What is shown below a command is what a terminal would show: results and messages alike. It is compared as in
  ``tests/test_docs.py``: widths do not matter, ``…`` stands for anything, and with nothing shown anything may be printed.
  What jobs in the background print, and what the shell says of them, is not looked at.
* Ports are replaced by free ones, wherever a page names them, so that pages can be typed at the same time.

``python -m tests.support.pages.typed_pages PAGE…`` types pages one after the other into one folder and says how long each took.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.programs import PACKAGES, need
from tests.test_docs import calls, matches
from thence.cli import console
from thence.cli.servers.up import free_addresses

STEP_WITHIN_S = 240
STOP_WITHIN_S = 20
BLOCK = re.compile(r"(?:`([\w./-]+)`:\n\n)?^```(console|python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
JOB_NEWS = re.compile(r"^bash: line \d+: +\d+ (?:Killed|Terminated) .*\n", re.MULTILINE)
PORT = re.compile(r"127\.0\.0\.1:(\d{4})\b")


class Block(NamedTuple):
    """A block of a page: a file of this name, or commands, without a name."""

    file: str
    text: str


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page that somebody types."""
    found = []
    for name, kind, text in BLOCK.findall(page):
        assert name or kind == "console", f"which file is this?\n{text}"
        found.append(Block("" if kind == "console" else name, text))
    return found


def on_free_ports(pages: Sequence[str]) -> list[str]:
    """Return the pages with free ports in the place of theirs: the same one wherever the same one stands."""
    ports = sorted({port for page in pages for port in PORT.findall(page)})
    free = [address.rpartition(":")[2] for address in free_addresses(len(ports))]
    changed = dict(zip(ports, free, strict=True))
    return [re.sub(r"\b\d{4}\b", lambda found: changed.get(found[0], found[0]), page) for page in pages]


def write_files(page: str, folder: Path) -> None:
    """Write the files of a page, as somebody has who followed it before."""
    for block in blocks_of(page):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")


def follow(page: str, folder: Path) -> int:
    """Type a page into a shell of its own; return how many commands that were."""
    for program in PACKAGES:
        if f"$ {program} " in page:
            need(program)
    typed = 0
    shell = Shell(folder)
    try:
        for block in blocks_of(page):
            if block.file:
                (folder / block.file).write_text(block.text, encoding="utf-8")
                continue
            for command, shown, expected in calls(block.text):
                code, printed = shell.type(command)
                assert code == expected, f"{command} exits with {code}:\n{printed}{shell.told_by_jobs()}"
                assert not shown.strip() or matches(shown, printed), f"{command} prints:\n{printed}{shell.told_by_jobs()}"
                typed += 1
    finally:
        shell.stop()
    return typed


class Shell:
    """A bash in a folder, with ``thence`` and ``python`` of this environment."""

    def __init__(self, folder: Path) -> None:
        here = Path(sys.executable).parent
        assert (here / "thence").exists(), f"thence is not installed in {here}"
        self._folder = folder.resolve()
        self._printed = Path(tempfile.mkdtemp(prefix="typed-", dir=folder.parent))
        self._steps = 0
        self._jobs: list[tuple[str, Path]] = []
        self._bash = subprocess.Popen(
            ["bash", "--norc", "-m"],
            cwd=folder,
            env={**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # It tells of jobs that ended; what commands print goes to files.
            bufsize=0,
        )

    def type(self, command: str) -> tuple[int, str]:
        """Run a command; return its exit code and what it printed."""
        self._steps += 1
        printed = self._printed / str(self._steps)  # A file for each: jobs go on writing into theirs.
        if " &" in command:
            self._jobs.append((command, printed))
        assert self._bash.stdin is not None
        line = f"eval {shlex.quote(command)} >{shlex.quote(str(printed))} 2>&1 </dev/null; echo $?\n"
        self._bash.stdin.write(line.encode())
        said = self._ended(command, printed)
        return int(said), JOB_NEWS.sub("", printed.read_text(encoding="utf-8"))

    def told_by_jobs(self) -> str:
        """Return what was printed in the background, to be read where something went wrong."""
        return "".join(f"\n$ {command}\n{printed.read_text(encoding='utf-8')}" for command, printed in self._jobs)

    def _ended(self, command: str, printed: Path) -> str:
        stdout = self._bash.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], STEP_WITHIN_S)[0]:
            so_far = printed.read_text(encoding="utf-8")
            raise AssertionError(f"{command} takes more than {STEP_WITHIN_S} s:\n{so_far}{self.told_by_jobs()}")
        return stdout.readline().decode()

    def stop(self) -> None:
        """Leave nobody behind: neither the shell nor anything that was started in its folder."""
        deadline = time.monotonic() + STOP_WITHIN_S
        for process in self.processes():
            _tell(process, signal.SIGTERM)
        self._bash.kill()
        while left := self.processes():
            if time.monotonic() > deadline:
                for process in left:
                    _tell(process, signal.SIGKILL)
            time.sleep(0.05)
        self._bash.wait()
        for pipe in (self._bash.stdin, self._bash.stdout):
            assert pipe is not None
            pipe.close()

    def processes(self) -> list[int]:
        """Return who works in the folder, the shell too: servers that ``thence up`` started are in sessions of their own."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    place = (entry / "cwd").readlink()
                except OSError:  # It has ended, or is somebody else's.
                    continue
                if place == self._folder:
                    found.append(int(entry.name))
        return found


def _tell(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # It has ended meanwhile.
        os.kill(process, number)


def main(pages: Sequence[str]) -> None:
    """Type pages one after the other, as a reader does."""
    folder = Path(tempfile.mkdtemp(prefix="typed-pages-"))
    for name, page in zip(pages, on_free_ports([Path(page).read_text(encoding="utf-8") for page in pages]), strict=True):
        began = time.monotonic()
        typed = follow(page, folder)
        console.say(f"{name}: {typed} commands, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
