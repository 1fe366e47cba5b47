"""The scenario of ``test_alarms.py`` that is about memory: one client holds all of it, another waits, and one is shown out."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.servers.running import flat, servers
from tests.support.servers.securing import Speaker, framed
from thence.net import byte_pool
from thence.net.protocol import PROTOCOL, ClientHello
from thence.node import node as node_module

MEMORY_METRICS = (
    "thence_memory_limit_bytes",
    "thence_in_flight_bytes",
    "thence_in_flight_limit_bytes",
    "thence_shown_out_total",
)


async def clients_want_more_memory_than_there_is(given: Any) -> None:
    """Send halves of long frames, each in a connection of its own, to a server with a budget."""
    given.monkeypatch.setattr(byte_pool, "ROOM_TIMEOUT_S", 0.1)
    given.monkeypatch.setattr(node_module, "LOOK_EVERY_S", 0.05)
    topology = flat("s1")
    async with servers(topology, memory=2**31) as running:
        server = running["s1"]
        await given.prometheus.scrape(server)
        shared = server.node.memory.pools.clients
        shared.limit = 4 * 2**20
        speakers = []
        for number in range(4):
            speaker = await Speaker.call(topology.addresses["s1"])
            speaker.say(ClientHello(PROTOCOL, f"mallory {number}"))
            await speaker.hear()
            speaker.writer.write(framed(bytes(4 * 2**20))[: 2 * 2**20])
            speakers.append(speaker)
        while not shared.shown_out:
            await given.prometheus.scrape(server)
            await asyncio.sleep(0.05)
        await given.prometheus.scrape(server)
        for speaker in speakers:
            speaker.close()
