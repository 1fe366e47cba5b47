"""Notices that messages are safe, with real servers: a message comes at once, and the notice when the last server has it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import thence
from tests.support.servers.running import addressed, assert_kept, fleet, run, servers, started, until, url
from thence.errors import UsageError

THREE = 'name = "three"\n[domains.d]\nmembers = ["s1", "s2", "s3"]\nordering = "vector"\ndelivery = "notify"\n'

ROW = """
name = "row"
[domains.A]
members = ["s1", "s2"]
delivery = "notify"
[domains.B]
members = ["s2", "s3", "s4"]
delivery = "notify"
"""


async def test_a_message_comes_at_once_and_the_notice_when_the_last_server_has_it(tmp_path: Path) -> None:
    topology = addressed(THREE)
    async with (
        servers(topology, tmp_path, tmp_path / "trace") as running,
        thence.connect(url(topology, "s1"), name="alice") as alice,
        thence.connect(url(topology, "s2"), name="bob") as bob,
    ):
        told: list[int] = []
        await bob.on_safe(told.append)
        await alice.known("bob")
        await alice.send(["alice", "bob"], b"one")
        one = await bob.receive(60.0)
        await one.safe()
        assert told[-1] == one.position == bob.safe_upto
        await (await alice.receive(60.0)).safe()  # Who sent it is told as well.
        # A server is away: what is sent now comes at once, and is not safe.
        await running["s3"].stop(drain_s=0)
        await alice.send("bob", b"two")
        await alice.send(thence.EVERYONE, b"three")
        two, three = await bob.receive(60.0), await bob.receive(60.0)
        assert [two.body, three.body] == [b"two", b"three"]
        bob.done()
        waiting = asyncio.create_task(three.safe())
        await until(lambda: running["s2"].status.report()["unsafe"] == {"deliveries": 2, "letters": 2, "sent": 0})
        assert not waiting.done()
        # The receiver's own server starts again meanwhile: bob has done with the messages, and is still to be told.
        await running["s2"].stop(drain_s=0)
        running["s2"] = await started(topology, "s2", tmp_path, tmp_path / "trace")
        await until(lambda: len(running["s2"].clients.here))
        assert not waiting.done()
        assert told[-1] == one.position
        running["s3"] = await started(topology, "s3", tmp_path, tmp_path / "trace")
        await waiting
        assert told[-1] == three.position == bob.safe_upto
        assert told == sorted(told)
        await until(lambda: running["s2"].status.report()["unsafe"] == {"deliveries": 0, "letters": 0, "sent": 0})
    assert_kept(tmp_path / "trace")


async def test_a_program_that_starts_again_is_told_again(tmp_path: Path) -> None:
    topology = addressed(THREE)
    async with servers(topology, tmp_path) as running, thence.connect(url(topology, "s1"), name="alice") as alice:
        async with thence.connect(url(topology, "s2"), name="bob") as bob:
            await alice.known("bob")
            await alice.send("bob", b"one")
            await (await bob.receive(60.0)).safe()
            await running["s3"].stop(drain_s=0)
            await alice.send("bob", b"two")
            position = (await bob.receive(60.0)).position
            bob.done()
        async with thence.connect(url(topology, "s2"), name="bob") as bob:
            told: list[int] = []
            await bob.on_safe(told.append)
            assert told == [position - 1], "where it stands, also of what it got in its earlier life"
            running["s3"] = await started(topology, "s3", tmp_path)
            await until(lambda: told[-1:] == [position])


async def test_a_message_through_a_relay_is_safe_when_both_domains_have_it(tmp_path: Path) -> None:
    topology = addressed(ROW)
    async with (
        servers(topology, tmp_path) as running,
        thence.connect(url(topology, "s1"), name="alice") as alice,
        thence.connect(url(topology, "s3"), name="bob") as bob,
    ):
        await alice.known("bob")
        members = [server.node.member for server in running.values()]
        await until(lambda: not any(member.log.unsafe or member.forwarder.unsafe for member in members))
        await running["s4"].stop(drain_s=0)
        await alice.send(thence.EVERYONE, b"hello")
        message = await bob.receive(60.0)
        waiting = asyncio.create_task(message.safe())
        hers = asyncio.create_task((await alice.receive(60.0)).safe())  # Her own domain has it, and the other one has not.
        await until(lambda: running["s2"].node.member.forwarder.unsafe)
        assert not waiting.done()
        assert not hers.done()
        running["s4"] = await started(topology, "s4", tmp_path)
        await waiting
        await hers


@pytest.mark.parametrize("durable", [False, True])
async def test_members_in_programs_and_blocking_clients_have_it_too(tmp_path: Path, durable: bool) -> None:
    topology = addressed(THREE.replace('"s2"', '"embedded"'))
    running = {name: await started(topology, name, tmp_path) for name in ("s1", "s3")}
    try:
        data = tmp_path / "embedded" if durable else None
        async with thence.Member(topology, name="embedded", data=data) as member:
            await member.connected()
            told: list[int] = []
            await member.on_safe(told.append)

            def script() -> None:
                with thence.connect_blocking(url(topology, "s1"), name="script") as client:
                    client.known("embedded")
                    client.send(["embedded", "script"], b"hello")
                    client.safe(client.receive(60.0), within=60.0)

            await asyncio.to_thread(script)
            message = await member.receive(60.0)
            await message.safe()
            assert told[-1] == message.position
            # The others are away: it comes at once, from the program itself, and is safe when they are back.
            await running.pop("s3").stop(drain_s=0)
            await member.send("embedded", b"to myself")
            await member.send(thence.EVERYONE, b"to all")
            await member.receive(60.0)
            to_all = await member.receive(60.0)
            waiting = asyncio.create_task(to_all.safe())
            await until(lambda: member.safe_upto < to_all.position)
            running["s3"] = await started(topology, "s3", tmp_path)
            await waiting
            assert told[-1] == to_all.position
    finally:
        for server in running.values():
            await server.stop(drain_s=0)


async def test_where_a_domain_does_not_find_out_it_is_refused(tmp_path: Path) -> None:
    topology = addressed(ROW.replace('delivery = "notify"', 'delivery = "at once"', 1))
    async with (
        servers(topology, tmp_path),
        thence.connect(url(topology, "s1"), name="alice") as alice,
        thence.connect(url(topology, "s3"), name="bob") as bob,
    ):
        await alice.known("bob")
        await bob.known("alice")
        await bob.send(["alice", "bob"], b"hello")
        with pytest.raises(UsageError, match=r"domain 'A' of 'row'.*delivery = 'notify'"):
            await (await alice.receive(60.0)).safe()
        with pytest.raises(UsageError, match="domain 'A'"):
            await alice.on_safe(lambda _: None)
        await (await bob.receive(60.0)).safe()  # His own domain finds out.


async def test_where_nothing_comes_before_it_is_safe_it_is_safe_when_it_comes(tmp_path: Path) -> None:
    topology = addressed(THREE.replace("notify", "safe"))
    async with servers(topology, tmp_path), thence.connect(url(topology, "s1"), name="alice") as alice:
        await alice.send("alice", b"hello")
        message = await alice.receive(60.0)
        await message.safe()
        assert alice.safe_upto >= message.position


def test_servers_that_are_killed_change_nothing(tmp_path: Path) -> None:
    """The sender's server dies before it has told anybody, the receiver's before it was told, the third before it had it."""
    with fleet(addressed(THREE), tmp_path, tmp_path / "trace") as running:

        async def main() -> None:
            topology = running.topology
            async with (
                thence.connect(url(topology, "s1"), name="alice") as alice,
                thence.connect(url(topology, "s2"), name="bob") as bob,
            ):
                told: list[int] = []
                await bob.on_safe(told.append)
                await alice.known("bob")
                running.kill("s3")
                for number in range(20):
                    await alice.send("bob", number)
                messages = [await bob.receive(60.0) for _ in range(20)]
                assert [message.value(int) for message in messages] == list(range(20))
                waiting = [asyncio.create_task(message.safe()) for message in messages]
                for name in ("s2", "s1"):
                    await asyncio.to_thread(running.kill, name)
                    await asyncio.to_thread(running.start_one, name)
                    await alice.send("bob", name)  # Both are back.
                    assert (await bob.receive(60.0)).value(str) == name
                assert not any(task.done() for task in waiting)
                assert not told
                await asyncio.to_thread(running.start_one, "s3")
                await asyncio.gather(*waiting)
                await until(lambda: bob.safe_upto == messages[-1].position + 2)
                assert told == sorted(set(told))

        run(main)
    assert_kept(tmp_path / "trace")
