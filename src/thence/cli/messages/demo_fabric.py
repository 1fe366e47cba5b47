"""The larger half of ``thence demo``: a fabric of real servers, a conversation, and a relay that is killed in the middle.

Clients ask questions of everyone; each question is answered, to everyone, by one who got it. So every answer has a cause that
each client must have seen before it, whichever way both came.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from thence.cli.servers.up import Fleet, with_addresses
from thence.client.client import Client, ask_status, connect
from thence.client.message import EVERYONE, Message
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse

FABRIC: Final = """
name = "three-sites"

[domains.north]
members = ["n1", "n2", "r1"]
ordering = "matrix"

[domains.middle]
members = ["r1", "m1", "r2"]
ordering = "vector"

[domains.south]
members = ["r2", "s1", "s2"]
ordering = "sequenced"
"""

RELAY: Final = "r1"
"""Whoever is killed: everything between north and the others goes through it."""

START_WITHIN_S: Final = 30.0
HEAL_WITHIN_S: Final = 60.0
DEAD_S: Final = 1.5
"""How long the relay stays dead."""
ASK_EVERY_S: Final = 0.02
LOOK_EVERY_S: Final = 0.1


class FabricOutcome(NamedTuple):
    """What the clients saw."""

    messages: int
    deliveries: int
    too_early: int
    """Answers that came before their question."""
    lost: int
    doubled: int
    out_of_order: int
    seconds: float


class _Listener:
    """One client, and what it saw."""

    def __init__(self, client: Client, answerer: str) -> None:
        self.client = client
        self.seen: list[str] = []
        self._answerer = answerer
        client.on_message(self._on_message)

    def _on_message(self, message: Message) -> None:
        text = message.body.decode()
        self.seen.append(text)
        kind, number, asker = text.split()
        if kind == "question" and self.client.name == self._chosen(asker, int(number)):
            self.client.post(EVERYONE, f"answer {number} {asker}".encode())

    def _chosen(self, asker: str, number: int) -> str:
        others = [name for name in self._answerer.split() if name != asker]
        return others[number % len(others)]


def run_fabric(folder: Path, seed: int, questions: int, note: Callable[[str], None]) -> FabricOutcome:
    """Run servers and clients, kill the relay, and return what came of it. The trace is in ``folder/trace``."""
    with fleet_of(FABRIC, folder, trace=folder / "trace") as fleet:
        fleet.start()
        return asyncio.run(_converse(fleet, random.Random(seed), questions, note))  # noqa: S311  No secret.


@contextmanager
def fleet_of(text: str, folder: Path, *, trace: Path | None, memory: bool = False) -> Iterator[Fleet]:
    """Make the servers of a fabric, whose log goes to a file in the folder; stop them when the block ends."""
    topology = with_addresses(parse(text), folder / "topology.toml")
    with (folder / "servers.log").open("w", encoding="utf-8") as log:
        fleet = Fleet(topology, folder, memory=memory, trace=trace, log=lambda line: print(line, file=log))
        try:
            yield fleet
        finally:
            fleet.stop()


async def _converse(fleet: Fleet, chance: random.Random, questions: int, note: Callable[[str], None]) -> FabricOutcome:
    topology = fleet.topology
    await all_up(topology)
    note(f"{len(topology.processes)} servers of 3 domains are up, each a process with a store on disk")
    names = [f"client-{server}" for server in topology.processes]
    clients = [connect(f"thence://{address}", name) for name, address in zip(names, topology.addresses.values(), strict=True)]
    for client in clients:
        await client.__aenter__()
    try:
        await _introduce(clients)
        listeners = [_Listener(client, " ".join(names)) for client in clients]
        began = time.perf_counter()
        asking = asyncio.gather(*(_ask(client, questions, chance.random()) for client in clients))
        await _kill_and_revive(fleet, questions, note)
        await asking
        expected = 2 * questions * len(clients)
        with suppress(TimeoutError):  # What is missing is counted.
            await until(lambda: all(len(listener.seen) >= expected for listener in listeners), HEAL_WITHIN_S, "not all came")
        await asyncio.sleep(0.2)  # Whatever came twice would come now.
        return _told(listeners, expected, time.perf_counter() - began)
    finally:
        for client in clients:
            await client.__aexit__(None, None, None)


async def all_up(topology: Topology) -> None:
    """Wait until all servers have answered, each with all its peers connected."""
    async with asyncio.timeout(START_WITHIN_S):
        for address in topology.addresses.values():
            while not await _is_up(address):  # noqa: ASYNC110  It is another process.
                await asyncio.sleep(0.05)


async def _is_up(address: str) -> bool:
    try:
        status = await ask_status(f"thence://{address}")
    except (OSError, TimeoutError):
        return False
    return all(peer["connected"] for peer in status["neighbours"])


async def _introduce(clients: list[Client]) -> None:
    """Let everybody say something, so that everybody knows everybody."""
    for client in clients:
        await client.send(EVERYONE, b"hello")
    for client in clients:
        for _ in clients:
            await client.receive(within=START_WITHIN_S)
        client.done()


async def _ask(client: Client, questions: int, phase: float) -> None:
    await asyncio.sleep(ASK_EVERY_S * phase)
    for number in range(questions):
        await client.room()
        client.post(EVERYONE, f"question {number} {client.name}".encode())
        await asyncio.sleep(ASK_EVERY_S)
    await client.flush()


async def _kill_and_revive(fleet: Fleet, questions: int, note: Callable[[str], None]) -> None:
    """Kill the relay in the middle of the conversation, look at what piles up, and start it again."""
    await asyncio.sleep(questions * ASK_EVERY_S / 3)
    fleet.kill(RELAY)
    note(f"the relay {RELAY} is killed (kill -9); the others go on")
    await asyncio.sleep(DEAD_S)
    queued = 0
    for name, address in fleet.topology.addresses.items():
        if name != RELAY:
            status = await ask_status(f"thence://{address}")
            queued = max([queued, *(peer["queued_frames"] for peer in status["neighbours"] if peer["name"] == RELAY)])
    note(f"meanwhile up to {queued} frames wait for it at a peer; it is started again on its data")
    fleet.start_one(RELAY)


async def until(condition: Callable[[], bool], within_s: float, otherwise: str) -> None:
    """Wait until something holds; say what is so ``otherwise`` if that takes too long."""
    try:
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110  Handlers tell nobody.
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        raise TimeoutError(f"{otherwise} within {within_s:g} s") from None


def _told(listeners: list[_Listener], expected: int, seconds: float) -> FabricOutcome:
    lost = sum(expected - len(set(listener.seen)) for listener in listeners)
    doubled = sum(len(listener.seen) - len(set(listener.seen)) for listener in listeners)
    too_early = out_of_order = 0
    for listener in listeners:
        asked: set[str] = set()
        next_number: dict[str, int] = {}
        for text in listener.seen:
            kind, number, asker = text.split()
            if kind == "question":
                asked.add(f"{number} {asker}")
                out_of_order += next_number.get(asker, 0) != int(number)
                next_number[asker] = int(number) + 1
            else:
                too_early += f"{number} {asker}" not in asked
    deliveries = sum(len(listener.seen) for listener in listeners)
    return FabricOutcome(expected, deliveries, too_early, lost, doubled, out_of_order, seconds)
