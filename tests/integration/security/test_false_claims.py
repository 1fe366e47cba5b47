"""A captured server that says of a peer that it runs on an old copy of its store: it is not believed without that peer's seal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

import thence
from tests.support.campaigns.evolving_load import following
from tests.support.servers.running import addressed, flat, servers, started, until, url
from tests.support.servers.securing import Speaker
from thence.core.epochs.epoch import NEVER_MET, Claim, Epoch, Held
from thence.core.epochs.progress import Progress
from thence.core.epochs.statement import KEY_BYTES, Statement, seal
from thence.core.topology.addresses import parse_address
from thence.core.topology.toml import write
from thence.net.protocol import PROTOCOL, ControlFrame, Refused, ServerAgreed, ServerHello, ServerWelcome
from thence.server.server import Server

FAR = 1_000_000


class Known(NamedTuple):
    """What an answer of the captured s2 to the hello of s1 is made of."""

    hello: ServerHello
    true: ServerWelcome
    stated: Statement
    """The last statement of s1 to s2,"""
    key: bytes
    """and what no peer has: the key of s1."""

    def claim_later(self, shown: Statement | None = None) -> ControlFrame:
        return replace(self.true, claim=Claim(Held(Epoch(FAR, "later than all"))), shown=shown)

    def seal_later(self, peer: str) -> Statement:
        return seal(self.key, peer, Statement(1, FAR, {}))


Answer = Callable[[Known], ControlFrame]


def refuse(shown: Statement | None = None) -> ControlFrame:
    return Refused("'s1' runs on an old copy of its store", behind=True, shown=shown)


def higher_numbers(known: Known) -> ControlFrame:
    return replace(known.true, claim=known.hello.claim, progress=dict.fromkeys(known.hello.progress, Progress(0, 0, FAR, FAR)))


FALSE: dict[str, Answer] = {
    "a later epoch": lambda known: known.claim_later(),
    "higher numbers": higher_numbers,
    "a refusal": lambda _: refuse(),
    "a forged statement": lambda known: known.claim_later(replace(known.stated, epoch=FAR)),
    "a refusal with a forged statement": lambda known: refuse(replace(known.stated, epoch=FAR)),
    "its own seal": lambda known: known.claim_later(seal(bytes(KEY_BYTES), "s2", Statement(1, FAR, {}))),
    "a true statement that is not beyond": lambda known: known.claim_later(known.stated),
    "a statement to another": lambda known: known.claim_later(known.seal_later("s3")),
}
TRUE: dict[str, Answer] = {
    "an answer": lambda known: known.claim_later(known.seal_later("s2")),
    "a refusal": lambda known: refuse(known.seal_later("s2")),
}


@asynccontextmanager
async def captured(s1: Server, s2: Server, answer: Answer, name: str = "s2") -> AsyncIterator[asyncio.Event]:
    """Take the place of a peer of s1; the event is set when it has answered s1."""
    true = ServerWelcome(name, s2.node.peers.epochs.met[name])
    stated, key = s2.node.peers.epochs.statements.kept["s1"], s1.node.peers.epochs.statements.key
    await s2.stop(drain_s=0)
    answered = asyncio.Event()

    async def speak(evil: Speaker, hello: ServerHello) -> None:
        evil.say(answer(Known(hello, true, stated, key)))
        answered.set()
        await evil.ended()

    async with answering(s1.node.peers.peers[name].address or "", speak):
        yield answered


@asynccontextmanager
async def answering(address: str, speak: Callable[[Speaker, ServerHello], Awaitable[None]]) -> AsyncIterator[None]:
    """Stand at the address of a server, and speak to each server that calls."""

    async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        evil = Speaker(reader, writer)
        try:
            hello = await evil.hear()
            assert isinstance(hello, ServerHello)
            await speak(evil, hello)
        except asyncio.IncompleteReadError:
            pass
        finally:
            evil.close()

    listener = await asyncio.start_server(called, *parse_address(address))
    try:
        yield
    finally:
        listener.close()


@pytest.mark.parametrize("answer", FALSE.values(), ids=FALSE)
async def test_a_false_claim_of_a_captured_server_fences_nobody(answer: Answer, caplog: pytest.LogCaptureFixture) -> None:
    topology = flat("s1", "s2", "s3")
    async with servers(topology) as running:
        s1 = running["s1"]
        async with captured(s1, running["s2"], answer) as answered:
            await answered.wait()
            place = s1.node.peers.peers["s2"]
            await until(lambda: "old copy" in place.trouble or "has taken" in place.trouble)
            assert not s1.node.peers.epochs.fenced
            assert not s1.status.not_ready
            assert s1.node.peers.peers["s3"].up
            async with thence.connect(url(topology, "s1"), "ann") as ann, thence.connect(url(topology, "s3"), "cy") as cy:
                await ann.known("cy")
                await ann.send("cy", b"we go on")
                assert (await cy.receive()).body == b"we go on"
    assert any(record.levelno >= logging.WARNING and "s2" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("answer", TRUE.values(), ids=TRUE)
async def test_a_statement_under_its_own_seal_fences_a_server(answer: Answer) -> None:
    async with servers(flat("s1", "s2", "s3")) as running:
        s1 = running["s1"]
        async with captured(s1, running["s2"], answer):
            await until(lambda: bool(s1.node.peers.epochs.fenced))


async def test_a_store_from_before_epochs_is_not_fenced_by_a_bare_word(tmp_path: Path) -> None:
    """It has agreed on no epoch with anybody, but it has met somebody, so it is no empty store."""
    topology, met = flat("s1", "s2"), ServerWelcome("s2", "the store of s2")
    later, again = replace(met, claim=Claim(Held(Epoch(FAR, "later than all")))), asyncio.Event()
    s1 = await started(topology, "s1", tmp_path)
    epochs, place = s1.node.peers.epochs, s1.node.peers.peers["s2"]

    async def speak(evil: Speaker, _: ServerHello) -> None:
        if "s2" not in epochs.met:
            evil.say(met)  # As a server of version 0.1 does, which makes no claim.
            await until(lambda: "s2" in epochs.met)
        else:
            evil.say(later)
            again.set()
            await evil.ended()

    try:
        async with answering(topology.addresses["s2"], speak):
            await again.wait()
            await until(lambda: "shows no statement" in place.trouble)
            assert not epochs.fenced
    finally:
        await s1.stop(drain_s=0)


async def test_an_offer_with_a_statement_that_cannot_be_changes_nothing() -> None:
    """The server agreed on the epoch in memory, and never stored it: after a restart it showed an older one."""
    shown: list[Claim | None] = []

    def offer(known: Known) -> ControlFrame:
        shown.append(known.hello.claim)
        agreed = Held(Epoch()) if known.hello.claim is None else known.hello.claim.agreed
        fresh = Held(Epoch(agreed.epoch.number + 1, "fresh"))
        return replace(known.true, claim=Claim(Held(agreed.epoch), fresh), stated=Statement(1, 1, {"nowhere": (1, 1)}))

    async with servers(flat("s1", "s2", "s3")) as running:
        s1 = running["s1"]
        async with captured(s1, running["s2"], offer):
            await until(lambda: len(shown) >= 2)
        stored = s1.node.peers.epochs.claims["s2"]
        assert shown[0] == shown[1] == stored


async def test_of_a_peer_on_a_restored_store_there_is_one_line_and_none_before_it_agrees(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topology = flat("s2", "s1")
    s1 = await started(topology, "s1", tmp_path)
    try:
        claim = NEVER_MET
        for agrees in (False, False, True, True):
            evil = await Speaker.call(topology.addresses["s1"])
            hello = ServerHello(PROTOCOL, "flat", topology.fingerprint, "s2", "s1", "the store of s2", claim=claim, restored=True)
            evil.say(hello)
            welcome = await evil.hear()
            assert isinstance(welcome, ServerWelcome)
            assert welcome.claim is not None
            assert welcome.claim.offered is not None
            assert agrees or "was restored" not in caplog.text
            if agrees:
                claim = Claim(Held(welcome.claim.offered.epoch))
                evil.say(ServerAgreed(welcome.claim.offered.epoch))
                await until(lambda: s1.node.peers.peers["s2"].up)
            evil.close()
            await until(lambda: not s1.node.peers.peers["s2"].busy)
        assert caplog.text.count("runs on a store that was restored from a copy") == 1
    finally:
        await s1.stop(drain_s=0)


async def test_one_server_that_says_that_another_was_declared_lost_does_not_make_it_leave() -> None:
    """The word ends that link only: with two peers or more, two must say so, and none may go on with it."""
    topology = flat("s1", "s2", "s3")
    async with servers(topology) as running:
        s1, place = running["s1"], running["s1"].node.peers.peers["s2"]
        await running["s3"].stop(drain_s=0)  # So nobody speaks against it.
        async with captured(s1, running["s2"], lambda _: Refused("s1 was declared lost", gone=FAR)):
            await until(lambda: "s1 was declared lost" in place.trouble)
            assert s1.status.report()["change"]["phase"] == "normal"
            async with thence.connect(url(topology, "s1"), "ann") as ann:
                await ann.send("ann", b"we go on")
                assert (await ann.receive()).body == b"we go on"


async def test_one_server_does_not_lead_another_to_a_topology_of_its_own() -> None:
    """A change that others have made without s1, since it does not concern s1: two peers must say so."""
    old = addressed("""
        name = "two"
        domains.left = { members = ["s1", "s2", "s3"], ordering = "matrix" }
        domains.right = { members = ["s3", "s4", "s5"], ordering = "matrix" }
    """)
    new = following(old, {"left": ("s1", "s2", "s3"), "right": ("s3", "s4"), "far": ("s4", "s5")})
    said = Refused("another version", True, new.version, new.fingerprint, text=write(new))
    async with servers(old) as running:
        s1 = running["s1"]
        peers = s1.node.peers.peers
        await running["s3"].stop(drain_s=0)
        async with captured(s1, running["s2"], lambda _: said):
            await until(lambda: "another version" in peers["s2"].trouble)
            assert s1.node.reconfiguration.topology.version == old.version
            async with captured(s1, running["s3"], lambda _: said, "s3"):
                await until(lambda: s1.node.reconfiguration.topology.version == new.version)


async def test_two_that_say_that_another_was_declared_lost_cannot_while_a_third_goes_on_with_it() -> None:
    topology = flat("s1", "s2", "s3", "s4")
    async with servers(topology) as running:
        s1 = running["s1"]
        refused = Refused("s1 was declared lost", gone=FAR)
        async with captured(s1, running["s2"], lambda _: refused), captured(s1, running["s3"], lambda _: refused, "s3"):
            await until(lambda: all("declared lost" in s1.node.peers.peers[name].trouble for name in ("s2", "s3")))
            assert s1.node.peers.peers["s4"].up
            assert s1.status.report()["change"]["phase"] == "normal"
            await running["s4"].stop(drain_s=0)
            await until(lambda: s1.status.report()["change"]["phase"] == "left")
