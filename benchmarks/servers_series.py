"""The three series of domains §6.1 on running durable servers: agents that send back, on the same server, a remote one, and all.

A main agent writes to the agent beside it (*local*), to one on another server after the other (*remote*), or to those on all
servers in one message (*broadcast*), and each sends the message back. Reactions are atomic and durable, messages are saved before
they are sent, and acknowledged when they are saved. Compared: one domain and √n domains on a bus, each with whole matrices and
with ``updates``.

Rules:

* All servers run in this process, over TCP on the loopback, each with its own store in a temporary folder, without fsync where
  the machine has ``/dev/shm``: what a disk adds depends on the disk, and bytes do not. Heartbeats are put off.
* Time is from the reaction that sends to the reaction to the last answer; the median of ``ROUNDS``. *wire* is all that goes over
  the network meanwhile, acks too. *disk* is what all stores grow by, and *state* what the orderings of a server keep in
  the end, on average.
* On a bus the main agent is on a server that is no relay, and those it writes to share no domain with it, as in §6.1.

``python -m benchmarks.servers_series [largest]`` prints the table, up to so many servers.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

import msgspec

import thence
from benchmarks.peers.brokers import with_free_addresses
from benchmarks.servers_growth import NEVER_S, asked
from benchmarks.table import Row, markdown
from thence.agents.kinds import kinds_of
from thence.core.topology.model import Topology
from thence.node.options import NodeOptions
from thence.node.peers import connections as peers_connections
from thence.node.peers import outgoing_calls
from thence.server.server import Server
from thence.studies.parts import layouts

SIZES: Final = (9, 25, 49, 100, 150)
ROUNDS: Final = 20
SERIES: Final = ("local", "remote", "broadcast")
STAMPS: Final = ("full", "updates")
LOOK_S: Final = 0.005
WITHIN_S: Final = 120.0


class Ask(msgspec.Struct, tag="ask"):
    """Write to these agents."""

    to: list[str]


class Ball(msgspec.Struct, tag="ball"):
    """Goes there and back."""

    back: bool = False


class Tally(msgspec.Struct):
    """What an agent keeps."""

    count: int = 0


class Player(thence.Agent):
    """Sends back what it gets, and has others send back what it sends."""

    state: Tally
    times: Final[list[float]] = []
    """When the main agent asked, and when each answer was there: for whoever measures, in the same process."""

    async def react(self, message: thence.Message) -> None:
        """Ask, answer, or note the answer."""
        what = message.value(Ask | Ball)
        self.state.count += 1
        if isinstance(what, Ask):
            self.times[:] = [time.perf_counter()]
            await self.send(what.to, Ball())
        elif what.back:
            self.times.append(time.perf_counter())
        else:
            await self.send(message.sender, Ball(back=True))


class Cost(NamedTuple):
    """What a round trip takes; in a broadcast, that to all."""

    seconds: float
    wire_bytes: float
    disk_bytes: float


class Found(NamedTuple):
    """What one fabric takes."""

    costs: dict[str, Cost]
    state_bytes: float


def fabric(shape: str, stamps: str, servers: int) -> Topology:
    """Return one domain, or √n domains on a bus."""
    made = layouts.even(1 if shape == "flat" else 2, servers, stamps=stamps)
    return Topology(shape, made.domains.values())


@asynccontextmanager
async def running(topology: Topology, data: Path) -> AsyncIterator[dict[str, Server]]:
    """Run all servers in this loop, durable."""
    servers: dict[str, Server] = {}
    silent = mock.patch.multiple(peers_connections, HEARTBEAT_S=NEVER_S, SILENCE_S=NEVER_S)
    with silent, mock.patch.object(outgoing_calls, "MAX_BACKOFF_S", 0.2):
        try:
            for name in reversed(topology.processes):
                servers[name] = Server(topology, name, NodeOptions(data=data / name), kinds_of([Player]))
                await servers[name].start()
            for server in servers.values():
                await server.node.peers.wait_connected()
            yield servers
        finally:
            for server in servers.values():
                await server.stop(drain_s=0)


async def measure(topology: Topology, data: Path, rounds: int = ROUNDS) -> Found:
    """Run one fabric and all series."""
    topology = with_free_addresses(topology)
    main, others = asked(topology)
    addresses = topology.addresses
    costs: dict[str, Cost] = {}
    async with running(topology, data) as servers:
        for name in (main, *others):
            async with thence.connect(f"thence://{addresses[name]}", f"client-{name}") as client:
                await client.agents.create(f"at-{name}", "Player", Tally())
                if name == main:
                    await client.agents.create("main", "Player", Tally())
        directory = servers[main].node.directory
        await _until(lambda: all(directory.home(f"at-{name}") for name in others))
        async with thence.connect(f"thence://{addresses[main]}", "client") as client:
            for series in SERIES:
                # Everybody is written to before it counts: what is learned at the start is learned once.
                for counts in (False, True):
                    before, times = _bytes(servers.values()), []
                    for at in range(rounds):
                        to = {"local": [f"at-{main}"], "remote": [f"at-{others[at % len(others)]}"]}.get(
                            series, [f"at-{name}" for name in others]
                        )
                        Player.times.clear()
                        await client.send("main", Ask(to))
                        await _until(partial(_answered, len(to)))
                        times.append(Player.times[-1] - Player.times[0])
                    if counts:
                        await _until(lambda: all(at_rest(server) for server in servers.values()))
                        wire, disk = ((now - then) / rounds for now, then in zip(_bytes(servers.values()), before, strict=True))
                        costs[series] = Cost(statistics.median(times), wire, disk)
        places = [place for server in servers.values() for place in server.node.member.attachment.domains.values()]
        state = sum(len(place.ordering.snapshot()) for place in places) / len(servers)
    return Found(costs, state)


def _answered(many: int) -> bool:
    return len(Player.times) > many


def at_rest(server: Server) -> bool:
    """Whether nothing is under way at a server."""
    return not any(server.node.member.attachment.queued().values()) and server.node.driver.commits.task is None


def _bytes(servers: Collection[Server]) -> tuple[int, int]:
    """Return what has gone over the network so far, and what the stores hold."""
    peers = [peer for server in servers for peer in server.node.peers.peers.values()]
    wire = sum(peer.traffic.total.bytes_out for peer in peers)
    return wire, sum(server.node.driver.store.held_bytes for server in servers)


async def _until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not true():  # noqa: ASYNC110  What is waited for is spread over many servers.
            await asyncio.sleep(LOOK_S)


def rows(sizes: Collection[int]) -> Iterator[Row]:
    """Compare a bus (ours) with one domain (the peer), with either kind of stamp."""
    for servers in sizes:
        for stamps in STAMPS:
            ours, theirs = (_measured(shape, stamps, servers) for shape in ("bus", "flat"))
            for series in SERIES:
                what, mine, other = f"{servers} servers, {stamps}, {series}", ours.costs[series], theirs.costs[series]
                yield Row(
                    f"{what}: time",
                    f"{mine.seconds * 1e3:,.1f} ms",
                    f"{other.seconds * 1e3:,.1f} ms",
                    other.seconds / mine.seconds,
                )
                yield _bytes_row(f"{what}: wire", mine.wire_bytes, other.wire_bytes)
                yield _bytes_row(f"{what}: disk", mine.disk_bytes, other.disk_bytes)
            yield _bytes_row(f"{servers} servers, {stamps}: state of a server", ours.state_bytes, theirs.state_bytes)


def _measured(shape: str, stamps: str, servers: int) -> Found:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as data:
        found = asyncio.run(measure(fabric(shape, stamps, servers), Path(data)))
    print(f"  {servers} servers, {shape}, {stamps}: {found}", file=sys.stderr, flush=True)
    return found


def _bytes_row(what: str, ours: float, theirs: float) -> Row:
    return Row(what, f"{ours:,.0f} B", f"{theirs:,.0f} B", theirs / ours if ours else 1.0)


def main() -> None:
    """Print the table, up to the largest size that is asked for."""
    logging.disable(logging.ERROR)
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else max(SIZES)
    print(markdown(rows([size for size in SIZES if size <= largest])))


if __name__ == "__main__":
    main()
