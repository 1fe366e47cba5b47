"""Ten thousand servers and a million clients: what a fabric of so many costs, what breaks first, and how many levels are best.

Rules:

* Servers are divided into domains on some levels, all domains about equally large (``layouts.even``). Order is kept by
  matrices, and stamps hold what changed. The real members send, relay and deliver; those that no message passes are not made
  (``wires``).
* Messages go from anybody to anybody, which is the worst for a hierarchy; to bound the tables of routes, a run draws
  ``targets`` servers first, and then its recipients from these. There are √n sites of √n servers, LANs inside and a WAN
  between, whatever the levels.
* How much passes the busiest relay is counted over many drawn ways, which needs the routes only; ``formula_busiest`` says
  the same. A relay speaks for nested sets of servers T1 < T2 < …, the whole at last; a message passes it if exactly one of
  its ends lies in one of these sets. With f = |T| / n that is 1 - f1² - (f2 - f1)² - … - (1 - f)². Its own messages inside
  T1 come on top.
* Beyond ``simulated_up_to`` servers nothing is simulated (nan), and the formulas are the extrapolation: they hold where both
  are there.
* Clients cost no clock entry. A client has a mailbox at its own server and, since every server must know where everybody is, an
  entry in the directory of every server (``node.directory.directory``). What these take in memory is a parameter: see the study's
  text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from random import Random

from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.topology.toml import write
from thence.sim.laws import parse_law
from thence.sim.network import NetworkOptions
from thence.studies.parts import layouts
from thence.studies.parts.wires import Near, TimedWires
from thence.studies.study import Measures, Point
from thence.trace.recorder import Sink

ENTRY_BYTES = 4
"""An entry of a whole matrix on the wire and in memory (``core.ordering.matrix_clock``)."""

SIMULATED = ("hops", "delay_ms", "control_bytes", "busiest_share", "file_bytes")
S_PER_DAY = 86_400
NS_PER_S = 1_000_000_000


def run(point: Point, seed: int, sink: Sink) -> Measures:
    """Simulate as far as it goes, and calculate the rest."""
    measures = calculated(point)
    if int(point["servers"]) > int(point["simulated_up_to"]):
        return {**measures, **dict.fromkeys(SIMULATED, math.nan)}
    topology = layouts.even(int(point["levels"]), int(point["servers"]))
    return {**measures, **_simulated(point, topology, seed, sink)}


# What is calculated.


def calculated(point: Point) -> Measures:
    """Return what follows from the numbers of servers, levels and clients."""
    servers, levels, clients = int(point["servers"]), int(point["levels"]), int(point["clients"])
    size = servers ** (1 / levels)
    domains = sum(layouts.even_counts(levels, servers)) + (1 if levels > 1 else 0)
    share = busiest_share(nested(levels, servers), servers)
    per_s = clients * float(point["client_rate_per_s"])
    memory = {
        "clock_mb": levels * float(point["clock_entry_bytes"]) * size * size / 1e6,
        "routes_mb": float(point["route_entry_bytes"]) * domains * domains / 1e6,
        "directory_mb": clients * float(point["directory_entry_bytes"]) / 1e6,
        "boxes_mb": clients / servers * float(point["box_bytes"]) / 1e6,
    }
    return {
        "formula_hops": hops(levels, servers),
        "formula_busiest": share,
        "relay_load": share * per_s / float(point["server_per_s"]),
        "full_stamp_bytes": ENTRY_BYTES * size * size,
        **memory,
        "memory_mb": sum(memory.values()),
        "connections": levels * (size - 1),
        "load_s": servers * float(point["load_server_us"]) / 1e6 + domains * domains * float(point["load_pair_ns"]) / 1e9,
        "notice_load": clients * float(point["moves_per_day"]) / S_PER_DAY / float(point["server_per_s"]),
    }


def nested(levels: int, servers: int) -> list[float]:
    """Return what share of all servers the busiest relay speaks for, on each level from below; empty if there are no relays."""
    return [1 / count for count in layouts.even_counts(levels, servers)] if levels > 1 else []


def busiest_share(shares: list[float], servers: int) -> float:
    """Return what share of all messages passes or begins or ends at a server that speaks for these shares of all servers."""
    bounds = [0.0, *shares, 1.0]
    passing = 1 - sum((wide - narrow) ** 2 for narrow, wide in pairwise(bounds))
    return passing + 2 * bounds[1] / servers


def hops(levels: int, servers: int) -> float:
    """Return the mean number of hops: up to the domain that both ends lie below, across it, and down again.

    A server that speaks for its domain is spared the hop to itself, which is one of ``size`` at each end of each hop.
    """
    shares = [*nested(levels, servers), 1.0]
    size = servers ** (1 / levels)
    total, below = 0.0, 0.0
    for level, share in enumerate(shares):
        total += (share - below) * (1 + 2 * level * (1 - 1 / size))
        below = share
    return total


# What is simulated.


def _simulated(point: Point, topology: Topology, seed: int, sink: Sink) -> Measures:
    chance = Random(f"{seed}/traffic")
    names = topology.processes
    sites = layouts.shares(names, round(len(names) ** 0.5))
    delays = Near(sites, parse_law(str(point["lan_delay"])))
    network = NetworkOptions(delay=parse_law(str(point["wan_delay"])), link_delays=delays)
    wires = TimedWires(topology, sink, network, Random(f"{seed}/network"))
    targets = chance.choices(names, k=int(point["targets"]))
    time_ns = 0.0
    count = int(point["messages"])
    for _ in range(count):
        time_ns += chance.expovariate(float(point["rate_per_s"])) * NS_PER_S
        sender, target = _pair(names, targets, chance)
        wires.submit_at(int(time_ns), sender, (target,), b"")
    wires.run()
    wires.check_complete(count)
    hops_mean, busiest = ways(wires.routes, targets, int(point["ways"]), chance)
    return {
        "hops": hops_mean,
        "delay_ms": sum(wires.delays_ns) / count / 1e6,
        "control_bytes": wires.control_bytes / count,
        "busiest_share": busiest,
        "file_bytes": float(len(write(topology).encode())),
    }


def ways(routes: Routes, targets: Sequence[str], count: int, chance: Random) -> tuple[float, float]:
    """Draw ways; return their mean length, and what share passes a server of the top domain: these are alike, and busiest."""
    names = routes.topology.processes
    *_, top = routes.topology.domains.values()
    busiest = frozenset(top.members)
    steps = passed = 0
    for _ in range(count):
        way = routes.path(*_pair(names, targets, chance))
        steps += len(way) // 2
        passed += sum(name in busiest for name in way[::2])
    return steps / count, passed / count / len(busiest)


def _pair(names: Sequence[str], targets: Sequence[str], chance: Random) -> tuple[str, str]:
    """Draw who writes to whom."""
    target = chance.choice(targets)
    while (sender := chance.choice(names)) == target:
        pass
    return sender, target
