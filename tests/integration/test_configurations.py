"""Every configuration of the papers as running servers: processes, sockets, files. What they did is judged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import thence
from tests.integration.running import PATIENCE_S, assert_kept, fleet, url
from thence.core.topology import Topology
from thence.runtime.topology_file import read_topology

ROOT = Path(__file__).parents[2]
CONFIGURATIONS = sorted((ROOT / "tests" / "papers" / "topologies").glob("*.toml")) + sorted((ROOT / "examples").glob("*.toml"))
ROUNDS = 5


async def talk(topology: Topology) -> None:
    """Let a client at each server write to everybody and to the next one, and wait until all have everything."""
    names = {server: f"c-{server}" for server in topology.senders}
    clients = [thence.connect(url(topology, server), name) for server, name in names.items()]
    for client in clients:
        await client.__aenter__()
    try:
        async with asyncio.timeout(PATIENCE_S):
            for client in clients:
                await client.send(thence.EVERYONE, b"here")
            await asyncio.gather(*(client.receive() for client in clients for _ in clients))
            for number in range(ROUNDS):
                for at, client in enumerate(clients):
                    await client.send(clients[(at + 1 + number) % len(clients)].name, b"%d" % number)
            for client in clients:
                assert sorted([(await client.receive()).body for _ in range(ROUNDS)]) == [b"%d" % n for n in range(ROUNDS)]
                client.done()
    finally:
        for client in clients:
            await client.__aexit__(None, None, None)


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.stem)
def test_running_servers_keep_order(file: Path, tmp_path: Path) -> None:
    with fleet(read_topology(file), tmp_path / "data", tmp_path / "trace") as running:
        asyncio.run(talk(running.topology))
    count = len(running.topology.senders)
    assert_kept(tmp_path / "trace", sends=count * (1 + ROUNDS))
    assert all(process.returncode == 0 for process in running.processes.values())
