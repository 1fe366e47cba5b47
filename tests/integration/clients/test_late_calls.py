"""Calls that are long on their way. That of a dead program takes nothing from the one that has its name now."""

from __future__ import annotations

from pathlib import Path

import pytest

import thence
from tests.integration.clients.test_fencing import left_by
from tests.integration.faults.test_faults import proxied
from tests.support.servers.running import flat, servers, until, url
from tests.support.servers.securing import EVERYTHING, Access, Speaker
from thence.client import connector
from thence.core.epochs.epoch import NEVER_MET
from thence.core.topology.model import Topology
from thence.errors import Fenced
from thence.net.framing import Connection
from thence.net.protocol import PROTOCOL, Challenge, ClientHello, ClientWelcome, Ping, Proof, Refused
from thence.net.proxy import Mode
from thence.net.security.tokens import new_nonce, parse_token
from thence.node import listener

HELLO = ClientHello(PROTOCOL, "ann", nonce=new_nonce(), claim=NEVER_MET, program="a" * 16)
PING_S = 0.2
THERE_S = 0.3
"""On its way a frame takes longer than a client is silent for."""


async def expect_goes_on(newer: thence.Client) -> None:
    await newer.send("ann", b"mine")
    assert (await newer.receive(10)).body == b"mine"


@pytest.mark.parametrize("known", [True, False], ids=["a name that is known", "a new name"])
async def test_the_first_call_of_a_dead_program_fences_nobody(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HELLO_TIMEOUT_S", 60.0)
    topology = flat("s1")
    async with servers(topology) as running:
        if known:
            async with thence.connect(url(topology, "s1"), "ann"):
                pass
        proxy = await proxied(topology, "s1")
        proxy.set_mode(Mode.STALL_THERE)
        dead = await Speaker.call(proxy.address)
        dead.say(HELLO)
        await until(lambda: proxy.happened[Mode.STALL_THERE])
        dead.close()
        async with thence.connect(url(topology, "s1"), "ann") as newer:
            heard: list[object] = []
            (stranger,) = running["s1"].listener.strangers
            introduced = stranger.on_frame

            def hear(connection: Connection, frame: memoryview) -> None:
                heard.append(frame)
                introduced(connection, frame)

            stranger.on_frame = hear
            proxy.set_mode(Mode.WELL)
            await until(lambda: heard and not running["s1"].listener.strangers)
            await expect_goes_on(newer)
        await proxy.close()


async def challenged(topology: Topology, hello: ClientHello) -> tuple[Speaker, Challenge]:
    speaker = await Speaker.call(topology.addresses["s1"])
    speaker.say(hello)
    challenge = await speaker.hear()
    assert isinstance(challenge, Challenge)
    return speaker, challenge


@pytest.mark.parametrize("known", [True, False], ids=["a name that is known", "a new name"])
@pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "no tokens"])
async def test_a_proof_that_arrives_when_another_program_has_the_name_is_too_late(
    tokens: bool, known: bool, tmp_path: Path
) -> None:
    """A program that still lives calls again, and then it is the newer one."""
    access = Access(tmp_path / "access.toml", ann=EVERYTHING) if tokens else None
    token = parse_token(access.tokens["ann"]) if access else None
    hello = HELLO if token is None else ClientHello(PROTOCOL, "ann", entry="ann", nonce=new_nonce(), claim=NEVER_MET)

    def proof(challenge: Challenge) -> Proof:
        return Proof(challenge.nonce if token is None else token.prove(hello, challenge))

    def connect(topology: Topology) -> thence.Client:
        return thence.connect(url(topology, "s1"), "ann", token=None if token is None else str(token))

    topology = flat("s1")
    async with servers(topology, access=None if access is None else access.path):
        if known:
            async with connect(topology):
                pass
        late, challenge = await challenged(topology, hello)
        async with left_by(Fenced, connect(topology)) as newer:
            late.say(proof(challenge))
            refused = await late.hear()
            assert isinstance(refused, Refused)
            assert refused.later
            late.close()
            await expect_goes_on(newer)
            again, challenge = await challenged(topology, hello)
            again.say(proof(challenge))
            assert isinstance(await again.hear(), ClientWelcome)
            with pytest.raises(Fenced):
                await newer.receive(20)
            again.close()


async def test_whoever_answers_something_else_is_not_let_in() -> None:
    topology = flat("s1")
    async with servers(topology) as running:
        speaker, _ = await challenged(topology, HELLO)
        speaker.say(Proof(new_nonce()))
        assert await speaker.ended()
        assert "ann" not in running["s1"].node.directory.state.mailboxes
        speaker.close()


async def test_a_client_that_promises_no_answer_is_asked_for_none() -> None:
    """So do clients of version 0.1."""
    topology = flat("s1")
    async with servers(topology):
        speaker = await Speaker.call(topology.addresses["s1"])
        speaker.say(ClientHello(PROTOCOL, "ann"))
        assert isinstance(await speaker.hear(), ClientWelcome)
        speaker.close()


@pytest.mark.parametrize("guarded", [False, True], ids=["without a token", "with a token"])
async def test_a_client_that_pings_before_its_answer_is_on_its_way_gets_in(
    guarded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a round trip of more than two seconds no client got in, however often it called."""
    monkeypatch.setattr(connector, "HEARTBEAT_S", PING_S)
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann=EVERYTHING)
    async with servers(topology, access=access.path if guarded else None):
        proxy = await proxied(topology, "s1")
        proxy.delay_s = THERE_S
        proxy.set_mode(Mode.SLOW)
        token = access.tokens["ann"] if guarded else None
        try:
            async with thence.connect(f"thence://{proxy.address}", "ann", token=token, connect_timeout=10) as ann:
                assert proxy.connections == 1
                proxy.set_mode(Mode.WELL)
                await ann.send("ann", b"here")
        finally:
            await proxy.close()


async def test_who_pings_instead_of_an_answer_is_shown_out() -> None:
    topology = flat("s1")
    async with servers(topology):
        speaker, _ = await challenged(topology, HELLO)
        for _ in range(listener.MAX_EARLY_PINGS + 1):
            speaker.say(Ping())
        assert await speaker.ended()
        speaker.close()
