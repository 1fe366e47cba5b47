"""Running programs against NATS, JetStream, Redis and RabbitMQ: end-to-end deliveries per second and round trips, on one machine.

Every figure is of Python processes that send and receive, with the same loop (uvloop where it is installed) on both sides. Ours
sends with ``post`` and listens with ``on_batch``; nats-py has a callback for each message, and for JetStream ``publish_async``
and a pull consumer that acks a batch at a time; redis-py pipelines XADD and reads with XREADGROUP, both in batches;
aio-pika waits for a thousand acks at a time, and has a callback for each message. Ours keeps causal order everywhere;
the peers keep the order of one sender. In round trips ours stays awake for the next message (``stay_awake``); beside that stands
what it does without, and nats-py in loops that never sleep. The sides take turns, and the best of several rounds counts, since
noise only ever adds. Beside each figure is what a delivery costs the processor, of all programs and servers together: that
depends less on what else a machine does at the moment.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count as counting
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import least_side, nats_side, ours, rabbit_side, redis_side
from benchmarks.peers.brokers import (
    cpu_s,
    free_port,
    install_missing,
    nats_server,
    rabbitmq_server,
    redis_server,
    thence_servers,
    topology_text,
)
from benchmarks.peers.counting import WARM_UP_PINGS, percentile, rate
from benchmarks.peers.processes import Worker, run
from benchmarks.table import Row
from thence.runtime.event_loop import DEFAULT_AWAKE_S

BODY_BYTES = (100, 1024)
ROUNDS = 4
MEMBERS = ("A", "B", "C", "D")
GROUP_COUNT = 30_000
"""How many messages each member of a group sends."""
COUNT = 60_000
PINGS = 2_000
MEMORY = ("--durability", "memory")


class Setting(NamedTuple):
    """The servers that run meanwhile."""

    memory: str
    awake: str
    durable: tuple[str, str]
    nats: str
    redis: int
    rabbit: str
    processes: dict[str, list[int]]
    """Of the servers, by the name of whose they are."""


Workers = Callable[[Setting, int], list[Worker]]


class Side(NamedTuple):
    """Who takes part, for one length of bodies, and whose server is between them."""

    workers: Workers
    server: str = ""


class Workload(NamedTuple):
    """One thing to measure: ours and its peers, each a function that makes the workers of a round."""

    name: str
    ours: Side
    peers: dict[str, tuple[Side, float | None]]
    """Each with the ratio that is to be reached; None: it is there for comparison."""
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


def rabbit_queues(setting: Setting, size: int) -> list[Worker]:
    options = {"url": setting.rabbit, "queue": _fresh(), "count": COUNT, "body_bytes": size}
    return [Worker(rabbit_side.queue_sender, options), Worker(rabbit_side.queue_receiver, options)]


def our_member_pings(awake_s: float) -> Workers:
    def workers(_: Setting, size: int) -> list[Worker]:
        common = {"topology": topology_text(MEMBERS[:2]), "awake_s": awake_s, "count": PINGS, "body_bytes": size}
        pairs = (("A", "B"), ("B", ""))
        return [Worker(ours.ping_member, {"name": name, "to": to, **common}) for name, to in pairs]

    return workers


def our_client_pings(awake_s: float) -> Workers:
    def workers(setting: Setting, size: int) -> list[Worker]:
        asks, answers = _fresh(), _fresh()
        url = setting.awake if awake_s else setting.memory
        common = {"url": url, "awake_s": awake_s, "count": PINGS, "body_bytes": size}
        return [Worker(ours.ping_client, {"name": name, "to": to, **common}) for name, to in ((asks, answers), (answers, ""))]

    return workers


def nats_pings(*, awake: bool) -> Workers:
    def workers(setting: Setting, size: int) -> list[Worker]:
        common = {"url": setting.nats, "awake": awake, "count": PINGS, "body_bytes": size}
        return [Worker(nats_side.ping, {"asks": asks, **common}) for asks in (True, False)]

    return workers


def least_pings(_: Setting, size: int) -> list[Worker]:
    common = {"port": free_port(), "count": PINGS, "body_bytes": size}
    return [Worker(least_side.ping, {"asks": asks, **common}) for asks in (True, False)]


CORE = "nats-py core"
CORE_AWAKE = "nats-py core, never asleep"
LEAST = "the least in Python"
NATS_PINGS = Side(nats_pings(awake=False), "nats")
NATS_AWAKE_PINGS = Side(nats_pings(awake=True), "nats")
WORKLOADS = (
    Workload("group of 4 members, each to all", Side(our_group), {CORE: (Side(nats_group, "nats"), 4)}),
    Workload("client to client by one server, in memory", Side(our_clients, "memory"), {CORE: (Side(nats_clients, "nats"), 2)}),
    Workload(
        "client to client by two servers, synced",
        Side(our_durable, "durable"),
        {
            "JetStream, synced later": (Side(jetstream, "nats"), 5),
            "Redis streams, synced": (Side(redis_streams, "redis"), 1.5),
            "RabbitMQ, acknowledged": (Side(rabbit_queues, "rabbit"), 1),
        },
    ),
    Workload(
        "round trip between two members that stay awake",
        Side(our_member_pings(DEFAULT_AWAKE_S)),
        {CORE: (NATS_PINGS, 2), CORE_AWAKE: (NATS_AWAKE_PINGS, None)},
        latency=True,
    ),
    Workload(
        "round trip between two members that sleep",
        Side(our_member_pings(0)),
        {CORE: (NATS_PINGS, None), LEAST: (Side(least_pings), None)},
        latency=True,
    ),
    Workload(
        "round trip between clients of one server, all awake",
        Side(our_client_pings(DEFAULT_AWAKE_S), "awake"),
        {CORE: (NATS_PINGS, 1), CORE_AWAKE: (NATS_AWAKE_PINGS, None)},
        latency=True,
    ),
    Workload(
        "round trip between clients of one server, all asleep",
        Side(our_client_pings(0), "memory"),
        {CORE: (NATS_PINGS, None)},
        latency=True,
    ),
)


# Measuring.


class Found(NamedTuple):
    """What one round of one side gave."""

    rate: float
    """Deliveries per second, or round trips per second of the median."""
    tail_s: float
    cpu_s: float
    """For one delivery or round trip: of all workers and servers."""


def one_round(side: Side, setting: Setting, size: int, *, latency: bool) -> Found:
    """Run one side once."""
    servers = setting.processes.get(side.server, [])
    before = cpu_s(servers)
    reports = run(side.workers(setting, size))
    worked_s = cpu_s(servers) - before + sum(report.cpu_s for report in reports)
    if latency:
        times = next(report.said for report in reports if report.said)
        return Found(1 / percentile(times, 50), percentile(times, 99), worked_s / (PINGS + WARM_UP_PINGS))
    parts = [report.said for report in reports]
    return Found(rate(parts), 0.0, worked_s / sum(part.deliveries for part in parts))


def measure(workload: Workload, setting: Setting, size: int, rounds: int) -> Iterator[Row]:
    """Run all sides in turns; give two rows for each peer: speed, and what it costs the processor."""
    sides = {"ours": workload.ours, **{peer: side for peer, (side, _) in workload.peers.items()}}
    found: dict[str, list[Found]] = {side: [] for side in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            found[name].append(one_round(side, setting, size, latency=workload.latency))
        last = ", ".join(f"{name} {_speed(each[-1:], latency=workload.latency)}" for name, each in found.items())
        print(f"  {workload.name}, {size} B: {last}", file=sys.stderr, flush=True)
    ours = found["ours"]
    for peer, (_, goal) in workload.peers.items():
        theirs, what = found[peer], f"{workload.name}, {size:,} B"
        ratio = max(each.rate for each in ours) / max(each.rate for each in theirs)
        shown = [_speed(each, latency=workload.latency) for each in (ours, theirs)]
        yield Row(what if goal is None else f"{what} (goal {goal:g})", shown[0], f"{peer}: {shown[1]}", ratio)
        cost, their_cost = min(each.cpu_s for each in ours), min(each.cpu_s for each in theirs)
        yield Row(f"{what}: processor time", f"{cost * 1e6:.1f} µs", f"{peer}: {their_cost * 1e6:.1f} µs", their_cost / cost)


def _speed(found: Sequence[Found], *, latency: bool) -> str:
    best = max(each.rate for each in found)
    if not latency:
        return f"{best:,.0f} messages/s"
    return f"{1e6 / best:,.0f} µs, p99 {min(each.tail_s for each in found) * 1e6:,.0f} µs"


def run_all(names: Sequence[str] = (), sizes: Sequence[int] = BODY_BYTES, rounds: int = ROUNDS) -> list[Row]:
    """Start the servers, measure what the names are part of (none: everything), and stop them."""
    install_missing()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that what was started is stopped then, too.
    chosen = [workload for workload in WORKLOADS if not names or any(name in workload.name for name in names)]
    with ExitStack() as stack:
        # Beside the code and not in /tmp, which is memory on many machines: nothing is durable there, and nothing waits.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path(__file__).parent.parent)))
        (memory,), one = stack.enter_context(thence_servers(folder / "memory", ("s1",), options=MEMORY))
        awake_options = (*MEMORY, "--stay-awake", str(round(DEFAULT_AWAKE_S * 1e6)))
        (awake,), waking = stack.enter_context(thence_servers(folder / "awake", ("s1",), options=awake_options))
        (first, second), two = stack.enter_context(thence_servers(folder / "durable", ("s1", "s2")))
        nats, nats_process = stack.enter_context(nats_server(folder / "nats"))
        redis, redis_process = stack.enter_context(redis_server(folder / "redis"))
        rabbit, rabbit_process = stack.enter_context(rabbitmq_server(folder / "rabbit"))
        processes = {
            "memory": one,
            "awake": waking,
            "durable": two,
            "nats": [nats_process],
            "redis": [redis_process],
            "rabbit": [rabbit_process],
        }
        setting = Setting(memory, awake, (first, second), nats, redis, rabbit, processes)
        return [row for workload in chosen for size in sizes for row in measure(workload, setting, size, rounds)]
