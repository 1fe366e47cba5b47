"""The three series of domains §6.1 on running durable servers: agents that send back, on the same server, a remote one, and all.

A main agent writes to the agent beside it (*local*), to one on another server after the other (*remote*), or to those on all
servers in one message (*broadcast*), and each sends the message back. Reactions are atomic and durable, messages are saved before
they are sent, and acknowledged when they are saved. Compared: one domain and √n domains on a bus, each with whole matrices and
with ``updates``.

Rules:

* The servers are spread over a few processes, joined by TCP on the loopback, each with its own store in a temporary folder,
  in memory where the machine has ``/dev/shm``: what a disk adds depends on the disk, and bytes do not. Heartbeats are put off.
* *time* is from the reaction that sends to the reaction to the last answer; the median of ``ROUNDS``. *processor* is what all
  servers together spend for a round, the request of the client that starts it included; it depends less on what else runs.
* *wire* is all that goes over the network meanwhile, acks too. *disk* is what all logs grow by, which no snapshot makes short
  meanwhile, and *state* what the orderings of a server keep in the end, on average.
* On a bus the main agent is on a server that is no relay, and those it writes to share no domain with it, as in §6.1.

``python -m benchmarks.servers_series LARGEST`` prints the table, up to so many servers, and writes nothing down.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import msgspec

import thence
from benchmarks.fits import fit
from benchmarks.peers.brokers import with_free_addresses
from benchmarks.peers.processes import Turn, Worker
from benchmarks.peers.processes import run as run_workers
from benchmarks.servers_growth import NEVER_S, asked
from benchmarks.table import Row, markdown
from thence.agents.kinds import kinds_of
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse, write
from thence.net.questions import Create
from thence.node.driver import commits
from thence.node.options import NodeOptions
from thence.node.peers import connections as peers_connections
from thence.node.peers import incoming_calls, outgoing_calls
from thence.server.server import Server
from thence.studies.parts import layouts

NOTES: Final = """
Ours is the bus, up to 100 servers. With whole matrices a remote round
trip writes 8 n² + 661 bytes in one domain and 25.2 n + 1,120 on the bus.
"""
SIZES: Final = (9, 25, 49, 100, 150)
FIRST: Final = 25
"""From how many servers on growth is measured."""
ROUNDS: Final = 20
PROCESSES: Final = 3
SERIES: Final = ("local", "remote", "broadcast")
STAMPS: Final = ("full", "updates")
LOOK_S: Final = 0.005
WITHIN_S: Final = 300.0
CONNECTED_WITHIN_S: Final = 120.0
"""How long servers that start together may take until they are connected with all that started before."""


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
    processor_s: float


class Found(NamedTuple):
    """What one fabric takes."""

    costs: dict[str, Cost]
    state_bytes: float


def fabric(shape: str, stamps: str, servers: int) -> Topology:
    """Return one domain, or √n domains on a bus."""
    made = layouts.even(1 if shape == "flat" else 2, servers, stamps=stamps)
    return Topology(shape, made.domains.values())


class Share(NamedTuple):
    """What one process has seen of a series: its bytes, and its processor's time; and the times, if the main agent is there."""

    seconds: list[float]
    wire_bytes: int
    disk_bytes: int
    processor_s: float


@asynccontextmanager
async def running(topology: Topology, data: Path, place: int, processes: int) -> AsyncIterator[dict[str, Server]]:
    """Run the share of this place in this loop, durable.

    In each process one server starts after the other, when the one before is connected. Where all call all others at once on a
    busy machine, no call ends in time, and all are made again. The last one comes first: of two, the first in the topology calls.
    """
    servers: dict[str, Server] = {}
    silent = mock.patch.multiple(peers_connections, HEARTBEAT_S=NEVER_S, SILENCE_S=NEVER_S)
    calls = mock.patch.multiple(outgoing_calls, MAX_BACKOFF_S=0.2, LONELY_S=NEVER_S, CONNECT_TIMEOUT_S=CONNECTED_WITHIN_S)
    patient = mock.patch.object(incoming_calls, "AGREE_TIMEOUT_S", CONNECTED_WITHIN_S)
    mine, names = topology.processes[place::processes], topology.processes[::-1]
    with silent, calls, patient, mock.patch.object(commits, "COMPACT_BYTES", 1 << 40):
        try:
            for at in range(0, len(names), processes):
                for name in set(names[at : at + processes]).intersection(mine):
                    servers[name] = Server(topology, name, NodeOptions(data=data / name), kinds_of([Player]))
                    await servers[name].start()
                    await _connected(servers[name], names[: at + processes])
            yield servers
        finally:
            await asyncio.gather(*(server.stop(drain_s=0) for server in servers.values()))


