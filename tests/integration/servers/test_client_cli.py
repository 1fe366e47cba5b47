"""``thence client`` at real servers: the remedy for a mailbox that stops a server, while it does; who may use it, who is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

import thence
from tests.support.servers.running import PATIENCE_S, abandon, flat, servers, until, url
from tests.support.servers.securing import EVERYTHING, Access, certificates, secure_url
from tests.unit.cli import Ran
from tests.unit.cli import run as run_cli
from thence.cli.options import MAILBOX_ADVICE
from thence.core.topology.model import Topology
from thence.errors import Refusal, UsageError
from thence.server.server import Server
from thence.server.status import WAIT_FOR_CLOSED
from thence.storage import mailbox as mailbox_module

MAILBOX = 5
AT_ONCE_S = 10.0
"""What does not wait for room is done by then, however busy the machine is; what waits for room never is."""


async def cli(*arguments: str | Path) -> Ran:
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.to_thread(run_cli, *arguments)


FULL = f"the mailbox of 'bob' is full; {WAIT_FOR_CLOSED}"


@asynccontextmanager
async def stalled(
    topology: Topology, data: Path | None, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> AsyncIterator[tuple[dict[str, Server], thence.Client]]:
    """Run servers; at s1 the mailbox of bob, who is away, is closed. Give them, and a client of s1."""
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", MAILBOX)
    async with servers(topology, data, **options) as running:
        async with thence.connect(url(topology, "s1"), "bob") as bob:
            await bob.subscribe("news")
        async with thence.connect(url(topology, "s1"), "ann") as ann:
            for _ in range(MAILBOX):
                await ann.send("bob", b"letter")
            await until(lambda: running["s1"].node.directory.closings.closed == {"bob": "s1"})
            yield running, ann
            await abandon(ann)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("remedy", ["remove", "purge", "forget"])
async def test_the_remedy_for_a_full_mailbox_works_while_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool, remedy: str
) -> None:
    topology = flat("s1", "s2")
    async with stalled(topology, tmp_path if stored else None, monkeypatch) as (running, ann):
        blocked = asyncio.create_task(ann.send("bob" if remedy == "purge" else "ann", b"waits"))
        node, far = running["s1"].node, running["s2"].node
        async with asyncio.timeout(AT_ONCE_S):
            if remedy == "forget":
                ended = await cli("listen", url(topology, "s1"), "--name", "bob", "--forget")
                assert (ended.code, ended.err) == (0, "bob is forgotten\n")
            else:
                ended = await cli("client", remedy, url(topology, "s1"), "bob")
                what = {"remove": "is removed from", "purge": "has an empty mailbox at"}[remedy]
                assert (ended.code, ended.out) == (0, f"bob {what} s1: 5 messages dropped, counted as 2,560 bytes\n")
            await blocked
        if remedy != "purge":
            assert (await ann.receive(PATIENCE_S)).body == b"waits"
            ann.done()
        assert node.removal.dropped == {"leave": 0, "remove": 0, "purge": 0} | {remedy.replace("forget", "leave"): MAILBOX}
        if remedy == "purge":
            assert "bob" in node.directory.state.followers["news"]
        else:
            await until(lambda: "bob" not in far.directory.state.claims)  # All servers are told.
            assert not far.directory.state.followers
            with pytest.raises(UsageError, match="nobody is called 'bob'"):
                await ann.send("bob", b"?")


async def test_the_log_says_whose_mailbox_is_full_and_when_that_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topology = flat("s1", "s2")
    async with stalled(topology, tmp_path, monkeypatch):
        await until(
            lambda: "the mailbox of 'bob' is full: whoever writes there waits, and everything else goes on." in caplog.text
        )
        assert (await cli("client", "purge", url(topology, "s1"), "bob")).code == 0
        await until(lambda: "all mailboxes are open again, after" in caplog.text)
    assert caplog.text.count("whoever writes there waits") == 1


async def test_what_clients_there_are_is_shown_while_the_server_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = flat("s1")
    async with stalled(topology, tmp_path, monkeypatch):
        listed = await cli("client", "list", url(topology, "s1"))
        assert listed.code == 0
        rows = [" ".join(line.split()) for line in listed.out.splitlines() if line.strip() and "─" not in line]
        assert rows[1] == "bob away 5 2,560 full"
        assert rows[2].startswith("ann 127.0.0.1:")
        assert rows[-2:] == [f"s1 is stalled: {FULL}", MAILBOX_ADVICE]
        assert f"stalled: {FULL}\n{MAILBOX_ADVICE}\n" in (await cli("status", url(topology, "s1"))).out
        shown = await cli("client", "show", url(topology, "s1"), "bob")
        assert shown.code == 0
        assert shown.out.splitlines() == [
            "bob, a client of s1: not connected",
            "waiting: 5 messages, counted as 2,560 bytes; in files: 0; its mailbox is full",
            "so far: 0 messages sent, 5 came for it, 0 of them done",
            "follows: news",
            f"s1 is stalled: {FULL}",
            MAILBOX_ADVICE,
        ]
        as_json = json.loads((await cli("client", "list", url(topology, "s1"), "--json")).out)
        assert (as_json["count"], [client["name"] for client in as_json["clients"]]) == (2, ["bob", "ann"])
        as_json = json.loads((await cli("client", "remove", url(topology, "s1"), "bob", "--json")).out)
        assert (as_json["dropped_messages"], as_json["was_connected"], as_json["stalled"]) == (5, False, "")


@pytest.mark.parametrize(
    ("remedy", "told"),
    [
        ("remove", r"an operator has removed the client 'bob' from 's1' \(messages dropped: 1\); connect again to begin anew"),
        (
            "purge",
            r"an operator has dropped the messages that waited for 'bob' at 's1' \(messages dropped: 1\)",
        ),
    ],
)
async def test_a_program_that_is_connected_is_told_for_good(
    tmp_path: Path, remedy: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    topology = flat("s1")
    async with servers(topology, tmp_path) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        async with thence.connect(url(topology, "s1"), "bob") as bob:
            await ann.send("bob", b"letter")
            assert (await bob.receive(PATIENCE_S)).body == b"letter"  # And not done.
            ended = await cli("client", remedy, url(topology, "s1"), "bob")
            assert "1 message dropped, counted as 512 bytes; the program that was connected is told" in ended.out
            with pytest.raises(Refusal, match=told):
                await bob.receive(PATIENCE_S)
        async with thence.connect(url(topology, "s1"), "bob") as bob:
            await ann.send("bob", b"later")
            assert (await bob.receive(PATIENCE_S)).body == b"later"
            bob.done()
        assert running["s1"].node.removal.dropped[remedy] == 1
    assert any(
        "client bob was" in record.getMessage() and "messages dropped: 1 (" in record.getMessage() for record in caplog.records
    )


async def test_whoever_has_the_right_may_and_others_are_refused_also_with_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = flat("s1")
    access = Access(
        tmp_path / "access.toml",
        ann={**EVERYTHING, "topology": False},
        operator={"topology": True},
        warden={"clients": True},
        looker={"status": True},
    )
    tls = certificates(tmp_path / "tls", trustme.CA(), "s1")["s1"]
    monkeypatch.setenv("THENCE_CA", str(tls.authority))
    where = secure_url(topology, "s1")
    async with (
        servers(topology, tmp_path / "data", tls=tls, access=access.path) as running,
        thence.connect(where, "ann", token=access.tokens["ann"], authority=tls.authority),
    ):
        async with thence.connect(where, "bob", token=access.tokens["ann"], authority=tls.authority):
            pass
        monkeypatch.setenv("THENCE_TOKEN", access.tokens["ann"])
        for command in (("remove", where, "bob"), ("purge", where, "bob")):
            ended = await cli("client", *command)
            assert (ended.code, ended.out) == (2, "")
            assert ended.err == "thence: error: the access file does not let 'ann' see to clients (clients = true)\n"
        monkeypatch.setenv("THENCE_TOKEN", access.tokens["looker"])
        assert (await cli("client", "list", where)).code == 0
        assert (await cli("client", "purge", where, "bob")).code == 2
        monkeypatch.setenv("THENCE_TOKEN", access.tokens["warden"])
        assert (await cli("client", "purge", where, "bob")).code == 0
        monkeypatch.setenv("THENCE_TOKEN", access.tokens["operator"])
        assert (await cli("client", "remove", where, "bob")).code == 0
        await until(lambda: "bob" not in running["s1"].node.directory.state.claims)


async def test_what_is_no_client_of_the_server_is_refused_with_where_to_ask() -> None:
    topology = flat("s1", "s2")
    async with servers(topology), thence.connect(url(topology, "s2"), "bob") as bob:
        async with thence.connect(url(topology, "s1"), "ann") as ann:
            await ann.known("bob")
        for name, why in {
            "bob": f"'bob' is a client of 's2', at {topology.addresses['s2']}: ask there",
            "s2": "'s2' is a server, not a client",
            "s1": "'s1' is a server, not a client",
            "eve": "'s1' has no client called 'eve', and knows of none elsewhere",
        }.items():
            for action in ("show", "remove", "purge"):
                ended = await cli("client", action, url(topology, "s1"), name)
                assert (ended.code, ended.err) == (2, f"thence: error: {why}\n")
        assert not bob.trouble
