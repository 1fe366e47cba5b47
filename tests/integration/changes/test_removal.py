"""Servers that are gone for good: killed, their disks deleted, and removed from a fabric under load. And the news of views."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trustme

import thence
from tests.integration.changes.test_reconfiguration import quietly
from tests.support.campaigns.evolving_load import SEND_EVERY_S, following, load, written
from tests.support.servers.leading import APPLY, phases, stopped_at
from tests.support.servers.running import addressed, assert_kept, flat, fleet, run, servers, started, until, url, wait_for_server
from tests.support.servers.securing import certificates
from thence.cli.servers.up import free_addresses
from thence.core.topology.model import Topology
from thence.errors import ConfigError, UsageError
from thence.node.peers import outgoing_calls
from thence.server.apply import Access, Applied, TopologyChange

TWO_DOMAINS = """
name = "two"
[domains.A]
members = ["s1", "s2", "r"]
ordering = "matrix"
[domains.D]
members = ["r", "s3", "s4"]
ordering = "matrix"
"""


async def applied(old: Topology, new: Topology, *lost: str) -> Applied:
    """Lead a change as the command does, without those who are lost."""
    return await TopologyChange(old, new, Access(), quietly, lost).apply(60.0)


async def command(new: Topology, folder: Path, *more: str) -> dict[str, Any]:
    """Run the command to its end; return what it prints."""
    arguments = [*APPLY, str(written(new, folder)), "--json", *more]
    done = await asyncio.to_thread(subprocess.run, arguments, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def come_to_rest(topology: Topology) -> None:
    """Wait until nothing is on its way: the last messages may have been accepted without anybody having been told."""
    quiet = 0
    while quiet < 2:
        statuses = [wait_for_server(topology, name) for name in topology.processes]
        quiet = quiet + 1 if not any(status["change"]["on_the_way"] for status in statuses) else 0


class Talker:
    """A client that sends to everyone, several at a time, until its server is gone."""

    def __init__(self, client: thence.Client) -> None:
        self.client = client
        self.task = asyncio.get_running_loop().create_task(self._talk())

    async def _talk(self) -> None:
        number = 0
        while True:
            await self.client.room()
            for _ in range(5):
                number += 1
                self.client.post(thence.EVERYONE, str(number).encode())
            await asyncio.sleep(SEND_EVERY_S)

    async def stop(self) -> None:
        """Be silent."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def test_a_relay_that_is_killed_with_its_disk_is_removed_under_load(tmp_path: Path) -> None:
    with fleet(addressed(TWO_DOMAINS), tmp_path, tmp_path / "trace") as running:
        old = running.topology
        new = following(old, {"A": ("s1", "s2"), "D": ("s2", "s3", "s4")})

        async def main() -> None:
            async with load(old, ("s1", "s2", "s3", "s4")) as clients:
                last = thence.connect(url(old, "r"), "client-of-r")
                await last.__aenter__()
                talker = Talker(last)
                await clients.more(30)
                running.kill("r")
                shutil.rmtree(tmp_path / "r")
                await talker.stop()
                await clients.more(5)
                done = await command(new, tmp_path, "--lost", "r")
                assert done["lost"] == ["r"]
                assert done["flush"]["handed_over"], "what waited for the relay goes to the other side"
                await clients.more(20)
                await clients.finish()
                heard = {name: got.get("client-of-r", []) for name, got in clients.got.items()}
                assert len({tuple(numbers) for numbers in heard.values()}) == 1, "all survivors have the same of the dead one"
                assert heard["client-of-s1"]

        run(main)
        come_to_rest(new)
    events = assert_kept(tmp_path / "trace", sends=4 * 50)
    assert {(event.process, event.to) for event in events if event.kind == "view"} == {
        (name, ("r",)) for name in ("s1", "s2", "s3", "s4")
    }


KILLED_AT = {
    "to hold": "normal",
    "all hold and nothing is on its way": "holding",
    "giving s1, s2 what they lack of s3": "prepared",
    "all are prepared; switching": "flushed",
}
"""What the command says when it is killed, and in which phase the survivors are then; the next one goes on from there."""


