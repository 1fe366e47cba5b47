"""Servers prove to each other who they are, and to clients."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import trustme

import thence
from tests.support.servers.running import PATIENCE_S, flat, servers, started, until, url
from tests.support.servers.securing import Speaker, certificates, secure_url
from thence.core.topology.model import Topology
from thence.net.protocol import PROTOCOL, Refused, ServerHello
from thence.net.security.tls import client_side
from thence.node import listener
from thence.server.server import Server


async def test_servers_and_clients_over_tls(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    files = certificates(tmp_path / "tls", trustme.CA(), "s1", "s2")
    first = await started(topology, "s1", tls=files["s1"])
    second = await started(topology, "s2", tls=files["s2"])
    try:
        await first.node.peers.wait_connected()
        secure = {name: f"thences://{topology.addresses[name]}" for name in ("s1", "s2")}
        authority = tmp_path / "tls" / "authority.pem"
        async with (
            thence.connect(secure["s1"], "ann", authority=authority) as ann,
            thence.connect(secure["s2"], "bob", authority=authority) as bob,
        ):
            await bob.send("ann", b"hello")
            assert (await ann.receive()).body == b"hello"
        with pytest.raises(TimeoutError, match=r"certificate verify failed.*Give the authority that signed it: --tls-ca"):
            async with thence.connect(secure["s1"], "eve", connect_timeout=1.0):
                pass
        with pytest.raises(TimeoutError, match="no connection"):
            async with thence.connect(url(topology, "s1"), "eve", connect_timeout=1.0):
                pass
    finally:
        await first.stop(drain_s=0)
        await second.stop(drain_s=0)


PAST = datetime(2020, 1, 1, tzinfo=UTC)
HUNG_UP = "hung up; its log says why, if it does not accept our certificate"
NO_TLS = "no TLS with a stranger: its certificate: "
CASES = {
    "of another server": ("somebody calls itself 's1' with a certificate for s3", "refused server 's1': somebody calls itself"),
    "of another authority": (HUNG_UP, NO_TLS + "unable to get local issuer certificate"),
    "expired": (HUNG_UP, NO_TLS + "certificate has expired"),
}
"""What the caller notes as its trouble, and what the called one logs."""


@pytest.mark.parametrize(("which", "trouble", "logged"), [(which, *said) for which, said in CASES.items()], ids=CASES)
async def test_a_server_that_cannot_prove_its_name_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, which: str, trouble: str, logged: str
) -> None:
    topology = flat("s1", "s2")
    authority = trustme.CA()
    good = certificates(tmp_path / "good", authority, "s1", "s2", "s3")
    if which == "of another server":
        bad = good["s3"]
    elif which == "expired":
        bad = certificates(tmp_path / "bad", authority, "s1", not_before=PAST, not_after=PAST + timedelta(days=1))["s1"]
    else:
        bad = certificates(tmp_path / "bad", trustme.CA(), "s1")["s1"]
    bad = msgspec.structs.replace(bad, authority=good["s1"].authority)
    caller = await started(topology, "s1", tls=bad)
    called = await started(topology, "s2", tls=good["s2"])
    try:
        await until(lambda: trouble in caller.node.peers.peers["s2"].trouble)
        await until(lambda: logged in caplog.text)
        assert re.search(r"127\.0\.0\.1:\d+: " + re.escape(logged), caplog.text)
        assert not called.node.peers.peers["s1"].up
        assert called.node.peers.peers["s1"].traffic.connections == 0
    finally:
        await caller.stop(drain_s=0)
        await called.stop(drain_s=0)


@pytest.mark.parametrize(
    ("names", "options", "trouble"),
    [
        (["s3"], {}, "Hostname mismatch"),
        (["s2"], {"not_before": PAST, "not_after": PAST + timedelta(days=1)}, "certificate has expired"),
    ],
    ids=["of another server", "expired"],
)
async def test_whoever_answers_must_prove_its_name_too(
    tmp_path: Path, names: list[str], options: dict[str, datetime], trouble: str
) -> None:
    topology = flat("s1", "s2")
    authority = trustme.CA()
    good = certificates(tmp_path / "good", authority, "s1")
    (bad,) = certificates(tmp_path / "bad", authority, *names, **options).values()
    caller = await started(topology, "s1", tls=good["s1"])
    called = await started(topology, "s2", tls=bad)
    try:
        await until(lambda: trouble in caller.node.peers.peers["s2"].trouble)
        assert caller.node.peers.peers["s2"].traffic.connections == 0
    finally:
        await caller.stop(drain_s=0)
        await called.stop(drain_s=0)


async def test_no_way_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is configured is demanded: no plain TCP where there is TLS, no older TLS, no server without a certificate."""
    topology = flat("s1", "s2")
    files = certificates(tmp_path, trustme.CA(), "s1", "s2")
    server = await started(topology, "s2", tls=files["s2"])
    address = topology.addresses["s2"]
    hello = ServerHello(PROTOCOL, "flat", topology.fingerprint, "s1", "s2", "0123")
    try:
        plain = await Speaker.call(address)
        plain.say(hello)
        assert await plain.ended()
        plain.close()
        await until(lambda: "no TLS with a stranger: " in caplog.text)
        older = client_side(files["s1"])
        older.minimum_version = ssl.TLSVersion.TLSv1_2
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await Speaker.call(address, older, "s2")
        await until(lambda: "no TLS with a stranger: unsupported protocol" in caplog.text)
        nobody = await Speaker.call(address, client_side(None, files["s1"].authority), "s2")
        nobody.say(hello)
        refused = await nobody.hear()
        assert isinstance(refused, Refused)
        assert refused.reason == "somebody calls itself 's1' with a certificate for nobody"
        nobody.close()
        # Nor does it learn anything by saying that it has another version, or make the server believe it.
        newer = await Speaker.call(address, client_side(None, files["s1"].authority), "s2")
        newer.say(msgspec.structs.replace(hello, version=2, fingerprint="0"))
        refused = await newer.hear()
        assert isinstance(refused, Refused)
        assert (refused.version, refused.fingerprint, refused.later) == (0, "", False)
        newer.close()
        with pytest.raises(TimeoutError, match=r"hung up; does it want TLS \(thences://\)"):
            async with thence.connect(url(topology, "s2"), "eve", connect_timeout=1.0):
                pass
    finally:
        await server.stop(drain_s=0)


