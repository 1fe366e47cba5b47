"""Many short frames from clients that may do nothing: others are served in between, and nothing piles up."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest

import thence
from tests.support.servers.running import PATIENCE_S, flat, servers, until, url
from tests.support.servers.securing import Speaker, framed
from thence.net import framing
from thence.net.protocol import CONTROL_KIND, PROTOCOL, Acknowledge, ClientHello, Ping, Subscribe, Subscribed
from thence.node.options import NodeOptions
from thence.node.sessions.in_flight import FEW_WAITING
from thence.node.sessions.session import Session
from thence.server import churn
from thence.server.chatter import BURST_POINTS, IDLE_POINTS
from thence.server.server import Server


def short(*said: Any) -> bytes:
    return framed(CONTROL_KIND + msgspec.msgpack.encode(said))


def waits(session: Session) -> bool:
    return session.waiting > FEW_WAITING


async def enter(address: str, name: str) -> Speaker:
    speaker = await Speaker.call(address)
    speaker.say(ClientHello(PROTOCOL, name))
    await speaker.hear()
    return speaker


async def test_those_who_sent_many_frames_have_their_turns_and_others_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that may do nothing sent 80 MiB of subscriptions over 20 connections: one round trip of another took 41 s."""
    frames, many = 200, 20
    monkeypatch.setattr(framing, "FRAMES_PER_TURN", 5)
    turns: list[str] = []
    topology = flat("s1")
    async with servers(topology) as running:
        crowd = [await enter(topology.addresses["s1"], f"m{at}") for at in range(many)]
        for client in list(running["s1"].clients.all):
            heard = client.connection.on_frame

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


async def test_whoever_says_without_end_what_moves_nothing_is_slowed_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """It made a server as busy as it can be: others had a third of their pace."""
    asked = 2 * BURST_POINTS // IDLE_POINTS
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        mallory = await enter(topology.addresses["s1"], "mallory")
        (connection,) = [client.connection for client in running["s1"].clients.all if client.name == "mallory"]
        mallory.writer.write(short(4) * asked)
        await until(lambda: connection.paused)
        assert connection.frames_in < asked
        await until(lambda: any("client 'mallory': slowed: " in record.getMessage() for record in caplog.records))
        for number in range(1_000):
            ann.post("ann", b"%d" % number)
            await ann.send("ann", b"and")
        mallory.close()
    assert not any("'ann'" in record.getMessage() for record in caplog.records), "who sends messages is never slowed"


async def test_who_follows_and_leaves_without_end_is_slowed_and_who_follows_many_topics_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each time it was a message to all servers: 20 such clients left others 0.6 of their rate."""
    monkeypatch.setattr(churn, "CHURN_PER_S", 0.001)  # No more than the first ones.
    many = 2 * churn.CHURN_BURST
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        for name in ("mallory", "eve", "mallory"):  # The last one comes anew.
            speaker = await enter(topology.addresses["s1"], name)
            speaker.writer.write(b"".join(short(17, "t", wanted) for _ in range(many) for wanted in (True, False)))
            session = running["s1"].clients.here[name].session
            assert session is not None
            await until(partial(waits, session))
            assert f"client {name!r}: slowed: it follows and leaves topics" in caplog.text
            speaker.close()
        assert running["s1"].node.driver.steps <= 2 * churn.CHURN_BURST + 20, "another name or connection gets no more"
        await asyncio.gather(*(ann.subscribe(f"t{at}") for at in range(3_000)))
        assert len(running["s1"].node.directory.subscriptions.topics_of("ann")) == 3_000
        assert "'ann'" not in caplog.text


async def test_who_asks_again_and_again_what_is_on_disk_is_told_the_last(tmp_path: Path) -> None:
    """77 MiB of such questions wrote a record each, took 3.3 GiB, and the server answered nobody for minutes."""
    asked = 5_000
    topology = flat("s1")
    server = Server(topology, "s1", NodeOptions(data=tmp_path))
    await server.start()
    try:
        mallory = await enter(topology.addresses["s1"], "mallory")
        written = server.node.driver.store.appended
        mallory.writer.write(b"".join(short(16, 0, at, True) for at in range(asked)))
        async with asyncio.timeout(PATIENCE_S):
            heard, limit = 0, -1
            while limit < asked - 1:
                said = await mallory.hear()
                if isinstance(said, Acknowledge):
                    heard, limit = heard + 1, said.limit
        assert heard <= asked
        assert server.node.driver.store.appended == written, "there was nothing to write"
        mallory.close()
    finally:
        await server.stop(drain_s=0)


async def test_whoever_ends_what_it_does_not_follow_tells_no_other_server() -> None:
    """A client that may follow nothing could make its server send a message to all others with each frame."""
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        member = running["s1"].node.member
        mallory = await enter(topology.addresses["s1"], "mallory")
        sent = member.forwarder.number
        for _ in range(100):
            mallory.say(Subscribe("news", False))
        for _ in range(100):
            while isinstance(said := await mallory.hear(), Ping):
                pass
            assert said == Subscribed("news", False)
        assert member.forwarder.number == sent
        mallory.close()
        await ann.subscribe("news")
        await ann.unsubscribe("news")
        assert member.forwarder.number == sent + 2
