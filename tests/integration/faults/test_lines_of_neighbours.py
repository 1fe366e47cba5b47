"""A peer that comes and goes all the time fills no log."""

from __future__ import annotations

import pytest

from tests.support.servers.running import flat
from tests.support.servers.securing import Speaker, framed
from thence.net.protocol import PROTOCOL, ServerHello, ServerWelcome
from thence.node.options import NodeOptions
from thence.runtime.offenders import BURST_LINES
from thence.server.server import Server


async def test_the_log_has_so_many_lines_of_a_peer_that_comes_and_goes(caplog: pytest.LogCaptureFixture) -> None:
    """11,000 lines in 6 s, of one who needed nothing but the names."""
    caplog.set_level("INFO")
    topology = flat("s1", "s2")
    server = Server(topology, "s1", NodeOptions())
    await server.start()
    try:
        for _ in range(2 * BURST_LINES):
            evil = await Speaker.call(topology.addresses["s1"])
            evil.say(ServerHello(PROTOCOL, topology.name, topology.fingerprint, "s2", "s1", "0123"))
            assert isinstance(await evil.hear(), ServerWelcome)
            evil.writer.write(framed(b"\x09"))
            assert await evil.ended()
            evil.close()
        assert server.node.peers.peers["s2"].trouble.startswith("connection lost")
    finally:
        await server.stop(drain_s=0)
    lines = [record for record in caplog.records if record.name == "thence.peers"]
    assert 2 <= len(lines) <= BURST_LINES + 2
