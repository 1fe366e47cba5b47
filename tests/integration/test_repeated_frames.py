"""A server that restarts while one neighbour cannot hear it goes on with that one, though others have repeated its frames."""

from __future__ import annotations

from pathlib import Path
from random import Random

import thence
from tests.integration.running import addressed, run, until, url
from thence.runtime.lines import Lines
from thence.runtime.node_options import NodeOptions
from thence.runtime.proxy import Mode
from thence.runtime.server import Server

REPEATING = """
name = "repeating"
[domains.D]
members = ["s1", "s2", "s3"]
ordering = "vector"
confirmation = { scheme = "distributed", retransmission = "nearest", whole = true }
"""


def test_frames_that_others_repeated_do_not_make_a_server_an_old_copy(tmp_path: Path) -> None:
    """What the neighbour has of it came in another way than over their connection, so their epoch says nothing of it."""

    async def main() -> None:
        topology = addressed(REPEATING)
        lines = Lines(topology, Random(1))
        await lines.start()

        async def started(name: str) -> Server:
            server = Server(lines.seen_by(name), name, NodeOptions(data=tmp_path / name))
            await server.start()
            return server

        running = {name: await started(name) for name in topology.processes}
        got: list[int] = []
        try:
            async with thence.connect(url(topology, "s2"), "bob") as bob:
                bob.on_message(lambda message: got.append(message.value(int)))
                async with thence.connect(url(topology, "s1"), "ann") as ann:
                    await ann.known("bob")
                    await ann.send("bob", 1)
                    await until(lambda: got == [1])
                lines.proxies["s1", "s2"].set_mode(Mode.CUT)
                await running["s1"].stop(drain_s=0)
                running["s1"] = await started("s1")
                async with thence.connect(url(topology, "s1"), "ann") as ann:
                    for number in range(2, 5):
                        await ann.send("bob", number)
                    await until(lambda: got == [1, 2, 3, 4])  # By way of s3.
                    lines.proxies["s1", "s2"].set_mode(Mode.WELL)
                    neighbour = running["s1"].node.peers.neighbours["s2"]
                    await until(lambda: neighbour.up or neighbour.forgot)
                    assert not neighbour.trouble
                    assert not running["s1"].node.meetings.fenced
                    await ann.send("bob", 5)
                    await until(lambda: got == [1, 2, 3, 4, 5])
        finally:
            for server in running.values():
                await server.stop(drain_s=0)
            await lines.close()

    run(main)
