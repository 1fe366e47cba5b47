"""Uniform delivery across systems, with real servers: one system is cut off, a relay is killed, and nobody is told too early.

Row I6 of interconnect, §7.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import thence
from tests.integration.faults.test_faults import proxied
from tests.support.servers.running import addressed, assert_kept, fleet, run, started, url, wait_for_server
from thence.core.topology.model import Topology
from thence.net.proxy import Mode, Proxy
from thence.server.server import Server
from thence.trace.files import read_trace
from thence.trace.judge import judge

SYSTEMS = """
name = "systems"
[domains.S0]
members = ["a", "b"]
delivery = "{delivery}"
[domains.S1]
members = ["c", "d"]
delivery = "{delivery}"
[[links]]
between = ["S0", "S1"]
relays = [["b", "c"]]
"""

PARALLEL = """
name = "parallel"
[domains.S0]
members = ["a", "b", "e"]
delivery = "{delivery}"
[domains.S1]
members = ["c", "d", "f"]
delivery = "{delivery}"
[[links]]
between = ["S0", "S1"]
relays = [["b", "c"], ["e", "f"]]
"""
"""Two parallel links: b and c are the sequencers, e and f carry every second message."""

ENDS = """
name = "ends"
[domains.S0]
members = ["a", "b", "r1", "r2"]
delivery = "{delivery}"
[domains.S1]
members = ["c", "d", "t1", "t2"]
delivery = "{delivery}"
"""

TAKEN_OVER = (
    ENDS
    + """
[[links]]
between = ["S0", "S1"]
relays = [["r1", "t1"], ["r2", "t2"]]
takeover = true
"""
)

REPLICAS = (
    ENDS
    + """