async def _make(server: Server, agent: str) -> None:
    """Make an agent. Without a client: each one would be announced to all, and with whole matrices that is most of the work."""
    made: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    question = msgspec.msgpack.encode(Create(agent, "Player", b""))
    server._agents.answer(question, lambda _, refusal: made.set_result(refusal))
    async with asyncio.timeout(WITHIN_S):
        if refusal := await made:
            raise AssertionError(refusal)


async def _connected(server: Server, started: Sequence[str]) -> None:
    """Wait until a server is connected with its peers among those that have started; say with whom it is not."""
    peers = [peer for name, peer in server.node.peers.peers.items() if name in started]
    try:
        await _until(lambda: all(peer.up for peer in peers), CONNECTED_WITHIN_S)
    except TimeoutError:
        away = [f"{peer.name} ({peer.trouble})" for peer in peers if not peer.up]
        raise TimeoutError(
            f"{server.node.name} is not connected with {len(away)} of {len(peers)} servers after {CONNECTED_WITHIN_S:g} s: "
            f"{', '.join(away[:3])}; try fewer servers, or a machine that does less"
        ) from None


def measure(topology: Topology, data: Path, rounds: int = ROUNDS) -> Found:
    """Run one fabric and all series."""
    shared = _shared(topology, data, rounds, PROCESSES)
    workers = [Worker(host, {"place": place, **shared}) for place in range(PROCESSES)]
    return _together([report.said for report in run_workers(workers)], len(topology.processes), rounds)


def measure_here(topology: Topology, data: Path, rounds: int = ROUNDS) -> Found:
    """Do so in this process and thread, where bytes are nearly the same each time."""
    said = asyncio.run(host(Turn(threading.Barrier(1)), place=0, **_shared(topology, data, rounds, 1)))
    return _together([said], len(topology.processes), rounds)


def _shared(topology: Topology, data: Path, rounds: int, processes: int) -> dict[str, Any]:
    """Return what all processes are told; the addresses are drawn here, once."""
    return {"topology": write(with_free_addresses(topology)), "data": str(data), "rounds": rounds, "processes": processes}


def _together(said: Sequence[tuple[dict[str, Share], int]], servers: int, rounds: int) -> Found:
    costs = {}
    for series in SERIES:
        shares = [of_series[series] for of_series, _ in said]
        times = [second for share in shares for second in share.seconds]
        sums = (sum(column) / rounds for column in list(zip(*shares, strict=True))[1:])
        costs[series] = Cost(statistics.median(times), *sums)
    return Found(costs, sum(state for _, state in said) / servers)


async def host(turn: Turn, *, topology: str, data: str, rounds: int, processes: int, place: int) -> tuple[dict[str, Share], int]:
    """Run one share of the servers; return what each series took here, and what the orderings keep."""
    logging.disable(logging.ERROR)
    fabric = parse(topology)
    main, others = asked(fabric)
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(running(fabric, Path(data), place, processes))
        await turn.all()
        for name in (main, *others):
            if name in servers:
                await _make(servers[name], f"at-{name}")
        if main in servers:
            await _make(servers[main], "main")
        asks = None
        if main in servers:
            # Whoever connects is announced to all, so it does so before anything is counted.
            asks = await stack.enter_async_context(
                thence.connect(f"thence://{fabric.addresses[main]}", "client", connect_timeout=WITHIN_S)
            )
            directory = servers[main].node.directory
            await _until(lambda: all(directory.home(f"at-{name}") for name in others))
        shares = {}
        for series in SERIES:
            # Everybody is written to before it counts: what is learned at the start is learned once.
            for _ in ("before", "counts"):
                await turn.all()
                bytes_before, began_s = _bytes(servers.values()), time.process_time()
                times = await _ask(asks, main, others, series, rounds) if asks else []
                await turn.all()
                for _ in range(2):  # What comes to rest here may have sent to others, who answer.
                    await _until(lambda: all(at_rest(server) for server in servers.values()))
                    await turn.all()
                wire, disk = (now - then for now, then in zip(_bytes(servers.values()), bytes_before, strict=True))
                shares[series] = Share(times, wire, disk, time.process_time() - began_s)
        places = [place for server in servers.values() for place in server.node.member.attachment.domains.values()]
        await turn.all()
        return shares, sum(len(place.ordering.snapshot()) for place in places)


