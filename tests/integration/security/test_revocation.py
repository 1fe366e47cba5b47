"""Rights that are withdrawn from the access file: nothing is delivered any more, to those who are here and who are away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import thence
from tests.support.servers.running import flat, started, until, url
from tests.support.servers.securing import EVERYTHING, Access, Speaker, prove
from thence.agents.kinds import kinds_of
from thence.client.client import Client
from thence.core.topology.model import Topology
from thence.errors import NotAllowed, Refusal
from thence.net.protocol import Denied, Subscribed
from thence.net.security.tokens import parse_token
from thence.node.options import NodeOptions
from thence.observe.metrics import exposition
from thence.server.server import Server


class Echo(thence.Agent):
    """Answers with how often it was asked."""

    state: int = 0

    async def react(self, message: thence.Message) -> None:
        self.state += 1
        message.reply(self.state)


@asynccontextmanager
async def serving(topology: Topology, access: Access, data: Path | None = None) -> AsyncIterator[Server]:
    """Run one server with an access file."""
    options = NodeOptions(data=data, access=access.path)
    server = Server(topology, "s1", options, kinds_of([Echo]))
    await server.start()
    try:
        yield server
    finally:
        await server.stop(drain_s=0)


def told_by(client: thence.Client) -> list[tuple[str, str]]:
    """Return the list of what a client is told to have lost."""
    told: list[tuple[str, str]] = []
    client.withdrawn = lambda topic, reason: told.append((topic, reason))  # type: ignore[method-assign]
    return told


def lines(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if what in record.getMessage()]


async def test_a_subscription_ends_with_the_right_to_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"subscribe": ["news", "own"]}, bob=EVERYTHING)
    here = url(topology, "s1")
    async with (
        serving(topology, access, tmp_path / "data") as server,
        thence.connect(here, "ann", token=access.tokens["ann"]) as ann,
        thence.connect(here, "bob", token=access.tokens["bob"]) as bob,
    ):
        told = told_by(ann)
        await ann.subscribe("news")
        await ann.subscribe("own")
        await bob.publish("news", b"allowed")
        assert (await ann.receive()).body == b"allowed"
        access.write(ann={"subscribe": ["own"]}, bob=EVERYTHING)
        server.reload()
        await bob.publish("news", b"withdrawn")
        await bob.publish("own", b"still allowed")
        assert (await ann.receive()).body == b"still allowed"
        assert list(server.node.directory.state.followers) == ["own"]
        await until(lambda: told)
        assert told == [("news", "the access file does not let 'ann' follow 'news'")] * len(told)
        with pytest.raises(NotAllowed):
            await ann.subscribe("news")
    assert (
        len(
            lines(
                caplog,
                "client ann: subscriptions ended by the access file: 1; the access file does not let 'ann' follow 'news'",
            )
        )
        == 1
    )
    async with serving(topology, access, tmp_path / "data") as server:
        assert list(server.node.directory.state.followers) == ["own"], "that is durable"


@pytest.mark.parametrize("while_stopped", [True, False])
async def test_what_waits_on_a_topic_is_withheld_from_who_may_not_follow_it_any_more(tmp_path: Path, while_stopped: bool) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"subscribe": ["news"]}, bob=EVERYTHING)
    here = url(topology, "s1")

    async def before() -> None:
        async with thence.connect(here, "ann", token=access.tokens["ann"]) as ann:
            await ann.subscribe("news")
        async with thence.connect(here, "bob", token=access.tokens["bob"]) as bob:
            for number in range(3):
                await bob.send("ann", b"%d" % number)
                bob.post_topic("news", b"secret")
                bob.post_topic("news", b"secret")
                await bob.flush()
        access.write(ann={}, bob=EVERYTHING)

    async def behind(server: Server) -> None:
        await until(lambda: not server.node.directory.state.followers)
        ann = thence.connect(here, "ann", token=access.tokens["ann"])
        told = told_by(ann)  # Before it connects: it is told at once.
        async with ann, thence.connect(here, "bob", token=access.tokens["bob"]) as bob:
            await bob.publish("news", b"secret")
            await bob.send("ann", b"3")
            assert [(await ann.receive()).body for _ in range(4)] == [b"0", b"1", b"2", b"3"]
            ann.done()
            assert (await bob.status())["letters_withheld"] == 6
            assert "\nthence_letters_withheld_total 6.0\n" in await exposition(server)
            assert told == [("news", "the access file does not let 'ann' follow 'news'")] * 3
            await until(lambda: not server.node.directory.state.mailboxes["ann"].waiting)

    async with serving(topology, access, tmp_path / "data") as server:
        await before()
        if not while_stopped:
            server.reload()
            await behind(server)
    if while_stopped:
        async with serving(topology, access, tmp_path / "data") as server:
            await behind(server)


async def test_a_program_that_was_cut_off_is_told_what_has_ended_meanwhile(tmp_path: Path) -> None:
    """It stayed up while its server was restarted, and never learned why nothing came."""
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"subscribe": ["*"]})
    async with serving(topology, access, tmp_path / "data"):
        ann = thence.connect(url(topology, "s1"), "ann", token=access.tokens["ann"])
        told = told_by(ann)
        await ann.__aenter__()
        await ann.subscribe("news")
        await ann.subscribe("own")
    access.write(ann={"subscribe": ["own"]})
    async with serving(topology, access, tmp_path / "data"):
        await until(lambda: told)
        assert told == [("news", "the access file does not let 'ann' follow 'news'")]
        await ann.__aexit__(None, None, None)


async def test_nothing_is_said_before_the_welcome(tmp_path: Path) -> None:
    """A client that came in by another entry heard first what it follows no longer."""
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", all=EVERYTHING, few={"names": ["ann"]})
    async with serving(topology, access):
        async with thence.connect(url(topology, "s1"), "ann", token=access.tokens["all"]) as ann:
            await ann.subscribe("news")
        speaker = await Speaker.call(topology.addresses["s1"])
        await prove(speaker, "ann", parse_token(access.tokens["few"]))  # It raises if anything else comes first.
        assert {type(await speaker.hear()) for _ in range(2)} == {Denied, Subscribed}
        speaker.close()


async def test_what_waits_is_delivered_if_the_right_comes_back_before(tmp_path: Path) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"subscribe": ["news"]}, bob=EVERYTHING)
    here = url(topology, "s1")
    async with serving(topology, access) as server:
        async with thence.connect(here, "ann", token=access.tokens["ann"]) as ann:
            await ann.subscribe("news")
        async with thence.connect(here, "bob", token=access.tokens["bob"]) as bob:
            await bob.publish("news", b"waits")
            for rights in ({}, {"subscribe": ["news"]}):
                access.write(ann=rights, bob=EVERYTHING)
                server.reload()
            await until(lambda: not server.node.directory.state.followers)
            await bob.publish("news", b"nobody follows it any more")
        async with thence.connect(here, "ann", token=access.tokens["ann"]) as ann:
            assert (await ann.receive()).body == b"waits"
            with pytest.raises(TimeoutError):
                await ann.receive(within=0.1)


async def test_with_its_entry_a_client_loses_its_connection_and_its_subscriptions(tmp_path: Path) -> None:
    """Also where others may be called so: it was not they who followed."""
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"subscribe": ["*"]}, bob=EVERYTHING)
    here = url(topology, "s1")
    async with (
        serving(topology, access, tmp_path / "data") as server,
        thence.connect(here, "bob", token=access.tokens["bob"]) as bob,
    ):
        async with thence.connect(here, "ann", token=access.tokens["ann"]) as ann:
            await ann.subscribe("news")
            access.write(bob=EVERYTHING)
            server.reload()
            with pytest.raises(Refusal, match="the access file has the token of 'ann' no longer"):
                await ann.receive(within=30)
            await until(lambda: not server.node.directory.state.followers)
        # What was written to it stays: the entry may come back, or somebody removes the name.
        await bob.send("ann", b"for her alone")
        assert server.node.directory.state.mailboxes["ann"].position == 1


async def test_who_logs_in_by_another_entry_has_the_rights_of_that(tmp_path: Path) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"subscribe": ["*"]}, deputy={"names": ["ann"], "subscribe": ["public"]})
    here = url(topology, "s1")
    async with serving(topology, access, tmp_path / "data") as server:
        async with thence.connect(here, "ann", token=access.tokens["ann"]) as ann:
            await ann.subscribe("secret")
            await ann.subscribe("public")
        assert server.node.directory.state.mailboxes["ann"].entry == "ann"
        async with thence.connect(here, "ann", token=access.tokens["deputy"]):
            await until(lambda: list(server.node.directory.state.followers) == ["public"])
            await until(lambda: server.node.directory.state.mailboxes["ann"].entry == "deputy")
    async with serving(topology, access, tmp_path / "data") as server:
        assert server.node.directory.state.mailboxes["ann"].entry == "deputy", "that is durable"


async def test_a_subscription_that_waited_for_room_does_not_outlive_the_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"subscribe": ["news"]})
    async with (
        serving(topology, access) as server,
        thence.connect(url(topology, "s1"), "ann", token=access.tokens["ann"]) as ann,
    ):
        with monkeypatch.context() as stalled:
            stalled.setattr(type(server.node.intake), "full", "no room")
            following = asyncio.create_task(ann.subscribe("news"))
            await until(lambda: server.clients.here["ann"].session.waiting)  # type: ignore[union-attr]
            access.write(ann={})
            server.reload()
        await until(following.done)
        await until(lambda: not server.node.directory.state.followers)


async def test_other_servers_hear_that_a_subscription_has_ended(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    access = Access(tmp_path / "access.toml", ann={"subscribe": ["news"]})
    s1 = await started(topology, "s1", access=access.path, insecure=True)
    s2 = await started(topology, "s2")
    try:
        async with (
            thence.connect(url(topology, "s1"), "ann", token=access.tokens["ann"]) as ann,
            thence.connect(url(topology, "s2"), "bob") as bob,
        ):
            await ann.subscribe("news")
            await until(lambda: s2.node.directory.state.followers)
            access.write(ann={})
            s1.reload()
            await until(lambda: not s2.node.directory.state.followers)
            await bob.subscribe("news")  # What another server allows is its own affair.
            await until(lambda: s1.node.directory.state.followers)
            s1.reload()
            await asyncio.sleep(0)
            assert s1.node.directory.state.followers == {"news": {"bob": None}}
    finally:
        await s1.stop(drain_s=0)
        await s2.stop(drain_s=0)


async def test_agents_rest_while_whoever_made_them_may_not_have_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", ann={"agents": True}, bob=EVERYTHING)
    here = url(topology, "s1")

    async def asked(bob: thence.Client, status: dict[str, Any]) -> None:
        assert status["agents"]["stopped"] == {"echo": "the access file does not let 'ann' see to agents (agents = true)"}
        with pytest.raises(TimeoutError):
            await bob.request("echo", b"", within=0.2)
        assert [one["trouble"] for one in await bob.agents.list()] == [
            "the access file does not let 'ann' see to agents (agents = true)",
            "",
        ]

    async with (
        serving(topology, access, tmp_path / "data") as server,
        thence.connect(here, "bob", token=access.tokens["bob"]) as bob,
    ):
        async with Client(here, "", token=access.tokens["ann"]) as ann:
            await ann.agents.create("echo", "Echo")
        await bob.agents.create("other", "Echo")
        assert (await bob.request("echo", b"")).value() == 1
        access.write(ann={}, bob=EVERYTHING)
        server.reload()
        await asked(bob, await bob.status())
        assert (await bob.request("other", b"")).value() == 1
    assert len(lines(caplog, "agent echo is stopped: the access file does not let 'ann' see to agents (agents = true)")) == 1
    async with (
        serving(topology, access, tmp_path / "data") as server,
        thence.connect(here, "bob", token=access.tokens["bob"]) as bob,
    ):
        await asked(bob, await bob.status())
        access.write(ann={"agents": True}, bob=EVERYTHING)
        server.reload()
        assert (await bob.request("echo", b"")).value() == 4, "what waited for it comes first"
        assert (await bob.status())["agents"]["stopped"] == {}


async def test_of_names_from_before_nobody_knows_the_entry(tmp_path: Path) -> None:
    """A store of version 0.1, or of a server that had no access file: whoever may be called so may have followed."""
    topology = flat("s1")
    here = url(topology, "s1")
    data = tmp_path / "data"
    server = Server(topology, "s1", NodeOptions(data=data))
    await server.start()
    for name in ("ann", "eve"):
        async with thence.connect(here, name) as client:
            await client.subscribe("public")
            await client.subscribe("secret")
    assert msgspec.structs.asdict(server.node.directory.state.mailboxes["ann"])["entry"] == ""
    await server.stop(drain_s=0)
    access = Access(tmp_path / "access.toml", first={"names": ["a*"]}, second={"names": ["ann"], "subscribe": ["public"]})
    async with serving(topology, access, data) as server:
        await until(lambda: server.node.directory.state.followers == {"public": {"ann": None}})
