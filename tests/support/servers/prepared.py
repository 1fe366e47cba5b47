"""Processes of ``thence`` that are forked from one that has imported everything: they start in a tenth of the processor time.

A server that is started is a process of its own in every respect: it is killed, ends with a code, has its own log. Only its
interpreter is not started anew. Rules:

* Two preparers take turns, with different hash seeds: a server that is started again does not iterate over sets as before.
* Chance is seeded anew in each process.
* A process dies with its preparer, and a preparer with the tests that started it.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import IO, Final, NoReturn

ROOT: Final = Path(__file__).resolve().parents[3]
PR_SET_PDEATHSIG: Final = 1
HASH_SEEDS: Final = ("1", "2")
IMPORTED: Final = (
    "thence.cli.main",
    "thence.cli.servers.serve",
    "thence.cli.safe_console",
    "thence.observe.http",
    "uvloop",
    "isal",
)
MAX_REQUEST_BYTES: Final = 1 << 20
END_WITHIN_S: Final = 60.0
"""How long the status of a process that has ended is waited for."""


class Preparer:
    """A process that forks others."""

    def __init__(self, hash_seed: str) -> None:
        """Start it; it imports everything meanwhile."""
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.servers.prepared", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._asking = threading.Lock()
        atexit.register(self.close)

    def fork(self, arguments: Sequence[str], stderr: int) -> int:
        """Start ``thence`` with these arguments, in a session of its own; return its number."""
        request = json.dumps({"arguments": list(arguments), "folder": str(Path.cwd()), "environment": dict(os.environ)})
        with self._asking:
            socket.send_fds(self._line, [request.encode()], [stderr])
            return int(self._line.recv(100))

    def status_of(self, pid: int) -> int:
        """Return how a process that has ended did; it can be asked for once."""
        with self._asking:
            self._line.send(json.dumps({"ended": pid}).encode())
            return int(self._line.recv(100))

    def close(self) -> None:
        """End it, and what it started."""
        self._line.close()
        self._process.wait()


_preparers: list[Preparer] = []
_turns: Final = cycle(range(len(HASH_SEEDS)))


def _next_preparer() -> Preparer:
    if not _preparers:
        _preparers.extend(map(Preparer, HASH_SEEDS))
    return _preparers[next(_turns)]


class PreparedProcess:
    """What ``subprocess.Popen`` is, as far as somebody needs it who starts servers."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Start ``thence`` with these arguments."""
        ours, theirs = os.pipe()
        self.stderr: IO[str] = os.fdopen(ours, encoding="utf-8")
        self._preparer = _next_preparer()
        try:
            self.pid = self._preparer.fork(arguments, theirs)
        finally:
            os.close(theirs)
        self._end = os.pidfd_open(self.pid)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; None: it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return the exit code."""
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._end, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1_000):
                raise subprocess.TimeoutExpired("thence", timeout or 0.0)
            self.returncode = os.waitstatus_to_exitcode(self._preparer.status_of(self.pid))
            os.close(self._end)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._end, number)

    def terminate(self) -> None:
        """Tell it to stop."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


# --- in the preparer ---------------------------------------------------------------------------------------------------


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _become(arguments: list[str], folder: str, environment: dict[str, str], stderr: int) -> NoReturn:
    """Be ``thence``."""
    from thence.__main__ import main

    _die_with_parent()
    os.setsid()
    os.dup2(stderr, 2)
    os.close(stderr)
    # Those of the preparer remember what kind of file they were opened on.
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  They are open to the end.
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(folder)
    sys.path[0] = folder  # As with ``python -m``.
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    sys.argv = ["thence", *arguments]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
    os._exit(code)


def _status(pid: int) -> int:
    """Return the status of a process that has ended."""
    deadline = time.monotonic() + END_WITHIN_S
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        time.sleep(0.001)
    raise TimeoutError(f"process {pid} was to have ended")


def _serve(line: socket.socket) -> None:
    """Fork whatever is asked for, until nobody asks any more."""
    for name in IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        asked, given, _, _ = socket.recv_fds(line, MAX_REQUEST_BYTES, 1)
        if not asked:
            return
        request = json.loads(asked)
        if "ended" in request:
            line.send(str(_status(request["ended"])).encode())
        elif pid := os.fork():
            os.close(given[0])
            line.send(str(pid).encode())
        else:
            line.close()
            _become(**request, stderr=given[0])


if __name__ == "__main__":
    _die_with_parent()
    _serve(socket.socket(fileno=int(sys.argv[1])))
