"""What one weak client can make a server spend, or others wait: little, and it is told why."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import thence
from examples.bank import Account
from tests.integration.security.test_hostile import complained
from tests.support.campaigns.hostile import QUICK_RATE, Options, replay, run_once
from tests.support.servers.running import PATIENCE_S, flat, servers, until, url
from tests.support.servers.securing import Speaker, framed
from thence.agents.kinds import kinds_of
from thence.errors import MalformedFrame
from thence.net import byte_pool
from thence.net.framing import MAX_WRITE_BUFFER
from thence.net.protocol import PROTOCOL, BatchItem, ClientHello, Publish, StatusAnswer, StatusQuestion, write_messages
from thence.node import node as node_module
from thence.node.options import NodeOptions
from thence.server import status
from thence.server.server import Server
from thence.storage import mailbox as mailbox_module


async def test_a_body_nested_too_deeply_stops_no_reader_whatever_it_is() -> None:
    """A client, an embedded member, an agent and whoever looks at what it could not do: each goes on behind it."""
    deep = BatchItem(b"\x91" * 100_000 + b"\xc0", coded=True)
    topology = flat("s1", "b")
    server = Server(topology, "s1", NodeOptions(), kinds_of([Account]))
    await server.start()
    try:
        async with (
            thence.Member(topology, name="b") as member,
            thence.connect(url(topology, "s1"), "ann") as ann,
        ):
            await ann.agents.create("till", "Account")
            await ann.known("b")
            mallory = await Speaker.call(topology.addresses["s1"])
            mallory.say(ClientHello(PROTOCOL, "mallory"))
            for number, to in enumerate(("ann", "b", "till"), start=1):
                mallory.say(Publish(number, 1, (to,), None, write_messages([deep])))
            for reader in (ann, member):
                poison = await reader.receive(within=PATIENCE_S)
                with pytest.raises(MalformedFrame, match="a message from 'mallory' is no"):
                    poison.value()
                await ann.send(reader.name, b"behind")
                assert (await reader.receive(within=PATIENCE_S)).body == b"behind"
            async with asyncio.timeout(30):
                while not (dead := await ann.agents.dead()):  # noqa: ASYNC110  A dead message tells nobody.
                    await asyncio.sleep(0.05)
            assert (await ann.agents.dead_letter(dead[0]["number"]))["agent"] == "till"
            mallory.close()
    finally:
        await server.stop(drain_s=0)


async def test_batches_that_only_claim_their_messages_fill_no_mailbox(caplog: pytest.LogCaptureFixture) -> None:
    """316 bytes stopped a server for everybody."""
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        async with thence.connect(url(topology, "s1"), "away", temporary=False):
            pass
        mallory = await Speaker.call(topology.addresses["s1"])
        mallory.say(ClientHello(PROTOCOL, "mallory"))
        await mallory.hear()
        for at in range(10):
            mallory.say(Publish(1 + 131_072 * at, 131_072, ("away",), None, b"\xdd\x00\x02\x00\x00"))
        assert await mallory.ended()
        mallory.close()
        await ann.send("away", b"behind")
        directory = running["s1"].node.directory
        assert (directory.state.mailboxes["away"].position, directory.mailboxes.full) == (1, "")
    assert complained(caplog, "client 'mallory': messages 1 to 131072 of 'mallory' cannot be, or are not there")


async def test_questions_in_advance_cost_others_nothing_and_the_server_little() -> None:
    """30 KB of questions took 2 GB, and everybody waited for 7.5 s."""
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        server = running["s1"]
        for number in range(5_000):
            server.node.directory.subscriptions.follow("ann", f"topic {number}")
        mallory = await Speaker.call(topology.addresses["s1"])
        mallory.say(ClientHello(PROTOCOL, ""))
        await mallory.hear()
        (connection,) = [client.connection for client in server.clients.all if not client.name]
        for _ in range(2_000):
            mallory.say(StatusQuestion())
        longest = 0.0
        for number in range(200):
            begun = asyncio.get_running_loop().time()
            await ann.send("ann", b"%d" % number)
            await ann.receive()
            longest = max(longest, asyncio.get_running_loop().time() - begun)
            assert connection.writer.unsent_bytes <= MAX_WRITE_BUFFER + 200_000
        assert connection.paused, "it has not read all questions yet"
        assert longest < 1.0, longest
        assert isinstance(await mallory.hear(), StatusAnswer)
        mallory.close()


async def test_a_status_lists_so_many_clients_and_topics_and_says_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MAX_LISTED", 3)
    topology = flat("s1")
    async with servers(topology):
        for number in range(4):
            async with thence.connect(url(topology, "s1"), f"away {number}", temporary=False) as away:
                await away.subscribe(f"topic {number}")
        async with thence.connect(url(topology, "s1"), "here") as here:
            told = await here.status()
    assert [client["name"] for client in told["clients"]] == ["here", "away 0", "away 1"]
    assert (told["clients_count"], len(told["topics"]), told["topics_count"]) == (5, 3, 4)


HALF_A_FRAME = framed(b"x" * (8 * 1024 * 1024))[: 4 * 1024 * 1024]


async def test_frames_that_never_end_take_no_more_than_clients_may_have_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of many sends half of a long frame, and nothing more. Whoever holds most is shown out, until others can go on."""
    monkeypatch.setattr(byte_pool, "ROOM_TIMEOUT_S", 0.5)
    monkeypatch.setattr(node_module, "LOOK_EVERY_S", 0.1)
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        server = running["s1"]
        shared = server.node.memory.pools.clients
        shared.limit = 32 * 1024 * 1024
        speakers = []
        for number in range(12):
            mallory = await Speaker.call(topology.addresses["s1"])
            mallory.say(ClientHello(PROTOCOL, f"mallory {number}"))
            await mallory.hear()
            mallory.writer.write(HALF_A_FRAME)
            speakers.append(mallory)
        most = 0
        for number in range(100):
            body = b"%d" % number + bytes(200_000)
            await ann.send("ann", body)
            assert (await ann.receive(within=PATIENCE_S)).body == body
            most = max(most, shared.used)
        assert most <= shared.limit
        async with asyncio.timeout(PATIENCE_S):
            while shared.waiting or not shared.shown_out:
                await asyncio.sleep(0.05)
                most = max(most, shared.used)
        assert most <= shared.limit
        told = (await ann.status())["memory"]["in_flight"]["clients"]
        assert (told["limit_bytes"], told["shown_out"]) == (shared.limit, shared.shown_out)
        for mallory in speakers:
            mallory.close()
        await until(lambda: len(server.clients.all) == 1)
        assert shared.used <= 1024 * 1024, "all of it was given back"
    assert complained(caplog, r"refused client 'mallory \d+': shown out: \d+ bytes are on their way to and from it")
    assert len([record for record in caplog.records if "shown out" in record.getMessage()]) <= 12


