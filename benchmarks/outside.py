"""The longest gap of clients outside of a change, while those whom it concerns hold for a server that is down.

A daisy of two groups with standbys, as running servers. The left group splits, or takes a new server; one of it is killed when it
holds, and started again after ``DOWN_S``, so that the change waits for it. Where a server leaves or is lost all hold, and nobody
else is killed. Meanwhile a client sends every few milliseconds to another one in the right group. Measured is the longest time
between two deliveries; the bound is two heartbeats.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import thence
from benchmarks.table import Row, markdown
from thence.cli.servers.up import Fleet, free_addresses, with_addresses
from thence.client.client import ask_status
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse, write
from thence.node.peers.peer import HEARTBEAT_S
from thence.server.apply import Access, TopologyChange

EVERY_S: Final = 0.005
DOWN_S: Final = 4.0
BOUND_S: Final = 2 * HEARTBEAT_S
PATIENCE_S: Final = 120.0
FILE: Final = "following.toml"

GROUPS: Final = """
[domains.right]
members = ["r1", "r2", "u", "v"]
[domains.servers]
members = ["s", "t", "u", "v"]
[[relays]]
replicas = ["s", "t"]
local = "left"
[[relays]]
replicas = ["u", "v"]
local = "right"
"""
BEFORE: Final = 'name = "daisy"\n[domains.left]\nmembers = ["l1", "l2", "l3", "s", "t"]\n' + GROUPS
SPLIT: Final = '[domains.left]\nmembers = ["l1", "s", "t"]\n[domains.far]\nmembers = ["l1", "l2", "l3"]\n'
WITH_ONE_MORE: Final = '[domains.left]\nmembers = ["l1", "l2", "l3", "new", "s", "t"]\n'
WITH_ONE_LESS: Final = '[domains.left]\nmembers = ["l1", "l2", "s", "t"]\n'
CONCERNED: Final = "l3"


class Case(NamedTuple):
    """A change: what it is, the left group after it, and what becomes of the server in it that it concerns."""

    what: str
    left: str
    killed: bool = False
    """Whether it is killed while it holds, and comes back."""
    lost: tuple[str, ...] = ()

    @property
    def following(self) -> Topology:
        """The version to which it leads."""
        return parse(f'name = "daisy"\nversion = 2\n{self.left}{GROUPS}')


SPLITS: Final = Case("a split", SPLIT, killed=True)
JOINS: Final = Case("a join", WITH_ONE_MORE, killed=True)
CASES: Final = (
    SPLITS,
    JOINS,
    Case("a leave", WITH_ONE_LESS),
    Case("a removal", WITH_ONE_LESS, lost=(CONCERNED,)),
)


class Outside(NamedTuple):
    """What clients outside saw of a change, and how long those whom it concerned held."""

    gap_s: float
    held_s: float
    numbers: list[int]
    paused: tuple[str, ...]


def measure(case: Case = SPLITS) -> Outside:
    """Make a change once."""
    with tempfile.TemporaryDirectory(prefix="thence-outside-") as folder:
        data = Path(folder)
        old = with_addresses(parse(BEFORE), data / "topology.toml")
        fleet = Fleet(old, data, options=("--memory", "3400M"))
        try:
            fleet.start()
            return asyncio.run(_talk(fleet, case, old, _addressed(case.following, old, data)))
        finally:
            fleet.stop()


def _addressed(new: Topology, old: Topology, folder: Path) -> Topology:
    """Return the version with the addresses of those who stay, and free ones for others; write it down."""
    fresh = [name for name in new.processes if name not in old.homes]
    kept = {name: address for name, address in old.addresses.items() if name in new.homes}
    addressed = new.at(kept | dict(zip(fresh, free_addresses(len(fresh)), strict=True)))
    (folder / FILE).write_text(write(addressed), encoding="utf-8")
    return addressed


async def _talk(fleet: Fleet, case: Case, old: Topology, new: Topology) -> Outside:
    times: list[float] = []
    numbers: list[int] = []
    async with (
        asyncio.timeout(PATIENCE_S),
        thence.connect(_url(old, "r1"), "ann", connect_timeout=60) as ann,
        thence.connect(_url(old, "r2"), "bob", connect_timeout=60) as bob,
    ):

        async def listen() -> None:
            async for message in bob:
                times.append(time.monotonic())
                numbers.append(int(message.body))

        await ann.known("bob")
        listening = asyncio.create_task(listen())
        change = asyncio.create_task(_change(fleet, case, old, new))
        sent = 0
        while not change.done():
            await ann.send("bob", str(sent).encode())
            sent += 1
            await asyncio.sleep(EVERY_S)
        await _until(lambda: len(numbers) == sent)
        listening.cancel()
        paused_ms = change.result()
    paused = {name: ms for name, ms in paused_ms.items() if ms}
    gap_s = max(later - earlier for earlier, later in pairwise(times))
    return Outside(gap_s, max(paused.values()) / 1_000, numbers, tuple(sorted(paused)))


async def _change(fleet: Fleet, case: Case, old: Topology, new: Topology) -> dict[str, float]:
    """Make the change; kill one whom it concerns when it holds, and start it again; or for good, before."""
    for name in old.processes:
        await _in_phase(old, name, "normal")
    for name in new.processes:
        if name not in old.homes:
            fleet.start_one(name, fleet.data / FILE)
            await _answers(new, name)
    if case.lost:
        fleet.kill(CONCERNED)
    made = asyncio.create_task(TopologyChange(old, new, Access(), lambda _: None, lost=case.lost).apply(60))
    if case.killed:
        await _in_phase(old, CONCERNED, "holding")
        fleet.kill(CONCERNED)
        await asyncio.sleep(DOWN_S)
        fleet.start_one(CONCERNED)
    return dict((await made).paused_ms)


async def _answers(topology: Topology, name: str) -> None:
    """Wait until a server is there."""
    while True:
        with suppress(OSError, TimeoutError):
            await ask_status(_url(topology, name))
            return
        await asyncio.sleep(EVERY_S)


async def _in_phase(topology: Topology, name: str, phase: str) -> None:
    """Wait until a server is in a phase of a change, and connected with all its peers."""
    while True:
        with suppress(OSError, TimeoutError):
            status = await ask_status(_url(topology, name))
            if status["change"]["phase"] == phase and all(peer["connected"] for peer in status["neighbours"]):
                return
        await asyncio.sleep(EVERY_S)


async def _until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110  Whoever listens tells nobody.
        await asyncio.sleep(EVERY_S)


def _url(topology: Topology, server: str) -> str:
    return f"thence://{topology.addresses[server]}"


def run() -> list[Row]:
    """Measure each change, and say whether nobody outside waited as long as the bound."""
    return [_row(case, measure(case)) for case in CASES]


def _row(case: Case, seen: Outside) -> Row:
    where = "outside of" if case.killed else "elsewhere, at"
    holding = f"{', '.join(seen.paused)} hold for {seen.held_s:.1f} s"
    what = f"clients {where} {case.what} ({len(seen.numbers):,} messages), while {holding}"
    return Row(what, f"{seen.gap_s:.3f} s", f"{BOUND_S:.0f} s", BOUND_S / seen.gap_s, 1.0)


if __name__ == "__main__":
    print(markdown(run()))