async def _ask(client: thence.Client, main: str, others: Sequence[str], series: str, rounds: int) -> list[float]:
    """Let the main agent ask, and return how long each round took."""
    times = []
    for at in range(rounds):
        to = {"local": [f"at-{main}"], "remote": [f"at-{others[at % len(others)]}"]}.get(
            series, [f"at-{name}" for name in others]
        )
        Player.times.clear()
        await client.send("main", Ask(to))
        await _until(partial(_answered, len(to)))
        times.append(Player.times[-1] - Player.times[0])
    return times


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


async def _until(true: Callable[[], object], within_s: float = WITHIN_S) -> None:
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110  What is waited for is spread over many servers.
            await asyncio.sleep(LOOK_S)


def run(sizes: Collection[int] = SIZES) -> list[Row]:
    """Compare a bus (ours) with one domain (the peer), with either kind of stamp; and say how both grow."""
    rows: list[Row] = []
    grown: dict[str, dict[int, Found]] = {}
    for servers in sizes:
        for stamps in STAMPS:
            for shape in ("bus", "flat"):
                grown.setdefault(f"{shape}, {stamps}", {})[servers] = _measured(shape, stamps, servers)
            rows += _compared(
                f"{servers} servers, {stamps}", *(grown[f"{shape}, {stamps}"][servers] for shape in ("bus", "flat"))
            )
    if len([servers for servers in sizes if servers >= FIRST]) > 2:
        rows += _fits(grown)
    return rows


def _compared(what: str, ours: Found, theirs: Found) -> Iterator[Row]:
    for series in SERIES:
        mine, other = ours.costs[series], theirs.costs[series]
        for kind, mine_s, other_s in (("time", mine.seconds, other.seconds), ("processor", mine.processor_s, other.processor_s)):
            yield Row(f"{what}, {series}: {kind}", f"{mine_s * 1e3:,.1f} ms", f"{other_s * 1e3:,.1f} ms", other_s / mine_s)
        yield _bytes_row(f"{what}, {series}: wire", mine.wire_bytes, other.wire_bytes)
        yield _bytes_row(f"{what}, {series}: disk", mine.disk_bytes, other.disk_bytes)
    yield _bytes_row(f"{what}: state of a server", ours.state_bytes, theirs.state_bytes)


def _fits(grown: Mapping[str, Mapping[int, Found]]) -> Iterator[Row]:
    """Say how what a remote round trip and each recipient of a broadcast write to disks grow with the servers, n."""
    for series in SERIES[1:]:
        for stamps in STAMPS:
            ours, theirs = (
                fit(
                    2 if (shape, stamps) == ("flat", "full") else 1,
                    {
                        servers: disk_of_one(found, series, servers)
                        for servers, found in grown[f"{shape}, {stamps}"].items()
                        if servers >= FIRST
                    },
                )
                for shape in ("bus", "flat")
            )
            largest = max(grown[f"flat, {stamps}"])
            yield Row(
                f"from {FIRST} servers on: {stamps}, {series}: disk",
                str(ours),
                str(theirs),
                theirs.at(largest) / ours.at(largest),
            )


def disk_of_one(found: Found, series: str, servers: int) -> float:
    """Return what a round trip writes to disks: of a broadcast, that for each server."""
    return found.costs[series].disk_bytes / (servers if series == "broadcast" else 1)


def _measured(shape: str, stamps: str, servers: int) -> Found:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as data:
        found = measure(fabric(shape, stamps, servers), Path(data))
    print(f"  {servers} servers, {shape}, {stamps}: {found}", file=sys.stderr, flush=True)
    return found


def _bytes_row(what: str, ours: float, theirs: float) -> Row:
    return Row(what, f"{ours:,.0f} B", f"{theirs:,.0f} B", theirs / ours if ours else 1.0)


if __name__ == "__main__":
    print(markdown(run([servers for servers in SIZES if servers <= int(sys.argv[1])])))