async def test_a_half_made_connection_is_bounded_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(listener, "MAX_STRANGERS", 5)
    monkeypatch.setattr(listener, "HELLO_TIMEOUT_S", PATIENCE_S)  # Nobody goes because of the time.
    topology = flat("s1")
    files = certificates(tmp_path, trustme.CA(), "s1")
    server = await started(topology, "s1", tls=files["s1"])
    try:
        silent = [await Speaker.call(topology.addresses["s1"]) for _ in range(20)]
        await until(lambda: server.turned_away == 15)
        assert len(server.listener.strangers) == 5
        async with thence.connect(secure_url(topology, "s1"), "ann", authority=files["s1"].authority) as ann:
            await ann.send("ann", b"in")
            assert (await ann.receive()).body == b"in"
        for one in silent:
            one.close()
    finally:
        await server.stop(drain_s=0)
    assert not server.listener.strangers
    assert not server.listener.connections


# --- rotation --------------------------------------------------------------------------------------------------------


async def shown(address: str, authority: Path) -> bytes:
    """Return the certificate that a server shows to somebody who comes now."""
    speaker = await Speaker.call(address, client_side(None, authority), "127.0.0.1")
    certificate: bytes = speaker.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    speaker.close()
    return certificate


class Load:
    """Numbered messages from a writer to a reader, as many as go through."""

    def __init__(self, writer: thence.Client, reader: thence.Client) -> None:
        """Begin."""
        self.came: list[int] = []
        self.sent = 0
        self._writer = writer
        self._writing = True
        reader.on_message(lambda message: self.came.append(int(message.body)))
        self._task = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while self._writing:
            await self._writer.send("reader", b"%d" % self.sent)
            self.sent += 1

    async def end(self) -> None:
        """Write no more, and see that everything has come, in order."""
        self._writing = False
        await self._task
        await until(lambda: len(self.came) == self.sent)
        assert self.came == list(range(self.sent))
        assert self.sent > 10


