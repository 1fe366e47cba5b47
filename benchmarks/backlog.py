"""What it costs a server that two million messages wait for a client that is away, or for another server: in files, or in memory.

Messages of 100 bytes; first in batches, as a program makes them that sends as quickly as it can, then each in a message of its
own, in turn with another one for a second client that is away. Then the clients are at another server, which is killed before
anything is sent. Ours is `--backlog spill`, the peer `--backlog memory`. In the end who was away comes back and takes everything.
The last row is of a client that is there all the time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import thence
from benchmarks.memory import _resident_mib
from benchmarks.table import Row, markdown
from thence.cli.servers.up import Fleet, with_addresses
from thence.client.message import Message
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology

MESSAGES: Final = 2_000_000
ALONE: Final = 100_000
PRESENT: Final = 400_000
AT_A_TIME: Final = 20_000
"""So many messages go to the client that is there before it has them all; it is never so far behind that they would be
spilled."""
PARTS: Final = 10
BODY: Final = bytes(100)
BURST: Final = 256
ROUNDS: Final = 3
START_WITHIN_S: Final = 60.0

NAMES: Final = ("snapshot-*", "spill-*")
MODES: Final = {"spill": ("--backlog", "spill"), "memory": ("--backlog", "memory")}

NOTES: Final = """
In brackets the figures after each tenth of the messages: with files, neither memory nor the work for a tenth grows with what
waits. In memory a mailbox is full at a million messages (`MAX_MAILBOX_MESSAGES`), so the peer is measured with fewer. `snapshot`
is what stands for the whole log. Of messages for a peer, the server that sends them is measured; who comes back is the peer,
and its client takes all of them there. Messages a second are by the clock, of a machine that was busy with other things, too.
"""


class Measured(NamedTuple):
    """What was seen of one server."""

    resident_mib: list[float]
    seconds: list[float]
    snapshot_bytes: int
    spilled_bytes: int
    read_seconds: float


def run(messages: int = MESSAGES) -> list[Row]:
    """Measure both ways."""
    rows = away(messages, peer=False) + away(messages, peer=True)
    best = dict.fromkeys(MODES, inf)
    for _ in range(ROUNDS):
        for mode in MODES:
            best[mode] = min(best[mode], _present(mode))
    ours, theirs = best["spill"], best["memory"]
    what = "server's time for a message to a client that is there"
    return [*rows, Row(what, f"{1e6 * ours:.2f} µs", f"{1e6 * theirs:.2f} µs", theirs / ours)]


def away(messages: int = MESSAGES, *, peer: bool) -> list[Row]:
    """Measure what waits for a client that is away, or for a peer."""
    rows: list[Row] = []
    who = "for a peer, " if peer else ""
    for what, count, alone in ((f"{who}in batches", messages, False), (f"{who}each alone", min(messages, ALONE), True)):
        spilled = _measure("spill", count, alone=alone, peer=peer)
        limited = min(count, 900_000)
        kept = _measure("memory", limited, alone=alone, peer=peer)
        rows += [
            Row(f"memory, {count:,} messages {what} ({_listed(spilled.resident_mib)}; peer {limited:,})", *_mib(spilled, kept)),
            Row(
                f"server's time for the last tenth and the first, {what} ({_listed(spilled.seconds, 2)})",
                f"{spilled.seconds[-1]:.2f} s",
                f"{spilled.seconds[0]:.2f} s",
                spilled.seconds[0] / spilled.seconds[-1],
            ),
            Row(
                f"snapshot, {what}; {spilled.spilled_bytes / 2**20:,.0f} MiB are in files",
                f"{spilled.snapshot_bytes / 2**20:.1f} MiB",
                f"{kept.snapshot_bytes / 2**20:.1f} MiB",
                kept.snapshot_bytes / spilled.snapshot_bytes,
            ),
            _rate(
                f"messages a second for the client that comes back, {what}",
                count / spilled.read_seconds,
                limited / kept.read_seconds,
            ),
        ]
    return rows


def _listed(figures: Sequence[float], digits: int = 0) -> str:
    return " ".join(f"{figure:.{digits}f}" for figure in figures)


def _mib(spilled: Measured, kept: Measured) -> tuple[str, str, float]:
    ours, theirs = spilled.resident_mib[-1], kept.resident_mib[-1]
    return f"{ours:,.0f} MiB", f"{theirs:,.0f} MiB", theirs / ours


def _rate(what: str, ours: float, theirs: float) -> Row:
    return Row(what, f"{ours:,.0f}/s", f"{theirs:,.0f}/s", ours / theirs)


def _measure(mode: str, messages: int, *, alone: bool, peer: bool) -> Measured:
    names = ("here", "there") if peer else ("here",)
    with tempfile.TemporaryDirectory(prefix="thence-backlog-") as folder:
        topology = with_addresses(Topology.flat(Domain("one", names, "vector")), Path(folder) / "topology.toml")
        fleet = Fleet(topology, Path(folder), options=MODES[mode])
        url, away = (f"thence://{topology.addresses[name]}" for name in (names[0], names[-1]))
        try:
            fleet.start()
            asyncio.run(_introduce(url, away))
            if peer:
                fleet.kill("there")
            resident, seconds = asyncio.run(_fill(url, fleet.processes["here"].pid, messages, alone=alone))
            fleet.stop()  # In order, so that there is a snapshot of everything.
            snapshot, spilled = (sum(path.stat().st_size for path in (Path(folder) / "here").glob(what)) for what in NAMES)
            fleet.start()
            return Measured(resident, seconds, snapshot, spilled, asyncio.run(_read(away, messages)))
        finally:
            fleet.stop()


def _connect(url: str, name: str) -> thence.Client:
    """Connect to a server that may just be starting."""
    return thence.connect(url, name, connect_timeout=START_WITHIN_S)


async def _introduce(url: str, away: str) -> None:
    """Let there be clients that are away by now, and a writer who knows them."""
    async with _connect(away, "reader"), _connect(away, "other"), _connect(url, "writer") as writer:
        await writer.known("reader")
        await writer.known("other")


async def _fill(url: str, pid: int, messages: int, *, alone: bool) -> tuple[list[float], list[float]]:
    """Send messages to a client that is away; return the memory of the server, and the time it took, after each tenth."""
    resident, seconds = [], []
    async with _connect(url, "writer") as writer:
        for _ in range(PARTS):
            began = _worked_s(pid)
            await _send(writer, messages // PARTS, alone=alone)
            seconds.append(_worked_s(pid) - began)
            resident.append(_resident_mib(pid))
    return resident, seconds


async def _send(writer: thence.Client, count: int, *, alone: bool) -> None:
    for number in range(count):
        if number % BURST == 0:
            await writer.room()
            await asyncio.sleep(0)
        writer.post("reader", BODY)
        if alone:
            writer.post("other", BODY)  # Messages travel together that are for the same recipients, and follow each other.
    await writer.flush()


async def _read(url: str, messages: int) -> float:
    """Take all messages, and return how long that took."""
    began = perf_counter()
    async with _connect(url, "reader") as reader:
        await _Count(reader).reach(messages)
    return perf_counter() - began


class _Count:
    """How many messages have come."""

    def __init__(self, reader: thence.Client) -> None:
        self.came = 0
        self._goal = 0
        self._reached = asyncio.Event()
        reader.on_batch(self._count)

    def _count(self, batch: Sequence[Message]) -> None:
        self.came += len(batch)
        if self.came >= self._goal:
            self._reached.set()

    async def reach(self, goal: int) -> None:
        """Wait until so many have come."""
        self._goal = goal
        self._reached.clear()
        if self.came < goal:
            await self._reached.wait()


def _present(mode: str) -> float:
    """Return how long a server works for a message from one client to another, in seconds."""
    with tempfile.TemporaryDirectory(prefix="thence-backlog-") as folder:
        topology = with_addresses(Topology.flat(Domain("one", ("here",), "vector")), Path(folder) / "topology.toml")
        fleet = Fleet(topology, Path(folder), options=MODES[mode])
        try:
            fleet.start()
            return asyncio.run(_through(f"thence://{topology.addresses['here']}", fleet.processes["here"].pid))
        finally:
            fleet.stop()


async def _through(url: str, pid: int) -> float:
    async with _connect(url, "reader") as reader, _connect(url, "writer") as writer:
        count, began = _Count(reader), _worked_s(pid)
        for sent in range(0, PRESENT, AT_A_TIME):
            await _send(writer, AT_A_TIME, alone=False)
            await count.reach(sent + AT_A_TIME)
        return (_worked_s(pid) - began) / PRESENT


def _worked_s(pid: int) -> float:
    """Return how long a process has worked: other than the time on the wall, it does not depend on what others do."""
    user, system = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    print(markdown(away(peer=True) if "--neighbour" in sys.argv else run()))
