"""The page on security is followed step by step: an authority, certificates, tokens, two servers, and what each may do."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import need
from tests.test_docs import blocks, matches, read
from thence.cli.up import free_addresses

PAGE = read("docs/security.md")
PORTS = ("7401", "7402")
STEP_WITHIN_S = 90
SIGNALS = {"kill": signal.SIGTERM, "kill -HUP": signal.SIGHUP}


class Shell:
    """Runs the commands of the page as a person would, in one folder, and knows the jobs that it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: list[subprocess.Popen[str]] = []

    def do(self, command: str) -> str:
        """Run a command; return what it prints."""
        told = re.fullmatch(r"(wait|kill|kill -HUP)((?: %\d)+)", command)
        if told:
            for job in told[2].split():
                self._tell(self.jobs[int(job[1:]) - 1], told[1])
        elif command.endswith(" &"):
            self.jobs.append(self._start(command.removesuffix(" &")))
        else:
            process = self._start(command)
            printed, _ = process.communicate(timeout=STEP_WITHIN_S)
            assert process.returncode == 0, f"{command}: {printed}"
            return printed
        return ""

    def _tell(self, job: subprocess.Popen[str], what: str) -> None:
        if what in SIGNALS:
            job.send_signal(SIGNALS[what])
        if what != "kill -HUP":
            assert job.wait(STEP_WITHIN_S) == 0

    def _start(self, command: str) -> subprocess.Popen[str]:
        # A job is the program itself, not a shell around it, so that signals reach it.
        begin = "exec " if not re.search(r"[|;]|&&", command.replace("2>&1", "")) and "thence " in command else ""
        words = re.sub(r"(^|\) )thence ", rf"\1{begin}{sys.executable} -m thence.cli.main ", command)
        return subprocess.Popen(["bash", "-c", words], cwd=self.folder, stdout=subprocess.PIPE, text=True)

    def stop(self) -> None:
        """Leave nobody behind."""
        for process in self.jobs:
            if process.poll() is None:
                process.kill()
                process.wait(STEP_WITHIN_S)
            if process.stdout is not None:
                process.stdout.close()


@pytest.mark.slow
def test_the_page_is_followed(tmp_path: Path) -> None:
    need("openssl")
    page = PAGE
    for port, address in zip(PORTS, free_addresses(len(PORTS)), strict=True):
        page = page.replace(f"127.0.0.1:{port}", address)
    (fabric,) = blocks(page, "toml")
    (tmp_path / "pair.toml").write_text(fabric, encoding="utf-8")
    shell, done = Shell(tmp_path), 0
    try:
        for block in blocks(page, "console"):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                printed = shell.do(command)
                assert not shown.strip() or matches(shown, printed), f"{command} prints:\n{printed}"
                done += 1
    finally:
        shell.stop()
    assert done > 20
