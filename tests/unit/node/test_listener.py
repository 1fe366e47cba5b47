"""Small packets leave at once, on both ends of a connection and on whatever loop."""

from __future__ import annotations

import socket

from tests.support.servers.running import flat
from thence.node.options import NodeOptions
from thence.server.server import Server


async def test_nothing_waits_for_an_ack_of_what_went_before() -> None:
    """asyncio switches Nagle's algorithm off only for some sockets; with it, a message on its way through servers took 45 ms."""
    topology = flat("s1", "s2", ordering="matrix")
    servers = [Server(topology, name, NodeOptions()) for name in ("s2", "s1")]
    try:
        for server in servers:
            await server.start()
        for server in servers:
            await server.node.peers.wait_connected()
        ends = [peer.connection for server in servers for peer in server.node.peers.peers.values()]
        assert len(ends) == 2
        for connection in ends:
            assert connection is not None
            assert connection.writer.transport is not None
            found = connection.writer.transport.get_extra_info("socket")
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        for server in servers:
            await server.stop(drain_s=0)
