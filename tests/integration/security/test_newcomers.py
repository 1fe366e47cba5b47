"""A caller that says it is a peer, where there is no TLS: it takes nobody's place before it is checked, nor of one alive."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

import thence
from tests.support.servers.running import flat, servers, started, until, url
from tests.support.servers.securing import Speaker
from thence.core.epochs.epoch import NEVER_MET, Claim, Epoch, Held
from thence.core.topology.model import Topology
from thence.net.protocol import PROTOCOL, Refused, ServerHello, ServerWelcome
from thence.node.peers import connections, incoming_calls
from thence.server.server import Server


async def call_as_s1(topology: Topology, store_id: str, s1: Server | None = None) -> Speaker:
    """Call s2, and say that it is s1 who calls."""
    eve = await Speaker.call(topology.addresses["s2"])
    progress = {} if s1 is None else s1.node.member.attachment.progress("s2")
    eve.say(ServerHello(PROTOCOL, "flat", topology.fingerprint, "s1", "s2", store_id, progress=progress))
    return eve


@pytest.mark.parametrize("knows", [False, True], ids=["does not know the store", "knows everything that s1 says"])
async def test_a_newcomer_does_not_push_out_a_peer_that_is_alive(knows: bool) -> None:
    topology = flat("s1", "s2")
    async with (
        servers(topology) as running,
        thence.connect(url(topology, "s1"), "ann") as ann,
        thence.connect(url(topology, "s2"), "bob") as bob,
    ):
        await ann.known("bob")
        s1, place = running["s1"], running["s2"].node.peers.peers["s1"]
        before = place.connection
        store_id = s1.node.peers.epochs.met["s1"] if knows else "another store"
        eve = await call_as_s1(topology, store_id, s1 if knows else None)
        refused = await eve.hear()
        assert isinstance(refused, Refused), "nothing of s2 is told"
        assert "s2 is connected with s1 at 127.0.0.1:" in refused.reason
        assert refused.later
        assert await eve.ended()
        eve.close()
        await ann.send("bob", b"on the same connection")
        assert (await bob.receive()).body == b"on the same connection"
        assert place.connection is before is not None
        assert (place.traffic.connections, place.trouble, place.behind) == (1, "", "nobody")


async def test_a_newcomer_that_does_not_fit_pushes_out_nobody_also_if_the_other_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incoming_calls, "ALIVE_S", -1.0)  # As if nothing had been heard for long.
    topology = flat("s1", "s2")
    async with servers(topology) as running:
        place = running["s2"].node.peers.peers["s1"]
        before = place.connection
        eve = await call_as_s1(topology, "another store")
        assert isinstance(await eve.hear(), ServerWelcome)
        refused = await eve.hear()
        assert isinstance(refused, Refused)
        assert "'s1' has lost its state" in refused.reason
        eve.close()
        assert place.connection is before is not None
        assert (place.traffic.connections, place.trouble, place.behind) == (1, "", "nobody")


async def test_a_false_claim_of_a_newcomer_fences_nobody() -> None:
    """Without TLS nobody knows who calls: s2 calls s1 itself, and asks."""
    topology = flat("s1", "s2")
    async with servers(topology) as running:
        s1, s2 = running["s1"], running["s2"]
        known = s1.node.peers.epochs.met["s1"]
        await s1.stop(drain_s=0)
        await until(lambda: not s2.node.peers.peers["s1"].up)
        eve = await Speaker.call(topology.addresses["s2"])
        claim = Claim(Held(Epoch(1_000_000, "later than all")))
        hello = ServerHello(PROTOCOL, "flat", topology.fingerprint, "s1", "s2", known)
        eve.say(msgspec.structs.replace(hello, claim=claim))
        assert isinstance(await eve.hear(), ServerWelcome)
        refused = await eve.hear()
        assert isinstance(refused, Refused)
        assert "'s2' runs on an old copy of its store" in refused.reason
        eve.close()
        await until(lambda: "nobody listens at" in s2.node.peers.peers["s1"].trouble)  # It has called.
        assert not s2.node.peers.epochs.fenced
        assert not s2.status.not_ready


@pytest.mark.parametrize("comes_back", [True, False], ids=["s1 comes back", "s1 stays away"])
async def test_a_call_that_comes_late_makes_no_server_an_old_copy(
    comes_back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A call of before a crash shows an older epoch. It is an old copy only if the peer does not come with a newer one."""
    monkeypatch.setattr(connections, "LATE_CALL_S", 1.0)
    topology = flat("s1", "s2")
    async with servers(topology, tmp_path) as running:
        place = running["s2"].node.peers.peers["s1"]
        known = running["s1"].node.peers.epochs.met["s1"]
        await running["s1"].stop(drain_s=0)
        await until(lambda: not place.up)
        eve = await Speaker.call(topology.addresses["s2"])
        hello = ServerHello(PROTOCOL, "flat", topology.fingerprint, "s1", "s2", known)
        eve.say(msgspec.structs.replace(hello, claim=NEVER_MET))
        assert isinstance(await eve.hear(), ServerWelcome)
        assert isinstance(await eve.hear(), Refused)
        eve.close()
        assert place.behind == "nobody"
        if comes_back:
            running["s1"] = await started(topology, "s1", tmp_path)
            await until(lambda: place.up)
            await asyncio.sleep(1.0)  # As long as it has.
            assert (place.behind, place.trouble) == ("nobody", "")
        else:
            await until(lambda: place.behind != "nobody")
    said = [record for record in caplog.records if "--lost s1" in record.getMessage() and record.name == "thence.peers"]
    assert bool(said) is not comes_back


async def test_a_peer_comes_back_while_its_older_connection_is_dead_without_knowing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_calls, "ALIVE_S", 0.3)
    topology = flat("s1", "s2")
    s2 = await started(topology, "s2")
    try:
        place = s2.node.peers.peers["s1"]
        silent = await call_as_s1(topology, "the store")
        assert isinstance(await silent.hear(), ServerWelcome)
        refusals = 0
        while True:
            again = await call_as_s1(topology, "the store")
            answer = await again.hear()
            if isinstance(answer, ServerWelcome):
                break
            assert isinstance(answer, Refused)
            refusals += 1
            again.close()
        assert refusals, "at first the older one may be alive"
        assert await silent.ended()
        await until(lambda: place.traffic.connections == 2)
        assert place.up
        silent.close()
        again.close()
    finally:
        await s2.stop(drain_s=0)
