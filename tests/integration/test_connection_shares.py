"""Whoever comes with one token, or from one place, takes no more connections than leave room for others."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import thence
from tests.support.servers.attacks import EVIL_HOST
from tests.support.servers.running import flat, servers, started, until, url
from tests.support.servers.securing import EVERYTHING, Access, Speaker, prove
from thence.net.protocol import PROTOCOL, ClientHello, Refused
from thence.net.security.tokens import parse_token
from thence.node import listener


async def test_one_token_takes_no_more_connections_than_leave_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It allows nothing; before, all others waited until it was taken out of the access file."""
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 32)
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann=EVERYTHING, bob=EVERYTHING, mal={})
    mal = parse_token(access.tokens["mal"])
    async with servers(topology, access=access.path) as running:
        called, crowd, refused = [], [], []
        for _ in range(40):
            speaker = await Speaker.call(topology.addresses["s1"], local=EVIL_HOST)
            called.append(speaker)
            try:
                await prove(speaker, "", mal)
                crowd.append(speaker)
            except (ConnectionError, EOFError) as error:
                refused.append(str(error))
        assert len(crowd) == 32 - 32 // listener.SPARE_SHARE
        assert "the token of 'mal' has 30 connections, and others want some" in refused[0]
        async with AsyncExitStack() as stack:
            for name in ("ann", "bob"):
                for number in range(3):
                    one = thence.connect(url(topology, "s1"), f"{name}{number}", token=access.tokens[name])
                    client = await stack.enter_async_context(one)
                    await client.send(f"{name}{number}", b"in")
                    assert (await client.receive()).body == b"in"
                    client.done()
            assert isinstance(await crowd[-1].hear(), Refused), "the newest made room, and was told"
            assert len(running["s1"].clients.all) == 30
            assert [one.guest.rights.entry for one in running["s1"].clients.all if one.guest].count("mal") == 30 - 6
        for speaker in called:
            speaker.close()
    lines = [record.getMessage() for record in caplog.records if "one more of the token of 'mal'" in record.getMessage()]
    assert len(lines) == 1, lines


async def test_a_peer_gets_in_where_clients_have_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 32)
    topology = flat("s2", "s1")  # The first one calls.
    server = await started(topology, "s1")
    crowd = []
    try:
        for _ in range(40):
            speaker = await Speaker.call(topology.addresses["s1"], local=EVIL_HOST)
            speaker.say(ClientHello(PROTOCOL, ""))
            crowd.append(speaker)
        await until(lambda: server.turned_away >= 40 - 32)
        peer = await started(topology, "s2")
        await until(lambda: server.node.peers.peers["s2"].up)
        await peer.stop(drain_s=0)
    finally:
        for speaker in crowd:
            speaker.close()
        await server.stop(drain_s=0)