def test_the_command_may_be_killed_while_it_removes_a_server(tmp_path: Path) -> None:
    """And a survivor with it, each time."""
    with fleet(flat("s1", "s2", "s3", ordering="matrix"), tmp_path, tmp_path / "trace") as running:
        old = running.topology
        new = following(old, {"D": ("s1", "s2")})

        async def main() -> None:
            async with load(old, ("s1", "s2")) as clients:
                await clients.more()
                running.kill("s3")
                shutil.rmtree(tmp_path / "s3")
                for said, phase in KILLED_AT.items():
                    leading = await asyncio.to_thread(stopped_at, said, new, tmp_path, "--lost", "s3")
                    found = await phases(old, ("s1", "s2"))
                    leading.kill()
                    leading.wait()
                    assert found == {(1, phase)}, said
                    running.kill("s2")
                    running.start_one("s2")
                await command(new, tmp_path, "--lost", "s3")
                await clients.more()
                await clients.finish()

        run(main)
    assert_kept(tmp_path / "trace", sends=80)


async def test_a_server_that_was_declared_lost_by_mistake_is_refused_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing_calls, "LONELY_S", 0.3)
    old = flat("s1", "s2", "s3", ordering="matrix")
    new = following(old, {"D": ("s1", "s2")})
    async with servers(old, tmp_path, tmp_path / "trace") as running:
        async with thence.connect(url(old, "s1"), "ann") as ann, thence.connect(url(old, "s3"), "cid") as cid:
            await ann.known("cid")
            await cid.send("ann", b"before")
            assert (await ann.receive()).body == b"before"
            await running["s3"].stop(drain_s=0)
            await applied(old, new, "s3")
            with pytest.raises(UsageError, match="nobody is called 'cid'"):
                await ann.send("cid", b"?")
            # It comes back on its old store, believes to be one of three, and is told.
            running["s3"] = await started(old, "s3", tmp_path, tmp_path / "trace")
            await until(lambda: running["s3"].status.report()["change"]["phase"] == "left")
            with pytest.raises(UsageError, match="has left the fabric"):
                await cid.send("ann", b"after")
            await ann.send("ann", b"to myself")
            assert (await ann.receive()).body == b"to myself"
        await running["s3"].stop(drain_s=0)
        running["s3"] = await started(old, "s3", tmp_path, tmp_path / "trace")
        assert running["s3"].status.report()["change"]["phase"] == "left"
        assert running["s1"].status.report()["change"]["gone"] == {"s3": 2}
    assert_kept(tmp_path / "trace", sends=2)


async def test_one_that_comes_back_over_tls_is_told_by_all_at_once_and_goes_on_quietly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = flat("s1", "s2", "s3", ordering="matrix")
    new = following(old, {"D": ("s2", "s3")})
    tls = certificates(tmp_path / "tls", trustme.CA(), *old.processes)
    wrong: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
    running = {name: await started(old, name, tmp_path, tls=tls[name]) for name in old.processes}
    try:
        for server in running.values():
            await server.node.peers.wait_connected()
        await running["s1"].stop(drain_s=0)
        access = Access(tls["s2"], tls["s2"].authority)
        await TopologyChange(old, new, access, quietly, ("s1",)).apply(60.0)
        # It calls both of the others at the same moment, and both refuse it: the second one when it has left by the first.
        running["s1"] = await started(old, "s1", tmp_path, tls=tls["s1"])
        await until(lambda: running["s1"].status.report()["change"]["phase"] == "left")
        await running["s1"].stop(drain_s=0)
        caplog.clear()
        running["s1"] = await started(old, "s1", tmp_path, tls=tls["s1"])
        assert "s1 has left flat, which had version 1" in caplog.messages  # Also at the next start.
    finally:
        for server in running.values():
            await server.stop(drain_s=0)
    assert not wrong, "nothing of this is an error of ours"


def test_only_members_that_the_new_topology_lacks_can_be_lost() -> None:
    old = flat("s1", "s2", "s3", ordering="matrix")
    new = following(old, {"D": ("s1", "s2")})
    with pytest.raises(ConfigError, match="'s2' is to be lost, and version 2 of 'flat' still has it"):
        TopologyChange(old, new, Access(), quietly, ("s2",))
    with pytest.raises(ConfigError, match="'s9' cannot be lost: it is no member of version 1 of 'flat'"):
        TopologyChange(old, new, Access(), quietly, ("s9",))


