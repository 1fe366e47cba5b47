"""Running fabrics of which a part changes: clients outside go on while others hold, and while a server that holds is killed."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

import thence
from benchmarks import outside
from tests.support.campaigns.evolving_load import following, load, written
from tests.support.servers.leading import asked, phases, stopped_at
from tests.support.servers.running import addressed, assert_kept, fleet, run, servers, url, wait_for_server
from thence.cli.servers.up import free_addresses
from thence.core.reconfig.concern import concerned_by
from thence.core.topology.model import Topology
from thence.core.topology.toml import write
from thence.net.protocol import ViewRequest
from thence.server.apply import Access, TopologyChange

NAMES = ("l1", "l2", "s", "r1", "r2")
OUTSIDE = ("r1", "r2")
TEXT = """
name = "two"
domains.left = { members = ["l1", "l2", "s"], ordering = "matrix" }
domains.right = { members = ["s", "r1", "r2"], ordering = "matrix" }
"""


def fabric() -> Topology:
    """Return two domains with a relay between."""
    return addressed(TEXT)


def split(old: Topology) -> Topology:
    """Return the version in which the left one is two."""
    return following(old, {"left": ("l1", "s"), "far": ("l1", "l2"), "right": ("s", "r1", "r2")})


async def told(topology: Topology, request: ViewRequest, names: tuple[str, ...] = NAMES) -> None:
    """Ask these for something, which none of them may refuse."""
    for name in names:
        assert not (await asked(topology, name, request)).refused


@pytest.mark.parametrize("finished", [True, False])
async def test_clients_outside_are_accepted_and_served_while_others_hold(finished: bool, tmp_path: Path) -> None:
    old = fabric()
    new = split(old)
    assert concerned_by(old, new) == ("l1", "l2", "s")
    async with (
        servers(old, tmp_path) as running,
        thence.connect(url(old, "r1"), "ann") as ann,
        thence.connect(url(old, "r2"), "bob") as bob,
        thence.connect(url(old, "l2"), "cyd") as cyd,
    ):
        await ann.known("cyd")
        await cyd.known("bob")
        await told(old, ViewRequest("hold", 1, write(new), limited=True))
        await ann.send(("bob", "cyd"), b"while others hold")
        assert (await bob.receive()).body == b"while others hold"
        await cyd.send("bob", b"waits")
        await told(old, ViewRequest("prepare", 1))
        await ann.send("bob", b"while they are prepared")
        assert (await bob.receive()).body == b"while they are prepared"
        changes = {name: server.status.report()["change"] for name, server in running.items()}
        assert {name: change["waiting_submissions"] for name, change in changes.items() if change["paused_ms"]} == {
            "l1": 0,
            "l2": 1,
            "s": 0,
        }
        if finished:
            await told(old, ViewRequest("switch", 1), ("l1",))  # The others hear of it from their peers.
        else:  # As if another one had left before: nobody was asked to switch.
            await told(old, ViewRequest("resume", 1, dead=True))
        assert [(await cyd.receive()).body, (await bob.receive()).body] == [b"while others hold", b"waits"]
        assert {server.node.topology.version for server in running.values()} == {2 if finished else 1}
        await bob.send("cyd", b"afterwards")
        assert (await cyd.receive()).body == b"afterwards"


async def test_a_part_changes_under_load(tmp_path: Path) -> None:
    old = fabric()
    new = split(old)
    back = following(new, {"left": ("l1", "l2", "s"), "right": ("s", "r1", "r2")})
    async with servers(old, tmp_path, tmp_path / "trace") as running, load(old, NAMES) as clients:
        for before, after in ((old, new), (new, back)):
            await clients.more()
            done = await TopologyChange(before, after, Access(), lambda _: None).apply(60)
            assert {name for name, paused in done.paused_ms.items() if not paused} == set(OUTSIDE)
        await clients.more()
        assert {server.node.topology.version for server in running.values()} == {3}
        await clients.finish()
    assert_kept(tmp_path / "trace", sends=5 * 60)


def test_clients_outside_go_on_while_one_that_holds_is_killed(tmp_path: Path) -> None:
    """kill -9 of the relay while all hold; what comes to it from outside waits at its border, also after the restart."""
    with fleet(fabric(), tmp_path, tmp_path / "trace") as running:
        old = running.topology
        new = split(old)

        async def main() -> None:
            async with (
                thence.connect(url(old, "r1"), "ann") as ann,
                thence.connect(url(old, "r2"), "bob") as bob,
                thence.connect(url(old, "l2"), "cyd", connect_timeout=60) as cyd,
            ):
                await ann.known("cyd")
                leading = await asyncio.to_thread(stopped_at, "all hold (", new, tmp_path)
                assert await phases(old, ("l1", "l2", "s")) == {(1, "holding")}
                await talk(ann, bob, 3)
                running.kill("s")
                await talk(ann, bob, 3)
                await ann.send("cyd", b"crosses")
                running.start_one("s")
                await asyncio.to_thread(wait_for_server, old, "s")
                await talk(ann, bob, 3)
                leading.send_signal(signal.SIGCONT)
                assert await asyncio.to_thread(leading.wait, 60) == 0
                assert (await cyd.receive(within=60)).body == b"crosses"
                await talk(ann, bob, 3)

        run(main)
        assert [wait_for_server(new, name)["version"] for name in NAMES] == [2] * 5
    assert_kept(tmp_path / "trace", sends=13)


async def talk(ann: thence.Client, bob: thence.Client, messages: int) -> None:
    """Let one send to the other, who gets each before the next one goes out."""
    for number in range(messages):
        await ann.send("bob", str(number).encode())
        assert (await bob.receive()).body == str(number).encode()


def test_a_server_outside_may_be_down_and_hears_of_two_changes_from_its_peers(tmp_path: Path) -> None:
    with fleet(fabric(), tmp_path, tmp_path / "trace") as running:
        old = running.topology
        new = split(old)
        back = following(new, {"left": ("l1", "l2", "s"), "right": ("s", "r1", "r2")})

        async def main() -> None:
            async with (
                thence.connect(url(old, "r1"), "ann", connect_timeout=60) as ann,
                thence.connect(url(old, "r2"), "bob", connect_timeout=60) as bob,
            ):
                await ann.known("bob")
                running.kill("r2")
                told: list[str] = []
                for before, after in ((old, new), (new, back)):
                    await TopologyChange(before, after, Access(), told.append).apply(60)
                    await ann.send("bob", b"m")
                assert told.count("left out: r2; version 2 reaches it from its peers when it is back") == 1
                running.start_one("r2")
                assert [(await bob.receive(within=60)).body for _ in range(2)] == [b"m", b"m"]

        run(main)
        assert [wait_for_server(old, name)["version"] for name in NAMES] == [3] * 5
    assert_kept(tmp_path / "trace", sends=2)


def test_a_server_joins_while_one_that_holds_is_killed_and_one_outside_is_down(tmp_path: Path) -> None:
    """Clients outside go on; what they sent to everyone before is not for who joins; it knows all clients in the end."""
    with fleet(fabric(), tmp_path, tmp_path / "trace") as running:
        old = running.topology
        domains = {"left": ("l1", "l2", "l3", "s"), "right": ("s", "r1", "r2")}
        new = following(old, domains, l3=free_addresses(1)[0])
        assert concerned_by(old, new) == ("l1", "l2", "s")
        running.start_one("l3", written(new, tmp_path))

        async def main() -> None:
            async with (
                thence.connect(url(old, "r1"), "ann") as ann,
                thence.connect(url(old, "r1"), "bob") as bob,
                thence.connect(url(old, "l2"), "cyd", connect_timeout=60) as cyd,
                thence.connect(url(old, "r2"), "dan", connect_timeout=60) as dan,
                thence.connect(url(new, "l3"), "eve", connect_timeout=60) as eve,
            ):
                await ann.known("cyd")
                running.kill("r2")
                leading = await asyncio.to_thread(stopped_at, "all hold (", new, tmp_path)
                assert await phases(old, ("l1", "l2", "s", "r1")) == {(1, "holding")}
                await talk(ann, bob, 3)
                running.kill("s")
                await ann.send(thence.EVERYONE, b"to all of the first version")
                assert {(await one.receive()).body for one in (ann, bob)} == {b"to all of the first version"}
                await talk(ann, bob, 3)
                running.start_one("s")
                leading.send_signal(signal.SIGCONT)
                assert await asyncio.to_thread(leading.wait, 60) == 0
                assert (await cyd.receive(within=60)).body == b"to all of the first version"
                await eve.known("ann")
                await ann.known("eve")
                await ann.send("eve", b"by name")
                assert (await eve.receive(within=60)).body == b"by name"
                running.start_one("r2")
                await eve.known("dan")
                await eve.send("dan", b"welcome back")
                found = [(await dan.receive(within=60)).body for _ in range(2)]
                assert found == [b"to all of the first version", b"welcome back"]

        run(main)
        assert [wait_for_server(new, name)["version"] for name in (*NAMES, "l3")] == [2] * 6
    assert_kept(tmp_path / "trace", sends=9)


def test_d3_clients_of_a_daisy_with_standbys_outside_of_a_split_are_served_all_the_while() -> None:
    """D3, §3.1.1: only the group that splits holds, its causal server and the standby too, while one of it is killed."""
    seen = outside.measure()
    assert seen.paused == ("l1", "l2", "l3", "s", "t")
    assert seen.numbers == list(range(len(seen.numbers)))
    assert len(seen.numbers) > 10
