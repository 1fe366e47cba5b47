"""Up to 150 running servers: what a message to a remote one and back takes, in one flat domain and in √n domains on a bus.

Claims M6 and M7 of domains §6.1 (Fig. 8 to 12): without domains the cost grows with the square of the number of servers, with √n
domains of √n servers on a bus it grows linearly. Both with full matrices, as in the paper; beside them a flat domain with
``stamps = "updates"``, its Appendix A. Servers are real ones in memory, joined by TCP, spread over a few processes; the sender
writes to one server after the other, and each answers before the next is asked. Times are medians of a pass over the servers, the
best of several passes; bytes are all that goes over the network, acks too. Then the same again with all servers on one
line of 100 Mbit/s, like the Ethernet of the paper: a network namespace of their own, whose loopback lets no more through. That
takes Linux, root, ``ip`` and ``tc``; without them these rows are left out. Heartbeats are put off: 150 servers in one domain have
11,175 connections.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import math
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.fits import Fit, fit
from benchmarks.peers.brokers import with_free_addresses
from benchmarks.peers.processes import Turn, Worker
from benchmarks.peers.processes import run as run_workers
from benchmarks.table import Row, markdown
from thence.client.embedded import Member
from thence.client.message import Message
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse, write
from thence.node.peers import connections as peers_connections
from thence.node.peers import outgoing_calls
from thence.studies.parts import shapes

NOTES = """
Ours is √n domains with full matrices. From 25 servers on a round trip takes 8 n² + 172 bytes in one domain, and 23.2 n + 561 in
√n domains, which no size is more than 3 % off. On the line that the paper measured on, an Ethernet of 100 Mbit/s, domains are
quicker from 49 servers on: at 150 a round trip takes 1.2 against 15.6 ms. On the loopback 180 kB take no longer than the hops.
With `updates` in both, domains send less in all traffic that was tried: [domains-growth](studies/domains-growth.md).
"""
SIZES = ((3, 3), (5, 5), (7, 7), (10, 10), (12, 12), (15, 10))
"""Domains, and servers in each."""
FIRST = 25
"""From how many servers on growth is measured."""
LINE = "100mbit"
CLONE_NEWNET = 0x40000000
PROCESSES = 3
MIN_PINGS = 100
PASSES = 5
NEVER_S = 3_600.0
PLOTS = Path(__file__).parent.parent / "docs" / "research" / "images"
FULL = {"stamps": "full"}
SQUARE = "flat, full"


class Trip(NamedTuple):
    """There and back."""

    seconds: float
    line_seconds: float
    """On a line of 100 Mbit/s; nan: not measured."""
    wire_bytes: float


class Growth(NamedTuple):
    """Round trips by number of servers, for one kind of fabric."""

    name: str
    trips: dict[int, Trip]

    def fit(self, what: Callable[[Trip], float]) -> Fit:
        """How it grows from ``FIRST`` servers on: with the square where there is one domain with whole matrices, or linearly."""
        power = 2 if self.name == SQUARE else 1
        return fit(power, {servers: what(trip) for servers, trip in self.trips.items() if servers >= FIRST})


def seconds(trip: Trip) -> float:
    return trip.seconds


def line_seconds(trip: Trip) -> float:
    return trip.line_seconds


def line_ms(trip: Trip) -> float:
    return trip.line_seconds * 1e3


def wire_bytes(trip: Trip) -> float:
    return trip.wire_bytes


def flat(servers: int, stamps: str) -> Topology:
    """Return one domain with everybody in it."""
    return Topology("flat", [Domain("all", tuple(f"p{at}" for at in range(servers)), "matrix", {"stamps": stamps})])


def bus(domains: int, size: int) -> Topology:
    """Return √n domains on a bus, with full matrices."""
    made = shapes.bus(domains, size)
    return Topology("bus", [domain._replace(options=FULL) for domain in made.domains.values()])


def asked(topology: Topology) -> tuple[str, list[str]]:
    """Return who asks and who answers: on a bus, servers that are no relays, the one in the first domain, the others beyond."""
    plain = [name for name, homes in topology.homes.items() if len(homes) == 1]
    asks = plain[0]
    homes = topology.homes
    return asks, [name for name in plain if name != asks and (topology.name == "flat" or homes[name] != homes[asks])]


async def host(
    turn: Turn, *, topology: str, place: int, asks: str, answers: Sequence[str], line: bool
) -> tuple[list[float], list[float], int]:
    """Run one share of the servers; all count bytes; who has the one that asks takes the times, without and with the line."""
    logging.disable(logging.ERROR)
    vars(peers_connections).update(HEARTBEAT_S=NEVER_S, SILENCE_S=NEVER_S)
    outgoing_calls.MAX_BACKOFF_S = 0.2  # type: ignore[misc]
    fabric, back = parse(topology), asyncio.Event()
    async with AsyncExitStack() as stack:
        running: dict[str, Member] = {}
        # From the last one on: of two servers the first in the topology calls, and then the other one is there already.
        for name in reversed(list(fabric.processes)[place::PROCESSES]):
            running[name] = await stack.enter_async_context(Member(fabric, name=name))
            if name == asks:
                running[name].on_batch(lambda _: back.set())
            else:
                _answer(running[name])
        for member in running.values():
            await member.connected()
        await turn.all()
        before = _bytes_out(running.values())
        times = await _ask(running[asks], answers, back) if asks in running else []
        await turn.all()
        sent = _bytes_out(running.values()) - before
        await turn.all()
        slow_times = []
        if asks in running and line:
            with slow_line():
                slow_times = await _ask(running[asks], answers, back)
        await turn.all()
    return times, slow_times, sent


def own_network() -> bool:
    """Give this process, and those that it starts, a loopback of their own; return whether that can be done here."""
    tools = shutil.which("ip") and shutil.which("tc")
    if not tools or ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        return False
    subprocess.run(["ip", "link", "set", "lo", "mtu", "1500", "up"], check=True)  # Larger packets would not fit the line's burst.
    return True


@contextmanager
def slow_line() -> Iterator[None]:
    """Let all that goes over the loopback share one line."""
    queue = ["dev", "lo", "root"]
    subprocess.run(["tc", "qdisc", "add", *queue, "tbf", "rate", LINE, "burst", "16kb", "latency", "4s"], check=True)
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", *queue], check=True)


def _bytes_out(members: Iterable[Member]) -> int:
    connections = [peer.connection for member in members for peer in member._link.running[0].peers.peers.values()]
    return sum(connection.writer.bytes_out for connection in connections if connection is not None)


def _answer(member: Member) -> None:
    def answer(messages: Sequence[Message]) -> None:
        for message in messages:
            member.post(message.sender, message.body)

    member.on_batch(answer)


async def _ask(member: Member, answers: Sequence[str], back: asyncio.Event) -> list[float]:
    """Return the median of each pass; ``back`` is set when an answer is there."""
    medians = []
    for _ in range(PASSES):
        times = []
        for at in range(pings(answers)):
            back.clear()
            began = time.perf_counter()
            member.post(answers[at % len(answers)], b"ping")
            await back.wait()
            times.append(time.perf_counter() - began)
        medians.append(statistics.median(times))
    return medians


def pings(answers: Sequence[str]) -> int:
    """Return how many go to and fro in one pass."""
    return max(MIN_PINGS, len(answers))


def round_trip(topology: Topology, *, line: bool) -> Trip:
    """Run all servers of a fabric, and measure."""
    asks, answers = asked(topology)
    text = write(with_free_addresses(topology))
    common = {"topology": text, "asks": asks, "answers": answers, "line": line}
    reports = [report.said for report in run_workers([Worker(host, {"place": place, **common}) for place in range(PROCESSES)])]
    quickest = min(min(report[0]) for report in reports if report[0])
    quickest_on_line = min((min(report[1]) for report in reports if report[1]), default=math.nan)
    return Trip(quickest, quickest_on_line, sum(report[2] for report in reports) / PASSES / pings(answers))


def measure(sizes: Sequence[tuple[int, int]] = SIZES) -> list[Growth]:
    """Run every kind of fabric in every size, in a network of its own if that can be."""
    line = own_network()
    if not line:
        print(f"  no rows for a line of {LINE}: that takes Linux, root, ip and tc", file=sys.stderr, flush=True)
    growths = [Growth(SQUARE, {}), Growth("flat, updates", {}), Growth("√n domains", {})]
    for count, size in sizes:
        servers = count * size
        fabrics = (flat(servers, "full"), flat(servers, "updates"), bus(count, size))
        for growth, fabric in zip(growths, fabrics, strict=True):
            trip = growth.trips[servers] = round_trip(fabric, line=line)
            on_line = f"on a line {_milliseconds(trip.line_seconds)}, " if line else ""
            shown = f"{_milliseconds(trip.seconds)}, {on_line}{trip.wire_bytes:,.0f} B"
            print(f"  {servers} servers, {growth.name}: {shown}", file=sys.stderr, flush=True)
    return growths


def draw(growths: Sequence[Growth], title: str, what: Callable[[Trip], float], words: Callable[[float], str]) -> str:
    """Return a plot."""
    from thence.pipeline.report.plots import LinePlot, PlotLine, svg

    largest = max(growths[0].trips)
    about = "; ".join(f"{growth.name}: {words(what(growth.trips[largest]))} with {largest} servers" for growth in growths)
    lines = [
        PlotLine(growth.name, [(servers, what(trip)) for servers, trip in growth.trips.items()], colour=at, dash=at)
        for at, growth in enumerate(growths)
    ]
    return svg(LinePlot(title, about, lines, "servers", y_words=words))


def run() -> list[Row]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as apart:
        growths = apart.submit(measure).result()  # Only this process leaves the network of the others.
    PLOTS.mkdir(exist_ok=True)
    plots = {
        "servers_growth_time": draw(growths, "A round trip to a remote server: time", seconds, _milliseconds),
        "servers_growth_bytes": draw(
            growths, "A round trip to a remote server: bytes", wire_bytes, lambda at: f"{at / 1e3:.3g} kB"
        ),
    }
    on_line = not math.isnan(growths[0].trips[FIRST].line_seconds)
    if on_line:
        title = "A round trip to a remote server on a line of 100 Mbit/s: time"
        plots["servers_growth_line"] = draw(growths, title, line_seconds, _milliseconds)
    for name, plot in plots.items():
        (PLOTS / f"{name}.svg").write_text(plot, encoding="utf-8")
    *flats, domains = growths
    rows = []
    for servers, ours in domains.trips.items():
        for peer in flats:
            theirs = peer.trips[servers]
            what = f"{servers} servers, {peer.name}"
            rows += [
                _row(f"{what}: time", seconds, ours, theirs),
                *([_row(f"{what}: time on a line of 100 Mbit/s", line_seconds, ours, theirs)] if on_line else []),
                Row(
                    f"{what}: bytes",
                    f"{ours.wire_bytes:,.0f} B",
                    f"{theirs.wire_bytes:,.0f} B",
                    theirs.wire_bytes / ours.wire_bytes,
                ),
            ]
    return rows + list(_fits(domains, *flats))


def _fits(domains: Growth, full: Growth, updates: Growth) -> Iterator[Row]:
    """Give how things grow."""
    for peer in (full, updates):
        yield _compared(f"bytes, {peer.name}", domains.fit(wire_bytes), peer.fit(wire_bytes))
    if not math.isnan(domains.trips[FIRST].line_seconds):
        for peer in (full, updates):
            yield _compared(f"ms on the line, {peer.name}", domains.fit(line_ms), peer.fit(line_ms))


def _compared(what: str, ours: Fit, theirs: Fit) -> Row:
    largest = max(count * size for count, size in SIZES)
    return Row(f"from {FIRST} servers on: {what}", str(ours), str(theirs), theirs.at(largest) / ours.at(largest))


def _row(what: str, of: Callable[[Trip], float], ours: Trip, theirs: Trip) -> Row:
    return Row(what, f"{of(ours) * 1e3:.2f} ms", f"{of(theirs) * 1e3:.2f} ms", of(theirs) / of(ours))


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def main() -> None:
    print(markdown(run()))


if __name__ == "__main__":
    main()
