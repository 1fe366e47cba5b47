"""Agents at running servers, made and written to by clients and on the command line, wherever they live."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import thence
from examples.bank import Account, AccountState, Balance, Deposit, Pay
from tests.support.servers.running import addressed, assert_kept, flat, fleet, until, url
from tests.unit.cli import run as run_cli
from thence.agents import admin
from thence.agents import engine as engine_module
from thence.agents.kinds import kinds_of
from thence.core.topology.model import Topology
from thence.errors import Refusal, UsageError
from thence.node.options import NodeOptions
from thence.server.server import Server

TWO_DOMAINS = """
name = "bank"
[domains.A]
members = ["s1", "s2"]
[domains.B]
members = ["s2", "s3"]
"""


@asynccontextmanager
async def banks(topology: Topology, data: Path | None = None, trace: Path | None = None) -> AsyncIterator[dict[str, Server]]:
    """Run all servers of a topology in this loop; they know accounts."""
    running: dict[str, Server] = {}
    try:
        for name in topology.processes:
            options = NodeOptions(data=None if data is None else data / name, trace=trace)
            running[name] = Server(topology, name, options, kinds_of([Account]))
            await running[name].start()
        for server in running.values():
            await server.node.peers.wait_connected()
        yield running
    finally:
        for server in running.values():
            await server.stop(drain_s=0)


@pytest.mark.parametrize("on_disk", [True, False])
async def test_agents_are_written_to_by_name_wherever_they_live(on_disk: bool, tmp_path: Path) -> None:
    topology = addressed(TWO_DOMAINS)
    async with (
        banks(topology, tmp_path if on_disk else None, tmp_path / "trace"),
        thence.connect(url(topology, "s1"), "till") as till,
        thence.connect(url(topology, "s3"), "other") as other,
    ):
        await till.agents.create("ann", "Account", AccountState(balance=100))
        await other.agents.create("bob", "Account")
        await till.known("bob")
        assert (await till.request("ann", Pay("bob", 30))).value() == "paid"
        assert (await till.request("ann", Pay("bob", 300))).value() == "refused"
        # Behind the money, since it was asked for behind the answer.
        assert (await till.request("bob", Balance())).value() == 30
        shown = await till.agents.show("ann")
        assert (shown["server"], shown["kind"], shown["state"]) == ("s1", "Account", {"balance": 70, "refused": 1})
        assert [agent["name"] for agent in await other.agents.list()] == ["bob"]
    assert_kept(tmp_path / "trace", sends=5)


async def test_agents_survive_a_restart_and_removal_is_for_good(tmp_path: Path) -> None:
    topology = flat("s1")
    async with banks(topology, tmp_path), thence.connect(url(topology, "s1"), "till") as till:
        await till.agents.create("ann", "Account", {"balance": 5})
        await till.agents.create("bob", "Account")
        await till.send("ann", Pay("bob", 2))
        assert (await till.request("ann", Balance())).value() == 3
    async with banks(topology, tmp_path), thence.connect(url(topology, "s1"), "till") as till:
        assert (await till.request("bob", Balance())).value() == 2
        await till.agents.remove("bob")
        with pytest.raises(UsageError, match="nobody is called 'bob'"):
            await till.send("bob", Deposit(1))
    async with banks(topology, tmp_path), thence.connect(url(topology, "s1"), "till") as till:
        assert [agent["name"] for agent in await till.agents.list()] == ["ann"]


async def test_what_cannot_be_made_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = flat("s1", "s2")
    async with (
        banks(topology) as servers,
        thence.connect(url(topology, "s1"), "till") as till,
        thence.connect(url(topology, "s2"), "other") as other,
    ):
        create = till.agents.create
        await create("ann", "Account")
        await create("ann", "Account", exist_ok=True)
        await other.known("ann")
        for name, kind, state, reason in (
            ("ann", "Account", None, "a client or agent 'ann' already, at 's1'"),
            ("till", "Account", None, "a client or agent 'till' already"),
            ("s2", "Account", None, "a server 's2' already"),
            ("", "Account", None, "'' cannot be a name: it is empty"),
            ("everyone", "Account", None, "the word stands for all clients"),
            ("n" * 201, "Account", None, "a name of 201 characters; MAX_NAME_CHARACTERS is 200"),
            ("bob", "Loan", None, "no agent class 'Loan' at 's1'; there are: Account"),
            ("bob", "Account", {"balance": "much"}, "what is given for its state is no AccountState"),
        ):
            with pytest.raises(UsageError, match=reason):
                await create(name, kind, state)
        with pytest.raises(UsageError, match="'ann' lives at 's1'; ask there"):
            await other.agents.show("ann")
        with pytest.raises(UsageError, match="no agent is called 'till'"):
            await till.agents.remove("till")
        with pytest.raises(UsageError, match="no dead message 7"):
            await till.agents.retry(7)
        with pytest.raises(Refusal, match="'ann' is an agent of 's1'"):
            async with thence.connect(url(topology, "s1"), "ann"):
                pass
        monkeypatch.setattr(admin, "MAX_AGENTS", 1)
        with pytest.raises(UsageError, match="MAX_AGENTS is 1"):
            await create("bob", "Account")
        assert servers["s1"].status.report()["agents"]["count"] == 1


async def test_of_two_that_take_a_name_at_once_one_gets_it(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    async with (
        banks(topology, tmp_path) as servers,
        thence.connect(url(topology, "s1")) as one,
        thence.connect(url(topology, "s2")) as other,
    ):
        made = await asyncio.gather(
            one.agents.create("ann", "Account", {"balance": 1}),
            other.agents.create("ann", "Account", {"balance": 2}),
            return_exceptions=True,
        )
        await until(lambda: "ann" not in servers["s2"].node.ledger.agents)
        assert made[0] is None
        assert (await other.request("ann", Balance())).value() == 1


async def test_dead_messages_are_seen_retried_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "FIRST_RETRY_S", 0.0)
    topology = flat("s1")
    async with banks(topology), thence.connect(url(topology, "s1"), "till") as till:
        await till.agents.create("ann", "Account")
        await till.send("ann", Pay("ann", 0))
        await till.send("ann", Deposit(4))
        assert (await till.request("ann", Balance())).value() == 4
        (item,) = await till.agents.dead()
        assert (item["agent"], item["sender"], item["error"]) == ("ann", "till", "ValueError: an amount of 0")
        shown = await till.agents.dead_letter(item["number"])
        assert shown["messages"] == [{"body": {"type": "pay", "to": "ann", "amount": 0}, "headers": {}}]
        await till.agents.retry(item["number"])
        assert (await till.request("ann", Balance())).value() == 4
        (again,) = await till.agents.dead()
        assert again["number"] == item["number"] + 1
        await till.agents.drop(again["number"])
        assert list(await till.agents.dead()) == []


@pytest.mark.slow
def test_the_command_line_makes_shows_and_removes_agents(tmp_path: Path) -> None:
    with fleet(flat("s1"), tmp_path, agents=("examples.bank:Account",)) as running:
        where = url(running.topology, "s1")
        assert run_cli("agent", "create", where, "ann", "Account", "--state", '{"balance": 7}').code == 0
        assert run_cli("agent", "create", where, "bob", "Account").code == 0
        assert run_cli("agent", "create", where, "ann", "Account").code == 2
        assert run_cli("agent", "create", where, "eve", "Account", "--state", "{").code == 2
        assert run_cli("send", where, "ann", "no order that an account knows").code == 0
        shown = run_cli("agent", "show", where, "ann")
        assert json.loads(shown.out)["state"]["balance"] == 7
        listed = run_cli("agent", "list", where).out
        assert "ann" in listed
        assert "bob" in listed
        running.kill("s1")
        running.start_one("s1")
        dead: list[dict[str, Any]] = []
        while not dead:
            dead = json.loads(run_cli("agent", "dead", where, "--json").out)
        number = str(dead[0]["number"])
        assert "MalformedFrame" in run_cli("agent", "dead", where).out
        assert json.loads(run_cli("agent", "dead", where, number).out)["messages"][0]["body"]
        assert run_cli("agent", "retry", where, number).code == 0
        assert run_cli("agent", "drop", where, number).code == 2
        assert run_cli("agent", "remove", where, "ann").code == 0
        assert [agent["name"] for agent in json.loads(run_cli("agent", "list", where, "--json").out)] == ["bob"]
        assert "1 agent:" in run_cli("status", where).out


async def test_a_thousand_agents_at_one_server(tmp_path: Path) -> None:
    topology = flat("s1")
    names = [f"account-{number}" for number in range(1_000)]
    async with banks(topology, tmp_path), thence.connect(url(topology, "s1"), "till") as till:
        await asyncio.gather(*(till.agents.create(name, "Account", {"balance": 10}) for name in names))
        for at, name in enumerate(names):
            till.post(name, Pay(names[(at + 1) % len(names)], 3))
        await till.flush()
        async with asyncio.timeout(60):
            while sum(agent["reacted"] for agent in await till.agents.list()) < 2 * len(names):
                await till.flush()
        assert {(await till.agents.show(name))["state"]["balance"] for name in names[::100]} == {10}
    async with banks(topology, tmp_path), thence.connect(url(topology, "s1"), "till") as till:
        assert (await till.request(names[500], Balance())).value() == 10