@asynccontextmanager
async def under_load(topology: Topology, files: dict[str, thence.TlsFiles]) -> AsyncIterator[dict[str, Server]]:
    """Run two servers with messages between them; no connection may be lost, and no message."""
    authority = files["s1"].authority
    running = {name: await started(topology, name, tls=files[name]) for name in ("s1", "s2")}
    try:
        await running["s1"].node.peers.wait_connected()
        async with (
            thence.connect(secure_url(topology, "s1"), "writer", authority=authority) as writer,
            thence.connect(secure_url(topology, "s2"), "reader", authority=authority) as reader,
        ):
            await writer.known("reader")
            load = Load(writer, reader)
            before = {client.connection for server in running.values() for client in server.clients.all}
            yield running
            await load.end()
            assert before <= {client.connection for server in running.values() for client in server.clients.all}
            assert running["s1"].node.peers.peers["s2"].traffic.connections == 1
            assert running["s2"].node.peers.peers["s1"].traffic.connections == 1
    finally:
        for server in running.values():
            await server.stop(drain_s=0)


async def test_certificates_and_authority_are_replaced_under_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    topology, folder, (old, new) = flat("s1", "s2"), tmp_path / "tls", (trustme.CA(), trustme.CA())
    files = certificates(folder, old, "s1", "s2")
    authority, address = folder / "authority.pem", topology.addresses["s1"]
    async with under_load(topology, files) as running:
        certificate = await shown(address, authority)
        # Whom to believe: both, for a while. Then new certificates. Then the old authority goes.
        both = old.cert_pem.bytes() + new.cert_pem.bytes()
        authority.write_bytes(both)
        await until(lambda: caplog.text.count("the certificates: read again") == 2)
        certificates(folder, new, "s1", "s2")
        authority.write_bytes(both)
        for server in running.values():
            server.reload()
        assert await shown(address, authority) != certificate
        authority.write_bytes(new.cert_pem.bytes())
        for server in running.values():
            server.reload()
        (tmp_path / "old.pem").write_bytes(old.cert_pem.bytes())
        with pytest.raises(ssl.SSLCertVerificationError):
            await shown(address, tmp_path / "old.pem")
        async with thence.connect(secure_url(topology, "s2"), "late", authority=authority) as late:
            await late.send("late", b"in")


async def test_a_key_that_does_not_fit_is_not_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topology, authority = flat("s1", "s2"), trustme.CA()
    files = certificates(tmp_path, authority, "s1", "s2")
    async with under_load(topology, files):
        before = await shown(topology.addresses["s1"], files["s1"].authority)
        files["s1"].key.write_bytes(files["s2"].key.read_bytes())
        await until(lambda: "the certificates: what was read before stays in force" in caplog.text)
        assert await shown(topology.addresses["s1"], files["s1"].authority) == before


async def test_peers_meet_again_with_the_new_certificates(tmp_path: Path) -> None:
    topology, (old, new) = flat("s1", "s2"), (trustme.CA(), trustme.CA())
    files = certificates(tmp_path, old, "s1", "s2")
    running = [await started(topology, name, tls=files[name]) for name in ("s1", "s2")]
    try:
        await running[0].node.peers.wait_connected()
        certificates(tmp_path, new, "s1", "s2")
        for server in running:
            server.reload()
        peer = running[0].node.peers.peers["s2"]
        assert peer.connection is not None
        peer.connection.fail(ConnectionResetError("cut"))
        await until(lambda: peer.traffic.connections == 2 and peer.up)
    finally:
        for server in running:
            await server.stop(drain_s=0)


async def test_the_embedded_member_uses_tls_too(tmp_path: Path) -> None:
    topology = flat("a", "b")
    files = certificates(tmp_path, trustme.CA(), "a", "b")
    async with (
        thence.Member(topology, name="a", tls=files["a"]) as a,
        thence.Member(topology, name="b", tls=files["b"]) as b,
    ):
        await a.send("b", b"hello")
        assert (await b.receive()).body == b"hello"


async def test_without_tls_a_server_with_tls_is_not_heard(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    files = certificates(tmp_path, trustme.CA(), "s2")
    async with servers(flat("x")):  # The loop has other work too.
        plain = await started(topology, "s1")
        secure = await started(topology, "s2", tls=files["s2"])
        try:
            await until(lambda: "hung up" in plain.node.peers.peers["s2"].trouble)
            assert not secure.node.peers.peers["s1"].up
        finally:
            await plain.stop(drain_s=0)
            await secure.stop(drain_s=0)
