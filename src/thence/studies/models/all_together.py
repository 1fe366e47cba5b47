"""The five architectures and ours on the same traffic: delay, frames, bytes, what waits, and the load on the busiest process.

Every architecture is a fabric of the same processes at the same sites, under the same law of who writes to whom and when; one
seed gives all of them the same messages. What is near and what is far is a matter of sites, not of domains: two processes at one
site are joined by a LAN, two at different ones by a WAN, also where one flat domain holds them all.

Rules:

* Every message is for one other process. ``uniform``: anybody writes to anybody. ``local``: a share stays at the sender's
  site. ``hot``: a share goes to one process, which is no relay.
* Nobody answers, so that what is sent does not depend on how soon something is delivered.
* Where one domain holds everybody, processes that neither write nor are written to in this run are not made; what is sent to
  them is counted (``wires``). They would change nothing.
* Sites: see ``SITES``. Domains are sites, but in the flat group; the daisy divides each site once more. Where relays have
  replicas (``core.failover.replicas``) each site has two processes more, which carry messages and send none.

Sources: daisy §3 and §5.1 (the delays), clusters §III, gateways §3 and §4, domains §4 and App. A, interconnect §5 and Fig.
5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.sim.laws import parse_law
from thence.sim.network import NetworkOptions
from thence.studies.parts import layouts
from thence.studies.parts.printed_links import printed_delivered
from thence.studies.parts.wires import Near, TimedWires
from thence.studies.study import Measures, Point
from thence.trace.recorder import Sink

SITES: Final = {60: (6, 2), 250: (10, 5), 1_000: (25, 5), 4_000: (50, 8)}
"""How many sites, and into how many groups the daisy divides each."""

NS_PER_S = 1_000_000_000

FULL: Final = {"stamps": "full"}


def run(point: Point, seed: int, sink: Sink) -> Measures:
    """Send the messages of a point over its architecture."""
    sites = sites_of(int(point["processes"]))
    topology = ARCHITECTURES[str(point["architecture"])](sites)
    messages = list(traffic(point, sites, Random(f"{seed}/traffic")))
    everybody = {name for _, sender, target in messages for name in (sender, target)}
    wires = TimedWires(
        topology,
        sink,
        network(point, sites),
        Random(f"{seed}/network"),
        everybody if point["architecture"] == "flat" else None,
    )
    body = bytes(int(point["body_bytes"]))
    for time_ns, sender, target in messages:
        wires.submit_at(time_ns, sender, (target,), body)
    wires.run()
    count = len(messages)
    wires.check_complete(count)
    return {
        "delay_ms": sum(wires.delays_ns) / count / 1e6,
        "slowest_ms": max(wires.delays_ns) / 1e6,
        "frames": wires.frames / count,
        "control_bytes": wires.control_bytes / count,
        "held": wires.held_ns / wires.now,
        "held_most": float(wires.held_most),
        "busiest_frames": max(wires.handled.values()) / count,
    }


def sites_of(processes: int) -> list[tuple[str, ...]]:
    """Return who is at each site."""
    return layouts.shares(layouts.names_of(processes), SITES[processes][0])


def messages_of(point: Point) -> int:
    """Return how many messages a run has: fewer in larger fabrics, where each is dearer to simulate."""
    return int(point[f"messages_{point['processes']}"])


def traffic(point: Point, sites: list[tuple[str, ...]], chance: Random) -> Iterator[tuple[int, str, str]]:
    """Give when who writes to whom."""
    names = [name for site in sites for name in site]
    site_of = {name: site for site in sites for name in site}
    hot, time_ns = sites[0][-1], 0.0
    for _ in range(messages_of(point)):
        time_ns += chance.expovariate(float(point["rate_per_s"])) * NS_PER_S
        sender = chance.choice(names)
        special = chance.random() < float(point["share"])
        if special and point["traffic"] == "local":
            target = _other(sender, site_of[sender], chance)
        elif special and point["traffic"] == "hot" and sender != hot:
            target = hot
        else:
            target = _other(sender, names, chance)
        yield int(time_ns), sender, target


def _other(sender: str, names: list[str] | tuple[str, ...], chance: Random) -> str:
    while (target := chance.choice(names)) == sender:
        pass
    return target


def network(point: Point, sites: list[tuple[str, ...]]) -> NetworkOptions:
    """Return a LAN at every site and a WAN between them."""
    sites = [(*site, *replicas_at(number)) for number, site in enumerate(sites)]
    return NetworkOptions(
        delay=parse_law(str(point["wan_delay"])),
        bandwidth_bytes_per_s=int(point["wan_bytes_per_s"]),
        link_delays=Near(sites, parse_law(str(point["lan_delay"]))),
        link_bandwidths_bytes_per_s=Near(sites, int(point["lan_bytes_per_s"])),
    )


def replicas_at(site: int) -> tuple[str, str]:
    """Return who stands for the relay of a site, where it has replicas."""
    return f"r{site}a", f"r{site}b"


# Architectures.


def _flat(sites: list[tuple[str, ...]]) -> Topology:
    members = tuple(name for site in sites for name in site)
    return Topology.flat(Domain("all", members, "vector", FULL))


def _daisy(sites: list[tuple[str, ...]]) -> Topology:
    per_site = SITES[sum(map(len, sites))][1]
    groups = [group for site in sites for group in layouts.shares(site, per_site)]
    return layouts.levels("daisy", groups, [len(sites)], "vector", **FULL)


def _two_levels(ordering: str, **options: Any) -> Callable[[list[tuple[str, ...]]], Topology]:
    return lambda sites: layouts.levels("two levels", sites, [], ordering, **options)


def _gateways(sites: list[tuple[str, ...]]) -> Topology:
    members = tuple(name for site in sites for name in site)
    return Topology.flat(Domain("all", members, "grouped", {"groups": [list(site) for site in sites]}))


def _linked(pairs: int, ordering: str, *, printed: bool = False, **options: Any) -> Callable[[list[tuple[str, ...]]], Topology]:
    """Join the first site to each other one by ``pairs`` of relays."""

    def build(sites: list[tuple[str, ...]]) -> Topology:
        domains = [Domain(f"g{number}", site, ordering, options) for number, site in enumerate(sites)]
        mode: Any = printed_delivered if printed else "causal"
        links = [
            Link(f"l{number}", ("g0", f"g{number}"), tuple(zip(sites[0][:pairs], site[:pairs], strict=True)), mode)
            for number, site in enumerate(sites[1:], start=1)
        ]
        return Topology("linked", domains, links, promise="fifo" if printed else "causal")

    return build


def _redundant(sites: list[tuple[str, ...]]) -> Topology:
    """Give each site a relay of two replicas; all of them together are the bus."""
    replicas = [replicas_at(number) for number in range(len(sites))]
    domains = [Domain(f"g{number}", (*site, *replicas[number]), "matrix") for number, site in enumerate(sites)]
    bus = Domain("bus", tuple(name for pair in replicas for name in pair), "matrix")
    return Topology("redundant", [*domains, bus], replicas=replicas)


ARCHITECTURES: Final[dict[str, Callable[[list[tuple[str, ...]]], Topology]]] = {
    "flat": _flat,
    "domains": _two_levels("matrix"),
    "daisy": _daisy,
    "clusters-matrix": _two_levels("matrix", **FULL),
    "clusters-sequenced": _two_levels("sequenced"),
    "gateways": _gateways,
    "interconnect": _linked(2, "vector", printed=True, **FULL),
    "ours-redundant": _redundant,
    "ours-relaxed": _linked(2, "matrix"),
    "ours-four-pairs": _linked(4, "matrix"),
}
"""By name: the fabric for some sites."""
