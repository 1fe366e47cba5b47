"""Two programs under one name: the newer one has it, and the older one is told, always, with what was not accepted of it."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

import thence
from tests.integration.faults.test_faults import proxied
from tests.support.servers.running import PATIENCE_S, flat, run, servers, started, until, url
from tests.support.servers.securing import EVERYTHING, Access, certificates, secure_url
from thence.client.resume import Resumption
from thence.errors import Fenced, Refusal, StateLost
from thence.net import control
from thence.net.protocol import ClientWelcome
from thence.net.proxy import Mode
from thence.server import connection as server_connection

QUEUED = 20


@asynccontextmanager
async def left_by(kind: type[Exception], client: thence.Client) -> AsyncIterator[thence.Client]:
    """Enter a client that ends with an error, which is raised once more where its block is left."""
    try:
        async with client:
            yield client
    except kind:
        pass


def heard_by(client: thence.Client) -> list[str]:
    """Return what a client is told of messages that were posted and not accepted."""
    heard: list[str] = []
    vars(client)["refused"] = heard.append
    return heard


@pytest.mark.parametrize("restart", [False, True], ids=["", "restart"])
@pytest.mark.parametrize("sent", [0, 10, QUEUED, 2 * QUEUED])
async def test_whoever_lost_its_name_while_it_was_cut_off_is_told_what_was_not_accepted(
    sent: int, restart: bool, tmp_path: Path
) -> None:
    topology = flat("s1")
    server = await started(topology, "s1", tmp_path)
    proxy = await proxied(topology, "s1")
    async with thence.connect(url(topology, "s1"), "bob") as bob:
        got: list[bytes] = []
        bob.on_message(lambda message: got.append(message.body))
        async with thence.connect(f"thence://{proxy.address}", "ann") as older:
            heard = heard_by(older)
            for number in range(5):
                await older.send("bob", b"older %d" % number)
            proxy.set_mode(Mode.CUT)
            await until(lambda: older.trouble)
            for number in range(QUEUED - 1):
                older.post("bob", b"queued %d" % number)
            waiting = asyncio.create_task(older.send("bob", b"queued last"))
            await asyncio.sleep(0)
            async with thence.connect(url(topology, "s1"), "ann") as newer:
                for number in range(sent):
                    newer.post("bob", b"newer %d" % number)
                await newer.flush()
            if restart:
                await server.stop(drain_s=0)
                server = await started(topology, "s1", tmp_path)
            proxy.set_mode(Mode.WELL)
            with pytest.raises(Fenced, match=f"another program has the name 'ann' since.*{QUEUED} messages"):
                await waiting
            assert len(heard) == QUEUED - 1
            for call in (older.flush(), older.send("bob", b"?"), older.receive(), older.subscribe("topic")):
                with pytest.raises(Fenced):
                    await call
            with pytest.raises(Fenced):
                older.post("bob", b"?")
        await bob.send("bob", b"last")
        await until(lambda: got and got[-1] == b"last")
        assert got[:-1] == [b"older %d" % number for number in range(5)] + [b"newer %d" % number for number in range(sent)]
    await proxy.close()
    await server.stop(drain_s=0)


async def test_what_was_accepted_without_a_word_back_is_accepted_once_and_counted_as_such() -> None:
    """The network swallows the answers: the older program learns what was accepted when it learns that it has lost its name."""
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "bob") as bob:
        got: list[bytes] = []
        bob.on_message(lambda message: got.append(message.body))
        proxy = await proxied(topology, "s1")
        async with thence.connect(f"thence://{proxy.address}", "ann") as older:
            heard = heard_by(older)
            session = running["s1"].clients.here["ann"]
            vars(session)["accepted"] = lambda _: None  # What the server says is lost on the way.
            sends = [asyncio.create_task(older.send("bob", b"%d" % number)) for number in range(6)]
            older.post("nobody", b"?")
            await until(lambda: len(got) == 6)
            proxy.set_mode(Mode.CUT)
            await until(lambda: older.trouble)
            more = asyncio.create_task(older.send("bob", b"too late"))
            async with thence.connect(url(topology, "s1"), "ann") as newer:
                await newer.send("bob", b"newer")
            proxy.set_mode(Mode.WELL)
            with pytest.raises(Fenced, match=r"1 message .* not accepted"):
                await more
            await asyncio.gather(*sends)
            assert len(heard) == 1
            assert "nobody is called 'nobody'" in heard[0]
        await until(lambda: len(got) == 7)
        assert got[-1] == b"newer"
        await proxy.close()


async def test_whoever_is_connected_is_told_too_and_does_not_take_the_name_back() -> None:
    topology = flat("s1")
    async with (
        servers(topology) as running,
        thence.connect(url(topology, "s1"), "ann") as older,
        thence.connect(url(topology, "s1"), "ann") as newer,
    ):
        with pytest.raises(Fenced, match="another program has the name 'ann' since"):
            await older.receive(10)
        connection = running["s1"].clients.here["ann"]
        await asyncio.sleep(0.2)
        await newer.send("ann", b"mine")
        assert (await newer.receive(10)).body == b"mine"
        assert running["s1"].clients.here["ann"] is connection


async def test_whoever_returns_when_the_name_was_given_up_meanwhile_is_told() -> None:
    topology = flat("s1")
    async with servers(topology) as running:
        proxy = await proxied(topology, "s1")
        async with thence.connect(f"thence://{proxy.address}", "ann") as older:
            proxy.set_mode(Mode.CUT)
            await until(lambda: older.trouble)
            older.post("ann", b"queued")
            older.post("ann", b"awaited by flush")
            heard = heard_by(older)
            async with thence.connect(url(topology, "s1"), "ann") as newer:
                await newer.leave()
            proxy.set_mode(Mode.WELL)
            with pytest.raises(StateLost, match="'s1' has no mailbox of 'ann'"):
                await older.flush()
            assert len(heard) == 1
            assert "ann" not in running["s1"].node.directory.state.mailboxes
        await proxy.close()


async def test_many_reconnects_are_nobody_elses(tmp_path: Path) -> None:
    topology = flat("s1")
    server = await started(topology, "s1", tmp_path)
    proxy = await proxied(topology, "s1")
    async with thence.connect(f"thence://{proxy.address}", "ann") as ann:
        for number in range(12):
            ann.post("ann", b"%d" % number)
            proxy.set_mode(Mode.CUT)
            if number % 4 == 3:
                await server.stop(drain_s=0)
                server = await started(topology, "s1", tmp_path)
            proxy.set_mode(Mode.WELL)
            await ann.publish("nobody follows it", b"")  # It leaves no trace at the server.
        assert [(await ann.receive(10)).body for _ in range(12)] == [b"%d" % number for number in range(12)]
    await proxy.close()
    await server.stop(drain_s=0)


async def test_a_server_killed_before_or_behind_its_welcome_raises_no_alarm(tmp_path: Path) -> None:
    """The client never hears some welcomes, and the server never hears what it says to others."""
    topology = flat("s1")
    server = await started(topology, "s1", tmp_path)
    proxy = await proxied(topology, "s1")
    async with thence.connect(f"thence://{proxy.address}", "ann") as ann:
        welcomed: Any = ann._link._welcomed
        for number in range(6):
            met = asyncio.Event()

            def deaf(connection: Any, welcome: Any, hears: bool = bool(number % 2), met: asyncio.Event = met) -> None:
                if hears:
                    welcomed(connection, welcome)
                proxy.set_mode(Mode.CUT)
                met.set()

            vars(ann._link)["_welcomed"] = deaf
            proxy.set_mode(Mode.CUT)
            proxy.set_mode(Mode.WELL)
            await met.wait()
            await server.stop(drain_s=0)
            server = await started(topology, "s1", tmp_path)
        vars(ann._link)["_welcomed"] = welcomed
        proxy.set_mode(Mode.WELL)
        await ann.send("ann", b"still here")
        assert (await ann.receive(10)).body == b"still here"
    await proxy.close()
    await server.stop(drain_s=0)


async def test_a_blocking_client_is_told_too() -> None:
    topology = flat("s1")
    async with servers(topology):

        def older(taken: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
            with thence.connect_blocking(url(topology, "s1"), "ann") as client:
                loop.call_soon_threadsafe(taken.set)
                with pytest.raises(Fenced):
                    client.receive(30)

        taken = asyncio.Event()
        waiting = asyncio.create_task(asyncio.to_thread(older, taken, asyncio.get_running_loop()))
        await taken.wait()
        async with thence.connect(url(topology, "s1"), "ann"):
            await waiting


async def test_a_command_says_it_in_one_line_and_exits_with_2() -> None:
    topology = flat("s1")
    async with servers(topology):
        listen = (sys.executable, "-m", "thence", "listen", url(topology, "s1"), "--name", "ann")
        command = await asyncio.create_subprocess_exec(*listen, stderr=asyncio.subprocess.PIPE)
        assert command.stderr is not None
        assert await asyncio.wait_for(command.stderr.readline(), PATIENCE_S) == b"listening as ann at s1\n"
        async with thence.connect(url(topology, "s1"), "ann"):
            _, said = await asyncio.wait_for(command.communicate(), PATIENCE_S)
    assert command.returncode == 2
    assert said.decode() == f"thence: error: {url(topology, 's1')}: another program has the name 'ann' since\n"


async def test_it_is_the_same_with_tls_and_tokens(tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = certificates(tmp_path / "tls", authority, "s1")["s1"]
    access = Access(tmp_path / "access.toml", ann=EVERYTHING)
    topology = flat("s1")
    options: dict[str, Any] = {"tls": tls, "access": access.path}
    credentials: dict[str, Any] = {"token": access.tokens["ann"], "authority": tmp_path / "tls" / "authority.pem"}
    server = await started(topology, "s1", tmp_path, **options)
    async with left_by(StateLost, thence.connect(secure_url(topology, "s1"), "ann", **credentials)) as newer:
        async with (
            left_by(Fenced, thence.connect(secure_url(topology, "s1"), "bob", **credentials)) as older,
            thence.connect(secure_url(topology, "s1"), "bob", **credentials),
        ):
            with pytest.raises(Fenced):
                await older.receive(20)
        for _ in range(2):  # The same program goes on after a restart,
            await server.stop(drain_s=0)
            server = await started(topology, "s1", tmp_path, **options)
            await newer.send("ann", b"")
        await server.stop(drain_s=0)
        server = await started(topology, "s1", tmp_path / "elsewhere", **options)  # and not with another store.
        with pytest.raises(StateLost):
            await newer.send("ann", b"")
    await server.stop(drain_s=0)


def test_programs_and_servers_without_epochs_go_on_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of version 0.1 shows no epoch, and a server of version 0.1 gives none."""

    async def main() -> None:
        topology = flat("s1")
        server = await started(topology, "s1", tmp_path)
        proxy = await proxied(topology, "s1")
        async with thence.connect(f"thence://{proxy.address}", "ann") as ann:
            for number in range(4):
                await ann.send("ann", b"%d" % number)
                proxy.set_mode(Mode.CUT)
                await server.stop(drain_s=0)
                server = await started(topology, "s1", tmp_path)
                proxy.set_mode(Mode.WELL)
            assert [(await ann.receive(10)).body for _ in range(4)] == [b"%d" % number for number in range(4)]
        await proxy.close()
        await server.stop(drain_s=0)

    with monkeypatch.context() as old:
        old.setattr(Resumption, "introduce", lambda _, hello, *__: hello)
        run(main)
    greet: Any = control.tell

    def tell(connection: Any, said: Any) -> None:
        greet(connection, msgspec.structs.replace(said, epoch=None, mailbox_id=0) if isinstance(said, ClientWelcome) else said)

    monkeypatch.setattr(server_connection, "tell", tell)
    shutil.rmtree(tmp_path / "s1")
    run(main)


def test_the_errors_are_refusals_for_those_who_know_no_others() -> None:
    assert issubclass(Fenced, Refusal)
    assert issubclass(StateLost, Refusal)
