"""Servers and members for tests: real ones, on free ports of this machine, stopped whatever happens.

``fleet`` starts processes, as ``thence up`` does; ``servers`` runs several servers in the test's own loop, without crashes.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

import thence
from tests.support.servers.prepared import PreparedProcess
from thence.cli.servers.up import Fleet, free_addresses, with_addresses
from thence.client.client import ask_status
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.node.options import NodeOptions
from thence.server.server import Server
from thence.trace.events import Event
from thence.trace.files import read_trace
from thence.trace.judge import judge

PATIENCE_S: Final = 60.0
"""How long a test waits for what must come to pass; machines may be busy."""


def flat(*names: str, ordering: str = "vector") -> Topology:
    """Return one domain, with free addresses."""
    members = ", ".join(f'"{name}"' for name in names)
    return addressed(f'name = "flat"\n[domains.D]\nmembers = [{members}]\nordering = "{ordering}"\n')


def addressed(text: str) -> Topology:
    """Return the topology that a text describes, with free addresses."""
    topology = parse(text)
    addresses = dict(zip(topology.processes, free_addresses(len(topology.processes)), strict=True))
    return topology.at(addresses)


def url(topology: Topology, server: str) -> str:
    """Return where clients of a server connect."""
    return f"thence://{topology.addresses[server]}"


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine, but not for ever."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            await main()

    asyncio.run(bounded())


async def until(condition: Callable[[], Any]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  What is waited for tells nobody.
            await asyncio.sleep(0.01)


@asynccontextmanager
async def servers(
    topology: Topology, data: Path | None = None, trace: Path | None = None, **options: Any
) -> AsyncIterator[dict[str, Server]]:
    """Run all servers of a topology in this loop."""
    running: dict[str, Server] = {}
    try:
        for name in topology.processes:
            running[name] = await started(topology, name, data, trace, **options)
        for server in running.values():
            await server.node.peers.wait_connected()
        yield running
    finally:
        for server in running.values():
            await server.stop(drain_s=0)


async def started(topology: Topology, name: str, data: Path | None = None, trace: Path | None = None, **options: Any) -> Server:
    """Start one server in this loop."""
    server = Server(topology, name, NodeOptions(data=None if data is None else data / name, trace=trace, **options))
    await server.start()
    return server


class PreparedFleet(Fleet):
    """The servers of a fabric as processes whose interpreters are not started anew."""

    def _open(self, arguments: list[str]) -> subprocess.Popen[str]:
        process: Any = PreparedProcess(arguments[3:])  # Behind python -m thence.cli.main.
        return cast("subprocess.Popen[str]", process)


@contextmanager
def fleet(
    topology: Topology, data: Path, trace: Path | None = None, agents: Sequence[str] = (), options: Sequence[str] = ()
) -> Iterator[Fleet]:
    """Run all servers of a topology as processes."""
    running = PreparedFleet(with_addresses(topology, data / "topology.toml"), data, trace=trace, agents=agents, options=options)
    try:
        running.start()
        for name in topology.processes:
            wait_for_server(running.topology, name)
        yield running
    finally:
        running.stop()


def wait_for_server(topology: Topology, name: str) -> dict[str, Any]:
    """Wait until a server and all its peers are up; return its status."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            status = asyncio.run(ask_status(url(topology, name)))
            if all(peer["connected"] for peer in status["neighbours"]):
                return status
        except (OSError, TimeoutError):
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} is not up")
        time.sleep(0.05)


def assert_kept(trace: Path, *, sends: int = 1) -> list[Event]:
    """Judge what servers wrote: nothing may be wrong, and there must be something to judge."""
    events = list(read_trace(trace))
    verdict = judge(events)
    assert not verdict.violations, verdict.violations[:5]
    assert sum(event.kind == "send" for event in events) >= sends
    return events


async def abandon(client: Any) -> None:
    """Leave as a program does that fails: at once, and nothing is waited for."""
    await client.__aexit__(RuntimeError, RuntimeError("the program failed"), None)


async def posted(topology: Any, server: str, to: str, count: int, name: str = "writer", body: bytes = b"x" * 100) -> None:
    """Send messages, each in a batch of its own, and do not wait longer than there is room."""
    with suppress(TimeoutError):
        async with asyncio.timeout(2), thence.connect(url(topology, server), name) as writer:
            for _ in range(count):
                writer.post(to, body)
                await asyncio.sleep(0)
