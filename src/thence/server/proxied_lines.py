"""The lines between the servers of a fabric, each by way of a proxy, so that every one of them can be slow or cut on its own.

Of two peers one calls the other (``peers``). So each server is given a topology of its own, in which those that it calls
have the addresses of proxies: addresses are no part of what servers compare when they meet.
"""

from __future__ import annotations

import asyncio
from random import Random

from thence.core.topology.model import Topology
from thence.net.proxy import Proxy
from thence.node.peers.peer import peers_of


def calls(topology: Topology) -> list[tuple[str, str]]:
    """Return who calls whom."""
    order = {name: at for at, name in enumerate(topology.processes)}
    return [(me, peer) for me in topology.processes for peer in peers_of(topology, me) if order[me] < order[peer]]


class Lines:
    """One proxy for each connection between servers. Call ``start`` before the servers start, and ``close`` after they end."""

    def __init__(self, topology: Topology, chance: Random) -> None:
        """``topology`` has the addresses at which the servers listen."""
        self.proxies = {(caller, called): Proxy(topology.addresses[called], chance) for caller, called in calls(topology)}
        """By who calls whom."""
        self._chance = chance
        self._topology = topology

    async def start(self) -> None:
        """Begin to listen."""
        for proxy in self.proxies.values():
            await proxy.start()

    async def follow(self, topology: Topology) -> None:
        """Be the lines of the next version too: those who call each other only there get a proxy."""
        self._topology = topology
        for caller, called in calls(topology):
            if (caller, called) not in self.proxies:
                proxy = self.proxies[caller, called] = Proxy(topology.addresses[called], self._chance)
                await proxy.start()

    async def close(self) -> None:
        """End everything."""
        await asyncio.gather(*(proxy.close() for proxy in self.proxies.values()))

    def seen_by(self, server: str) -> Topology:
        """Return the topology to start this server with."""
        here = self._topology.homes
        ways = {called: proxy.address for (caller, called), proxy in self.proxies.items() if caller == server and called in here}
        return self._topology.at({**self._topology.addresses, **ways})
