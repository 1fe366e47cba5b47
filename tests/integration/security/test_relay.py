"""A captured server that passes the login of an operator on to another server: it gets nowhere, since proofs are bound."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

import thence
from tests.support.servers.running import flat, servers, url
from tests.support.servers.securing import HOST, Access, Speaker, certificates, prove, secure_url
from thence.client.client import Client
from thence.core.topology.model import Topology
from thence.errors import Refusal
from thence.net.protocol import (
    PROTOCOL,
    Challenge,
    ClientHello,
    ClientWelcome,
    ControlFrame,
    Proof,
    Refused,
    ViewAnswer,
    ViewRequest,
)
from thence.net.security import tokens
from thence.net.security.tls import binding_of, client_side, server_side, shown_by
from thence.net.security.tokens import new_nonce, new_token, parse_token

OPERATOR = {"topology": True, "names": ["*"]}


class Captured:
    """A server that was taken over, with its own good certificate: whoever logs in there, logs in at another one."""

    def __init__(self, target: str, tls: thence.TlsFiles | None, **lies: Any) -> None:
        """``lies``: what it changes in the challenge that it passes on; ``hello``, in what the client says of itself."""
        self.url = ""
        self.answers: list[ControlFrame] = []
        """What the other server said to it when the login was over."""
        self._target, self._tls = target, tls
        self._hello = lies.pop("hello", {})
        self._lies = lies

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tls = None if self._tls is None else server_side(self._tls)
        async with await asyncio.start_server(self._pass_on, HOST, 0, ssl=tls) as listener:
            port = listener.sockets[0].getsockname()[1]
            self.url = f"{'thence' if tls is None else 'thences'}://{HOST}:{port}"
            yield

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        operator = Speaker(reader, writer)
        there = await Speaker.call(self._target, None if self._tls is None else client_side(self._tls), HOST)
        try:
            hello = await operator.hear()
            assert isinstance(hello, ClientHello)
            there.say(msgspec.structs.replace(hello, **self._hello))
            challenge = await there.hear()
            if not isinstance(challenge, Challenge):
                self.answers.append(challenge)
                operator.say(challenge)
                return
            operator.say(msgspec.structs.replace(challenge, **self._lies))
            there.say(await operator.hear())
            self.answers.append(await there.hear())
            if isinstance(self.answers[0], ClientWelcome):
                there.say(ViewRequest("ask", whole=True))
                self.answers.append(await there.hear())
            operator.say(Refused("it is over"))
        except asyncio.IncompleteReadError:
            pass
        finally:
            operator.close()
            there.close()


@pytest.mark.parametrize(
    "lies",
    [
        {},
        {"server": "s2"},
        {"bound": False},
        {"hello": {"bound": False}},
        {"hello": {"bound": False}, "bound": False},
    ],
    ids=["as it is", "under its own name", "as if it were old", "as if the operator were old", "as if both were old"],
)
async def test_a_captured_server_cannot_use_the_login_of_an_operator_elsewhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lies: dict[str, Any]
) -> None:
    caplog.set_level(logging.INFO)
    topology = flat("s1")
    tls = certificates(tmp_path / "tls", trustme.CA(), "s1", "s2")
    access = Access(tmp_path / "access.toml", ops=OPERATOR)
    captured = Captured(topology.addresses["s1"], tls["s2"], **lies)
    async with servers(topology, tls=tls["s1"], access=access.path), captured.running():
        with pytest.raises(Refusal):
            async with Client(captured.url, "", token=access.tokens["ops"], authority=tls["s1"].authority):
                pass
        assert not [answer for answer in captured.answers if not isinstance(answer, Refused)], captured.answers
        async with Client(secure_url(topology, "s1"), "", token=access.tokens["ops"], authority=tls["s1"].authority) as operator:
            assert (await operator.ask_view(ViewRequest("ask"))).server == "s1"


async def test_a_client_that_binds_nothing_is_refused_over_tls_and_told_why(tmp_path: Path) -> None:
    """A client of version 0.1."""
    topology = flat("s1")
    tls = certificates(tmp_path / "tls", trustme.CA(), "s1")
    access = Access(tmp_path / "access.toml", ops=OPERATOR)
    token = parse_token(access.tokens["ops"])
    async with servers(topology, tls=tls["s1"], access=access.path):
        old = await Speaker.call(topology.addresses["s1"], client_side(None, tls["s1"].authority), HOST)
        old.say(ClientHello(PROTOCOL, "", entry="ops", nonce=new_nonce()))
        refused = await old.hear()
        assert isinstance(refused, Refused)
        assert "binds no proof to a certificate, as clients of version 0.1 do not" in refused.reason
        old.close()
        # One that says that it does, and does not.
        false = await Speaker.call(topology.addresses["s1"], client_side(None, tls["s1"].authority), HOST)
        hello = ClientHello(PROTOCOL, "", entry="ops", nonce=new_nonce(), bound=True)
        false.say(hello)
        challenge = await false.hear()
        assert isinstance(challenge, Challenge)
        assert challenge.bound
        false.say(Proof(token.prove(hello, challenge)))
        refused = await false.hear()
        assert isinstance(refused, Refused)
        assert refused.reason.startswith("the token of 'ops' is not right, or its proof was made for another certificate")
        false.close()


async def test_a_client_proves_nothing_over_tls_to_a_server_that_binds_nothing(tmp_path: Path) -> None:
    """A server of version 0.1, or one that says so to get a proof that it can use elsewhere."""
    heard: list[object] = []
    tls = certificates(tmp_path / "tls", trustme.CA(), "s1")["s1"]

    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = Speaker(reader, writer)
        heard.append(await server.hear())
        server.say(Challenge("s1", "flat", new_nonce()))
        await server.ended()
        server.close()

    async with await asyncio.start_server(old, HOST, 0, ssl=server_side(tls)) as listener:
        there = f"thences://{HOST}:{listener.sockets[0].getsockname()[1]}"
        with pytest.raises(Refusal, match=r"does not bind logins to its certificate.*upgrade the server"):
            async with thence.connect(there, "ann", token=str(new_token("ann")), authority=tls.authority):
                pass
    assert len(heard) == 1


@pytest.mark.parametrize("token", [True, False], ids=["with a token", "without"])
async def test_a_client_goes_on_with_the_server_that_it_means_only(tmp_path: Path, token: bool) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ops=OPERATOR)
    options: dict[str, Any] = {"token": access.tokens["ops"]} if token else {}
    async with servers(topology, access=access.path if token else None):
        with pytest.raises(Refusal, match="this is server 's1', and 's2' is meant"):
            async with Client(url(topology, "s1"), "", server="s2", **options):
                pass
        async with Client(url(topology, "s1"), "", server="s1", **options) as client:
            assert client.server == "s1"


async def test_a_new_certificate_binds_those_who_come_and_leaves_the_others(tmp_path: Path) -> None:
    topology, authority = flat("s1"), trustme.CA()
    tls = certificates(tmp_path / "tls", authority, "s1")["s1"]
    access = Access(tmp_path / "access.toml", ops={**OPERATOR, "send": ["*"]})
    options: dict[str, Any] = {"token": access.tokens["ops"], "authority": tls.authority}
    async with (
        servers(topology, tls=tls, access=access.path) as running,
        thence.connect(secure_url(topology, "s1"), "before", **options) as before,
    ):
        between = await Speaker.call(topology.addresses["s1"], client_side(None, tls.authority), HOST)
        certificates(tmp_path / "tls", authority, "s1")
        running["s1"].reload()
        await before.send("before", b"still here")
        async with thence.connect(secure_url(topology, "s1"), "behind", **options) as behind:
            await behind.send("behind", b"here, too")
        # Its TLS was agreed on with the old certificate.
        assert (await prove(between, "", parse_token(access.tokens["ops"]))).server == "s1"
        between.close()


@pytest.mark.parametrize("signed", [True, False])
async def test_what_a_captured_server_that_has_the_verifier_learns_from_a_login(tmp_path: Path, signed: bool) -> None:
    """Both servers have the same access file. From a login by a proof the captured one gets the key of the client, as the server
    of SCRAM does; from one by a signature it gets nothing, and docs/how-to/security.md says which tokens sign."""
    topology = flat("s1")
    tls = certificates(tmp_path / "tls", trustme.CA(), "s1", "s2")
    token = new_token("ops")
    verifier = token.signed_verifier() if signed else token.verifier()
    path = tmp_path / "access.toml"
    path.write_text(f'[clients.ops]\ntokens = ["{verifier}"]\ntopology = true\n', encoding="utf-8")
    taken: list[tuple[ClientHello, Challenge, Proof]] = []

    async def captured(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = Speaker(reader, writer)
        hello = await server.hear()
        challenge = Challenge("s2", "flat", new_nonce(), bound=True, signed=signed)
        server.say(challenge)
        proof = await server.hear()
        assert isinstance(hello, ClientHello)
        assert isinstance(proof, Proof)
        taken.append((hello, challenge, proof))
        server.say(Refused("that was all"))
        server.close()

    async def forged() -> ControlFrame:
        """Log in at s1 with what was taken."""
        said, asked, proof = taken[0]
        binding = binding_of(shown_by(server_side(tls["s2"])))
        text = tokens.proven_text(said, asked, binding)
        key = tokens.combined(proof.proof, tokens.mac(verifier.stored[:32], text))
        eve = await Speaker.call(topology.addresses["s1"], client_side(tls["s2"]), HOST)
        hello = ClientHello(PROTOCOL, "", entry="ops", nonce=new_nonce(), bound=True)
        eve.say(hello)
        challenge = await eve.hear()
        assert isinstance(challenge, Challenge)
        text = tokens.proven_text(hello, challenge, binding_of(shown_by(server_side(tls["s1"]))))
        made = tokens.combined(key, tokens.mac(verifier.stored[:32], text))
        eve.say(Proof(made, tokens.mac(verifier.answering, b"ticket" + text), proof.signature))
        answer = await eve.hear()
        eve.close()
        return answer

    async with (
        servers(topology, tls=tls["s1"], access=path),
        await asyncio.start_server(captured, HOST, 0, ssl=server_side(tls["s2"])) as listener,
    ):
        there = f"thences://{HOST}:{listener.sockets[0].getsockname()[1]}"
        with pytest.raises(Refusal, match="that was all"):
            async with Client(there, "", token=str(token), authority=tls["s1"].authority):
                pass
        assert isinstance(await forged(), Refused if signed else ClientWelcome)
        async with Client(secure_url(topology, "s1"), "", token=str(token), authority=tls["s1"].authority) as operator:
            assert (await operator.ask_view(ViewRequest("ask"))).server == "s1"


async def test_a_client_that_signs_nothing_is_told_why(tmp_path: Path) -> None:
    """A client of version 0.1, on one machine without TLS."""
    topology = flat("s1")
    token = new_token("ops")
    path = tmp_path / "access.toml"
    path.write_text(f'[clients.ops]\ntokens = ["{token.signed_verifier()}"]\n', encoding="utf-8")
    async with servers(topology, access=path):
        old = await Speaker.call(topology.addresses["s1"])
        hello = ClientHello(PROTOCOL, "", entry="ops", nonce=new_nonce())
        old.say(hello)
        challenge = await old.hear()
        assert isinstance(challenge, Challenge)
        old.say(Proof(token.prove(hello, challenge)))
        refused = await old.hear()
        assert isinstance(refused, Refused)
        assert "it takes signatures, and clients of version 0.1 make none" in refused.reason
        old.close()


async def test_without_tls_there_is_nothing_to_bind_to(tmp_path: Path) -> None:
    """What docs/how-to/security.md says: on one machine, without TLS, a program that poses as a server can pass a login on."""
    topology: Topology = flat("s1")
    access = Access(tmp_path / "access.toml", ops=OPERATOR)
    captured = Captured(topology.addresses["s1"], None)
    async with servers(topology, access=access.path), captured.running():
        with pytest.raises(Refusal, match="it is over"):
            async with Client(captured.url, "", token=access.tokens["ops"]):
                pass
        assert [type(answer) for answer in captured.answers] == [ClientWelcome, ViewAnswer]
