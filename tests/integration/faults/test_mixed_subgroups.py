"""G1 on running servers: a controller, vectors and physical clocks, joined by ``relayed``, and kill -9 in the middle.

Three subgroups of two processes. Each client answers what it gets, to another subgroup or its own, so chains mix messages that go
through gateways with those that stay. A gateway and a local process of another subgroup are killed and come back on their data.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import thence
from tests.support.servers.running import PATIENCE_S, assert_kept, fleet, run, until, url
from thence.cli.servers.up import Fleet
from thence.core.topology.toml import parse

GROUP = """
name = "mixed"
domains.G1 = { members = ["p10", "p11"], ordering = "sequenced" }
domains.G2 = { members = ["p20", "p21"], ordering = "vector" }
domains.G3 = { members = ["p30", "p31"], ordering = { name = "clocked", clock = "hybrid" } }
domains.main = { members = ["p10", "p20", "p30"], ordering = "relayed" }
"""
STEPS = 20
"""How often each chain is answered."""
HOMES = ("p10", "p11", "p20", "p21", "p30", "p31")
KILLED = ("p20", "p31")


async def answer(fabric: Fleet, home: str, gone: asyncio.Event, count: list[int]) -> None:
    """Get messages and send each of them on, to the next client and to the one after that, until a chain has ended."""
    at = HOMES.index(home)
    async with thence.connect(url(fabric.topology, home), f"at-{home}") as client:
        for other in HOMES:
            await client.known(f"at-{other}")
        if at % 2:  # One chain begins in each subgroup.
            await client.send(f"at-{HOMES[(at + 1) % 6]}", b"0")
        async for message in client:
            step = int(message.body) + 1
            count[0] += 1
            if step < STEPS:
                await client.send(f"at-{HOMES[(at + 1 + step % 2) % 6]}", b"%d" % step)
            if count[0] >= STEPS:
                gone.set()
            client.done()


async def kill(fabric: Fleet, gone: asyncio.Event) -> None:
    await gone.wait()
    for name in KILLED:
        fabric.kill(name)
    for name in KILLED:
        fabric.start_one(name)


def test_g1_a_gateway_and_a_local_process_are_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    with fleet(parse(GROUP), tmp_path / "data", tmp_path / "trace") as running:

        async def main() -> None:
            gone, count = asyncio.Event(), [0]
            async with asyncio.timeout(PATIENCE_S):
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(answer(running, home, gone, count)) for home in HOMES]
                    await kill(running, gone)
                    await until(lambda: count[0] >= 3 * STEPS)
                    for task in tasks:
                        task.cancel()
            assert count[0] == 3 * STEPS

        run(main)
    events = assert_kept(tmp_path / "trace", sends=3 * STEPS)
    assert {event.process for event in events if event.kind == "recover"} == {*KILLED}
