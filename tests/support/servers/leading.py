"""The command that changes a running fabric, stopped where a test wants to kill it or somebody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.campaigns.evolving_load import written
from tests.support.servers.running import url
from thence.client.client import Client
from thence.core.topology.model import Topology
from thence.net.protocol import ViewAnswer, ViewRequest

APPLY: Final = (sys.executable, "-m", "thence.cli.main", "topology", "apply")

STOPPING = """
import os, signal, sys
from thence.cli import console
from thence.cli.main import main

what, sys.argv = sys.argv[1], ["thence", *sys.argv[2:]]
say, stopped = console.err.print, []

def say_and_stop(*said, **how):
    say(*said, **how)
    if what in str(said[0]) and not stopped:
        stopped.append(True)
        os.kill(os.getpid(), signal.SIGSTOP)

console.err.print = say_and_stop
main()
"""
"""The command, which stops when it says something for the first time, so that it is known where everybody stands then."""


def stopped_at(what: str, new: Topology, folder: Path, *more: str) -> subprocess.Popen[bytes]:
    """Start the command; return when it has said something and stands still, before it has asked for what it was about to."""
    arguments = [sys.executable, "-c", STOPPING, what, "topology", "apply", str(written(new, folder)), *more]
    leading = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = os.waitid(os.P_PID, leading.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert found is not None
    assert found.si_code == os.CLD_STOPPED, f"it never said {what!r}"
    return leading


async def phases(topology: Topology, names: tuple[str, ...]) -> set[tuple[int, str]]:
    """Return which versions servers have, and in which phases they are."""
    found = [(await asked(topology, name, ViewRequest("ask"))).standing for name in names]
    return {(standing.version, standing.phase) for standing in found}


async def asked(topology: Topology, server: str, request: ViewRequest) -> ViewAnswer:
    """Ask one server."""
    async with Client(url(topology, server), "", temporary=False) as client:
        return await client.ask_view(request)
