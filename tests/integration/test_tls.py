"""Servers prove to each other who they are, and to clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import trustme

import thence
from tests.integration.running import flat, run, servers, started, until, url
from tests.integration.securing import certificates


def test_servers_and_clients_over_tls(tmp_path: Path) -> None:
    async def main() -> None:
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
            with pytest.raises(TimeoutError, match="certificate verify failed"):
                async with thence.connect(secure["s1"], "eve", connect_timeout=1.0):
                    pass
            with pytest.raises(TimeoutError, match="no connection"):
                async with thence.connect(url(topology, "s1"), "eve", connect_timeout=1.0):
                    pass
        finally:
            await first.stop(drain_s=0)
            await second.stop(drain_s=0)

    run(main)


@pytest.mark.parametrize("trouble", ["wrong name", "wrong authority"])
def test_a_server_that_cannot_prove_its_name_is_refused(tmp_path: Path, trouble: str) -> None:
    async def main() -> None:
        topology = flat("s1", "s2")
        authority = trustme.CA()
        good = certificates(tmp_path / "good", authority, "s1", "s2", "s3")
        bad = good["s3"] if trouble == "wrong name" else certificates(tmp_path / "bad", trustme.CA(), "s1")["s1"]
        caller = await started(topology, "s1", tls=bad)
        called = await started(topology, "s2", tls=good["s2"])
        try:
            await until(lambda: caller.node.peers.neighbours["s2"].trouble not in ("", "not connected yet"))
            await asyncio.sleep(0.2)
            assert not called.node.peers.neighbours["s1"].up
            if trouble == "wrong name":
                assert "calls itself 's1' with a certificate for s3" in caller.node.peers.neighbours["s2"].trouble
        finally:
            await caller.stop(drain_s=0)
            await called.stop(drain_s=0)

    run(main)


def test_the_embedded_member_uses_tls_too(tmp_path: Path) -> None:
    async def main() -> None:
        topology = flat("a", "b")
        files = certificates(tmp_path, trustme.CA(), "a", "b")
        async with (
            thence.Member(topology, name="a", tls=files["a"]) as a,
            thence.Member(topology, name="b", tls=files["b"]) as b,
        ):
            await a.send("b", b"hello")
            assert (await b.receive()).body == b"hello"

    run(main)


def test_without_tls_a_server_with_tls_is_not_heard(tmp_path: Path) -> None:
    async def main() -> None:
        topology = flat("s1", "s2")
        files = certificates(tmp_path, trustme.CA(), "s2")
        async with servers(flat("x")):  # The loop has other work too.
            plain = await started(topology, "s1")
            secure = await started(topology, "s2", tls=files["s2"])
            try:
                await until(lambda: "hung up" in plain.node.peers.neighbours["s2"].trouble)
                assert not secure.node.peers.neighbours["s1"].up
            finally:
                await plain.stop(drain_s=0)
                await secure.stop(drain_s=0)

    run(main)
