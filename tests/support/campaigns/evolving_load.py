"""Clients that go on sending while a fabric changes, and know what they must have got."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import thence
from tests.support.servers.running import PATIENCE_S, until
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.core.topology.toml import write

SEND_EVERY_S: Final = 0.01


def following(topology: Topology, domains: Mapping[str, Sequence[str]], links: Sequence[Link] = (), **addresses: str) -> Topology:
    """Return the next version: these domains, and the addresses of those who were there and of those who are new."""
    members = {member for names in domains.values() for member in names}
    known = {name: address for name, address in (topology.addresses | addresses).items() if name in members}
    made = [Domain(name, tuple(names), "matrix") for name, names in domains.items()]
    return Topology(topology.name, made, links, addresses=known, version=topology.version + 1)


def written(topology: Topology, folder: Path) -> Path:
    """Return the file of a version."""
    file = folder / f"version-{topology.version}.toml"
    file.write_text(write(topology), encoding="utf-8")
    return file


class Load:
    """One client at each server; each sends to everyone, one number after the other."""

    def __init__(self) -> None:
        self.clients: dict[str, thence.Client] = {}
        self.sent: dict[str, int] = {}
        self.got: dict[str, dict[str, list[int]]] = {}
        """By client and sender: the numbers, as they came."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended: set[str] = set()

    def add(self, name: str, client: thence.Client) -> None:
        """Let a client take part."""
        self.clients[name] = client
        self.sent[name] = 0
        self.got[name] = {}

        def note(message: thence.Message) -> None:
            self.got[name].setdefault(message.sender, []).append(int(message.body))

        client.on_message(note)
        self._tasks[name] = asyncio.get_running_loop().create_task(self._send(name))

    async def _send(self, name: str) -> None:
        while name not in self._ended:
            await self.clients[name].send(thence.EVERYONE, str(self.sent[name] + 1).encode())
            self.sent[name] += 1
            await asyncio.sleep(SEND_EVERY_S)

    async def more(self, messages: int = 20) -> None:
        """Wait until everybody has sent so many more."""
        goal = {name: sent + messages for name, sent in self.sent.items()}
        await until(lambda: all(self.sent[name] >= sent for name, sent in goal.items() if name in self._tasks))

    async def remove(self, name: str) -> None:
        """Let a client send no more, when what it has sent last is accepted."""
        self._ended.add(name)
        await self._tasks.pop(name)

    async def stop(self) -> None:
        """Let no client send anything more, whatever happens to what it has sent last."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def finish(self, listening: Sequence[str] | None = None) -> None:
        """Stop sending, and check that all who listen got everything, in order and once, from the first that they got on."""
        for name in list(self._tasks):
            await self.remove(name)
        names = list(self.clients) if listening is None else listening
        await until(lambda: all(self.got[name].get(other, [0])[-1] >= self.sent[other] for name in names for other in self.sent))
        for name in names:
            for other, numbers in self.got[name].items():
                assert numbers == list(range(numbers[0], numbers[-1] + 1)), (name, other)
                assert numbers[-1] == self.sent.get(other, numbers[-1]), (name, other)


@asynccontextmanager
async def load(topology: Topology, servers: Sequence[str]) -> AsyncIterator[Load]:
    """Run a client at each of these servers."""
    running = Load()
    async with AsyncExitStack() as stack:
        try:
            for server in servers:
                client = thence.connect(
                    f"thence://{topology.addresses[server]}", f"client-of-{server}", connect_timeout=PATIENCE_S
                )
                running.add(client.name, await stack.enter_async_context(client))
            yield running
        finally:
            await running.stop()