async def test_what_waits_while_a_server_takes_nothing_is_held_back_at_its_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mailbox is full: what clients go on to send waits in their own memory when the server has no more for it."""
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 1)
    monkeypatch.setattr(node_module, "LOOK_EVERY_S", 0.1)
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        shared = running["s1"].node.memory.pools.clients
        shared.limit = 16 * 1024 * 1024
        async with thence.connect(url(topology, "s1"), "away", temporary=False):
            pass
        senders = [thence.connect(url(topology, "s1"), f"sender {number}") for number in range(4)]
        for sender in senders:
            await sender.__aenter__()
        await ann.send("away", b"fills it")
        for sender in senders:
            for _ in range(24):
                sender.post("away", bytes(500_000))
        (connection,) = [client.connection for client in running["s1"].clients.all if client.name == "sender 3"]
        await until(lambda: connection.paused)
        assert shared.used <= shared.limit + 1024 * 1024
        async with thence.connect(url(topology, "s1"), "away", temporary=False) as back:
            for _ in range(1 + 4 * 24):
                await back.receive(within=PATIENCE_S)
            back.done()
            for sender in senders:
                await sender.flush()
                await sender.__aexit__(None, None, None)
        await until(lambda: shared.used < 1024 * 1024)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1], ids=["with TLS and a captured server", "without TLS"])
def test_whatever_others_make_it_spend_a_server_stays_within_its_budget_and_serves(seed: int, tmp_path: Path) -> None:
    options = Options(seed=seed, fault_s=9.0, kind="spending", least_rate=QUICK_RATE)
    outcome = run_once(options, tmp_path / "run")
    assert not outcome.wrong, "\n".join([*outcome.wrong[:20], replay(options)])
    assert len(outcome.faults) == (14 if seed == 0 else 11), "every kind of attack came"
    assert outcome.counts["visits of a guest"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1], ids=["with TLS and a captured server", "without TLS"])
def test_whoever_floods_a_server_with_short_frames_leaves_others_their_rate(seed: int, tmp_path: Path) -> None:
    options = Options(
        seed=seed, fault_s=15.0 if seed == 0 else 14.0, kind="floods", least_rate=QUICK_RATE, turn_s=0.5, flood_each=1
    )
    outcome = run_once(options, tmp_path / "run")
    assert not outcome.wrong, "\n".join([*outcome.wrong[:20], replay(options)])
    assert len(outcome.faults) == (15 if seed == 0 else 14), "every kind of flood came"
