"""``stable()`` with real servers: it returns when the last recipient's server has everything, and not before."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import thence
from tests.support.servers.running import addressed, assert_kept, servers, started, until, url
from thence.errors import UsageError

ROW = """
name = "row"
stability = true
[domains.A]
members = ["s1", "s2"]
[domains.B]
members = ["s2", "s3"]
[domains.C]
members = ["s3", "s4"]
"""


async def test_a_client_learns_when_all_have_its_messages(tmp_path: Path) -> None:
    topology = addressed(ROW)
    async with (
        servers(topology, tmp_path) as running,
        thence.connect(url(topology, "s1"), name="alice") as alice,
        thence.connect(url(topology, "s4"), name="bob"),
    ):
        await alice.known("bob")
        await alice.stable()  # Nothing was sent: all have it.
        await alice.send("bob", b"one")
        await alice.stable()
        assert running["s1"].node.member.forwarder.unstable() == []
        assert running["s1"].status.report()["unstable"] == 0
        # The recipient's server stops: what is sent now is accepted, and not stable.
        await running["s4"].stop(drain_s=0)
        for _ in range(3):
            alice.post("bob", b"more")
        waiting = asyncio.create_task(alice.stable())
        await alice.flush()
        await until(running["s1"].node.member.forwarder.unstable)
        assert not waiting.done()
        # A server in the middle starts again meanwhile: that changes nothing.
        await running["s2"].stop(drain_s=0)
        running["s2"] = await started(topology, "s2", tmp_path)
        assert not waiting.done()
        running["s4"] = await started(topology, "s4", tmp_path)
        await waiting
        assert running["s1"].node.member.forwarder.unstable() == []
        assert running["s4"].node.directory.state.mailboxes["bob"].position == 4


async def test_who_asked_is_answered_though_its_own_server_starts_again(tmp_path: Path) -> None:
    topology = addressed(ROW)
    async with servers(topology, tmp_path) as running, thence.connect(url(topology, "s1"), name="alice") as alice:
        async with thence.connect(url(topology, "s4"), name="bob"):
            await alice.known("bob")
        await running["s4"].stop(drain_s=0)
        await alice.send("bob", b"kept")
        waiting = asyncio.create_task(alice.stable())
        await asyncio.sleep(0)
        await running["s1"].stop(drain_s=0)
        running["s1"] = await started(topology, "s1", tmp_path)
        assert running["s1"].node.member.forwarder.unstable(), "a restart has not forgotten it"
        running["s4"] = await started(topology, "s4", tmp_path)
        await waiting
        assert running["s1"].node.member.forwarder.unstable() == []


async def test_members_in_programs_and_blocking_clients_have_it_too(tmp_path: Path) -> None:
    topology = addressed(ROW.replace('"s4"', '"embedded"'))
    shown = {name: address for name, address in topology.addresses.items() if name != "embedded"}
    assert len(shown) == 3
    running = [await started(topology, name, tmp_path) for name in shown]
    try:
        async with thence.Member(topology, name="embedded", data=tmp_path / "embedded") as member:
            await member.connected()
            member.post("s1", b"to a server without a program")
            await member.stable()

            def script() -> None:
                with thence.connect_blocking(url(topology, "s1"), name="script") as client:
                    client.known("embedded")
                    client.send("embedded", b"hello")
                    client.stable()

            await asyncio.to_thread(script)
            assert (await member.receive(10.0)).body == b"hello"
    finally:
        for server in running:
            await server.stop(drain_s=0)


async def test_where_nobody_finds_out_it_is_refused(tmp_path: Path) -> None:
    topology = addressed(ROW.replace("stability = true\n", ""))
    async with servers(topology, tmp_path), thence.connect(url(topology, "s1"), name="alice") as alice:
        with pytest.raises(UsageError, match="stability = true"):
            await alice.stable()


async def test_servers_hand_up_only_what_all_have(tmp_path: Path) -> None:
    topology = addressed('name = "safe"\n[domains.d]\nmembers = ["s1", "s2", "s3"]\nordering = "vector"\ndelivery = "safe"\n')
    async with (
        servers(topology, tmp_path, tmp_path / "trace") as running,
        thence.connect(url(topology, "s1"), name="alice") as alice,
        thence.connect(url(topology, "s2"), name="bob") as bob,
    ):
        await alice.known("bob")
        await alice.send("bob", b"one")
        assert (await bob.receive(60.0)).body == b"one"
        bob.done()
        await running["s3"].stop(drain_s=0)
        await alice.send(["alice", "bob"], b"two")
        await until(running["s2"].node.member.attachment.waiting)
        assert running["s2"].node.directory.state.mailboxes["bob"].position == 1
        # One that kept it aside starts again, and so does the one that was missing.
        await running["s2"].stop(drain_s=0)
        running["s2"] = await started(topology, "s2", tmp_path, tmp_path / "trace")
        running["s3"] = await started(topology, "s3", tmp_path, tmp_path / "trace")
        assert (await bob.receive(60.0)).body == b"two"
        assert (await alice.receive(60.0)).body == b"two"
    assert_kept(tmp_path / "trace")
