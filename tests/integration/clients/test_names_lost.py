"""A name that two servers gave while they could not hear each other: one keeps it, and nothing that was accepted vanishes."""

from __future__ import annotations

import asyncio
import logging
import queue
from pathlib import Path
from typing import Any

import pytest

import thence
from tests.integration.faults.test_faults import proxied
from tests.support.servers.running import PATIENCE_S, flat, started, until, url
from thence.agents.kinds import kinds_of
from thence.core.topology.model import Topology
from thence.errors import Fenced, UsageError
from thence.net.proxy import Mode, Proxy
from thence.node.messages import returns
from thence.node.options import NodeOptions
from thence.server.server import Server
from thence.storage import mailbox as mailbox_module


def returned_to(client: thence.Client) -> list[tuple[str, bytes]]:
    """Return what comes back to a client: whom it was for, and what it was."""
    heard: list[tuple[str, bytes]] = []
    vars(client)["returned"] = lambda message, to: heard.append((to, message.body))
    return heard


def some_go_back(most: int, returned: returns.Returning) -> None:
    """Send back no more than so many batches in all."""
    while returned.state.orphans and returned.counts["returned"] < most:
        key, orphan = next(iter(returned.state.orphans.items()))
        returned.send_next(key, orphan)


@pytest.mark.parametrize("spilled", [False, True], ids=["memory", "files"])
@pytest.mark.parametrize("before_crash", [None, 0, 4], ids=["no crash", "crash before all", "crash in between"])
async def test_what_waits_for_the_loser_goes_back_to_its_senders(
    spilled: bool, before_crash: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    options: dict[str, Any] = {}
    if spilled:
        monkeypatch.setattr(mailbox_module, "BLOCK_BYTES", 200)
        options["spill_after_bytes"] = 300
    bodies = [b"%100d" % number for number in range(10)]
    topology = flat("s1", "s2")
    second = await started(topology, "s2", tmp_path, **options)
    async with (
        thence.connect(url(topology, "s2"), "ann") as ann,
        thence.connect(url(topology, "s2"), "bob") as bob,
    ):
        await bob.send("ann", b"done with")
        assert (await ann.receive(10)).body == b"done with"
        ann.done()
        await until(lambda: second.node.acknowledgements.of("ann") == 1)
    async with thence.connect(url(topology, "s2"), "bob") as bob:
        for body in bodies:
            await bob.send("ann", body)
        await bob.publish("nobody follows it", b"")
    assert bool(second.node.directory.state.mailboxes["ann"].spilled) == spilled
    await second.stop(drain_s=0)
    first = await started(topology, "s1", tmp_path, **options)
    async with thence.connect(url(topology, "s1"), "ann"):
        pass  # s1 does not know that s2, which is not running, has given the name.
    if before_crash is not None:  # So many have gone back when the server goes down.
        monkeypatch.setattr(returns.Returning, "go_on", lambda returned: some_go_back(before_crash, returned))
        second = await started(topology, "s2", tmp_path, **options)
        await until(lambda: second.node.returning.state.orphans and second.node.returning.counts["returned"] == before_crash)
        await second.stop(drain_s=0)
        monkeypatch.undo()
    second = await started(topology, "s2", tmp_path, **options)
    async with thence.connect(url(topology, "s2"), "bob") as bob:
        heard = returned_to(bob)
        await until(lambda: len(heard) == 10)
        assert heard == [("ann", body) for body in bodies]
        assert second.node.returning.counts["returned"] == 10 - (before_crash or 0)
        assert not second.node.returning.state.orphans
        await bob.send("ann", b"to the winner")
    async with thence.connect(url(topology, "s1"), "ann") as winner:
        assert (await winner.receive(10)).body == b"to the winner"
    await second.stop(drain_s=0)
    second = await started(topology, "s2", tmp_path, **options)  # None of it goes back twice.
    async with thence.connect(url(topology, "s2"), "bob") as bob:
        heard = returned_to(bob)
        await bob.send("bob", b"last")
        assert (await bob.receive(10)).body == b"last"
        assert heard == []
    await second.stop(drain_s=0)
    await first.stop(drain_s=0)
    assert "client ann has lost its name to one of s1; messages that go back: 10" in caplog.text


async def test_a_request_that_comes_back_is_not_waited_for(tmp_path: Path) -> None:
    """It was told as undeliverable, and waited for its reply until its time was over."""
    topology = flat("s1", "s2")
    second = await started(topology, "s2", tmp_path)
    async with thence.connect(url(topology, "s2"), "ann"):
        pass
    async with thence.connect(url(topology, "s2"), "bob") as bob:
        heard = returned_to(bob)
        asked = asyncio.create_task(bob.request("ann", b"?", within=1000))
        await until(lambda: second.node.directory.state.mailboxes["ann"].position == 1)
        await second.stop(drain_s=0)
        first = await started(topology, "s1", tmp_path)
        async with thence.connect(url(topology, "s1"), "ann"):
            pass
        second = await started(topology, "s2", tmp_path)
        with pytest.raises(TimeoutError, match="no reply from 'ann': the request came back, since 'ann' has lost its name"):
            await asyncio.wait_for(asked, PATIENCE_S)
        assert heard == [("ann", b"?")]
    await second.stop(drain_s=0)
    await first.stop(drain_s=0)


class Courier(thence.Agent):
    """Writes to whom it is told, and keeps what comes back."""

    state: list[str]

    async def react(self, message: thence.Message) -> None:
        await self.send(message.value(str), "parcel")

    async def returned(self, message: thence.Message, to: str) -> None:
        self.state.append(f"{to}: {message.value(str)}")
        await self.send("bob", f"{to} did not get it")


async def test_an_agent_is_told_of_what_comes_back_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    topology = flat("s1", "s2")

    async def with_courier() -> Server:
        server = Server(topology, "s2", NodeOptions(data=tmp_path / "s2"), kinds_of([Courier]))
        await server.start()
        return server

    second = await with_courier()
    async with thence.connect(url(topology, "s2"), "ann"), thence.connect(url(topology, "s2"), "bob") as bob:
        await bob.agents.create("courier", "Courier")
        await bob.send("courier", "ann")
        await until(lambda: second.node.directory.state.mailboxes["ann"].position == 1)
    await second.stop(drain_s=0)
    first = await started(topology, "s1", tmp_path)
    async with thence.connect(url(topology, "s1"), "ann"):
        pass
    for _ in range(2):  # The second time it has been told.
        second = await with_courier()
        async with thence.connect(url(topology, "s2"), "bob") as bob:
            if not (await bob.agents.show("courier"))["state"]:
                assert (await bob.receive(30)).value() == "ann did not get it"
                bob.done()
            await bob.send("bob", "last")
            assert (await bob.receive(30)).value() == "last"
            assert (await bob.agents.show("courier"))["state"] == ["ann: parcel"]
        await second.stop(drain_s=0)
    await first.stop(drain_s=0)
    assert caplog.text.count("messages of agent courier to ann came back, since that name was lost: 1") == 1


async def test_a_script_is_told_of_what_comes_back_and_does_not_wait_for_itself(tmp_path: Path) -> None:
    def use(address: str) -> tuple[str, bytes, str]:
        heard: queue.SimpleQueue[tuple[str, bytes, str]] = queue.SimpleQueue()

        def returned(message: thence.Message, to: str) -> None:
            with pytest.raises(UsageError, match="wait for itself") as caught:
                script.send("bob", b"?")
            heard.put((to, message.body, str(caught.value)))

        script = thence.connect_blocking(address, "bob")
        vars(script)["returned"] = returned
        with script:
            return heard.get(timeout=30)

    topology = flat("s1", "s2")
    second = await started(topology, "s2", tmp_path)
    async with thence.connect(url(topology, "s2"), "ann"), thence.connect(url(topology, "s2"), "bob") as bob:
        await bob.send("ann", b"hello")
    await second.stop(drain_s=0)
    first = await started(topology, "s1", tmp_path)
    async with thence.connect(url(topology, "s1"), "ann"):
        pass
    second = await started(topology, "s2", tmp_path)
    assert (await asyncio.to_thread(use, url(topology, "s2")))[:2] == ("ann", b"hello")
    await second.stop(drain_s=0)
    await first.stop(drain_s=0)


class Apart:
    """Servers, with a proxy on each way between two of them, all cut."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.ways: dict[tuple[str, str], Proxy] = {}
        self.running: dict[str, Server] = {}

    async def start(self, data: Path) -> None:
        for caller in self.topology.processes:
            addresses = dict(self.topology.addresses)
            for called in addresses.keys() - {caller}:
                self.ways[caller, called] = proxy = await proxied(self.topology, called)
                proxy.set_mode(Mode.CUT)
                addresses[called] = proxy.address
            self.running[caller] = await started(self.topology.at(addresses), caller, data)

    def join(self, one: str, other: str) -> None:
        self.ways[one, other].set_mode(Mode.WELL)
        self.ways[other, one].set_mode(Mode.WELL)

    def cut(self, one: str, other: str) -> None:
        self.ways[one, other].set_mode(Mode.CUT)
        self.ways[other, one].set_mode(Mode.CUT)

    async def stop(self) -> None:
        for server in self.running.values():
            await server.stop(drain_s=0)
        for proxy in self.ways.values():
            await proxy.close()


async def test_the_program_that_loses_its_name_is_told_with_an_error(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    apart = Apart(topology)
    await apart.start(tmp_path)
    proxy = await proxied(topology, "s2")
    async with (
        thence.connect(url(topology, "s2"), "ann") as there,
        thence.connect(f"thence://{proxy.address}", "cleo") as away,
        thence.connect(url(topology, "s1"), "ann") as winner,
        thence.connect(url(topology, "s1"), "cleo"),
    ):
        heard = returned_to(winner)  # The sender's name is the winner's: what comes back reaches whoever has it.
        await there.send("ann", b"to myself")
        proxy.set_mode(Mode.CUT)
        await until(lambda: away.trouble)
        apart.join("s1", "s2")
        with pytest.raises(Fenced, match="'s1' gave it the name too"):
            await there.known("nobody")
        proxy.set_mode(Mode.WELL)
        with pytest.raises(Fenced, match="'s1' gave it the name too"):
            await away.receive(20)
        await until(lambda: heard == [("ann", b"to myself")])
    await proxy.close()
    await apart.stop()


async def test_what_is_on_its_way_to_the_loser_goes_back_too(tmp_path: Path) -> None:
    topology = flat("s1", "s2", "s3")
    apart = Apart(topology)
    await apart.start(tmp_path)
    apart.join("s2", "s3")
    for server in ("s1", "s2"):
        async with thence.connect(url(topology, server), "ann"):
            pass
    async with (
        thence.connect(url(topology, "s3"), "bob") as bob,
        thence.connect(url(topology, "s3"), "cleo") as cleo,
    ):
        heard = returned_to(bob)
        await bob.known("ann")
        apart.cut("s2", "s3")
        for number in range(5):
            await bob.send("ann", b"%d" % number)
        await bob.send(["cleo", "ann"], b"both")
        assert (await cleo.receive(10)).body == b"both"
        apart.join("s1", "s2")
        await until(lambda: "ann" not in apart.running["s2"].node.directory.state.mailboxes)
        apart.join("s2", "s3")
        apart.join("s1", "s3")  # What goes back comes behind the news of the name, which s1 has.
        await until(lambda: len(heard) == 6)
        assert heard == [("ann", b"%d" % number) for number in range(5)] + [("ann", b"both")]
    await apart.stop()
