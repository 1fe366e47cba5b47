"""Commands on a terminal of their own, as a person has them."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
import time

from tests.support.servers.running import PATIENCE_S


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "50"}
        command = [sys.executable, "-m", "thence.cli.main", *arguments]
        # Where the tests themselves run in the background, programs that they start would not hear Ctrl-C.
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            preexec_fn=_hear_interrupts,  # noqa: PLW1509  There are no threads here.
        )
        os.close(theirs)
        os.set_blocking(self._ours, False)
        self.shown = ""

    def until(self, count: int, what: str) -> None:
        """Wait until the terminal has shown something so many times."""
        deadline = time.monotonic() + PATIENCE_S
        while self.shown.count(what) < count:
            if not self._look():
                assert self.process.poll() is None, self.shown
            assert time.monotonic() < deadline, self.shown

    def _look(self) -> bool:
        """Read what is shown; whoever writes to a terminal that nobody looks at has to wait."""
        try:
            self.shown += os.read(self._ours, 65536).decode(errors="replace")
        except (BlockingIOError, OSError):
            time.sleep(0.05)
            return False
        return True

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def echoes(self) -> bool:
        """Return whether what is typed would be shown by the terminal itself."""
        return bool(termios.tcgetattr(self._ours)[3] & termios.ECHO)

    def interrupt(self) -> int:
        """Press Ctrl-C; return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end; return the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            self._look()
            assert time.monotonic() < deadline, self.shown
        os.close(self._ours)
        return self.process.returncode
