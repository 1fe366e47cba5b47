"""A server that restarts while one peer cannot hear it goes on with that one, though others have repeated its frames."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import thence
from tests.support.servers.running import addressed, until, url
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse, write
from thence.net.protocol import ViewAnswer, ViewRequest
from thence.net.proxy import Mode
from thence.node.options import NodeOptions
from thence.server.proxied_lines import Lines
from thence.server.server import Server

PLAIN = """
name = "repeating"
version = 1
[domains.D]
members = ["s1", "s2", "s3"]
ordering = "vector"
"""
REPEATING = PLAIN + 'confirmation = { scheme = "distributed", retransmission = "nearest", whole = true }'


class Fabric:
    """Three servers, and the lines between them."""

    def __init__(self, text: str, data: Path) -> None:
        self.topology = addressed(text)
        self.lines = Lines(self.topology, Random(1))
        self.running: dict[str, Server] = {}
        self._data = data

    async def start(self, name: str) -> None:
        server = Server(self.lines.seen_by(name), name, NodeOptions(data=self._data / name))
        await server.start()
        self.running[name] = server

    async def restart_unheard(self) -> None:
        """Start s1 again, and from now on s2 and s1 do not hear each other."""
        self.lines.proxies["s1", "s2"].set_mode(Mode.CUT)
        await self.running["s1"].stop(drain_s=0)
        await self.start("s1")

    def change(self, action: str, text: str = "") -> None:
        """Lead all servers a step further to another topology."""
        for name, server in self.running.items():
            answers: list[ViewAnswer] = []
            seen = parse(text.replace("version = 1", "version = 2")).at(self.lines.seen_by(name).addresses) if text else None
            request = ViewRequest(action, 1, write(seen) if seen else "")  # type: ignore[arg-type]
            server.node.reconfiguration.request(request, answers.append)
            assert not any(answer.refused for answer in answers)

    async def expect_connected(self) -> None:
        """Let s1 and s2 hear each other again: they go on."""
        self.lines.proxies["s1", "s2"].set_mode(Mode.WELL)
        peer = self.running["s1"].node.peers.peers["s2"]
        await until(lambda: peer.up or peer.behind != "nobody")
        assert not peer.trouble
        assert not self.running["s1"].node.peers.epochs.fenced


@asynccontextmanager
async def fabric(text: str, data: Path) -> AsyncIterator[Fabric]:
    made = Fabric(text, data)
    await made.lines.start()
    try:
        for name in made.topology.processes:
            await made.start(name)
        yield made
    finally:
        for server in made.running.values():
            await server.stop(drain_s=0)
        await made.lines.close()


async def send_one(topology: Topology, got: list[int]) -> None:
    async with thence.connect(url(topology, "s1"), "ann") as ann:
        await ann.known("bob")
        await ann.send("bob", 1)
        await until(lambda: got == [1])


async def send_more(topology: Topology, got: list[int], made: Fabric) -> None:
    """Let what s1 sends come to s2 by way of s3; then both hear each other again."""
    async with thence.connect(url(topology, "s1"), "ann") as ann:
        for number in range(2, 8):
            await ann.send("bob", number)
        await until(lambda: got == list(range(1, 8)))
        await made.expect_connected()
        await ann.send("bob", 8)
        await until(lambda: got == list(range(1, 9)))


async def test_frames_that_others_repeated_do_not_make_a_server_an_old_copy(tmp_path: Path) -> None:
    """What the peer has of it came in another way than over their connection, so their epoch says nothing of it."""
    got: list[int] = []
    async with fabric(REPEATING, tmp_path) as made, thence.connect(url(made.topology, "s2"), "bob") as bob:
        bob.on_message(lambda message: got.append(message.value(int)))
        await send_one(made.topology, got)
        await made.restart_unheard()
        await send_more(made.topology, got, made)


async def test_a_start_before_others_began_to_repeat_says_nothing_of_what_is_sent_since(tmp_path: Path) -> None:
    """Numbers begin anew with each topology, and so does what a server can have sent."""
    got: list[int] = []
    async with fabric(PLAIN, tmp_path) as made, thence.connect(url(made.topology, "s2"), "bob") as bob:
        bob.on_message(lambda message: got.append(message.value(int)))
        await send_one(made.topology, got)
        made.change("hold", REPEATING)
        made.change("prepare")
        await made.restart_unheard()
        made.change("switch")
        await send_more(made.topology, got, made)


async def test_what_was_sent_before_a_change_is_not_within_reach_behind_it(tmp_path: Path) -> None:
    """Otherwise a program that goes on in an older state would be believed, until it has sent as much as it did before."""
    got: list[int] = []
    async with fabric(PLAIN, tmp_path) as made, thence.connect(url(made.topology, "s2"), "bob") as bob:
        bob.on_message(lambda message: got.append(message.value(int)))
        await send_one(made.topology, got)
        made.change("hold", PLAIN)
        made.change("prepare")
        made.change("switch")
        peer = made.running["s1"].node.peers.peers
        await until(lambda: peer is not made.running["s1"].node.peers.peers)
        assert made.running["s1"].node.peers.epochs.introduction("s2").claim.agreed.reach == {"D": 0}
        await made.expect_connected()
