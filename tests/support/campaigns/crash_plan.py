"""What a crash campaign runs: 12 servers in 4 domains of mixed orderings, their clients, and who follows what; from one number.

Domains A, B and C are joined by the relays ``x1`` and ``x2``; A and D by a parallel causal link. In every third fabric ``x1`` and
``x2`` stand for one relay, and those of the link take over from each other. Some fabrics keep messages until all have them, and
some domains deliver only what all have, or tell later that they do. Every other two fabrics are a daisy instead, which changes
(``tests.support.crashes.crash_changes``). Of two peers one calls the other, by way of a proxy (``thence.server.proxied_lines``).
"""

from __future__ import annotations

import errno
import socket
from random import Random
from typing import Final

import msgspec

from thence.core.ordering import ORDERINGS
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse

CAUSAL: Final = tuple(sorted(name for name, ordering in ORDERINGS.items() if "causal" in ordering.traits.guarantees))
_reserved: list[socket.socket] = []
TOPICS: Final = ("news", "sport", "weather")
WITH_TWO_CLIENTS: Final = ("a3", "x1", "c1", "d3")
FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Below those that the system gives to whoever calls: the port of a server that is down must not be taken by somebody else."""

PLAIN: Final = """
[domains.A]
members = ["a1", "a2", "a3", "x1"]
{A}
[domains.B]
members = ["x1", "b1", "b2", "x2"]
{B}
[domains.C]
members = ["x2", "c1", "c2"]
{C}
[domains.D]
members = ["d1", "d2", "d3"]
{D}
[[links]]
between = ["A", "D"]
relays = [["a1", "d1"], ["a2", "d2"]]
mode = "causal"
"""

REPLICATED: Final = """
[domains.A]
members = ["a1", "a2", "a3", "x1", "x2"]
[domains.B]
members = ["x1", "x2", "b1", "b2", "b3"]
[domains.C]
members = ["d3", "c1"]
{C}
[domains.D]
members = ["d1", "d2", "d3"]
[[relays]]
replicas = ["x1", "x2"]
[[links]]
between = ["A", "D"]
relays = [["a1", "d1"], ["a2", "d2"]]
mode = "causal"
takeover = true
"""


CHANGING: Final = """
[domains.A]
members = ["a1", "a2", "a3", "va", "ra1", "ra2"]
{inner}
[domains.B]
members = ["b1", "b2", "b3", "vb", "rb1", "rb2"]
{inner}
[domains.S]
members = ["ra1", "ra2", "rb1", "rb2"]
{outer}
[[relays]]
replicas = ["ra1", "ra2"]
{local_a}
[[relays]]
replicas = ["rb1", "rb2"]
{local_b}
"""
"""A daisy, in which any server may die for good whose name begins with one of ``CLIENTLESS``."""

CLIENTLESS: Final = "nrv"
"""How the names of servers without clients begin, where the fabric changes: newcomers, replicas, victims."""
NEWCOMERS: Final = tuple(f"n{number}" for number in range(1, 13))


SMALL: Final = """
[domains.A]
members = ["a1", "a2", "x1"]
{A}
[domains.B]
members = ["x1", "b1", "b2"]
{B}
"""


class Plan(msgspec.Struct):
    """What the programs with the clients must know."""

    seed: int
    homes: dict[str, str]
    """The clients and their servers."""
    urls: dict[str, str]
    follows: dict[str, list[str]]
    """The topics of each client."""
    mean_gap_s: float
    """How long a client rests between two things that it does, on average."""

    @property
    def followers(self) -> dict[str, list[str]]:
        """The clients that follow each topic."""
        return {topic: [client for client, topics in self.follows.items() if topic in topics] for topic in TOPICS}


def fabric(seed: int, *, small: bool = False) -> Topology:
    """Return the fabric of a run, without addresses; a ``small`` one has five servers."""
    chance = Random(f"crash fabric/{seed}")
    domains = {name: _domain(ordering, chance) for name, ordering in zip("ABCD", chance.sample(CAUSAL, 4), strict=True)}
    head = f'name = "crashes"\nstability = {"true" if chance.random() < 0.4 else "false"}\n'
    if changes_in(seed, small=small):
        resilient = chance.random() < 0.5
        inner = 'ordering = { name = "resilient", copies = 1 }' if resilient else ""
        local = ["" if resilient else f'local = "{name}"' for name in "AB"]
        outer = 'ordering = { name = "resilient", copies = 1 }' if chance.random() < 0.3 else ""
        return parse('name = "crashes"\n' + CHANGING.format(inner=inner, outer=outer, local_a=local[0], local_b=local[1]))
    text = SMALL if small else REPLICATED if seed % 3 == 2 else PLAIN
    return parse(head + text.format(**domains))


def changes_in(seed: int, *, small: bool = False) -> bool:
    """Return whether the fabric of a run changes, and servers die for good: in every other two."""
    return seed % 4 > 1 and not small


def _domain(ordering: str, chance: Random) -> str:
    """Return how a domain orders, and when it delivers, where the ordering leaves a choice."""
    delivery = chance.choice(("at once", "at once", "safe", "notify")) if ORDERINGS[ordering].traits.direct else "at once"
    return f'ordering = "{ordering}"\ndelivery = "{delivery}"'


def groups(topology: Topology) -> dict[str, list[str]]:
    """Return which clients run in one program: those of one domain. Replicas have none."""
    found: dict[str, list[str]] = {}
    changing = not set(CLIENTLESS).isdisjoint(name[0] for name in topology.processes)
    for server in topology.senders:
        if changing and server[0] in CLIENTLESS:
            continue
        count = 2 if topology.replicas or server in WITH_TWO_CLIENTS else 1
        clients = [f"{server}-{number}" for number in (1, 2)[:count]]
        found.setdefault(topology.homes[server][0], []).extend(clients)
    return found


def plan(topology: Topology, seed: int, urls: dict[str, str], mean_gap_s: float) -> Plan:
    """Return what the clients do; ``urls`` are where they find their servers."""
    chance = Random(f"crash plan/{seed}")
    clients = [client for group in groups(topology).values() for client in group]
    follows = {client: sorted(chance.sample(TOPICS, chance.randint(0, 2))) for client in clients}
    return Plan(seed, {client: client.split("-")[0] for client in clients}, urls, follows, mean_gap_s)


def stable_addresses(count: int, chance: Random) -> list[str]:
    """Return addresses on this machine that nobody uses, and that nobody gets by chance while a server is down.

    Their sockets stay bound, without listening, until they are released: others who look for free ports see that, and servers
    can be bound to them all the same.
    """
    found: list[str] = []
    while len(found) < count:
        port = chance.randint(FIRST_PORT, LAST_PORT)
        one = socket.socket()
        try:
            one.bind(("127.0.0.1", port))
        except OSError as error:
            one.close()
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _reserved.append(one)
        found.append(f"127.0.0.1:{port}")
    return found


def release_addresses() -> None:
    """Keep no more addresses from others."""
    while _reserved:
        _reserved.pop().close()
