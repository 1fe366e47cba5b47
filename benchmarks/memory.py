"""How much memory a sender takes over ten million messages: it keeps what is not acknowledged, and nothing else.

A client sends to a client of another server, durably; measured is the resident memory of the sending server after each tenth of
the messages (in brackets). Then the same for a member in a program of its own that sends to another one, in memory.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import thence
from benchmarks.table import Row, markdown
from thence.cli.servers.up import Fleet, with_addresses
from thence.client.endpoint import Endpoint
from thence.client.message import Message
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse, write

MESSAGES: Final = 10_240_000
PARTS: Final = 10
BURST: Final = 256
BODY: Final = bytes(100)

NOTES: Final = """
`ours` is the memory after the last message, `peer` after the first half of them. The ratio is 1 where nothing grows.
Each figure is of a moment at which everything that was sent has come.
"""


def run(messages: int = MESSAGES) -> list[Row]:
    """Measure both."""
    with tempfile.TemporaryDirectory(prefix="thence-memory-") as folder:
        topology = with_addresses(_pair(), Path(folder) / "topology.toml")
        rows = [_row(f"a durable server, {messages:,} messages sent", _server(topology, Path(folder), messages))]
    with tempfile.TemporaryDirectory(prefix="thence-memory-") as folder:
        topology = with_addresses(_pair(), Path(folder) / "topology.toml")
        rows.append(_row(f"a member in memory, {messages:,} messages sent", _member(topology, messages)))
    return rows


def _pair() -> Topology:
    return Topology.flat(Domain("pair", ("here", "there"), "vector"))


def _row(what: str, mib: Sequence[float]) -> Row:
    half = mib[PARTS // 2 - 1]
    return Row(f"{what} ({' '.join(f'{size:.0f}' for size in mib)})", f"{mib[-1]:,.0f} MiB", f"{half:,.0f} MiB", half / mib[-1])


def _server(topology: Topology, folder: Path, messages: int) -> list[float]:
    fleet = Fleet(topology, folder)
    try:
        fleet.start()
        return asyncio.run(_through_server(fleet, topology, messages))
    finally:
        fleet.stop()


async def _through_server(fleet: Fleet, topology: Topology, messages: int) -> list[float]:
    urls = [f"thence://{topology.addresses[name]}" for name in topology.processes]
    async with thence.connect(urls[0], "ann") as ann, thence.connect(urls[1], "bea") as bea:
        await ann.known("bea")
        came = 0

        def count(batch: Sequence[Message]) -> None:
            nonlocal came
            came += len(batch)

        bea.on_batch(count)
        return await _send(ann, "bea", messages, fleet.processes["here"].pid, lambda sent: came == sent)


async def _send(sender: Endpoint, to: str, messages: int, pid: int, came: Callable[[int], bool]) -> list[float]:
    """Send everything, and return the memory after each part of it, when that has come."""
    sizes = []
    for part in range(1, PARTS + 1):
        for _ in range(messages // PARTS // BURST):
            await sender.room()
            for _ in range(BURST):
                sender.post(to, BODY)
            await asyncio.sleep(0)
        await sender.flush()
        while not came(part * (messages // PARTS // BURST) * BURST):  # noqa: ASYNC110  It is only counted.
            await asyncio.sleep(0.01)
        sizes.append(_resident_mib(pid))
    return sizes


def _member(topology: Topology, messages: int) -> list[float]:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    text = write(topology)
    process = multiprocessing.get_context("spawn").Process(target=_receive, args=(text, messages, theirs), daemon=True)
    process.start()
    try:
        return asyncio.run(_from_member(text, messages, ours))
    finally:
        process.terminate()
        process.join()


def _receive(text: str, messages: int, pipe: Connection) -> None:
    async def receive() -> None:
        came, all_came = 0, asyncio.Event()

        def count(batch: Sequence[Message]) -> None:
            nonlocal came
            came += len(batch)
            if came == messages:
                all_came.set()

        async with thence.Member(parse(text), name="there") as member:
            member.on_batch(count)
            await all_came.wait()
            pipe.send(came)
            await asyncio.Event().wait()

    asyncio.run(receive())


async def _from_member(text: str, messages: int, pipe: Connection) -> list[float]:
    async with thence.Member(parse(text), name="here") as member:
        await member.connected()
        unconfirmed = member._link.running[0].member
        sizes = await _send(member, "there", messages, 0, lambda _: not unconfirmed.attachment.in_memory)
        await asyncio.to_thread(pipe.recv)
    return sizes


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid or 'self'}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


if __name__ == "__main__":
    print(markdown(run()))
