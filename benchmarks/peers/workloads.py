"""Running programs against NATS, JetStream and Redis: end-to-end deliveries per second and round trips, on one machine.

Every figure is of Python processes that send and receive, with the same loop (uvloop where it is installed) on both sides. Ours
sends with ``post`` and listens with ``on_batch``; nats-py has a callback for each message, and for JetStream ``publish_async``
and a pull consumer that confirms a batch at a time; redis-py pipelines XADD and reads with XREADGROUP, both in batches. Ours
keeps causal order everywhere; the peers keep the order of one sender. The sides take turns, and the best of several rounds
counts, since noise only ever adds.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count as counting
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import nats_side, ours, redis_side
from benchmarks.peers.brokers import install_missing, nats_server, redis_server, thence_servers, topology_text
from benchmarks.peers.counting import percentile, rate
from benchmarks.peers.processes import Worker, run
from benchmarks.table import Row

BODY_BYTES = (100, 1024)
ROUNDS = 5
MEMBERS = ("A", "B", "C", "D")
GROUP_COUNT = 20_000
"""How many messages each member of a group sends."""
COUNT = 60_000
PINGS = 2_000


class Setting(NamedTuple):
    """The servers that run meanwhile."""

    memory: str
    durable: tuple[str, str]
    nats: str
    redis: int


Side = Callable[[Setting, int], list[Worker]]


class Workload(NamedTuple):
    """One thing to measure: ours and its peers, each a function that makes the workers of a round."""

    name: str
    ours: Side
    peers: dict[str, tuple[Side, float]]
    """Each with the ratio that is to be reached."""
    latency: bool = False


_numbers = counting(1)


def _fresh() -> str:
    return f"r{next(_numbers)}"


# Who takes part in which workload.


def our_group(_: Setting, size: int) -> list[Worker]:
    topology = topology_text(MEMBERS)
    common = {"topology": topology, "members": len(MEMBERS), "count": GROUP_COUNT, "body_bytes": size}
    return [Worker(ours.group_member, {"name": name, **common}) for name in MEMBERS]


def nats_group(setting: Setting, size: int) -> list[Worker]:
    options = {"url": setting.nats, "members": len(MEMBERS), "count": GROUP_COUNT, "body_bytes": size}
    return [Worker(nats_side.group_member, options)] * len(MEMBERS)


def _our_pair(send_to: str, receive_from: str, size: int) -> list[Worker]:
    name, common = _fresh(), {"count": COUNT, "body_bytes": size}
    return [
        Worker(ours.sender, {"url": send_to, "to": name, **common}),
        Worker(ours.receiver, {"url": receive_from, "name": name, **common}),
    ]


def our_clients(setting: Setting, size: int) -> list[Worker]:
    return _our_pair(setting.memory, setting.memory, size)


def our_durable(setting: Setting, size: int) -> list[Worker]:
    return _our_pair(*setting.durable, size)


def nats_clients(setting: Setting, size: int) -> list[Worker]:
    options = {"url": setting.nats, "count": COUNT, "body_bytes": size}
    return [Worker(nats_side.sender, options), Worker(nats_side.receiver, options)]


def jetstream(setting: Setting, size: int) -> list[Worker]:
    options = {"url": setting.nats, "stream": _fresh(), "count": COUNT, "body_bytes": size}
    return [Worker(nats_side.stream_sender, options), Worker(nats_side.stream_receiver, options)]


def redis_streams(setting: Setting, size: int) -> list[Worker]:
    options = {"port": setting.redis, "stream": _fresh(), "count": COUNT, "body_bytes": size}
    return [Worker(redis_side.stream_sender, options), Worker(redis_side.stream_receiver, options)]


def our_member_pings(_: Setting, size: int) -> list[Worker]:
    common = {"topology": topology_text(MEMBERS[:2]), "count": PINGS, "body_bytes": size}
    return [Worker(ours.ping_member, {"name": name, "to": to, **common}) for name, to in zip("AB", ("B", ""), strict=True)]


def our_client_pings(setting: Setting, size: int) -> list[Worker]:
    asks, answers = _fresh(), _fresh()
    common = {"url": setting.memory, "count": PINGS, "body_bytes": size}
    return [Worker(ours.ping_client, {"name": name, "to": to, **common}) for name, to in ((asks, answers), (answers, ""))]


def nats_pings(setting: Setting, size: int) -> list[Worker]:
    common = {"url": setting.nats, "count": PINGS, "body_bytes": size}
    return [Worker(nats_side.ping, {"asks": asks, **common}) for asks in (True, False)]


CORE = "nats-py core"
WORKLOADS = (
    Workload("group of 4 members, each to all", our_group, {CORE: (nats_group, 4)}),
    Workload("client to client by one server, in memory", our_clients, {CORE: (nats_clients, 2)}),
    Workload(
        "client to client by two servers, synced",
        our_durable,
        {"JetStream, synced later": (jetstream, 5), "Redis streams, synced": (redis_streams, 1.5)},
    ),
    Workload("round trip between two members, in memory", our_member_pings, {CORE: (nats_pings, 2)}, latency=True),
    Workload("round trip between clients of one server, in memory", our_client_pings, {CORE: (nats_pings, 1)}, latency=True),
)


# Measuring.


def measure(workload: Workload, setting: Setting, size: int, rounds: int) -> Iterator[Row]:
    """Run all sides in turns; give a row for each peer."""
    sides = {"ours": workload.ours, **{peer: side for peer, (side, _) in workload.peers.items()}}
    found: dict[str, list[float]] = {side: [] for side in sides}
    tails: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, workers in sides.items():
            reports = run(workers(setting, size))
            if workload.latency:
                times = next(report for report in reports if report)
                found[side].append(percentile(times, 50))
                tails[side].append(percentile(times, 99))
            else:
                found[side].append(rate(reports))
        print(f"  {workload.name}, {size} B:", _shown_round(found, latency=workload.latency), file=sys.stderr, flush=True)
    best = {side: (min if workload.latency else max)(values) for side, values in found.items()}
    for peer, (_, goal) in workload.peers.items():
        ratio = best[peer] / best["ours"] if workload.latency else best["ours"] / best[peer]
        shown = {
            side: f"{best[side] * 1e6:,.0f} µs, p99 {min(tails[side]) * 1e6:,.0f} µs"
            if workload.latency
            else f"{best[side]:,.0f} messages/s"
            for side in ("ours", peer)
        }
        yield Row(f"{workload.name}, {size:,} B (goal {goal:g})", shown["ours"], f"{peer}: {shown[peer]}", ratio)


def _shown_round(found: dict[str, list[float]], *, latency: bool) -> str:
    scale = 1e6 if latency else 1.0
    return ", ".join(f"{side} {values[-1] * scale:,.0f}" for side, values in found.items())


def run_all(names: Sequence[str] = (), sizes: Sequence[int] = BODY_BYTES, rounds: int = ROUNDS) -> list[Row]:
    """Start the servers, measure what the names are part of (none: everything), and stop them."""
    install_missing()
    chosen = [workload for workload in WORKLOADS if not names or any(name in workload.name for name in names)]
    with ExitStack() as stack:
        # Beside the code and not in /tmp, which is memory on many machines: nothing is durable there, and nothing waits.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path(__file__).parent.parent)))
        (memory,) = stack.enter_context(thence_servers(folder / "memory", ("s1",), durable=False))
        first, second = stack.enter_context(thence_servers(folder / "durable", ("s1", "s2"), durable=True))
        nats = stack.enter_context(nats_server(folder / "nats"))
        redis = stack.enter_context(redis_server(folder / "redis"))
        setting = Setting(memory, (first, second), nats, redis)
        return [row for workload in chosen for size in sizes for row in measure(workload, setting, size, rounds)]