[domains.between]
members = ["r1", "r2", "t1", "t2"]
[[relays]]
replicas = ["r1", "r2"]
[[relays]]
replicas = ["t1", "t2"]
"""
)

ALONE = """
name = "alone"
[domains.S0]
members = ["a", "b"]
delivery = "safe"
"""

REQUIRED = ("well-formed", "creation", "duplication")

SENDS, LAST_BEFORE = 20, 10
"""How many messages are sent, and the number of the last one before the kill."""


class Cut:
    """The proxies on the link between two systems."""

    def __init__(self, *proxies: Proxy) -> None:
        self._proxies = proxies

    def set_mode(self, mode: Mode) -> None:
        for proxy in self._proxies:
            proxy.set_mode(mode)


@asynccontextmanager
async def two_systems(delivery: str) -> AsyncIterator[tuple[Topology, dict[str, Server], Cut]]:
    """Run two systems; the link between them goes through proxies."""
    topology = addressed(SYSTEMS.format(delivery=delivery))
    proxies = {name: await proxied(topology, name) for name in ("b", "c")}
    sees = {"b": topology.at({**topology.addresses, "c": proxies["c"].address})}
    sees["c"] = topology.at({**topology.addresses, "b": proxies["b"].address})
    running: dict[str, Server] = {}
    try:
        for name in topology.processes:
            running[name] = await started(sees.get(name, topology), name)
        for server in running.values():
            await server.node.peers.wait_connected()
        yield topology, running, Cut(*proxies.values())
    finally:
        for server in running.values():
            await server.stop(drain_s=0)
        for proxy in proxies.values():
            await proxy.close()


@asynccontextmanager
async def sent_into_the_cut(delivery: str) -> AsyncIterator[tuple[thence.Client, thence.Client, Cut]]:
    """Cut one system off and send a message to Bob on the near side and Dan on the far one."""
    async with (
        two_systems(delivery) as (topology, _, cut),
        thence.connect(url(topology, "a"), "ann") as ann,
        thence.connect(url(topology, "b"), "bob") as bob,
        thence.connect(url(topology, "d"), "dan") as dan,
    ):
        for name in ("ann", "bob", "dan"):
            await ann.known(name)
        cut.set_mode(Mode.CUT)
        await ann.send(["bob", "dan"], b"one")
        yield bob, dan, cut


async def test_i6_with_one_system_cut_off_nobody_is_told_and_everybody_is_when_the_cut_heals() -> None:
    async with sent_into_the_cut("notify") as (bob, dan, cut):
        one = await bob.receive(30.0)
        waiting = asyncio.create_task(one.safe())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 2.0)
        cut.set_mode(Mode.WELL)
        assert (await dan.receive(30.0)).body == b"one"
        await waiting


async def test_i6_with_one_system_cut_off_nobody_delivers_until_the_cut_heals() -> None:
    async with sent_into_the_cut("safe") as (bob, dan, cut):
        with pytest.raises(TimeoutError):
            await bob.receive(2.0)
        cut.set_mode(Mode.WELL)
        assert (await bob.receive(30.0)).body == (await dan.receive(30.0)).body == b"one"


async def until_nothing_comes(client: thence.Client) -> list[int]:
    """Return the numbers of what a client gets, until nothing has come for a second."""
    numbers: list[int] = []
    with suppress(TimeoutError):
        while True:
            numbers.append(int((await client.receive(1.0)).body))
    return numbers


@pytest.mark.parametrize(
    ("text", "killed", "delivery"),
    [
        (SYSTEMS, "b", "notify"),
        (SYSTEMS, "c", "notify"),
        (PARALLEL, "e", "notify"),
        (PARALLEL, "f", "notify"),
        (SYSTEMS, "b", "safe"),
        (SYSTEMS, "c", "safe"),
        (PARALLEL, "c", "safe"),
        (PARALLEL, "f", "safe"),
    ],
)
def test_i6_a_relay_that_is_killed_is_waited_for_and_nothing_is_lost_or_comes_twice(
    text: str, killed: str, delivery: str, tmp_path: Path
) -> None:
    """I6, §7: kill -9. What was sent after it nobody delivers, or is told to be safe, before the relay is back."""
    topology = addressed(text.format(delivery=delivery))
    with fleet(topology, tmp_path, trace=tmp_path / "trace") as running:

        async def main() -> None:
            async with (
                thence.connect(url(running.topology, "a"), "ann") as ann,
                thence.connect(url(running.topology, "d"), "dan") as dan,
            ):
                await ann.known("dan")
                for number in range(SENDS):
                    await ann.send(["ann", "dan"], b"%d" % number)
                    if number == LAST_BEFORE:
                        running.kill(killed)
                if delivery == "safe":
                    early = await until_nothing_comes(ann)
                    assert early == list(range(len(early)))
                    assert len(early) <= LAST_BEFORE + 1
                    running.start_one(killed)
                    ours = [int((await ann.receive(60.0)).body) for _ in range(SENDS - len(early))]
                    assert early + ours == list(range(SENDS))
                else:
                    last = [await ann.receive(30.0) for _ in range(SENDS)][-1]
                    waiting = asyncio.create_task(last.safe())
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(asyncio.shield(waiting), 1.0)
                    running.start_one(killed)
                    await waiting
                assert [int((await dan.receive(60.0)).body) for _ in range(SENDS)] == list(range(SENDS))

        run(main)
        wait_for_server(running.topology, killed)
    assert_kept(tmp_path / "trace", sends=SENDS)


@pytest.mark.parametrize(
    ("text", "killed", "delivery"),
    [
        (TAKEN_OVER, "r1", "notify"),
        (TAKEN_OVER, "t1", "safe"),
        (REPLICAS, "t1", "notify"),
        (REPLICAS, "r1", "safe"),
    ],
    ids=["a link, forwards", "a link, receives", "replicas, receives", "replicas, forwards"],
)
def test_i6_a_relay_that_is_killed_for_good_is_taken_over_and_all_are_told(
    text: str, killed: str, delivery: str, tmp_path: Path
) -> None:
    """I6, §7: kill -9, and the relay never comes back. First a process beyond is away too, and nobody is told or delivers."""
    topology = addressed(text.format(delivery=delivery))
    with fleet(topology, tmp_path, trace=tmp_path / "trace") as running:

        async def main() -> None:
            async with (
                thence.connect(url(running.topology, "a"), "ann") as ann,
                thence.connect(url(running.topology, "d"), "dan") as dan,
            ):
                await ann.known("dan")
                running.kill("c")
                for number in range(SENDS):
                    await ann.send(thence.EVERYONE if number % 2 else ["ann", "dan"], b"%d" % number)
                    if number == LAST_BEFORE:
                        running.kill(killed)
                if delivery == "safe":
                    early = await until_nothing_comes(ann)
                    assert not early, "here all members get every message, so c is waited for"
                    running.start_one("c")
                    ours = [int((await ann.receive(60.0)).body) for _ in range(SENDS - len(early))]
                    assert early + ours == list(range(SENDS))
                else:
                    last = [await ann.receive(30.0) for _ in range(SENDS)][-1]
                    waiting = asyncio.create_task(last.safe())
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(asyncio.shield(waiting), 2.0)
                    running.start_one("c")
                    await waiting
                assert [int((await dan.receive(60.0)).body) for _ in range(SENDS)] == list(range(SENDS))

        run(main)
    verdict = judge(read_trace(tmp_path / "trace"), REQUIRED)  # What others wait for when the fabric stops is no loss.
    assert not verdict.violations, verdict.violations[:5]
    assert verdict.events > SENDS


def test_a_server_that_starts_again_alone_knows_what_was_safe(tmp_path: Path) -> None:
    """What is safe it has to be told again, and nobody is there. Its clients have got messages, sent some and been away since."""
    topology = addressed(ALONE)
    with fleet(topology, tmp_path) as running:

        async def main() -> None:
            async with thence.connect(url(topology, "a"), "bob") as bob:
                async with thence.connect(url(topology, "a"), "ann") as ann:
                    for number in range(3):
                        await bob.send("ann", number)
                        assert (await ann.receive(30.0)).value(int) == number
                running.kill("a")
                running.kill("b")
                running.start_one("a")
                async with asyncio.timeout(30.0):
                    await bob.send("ann", 3)
                async with thence.connect(url(topology, "a"), "ann") as ann:
                    running.start_one("b")
                    assert (await ann.receive(30.0)).value(int) == 3, "what ann has done comes again"

        run(main)
