"""Running servers: the daisy as documented. Its causal servers have clients and send; one is killed under load. Row D5."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

import thence
from tests.support.servers.running import fleet, run, until, url, wait_for_server
from thence.cli.servers.up import Fleet
from thence.core.topology.model import Topology
from thence.studies.parts.shapes import daisy

MESSAGES: Final = 60
KILLED_AT: Final = 20
SERVER: Final = "p1-1"
"""The causal server of the first group: ann is its client."""
STANDBY: Final = "p1-2"


class Talk:
    """Four clients: ann at the causal server, ned in its group, and sue and sam in the other group."""

    def __init__(self, topology: Topology) -> None:
        self.ann = thence.connect(url(topology, SERVER), "ann")
        self.ned = thence.connect(url(topology, "p1-3"), "ned")
        self.sue = thence.connect(url(topology, "p2-3"), "sue")
        self.sam = thence.connect(url(topology, "p2-1"), "sam")
        self.heard: dict[str, list[str]] = {"ann": [], "ned": [], "sue": [], "sam": []}

    async def listen(self, client: thence.Client, name: str) -> None:
        """Write down what a client gets. Sue answers ned's questions to all others."""
        async for message in client:
            text = message.body.decode()
            self.heard[name].append(text)
            if name == "sue" and text.startswith("ned"):
                await client.send(["ned", "sam"], f"answer {text}".encode())

    def numbers(self, name: str, begin: str) -> list[int]:
        """Return the numbers of what a client heard that begins like that."""
        return [int(text.rpartition(" ")[2]) for text in self.heard[name] if text.startswith(begin)]


async def talk(running: Fleet, killed: str) -> Talk:
    """Let ann and ned write to both of the other group, and kill somebody in the middle; all is to be heard in the end."""
    loop, talking = asyncio.get_running_loop(), Talk(running.topology)
    everything = list(range(MESSAGES))
    async with talking.ann as ann, talking.ned as ned, talking.sue as sue, talking.sam as sam:
        clients = {"ann": ann, "ned": ned, "sue": sue, "sam": sam}
        for client in clients.values():
            for other in clients:
                await client.known(other)
        listening = [loop.create_task(talking.listen(client, name)) for name, client in clients.items()]

        async def write(client: thence.Client, name: str) -> None:
            for number in everything:
                if name == "ned" and number == KILLED_AT:
                    await asyncio.to_thread(running.kill, killed)
                await client.send(["sue", "sam"], f"{name} {number}".encode())
                await asyncio.sleep(0.005)

        anns = loop.create_task(write(ann, "ann"))
        await write(ned, "ned")
        # Whoever was killed is still dead: the others have got all of each other's, by way of its successor.
        await until(lambda: talking.numbers("ned", "answer") == everything and talking.numbers("sam", "answer") == everything)
        assert talking.numbers("sam", "ned") == everything
        await asyncio.to_thread(running.start_one, killed)
        await asyncio.to_thread(wait_for_server, running.topology, killed)
        await anns
        await until(lambda: all(talking.numbers(name, "ann") == everything for name in ("sue", "sam")))
        for task in listening:
            task.cancel()
    return talking


@pytest.mark.parametrize("killed", [SERVER, STANDBY])
def test_d5_a_causal_server_with_clients_is_killed_and_nobody_else_waits(killed: str, tmp_path: Path) -> None:
    """What ann's server accepted is not lost: it comes when that is back, once and in order. Nobody hears an answer too early."""
    with fleet(daisy(2, 3), tmp_path) as running:
        talking: list[Talk] = []

        async def main() -> None:
            talking.append(await talk(running, killed))

        run(main)
    (heard,) = talking
    for name in ("sue", "sam"):
        assert heard.numbers(name, "ned") == heard.numbers(name, "ann") == list(range(MESSAGES))
    for number in range(MESSAGES):
        assert heard.heard["sam"].index(f"ned {number}") < heard.heard["sam"].index(f"answer ned {number}")
