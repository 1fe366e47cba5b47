"""The connections to neighbours, as far as they can be looked at without a network: test_faults.py has the rest."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from thence.core.messages import Envelope, Frame, Packet
from thence.core.topology_text import parse
from thence.runtime import peers
from thence.runtime.peers import Peers, neighbours_of
from thence.runtime.wire import Connection

TOPOLOGY = parse("""
name = "two"
[domains.A]
members = ["s1", "s2"]
[domains.B]
members = ["s2", "s3"]
[domains.C]
members = ["s4", "s5"]
[[links]]
between = ["B", "C"]
relays = [["s3", "s4"]]
""")


class SlowConnection:
    """Takes everything and passes nothing on."""

    def __init__(self) -> None:
        self.unsent_bytes = 0
        self.packets = 0
        self.full = True

    def send(self, kind: bytes, value: object) -> None:
        self.packets += 1
        self.unsent_bytes += 10 * 1024 * 1024


def test_neighbours_share_a_domain_or_a_link() -> None:
    assert neighbours_of(TOPOLOGY, "s2") == ["s1", "s3"]
    assert neighbours_of(TOPOLOGY, "s3") == ["s2", "s4"]


def test_packets_do_not_pile_up_for_a_neighbour_that_is_slow() -> None:
    async def main() -> None:
        made = Peers(TOPOLOGY, "s2", "0123", cast("Any", None))
        slow = SlowConnection()
        made.neighbours["s1"].connection = cast("Connection", slow)
        packet = Packet("A", (Frame(None, Envelope("s2", 1, None, b"")),), (1,))
        for _ in range(1_000):
            made.send("s1", packet)
        assert slow.packets == 1 + (peers.MAX_UNSENT_BYTES - 1) // (10 * 1024 * 1024)

    asyncio.run(main())
