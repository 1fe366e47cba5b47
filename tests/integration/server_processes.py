"""Servers as processes that are killed and started again by a campaign, and never left behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

from tests.integration.crashes import STOP_WITHIN_S, die_with_parent


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
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            self._servers[name] = subprocess.Popen(
                [sys.executable, *self.arguments(name)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509  There are no threads here.
            )
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
                self.wrong.append(f"{name} ended by itself with {process.returncode}: {self._last_words(name)}")
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
                self.wrong.append(f"{name} stopped with {process.returncode}: {self._last_words(name)}")

    def kill_all(self) -> None:
        """Leave nobody behind."""
        for process in self._servers.values():
            process.kill()
        for process in self._servers.values():
            process.wait()

    def _last_words(self, name: str) -> str:
        return (self.folder / "logs" / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-600:].strip()
