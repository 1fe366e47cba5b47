"""Running servers with ``forward_early``: a body is ahead of its message when a server is killed. Row D7, daisy §3.4 (i).

x, y and s are a group, s and v another one. What x writes does not reach s; what y writes after it does, so that s holds it, and
sends its body ahead to v. Then s, which holds the message, or v, which holds the body, is killed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import thence
from tests.integration.faults.test_faults import proxied
from tests.support.servers.running import PreparedFleet, addressed, assert_kept, started, until, url
from thence.cli.servers.up import Fleet
from thence.core.topology.model import Topology
from thence.core.topology.toml import write
from thence.net.proxy import Mode, Proxy
from thence.server.server import Server

CHAIN: Final = """
name = "chain"
[domains.near]
members = ["x", "y", "s"]
ordering = "vector"
forward_early = 10000
[domains.far]
members = ["s", "v"]
ordering = "vector"
"""
LONG: Final = b"long" * 10_000
KILLED: Final = ("s", "v")


class Chain(NamedTuple):
    """The fabric: one server is a process that can be killed, and between x and s there are proxies."""

    topology: Topology
    fleet: Fleet
    others: dict[str, Server]
    proxies: list[Proxy]

    def cut(self, mode: Mode) -> None:
        """Cut x off from s, or join them again."""
        for proxy in self.proxies:
            proxy.set_mode(mode)


@asynccontextmanager
async def chain(killed: str, folder: Path) -> AsyncIterator[Chain]:
    """Run the fabric, one server as a process."""
    topology = addressed(CHAIN)
    async with AsyncExitStack() as stack:
        proxies = {name: await proxied(topology, name) for name in ("x", "s")}
        for proxy in proxies.values():
            stack.push_async_callback(proxy.close)
        sees = {"x": topology.at({**topology.addresses, "s": proxies["s"].address})}
        sees["s"] = topology.at({**topology.addresses, "x": proxies["x"].address})
        (folder / "topology.toml").write_text(write(sees.get(killed, topology)), encoding="utf-8")
        fleet = PreparedFleet(topology, folder, trace=folder / "trace")
        stack.callback(fleet.stop)
        fleet.start_one(killed)
        others: dict[str, Server] = {}
        for name in topology.processes:
            if name != killed:
                others[name] = server = await started(sees.get(name, topology), name, folder, folder / "trace")
                stack.push_async_callback(server.stop, drain_s=0)
        for server in others.values():
            await server.node.peers.wait_connected()
        yield Chain(topology, fleet, others, list(proxies.values()))


def ahead(run: Chain) -> Callable[[], bool]:
    """Return a question: has a body gone ahead to v, as s sees it or v does."""
    if "v" in run.others:
        return lambda: run.others["v"].node.member.attachment.domains["far"].bodies.kept() == 1
    return lambda: bool(run.others["s"].node.member.attachment.domains["far"].bodies.sent.get("v"))


@pytest.mark.parametrize("killed", KILLED, ids=["the one that holds the message", "the one that has the body"])
async def test_d7_with_a_body_ahead_a_server_is_killed_and_nothing_is_lost_or_comes_twice(killed: str, tmp_path: Path) -> None:
    async with (
        chain(killed, tmp_path) as run,
        thence.connect(url(run.topology, "x"), "ann") as ann,
        thence.connect(url(run.topology, "y"), "bob") as bob,
        thence.connect(url(run.topology, "v"), "dan") as dan,
    ):
        for name in ("bob", "dan"):
            await ann.known(name)
        await bob.known("dan")
        run.cut(Mode.CUT)
        await ann.send(["bob", "dan"], b"question")
        await bob.receive(30.0)
        await bob.send("dan", LONG)
        await until(ahead(run))
        run.fleet.kill(killed)
        run.fleet.start_one(killed)
        with pytest.raises(TimeoutError):
            await dan.receive(2.0)
        run.cut(Mode.WELL)
        assert [(await dan.receive(60.0)).body for _ in range(2)] == [b"question", LONG]
        await ann.send("dan", b"last")
        assert (await dan.receive(60.0)).body == b"last"
    assert_kept(tmp_path / "trace", sends=3)