async def test_clients_are_told_of_views_in_the_order_of_their_messages(tmp_path: Path) -> None:
    old = flat("s1", "s2", "s3", ordering="matrix")
    (address,) = free_addresses(1)
    new = following(old, {"D": ("s1", "s2"), "E": ("s2", "s4")}, s4=address)
    told = thence.NewView(2, ("s1", "s2", "s4"), ("s4",), (), ("s3",))
    async with (
        servers(old, tmp_path) as running,
        thence.connect(url(old, "s1"), "ann") as ann,
        thence.connect(url(old, "s2"), "bob") as bob,
    ):
        stream: list[object] = []
        bob.on_view(stream.append)
        bob.on_message(lambda message: stream.append(message.body))
        await ann.known("bob")
        await ann.send("bob", b"old")
        await running.pop("s3").stop(drain_s=0)
        running["s4"] = await started(new, "s4", tmp_path)
        await applied(old, new, "s3")
        await ann.send("bob", b"new")
        await until(lambda: len(stream) == 3)
        assert stream == [b"old", told, b"new"]
        assert bob.view == told
        # Whoever only iterates is not bothered, and knows the view when it has come past it.
        assert ann.view is None
        await bob.send("ann", b"hello")
        assert (await ann.receive()).body == b"hello"
        assert ann.view == told


async def test_the_news_of_a_view_waits_for_a_client_that_is_away(tmp_path: Path) -> None:
    old = flat("s1", "s2", ordering="matrix")
    new = following(old, {"D": ("s1",), "E": ("s1", "s2")})
    async with servers(old, tmp_path) as running:
        async with thence.connect(url(old, "s1"), "ann"):
            pass
        await applied(old, new)
        await running.pop("s1").stop(drain_s=0)
        running["s1"] = await started(old, "s1", tmp_path)
        views: list[thence.NewView] = []
        async with thence.connect(url(old, "s1"), "ann") as ann:
            ann.on_view(views.append)
            ann.on_message(lambda _: None)
            await until(lambda: views)
            assert views == [thence.NewView(2, ("s1", "s2"))]


async def test_a_member_that_joins_gets_the_state_of_the_others_in_order(tmp_path: Path) -> None:
    """The recipe of docs/how-to/removal.md: the first member of the view sends its state to those who have joined."""
    old = flat("a", "b", "c", ordering="matrix")
    (address,) = free_addresses(1)
    new = following(old, {"D": ("a", "b", "d")}, d=address)

    class Counter:
        """Adds up what everybody says; all have the same sum."""

        def __init__(self, member: thence.Member, *, joining: bool = False) -> None:
            self.member = member
            self.sum: int | None = None if joining else 0
            self._early: list[int] = []
            """What came before the state did."""
            member.on_view(self.viewed)
            member.on_message(self.heard)

        def viewed(self, view: thence.NewView) -> None:
            staying = [name for name in view.members if name not in view.joined]
            if view.joined and self.member.name == staying[0]:
                self.member.post(view.joined, {"sum": self.sum})

        def heard(self, message: thence.Message) -> None:
            said = message.value()
            if isinstance(said, dict):
                self.sum = said["sum"] + sum(self._early)
            elif self.sum is None:
                self._early.append(said)
            else:
                self.sum += said

    async with (
        thence.Member(old, name="a", data=tmp_path / "a") as a,
        thence.Member(old, name="b", data=tmp_path / "b") as b,
    ):
        async with thence.Member(old, name="c", data=tmp_path / "c") as c:
            counters = [Counter(member) for member in (a, b)]
            c.on_message(lambda _: None)
            await asyncio.gather(*(member.connected() for member in (a, b, c)))
            for number, member in enumerate((a, b, c), 1):
                await member.send(["a", "b"], number)
            await until(lambda: all(counter.sum == 6 for counter in counters))
        shutil.rmtree(tmp_path / "c")
        async with thence.Member(new, name="d", data=tmp_path / "d") as d:
            counters.append(Counter(d, joining=True))
            await applied(old, new, "c")
            for number, member in enumerate((a, b), 10):
                await member.send(["a", "b", "d"], number)
            await until(lambda: all(counter.sum is not None and counter.sum >= 27 for counter in counters))
            assert [counter.sum for counter in counters] == [27, 27, 27]
