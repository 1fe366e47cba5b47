"""The quickstart is followed step by step, with free ports in the place of those on the page."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.test_docs import blocks, matches, read
from thence.cli.up import free_addresses

PAGE = read("docs/quickstart.md")
PORTS = ("7401", "7402", "7403", "7411", "7412")
STEP_WITHIN_S = 90


def on_free_ports(text: str) -> str:
    for port, address in zip(PORTS, free_addresses(len(PORTS)), strict=True):
        text = text.replace(f"127.0.0.1:{port}", address)
    return text


class Shell:
    """Runs the commands of the page as a person would, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.background: list[subprocess.Popen[str]] = []

    def do(self, command: str) -> str:
        if command == "wait":
            for process in self.background[1:]:
                assert process.wait(STEP_WITHIN_S) == 0
        elif command == "kill %1":
            self.background[0].send_signal(signal.SIGTERM)
            assert self.background[0].wait(STEP_WITHIN_S) == 0
        elif command.endswith(" &"):
            self.background.append(self.start(command.removesuffix(" &")))
        else:
            process = self.start(command)
            printed, _ = process.communicate(timeout=STEP_WITHIN_S)
            assert process.returncode == 0, f"{command}: {printed}"
            return printed
        return ""

    def start(self, command: str) -> subprocess.Popen[str]:
        words = command.replace("thence ", f"exec {sys.executable} -m thence.cli.main ", 1)
        return subprocess.Popen(["bash", "-c", words], cwd=self.folder, stdout=subprocess.PIPE, text=True)

    def stop(self) -> None:
        for process in self.background:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(STEP_WITHIN_S)
            if process.stdout is not None:
                process.stdout.close()


def test_the_page_is_followed(tmp_path: Path) -> None:
    page = on_free_ports(PAGE)
    office, pair = blocks(page, "toml")
    (tmp_path / "office.toml").write_text(office)
    (tmp_path / "pair.toml").write_text(pair)
    python = "\n".join(blocks(page, "python"))
    shell = Shell(tmp_path)
    try:
        for kind, block in re.findall(r"^```(console|python)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            if kind == "python":
                if python:
                    (tmp_path / "page.py").write_text(textwrap.dedent(python))
                    shell.do(f"{sys.executable} page.py")
                    python = ""
                continue
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                printed = shell.do(command)
                assert not shown.strip() or matches(shown, printed), f"{command} prints:\n{printed}"
    finally:
        shell.stop()
