"""Many short frames from clients that may do nothing: others are served in between, and nothing piles up."""

from __future__ import annotations

import asyncio
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest

import thence
from tests.integration.running import PATIENCE_S, flat, run, servers, until, url
from tests.integration.securing import Speaker, framed
from thence.runtime import wire
from thence.runtime.node_options import NodeOptions
from thence.runtime.protocol import CONTROL_KIND, PROTOCOL, Acknowledge, ClientHello, Ping, Subscribe, Subscribed
from thence.runtime.server import Server


def short(*said: Any) -> bytes:
    return framed(CONTROL_KIND + msgspec.msgpack.encode(said))


async def enter(address: str, name: str) -> Speaker:
    speaker = await Speaker.call(address)
    speaker.say(ClientHello(PROTOCOL, name))
    await speaker.hear()
    return speaker


def test_those_who_sent_many_frames_have_their_turns_and_others_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that may do nothing sent 80 MiB of subscriptions over 20 connections: one round trip of another took 41 s."""
    frames, many = 200, 20
    monkeypatch.setattr(wire, "FRAMES_PER_TURN", 5)
    turns: list[str] = []

    async def main() -> None:
        topology = flat("s1")
        async with servers(topology) as running:
            crowd = [await enter(topology.addresses["s1"], f"m{at}") for at in range(many)]
            for client in list(running["s1"]._connections):
                heard = client._frame

                def noted(connection: Any, frame: memoryview, heard: Any = heard, name: str = client.name) -> None:
                    turns.append(name)
                    heard(connection, frame)

                client.connection.on_frame = noted
            for speaker in crowd:
                speaker.writer.write(short(4) * frames)  # Pings: they are answered with nothing.
            await until(lambda: len(turns) >= many * frames)
            assert len(turns) == many * frames
            longest = max(len(list(run)) for _, run in groupby(turns))
            assert longest <= frames // 4, "nobody is served all at once while others wait"
            for speaker in crowd:
                speaker.close()

    run(main)


def test_who_asks_again_and_again_what_is_on_disk_is_told_the_last(tmp_path: Path) -> None:
    """77 MiB of such questions wrote a record each, took 3.3 GiB, and the server answered nobody for minutes."""
    asked = 5_000

    async def main() -> None:
        topology = flat("s1")
        server = Server(topology, "s1", NodeOptions(data=tmp_path))
        await server.start()
        try:
            mallory = await enter(topology.addresses["s1"], "mallory")
            written = server.node.store.appended
            mallory.writer.write(b"".join(short(16, 0, at, True) for at in range(asked)))
            async with asyncio.timeout(PATIENCE_S):
                heard, limit = 0, -1
                while limit < asked - 1:
                    said = await mallory.hear()
                    if isinstance(said, Acknowledge):
                        heard, limit = heard + 1, said.limit
            assert heard <= asked
            assert server.node.store.appended == written, "there was nothing to write"
            mallory.close()
        finally:
            await server.stop(drain_s=0)

    run(main)


def test_whoever_ends_what_it_does_not_follow_tells_no_other_server() -> None:
    """A client that may follow nothing could make its server send a message to all others with each frame."""

    async def main() -> None:
        topology = flat("s1")
        async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
            member = running["s1"].node.member
            mallory = await enter(topology.addresses["s1"], "mallory")
            sent = member.last_number
            for _ in range(100):
                mallory.say(Subscribe("news", False))
            for _ in range(100):
                while isinstance(said := await mallory.hear(), Ping):
                    pass
                assert said == Subscribed("news", False)
            assert member.last_number == sent
            mallory.close()
            await ann.subscribe("news")
            await ann.unsubscribe("news")
            assert member.last_number == sent + 2

    run(main)
