"""Agents at servers of a fabric that changes: money moves on while domains split and merge, and servers come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest

import thence
from examples.bank import Account, AccountState, Balance, Deposit, Pay
from tests.integration.changes.test_agents import banks
from tests.support.campaigns.evolving_load import following
from tests.support.servers.running import assert_kept, flat, until, url
from thence.agents.kinds import kinds_of
from thence.cli.servers.up import free_addresses
from thence.core.topology.model import Topology
from thence.errors import UsageError
from thence.node.options import NodeOptions
from thence.server.apply import Access, Reporter, TopologyChange, find_old
from thence.server.server import Server

NAMES = ("s1", "s2", "s3", "s4")
FIRST = 100
"""What is on each account in the beginning."""


def quietly(said: str) -> None:
    """What is going on is of no interest."""


class Interrupted(Exception):
    """The command was killed."""


def dying_when_all_hold(said: str) -> None:
    """Be killed when all hold."""
    if said.startswith("all hold"):
        raise Interrupted


async def applied(new: Topology, told: Reporter = quietly) -> None:
    """Lead a change as the command does."""
    old = await find_old(new, Access())
    await TopologyChange(old, new, Access(), told).apply(60.0)


class Bank:
    """An account at each server, and clients that let them pay each other all the time."""

    def __init__(self, topology: Topology, stack: AsyncExitStack) -> None:
        self.tills: dict[str, thence.Client] = {}
        self.paid = 0
        self._paying = False
        self._topology = topology
        self._stack = stack
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, server: str) -> None:
        """Open an account at a server."""
        till = await self._stack.enter_async_context(thence.connect(url(self._topology, server), f"till at {server}"))
        await till.agents.create(f"account at {server}", "Account", AccountState(balance=FIRST))
        self.tills[server] = till

    def begin(self) -> None:
        """Let all of them pay."""
        loop = asyncio.get_running_loop()
        self._paying = True
        self._tasks = [loop.create_task(self._pay(server, till)) for server, till in self.tills.items()]

    async def _pay(self, server: str, till: thence.Client) -> None:
        chance = Random(server)
        others = [f"account at {other}" for other in self.tills if other != server]
        for other in others:
            await till.known(other)
        while self._paying:
            answer = await till.request(f"account at {server}", Pay(chance.choice(others), chance.randrange(1, 20)))
            self.paid += answer.value() == "paid"

    async def more(self, count: int = 30) -> None:
        """Wait until so much more was paid."""
        enough = self.paid + count
        await until(lambda: self.paid >= enough or any(task.done() for task in self._tasks))
        for task in self._tasks:
            assert not task.done(), task.exception()

    async def end(self) -> None:
        """Let nobody pay any more, when all have their answers: what was paid is on its way by then."""
        self._paying = False
        await asyncio.gather(*self._tasks)

    async def balances(self, running: Mapping[str, Server]) -> dict[str, int]:
        """Return what is on the accounts when nothing is on its way, and see that nothing was set aside."""
        await self.end()
        kept = [(server.node, f"account at {name}") for name, server in running.items() if name in self.tills]
        await until(
            lambda: all(
                not any(node.member.attachment.queued().values()) and not node.member.attachment.waiting() for node, _ in kept
            )
        )
        await until(
            lambda: all(node.directory.state.mailboxes[name].position == node.ledger.agents[name].done for node, name in kept)
        )
        assert all(not node.ledger.state.dead for node, _ in kept)
        return {name: (await till.request(f"account at {name}", Balance())).value() for name, till in self.tills.items()}


@pytest.mark.parametrize("on_disk", [True, False])
async def test_money_moves_on_while_a_domain_splits_and_merges(on_disk: bool, tmp_path: Path) -> None:
    old = flat(*NAMES, ordering="matrix")
    split = following(old, {"D": NAMES[:2], "E": NAMES[1:]})
    merged = following(split, {"D": NAMES})
    async with banks(old, tmp_path if on_disk else None, tmp_path / "trace") as running, AsyncExitStack() as stack:
        bank = Bank(old, stack)
        for name in NAMES:
            await bank.open(name)
        bank.begin()
        for version in (split, merged):
            await bank.more()
            await applied(version)
        await bank.more()
        assert sum((await bank.balances(running)).values()) == FIRST * len(NAMES)
    assert_kept(tmp_path / "trace", sends=100)


async def test_a_server_with_accounts_joins_and_another_is_started_again_while_all_hold(tmp_path: Path) -> None:
    """Who joins knows the accounts; a reaction that was committed while the fabric changed is there after a restart, once."""
    old = flat("s1", "s2", ordering="matrix")
    new = following(old, {"D": ("s1", "s2"), "E": ("s2", "s3")}, s3=free_addresses(1)[0])
    async with banks(old, tmp_path) as running, AsyncExitStack() as stack:
        bank = Bank(new, stack)
        for name in old.processes:
            await bank.open(name)
        bank.begin()
        await bank.more()
        running["s3"] = Server(new, "s3", NodeOptions(data=tmp_path / "s3"), kinds_of([Account]))
        await running["s3"].start()
        with pytest.raises(Interrupted):
            await applied(new, dying_when_all_hold)
        await until(lambda: running["s1"].node.member.view.state.waiting)
        await running["s1"].stop(drain_s=0)
        running["s1"] = Server(old, "s1", NodeOptions(data=tmp_path / "s1"), kinds_of([Account]))
        await running["s1"].start()
        assert running["s1"].status.report()["change"]["phase"] == "holding"
        await applied(new)
        await bank.more()
        await bank.end()
        await bank.open("s3")
        await bank.tills["s3"].known("account at s1")
        bank.begin()
        await bank.more()
        assert sum((await bank.balances(running)).values()) == FIRST * 3


async def test_an_account_at_a_server_that_leaves_loses_nothing_it_cannot_pay_out(tmp_path: Path) -> None:
    old = flat("s1", "s2", ordering="matrix")
    new = following(old, {"D": ("s1",)})
    async with banks(old, tmp_path) as running, AsyncExitStack() as stack:
        bank = Bank(old, stack)
        for name in old.processes:
            await bank.open(name)
        await bank.tills["s1"].known("account at s2")
        await bank.tills["s2"].known("account at s1")
        await bank.tills["s1"].send("account at s2", Deposit(7))
        await applied(new)
        leaving = running["s2"].node
        assert leaving.reconfiguration.left
        await until(lambda: leaving.ledger.agents["account at s2"].done == 1)
        with pytest.raises(UsageError, match="'s2' has left the fabric"):
            await bank.tills["s2"].send("account at s2", Pay("account at s1", 1))
        with pytest.raises(UsageError, match="nobody is called 'account at s2'"):
            await bank.tills["s1"].send("account at s2", Deposit(1))
        assert (await bank.tills["s2"].agents.show("account at s2"))["state"]["balance"] == FIRST + 7
        # What an account pays to one that is gone stays where it is, and the message is set aside.
        await bank.tills["s1"].send("account at s1", Pay("account at s2", 5))
        await until(lambda: running["s1"].node.ledger.state.dead)
        (dead,) = await bank.tills["s1"].agents.dead()
        assert "nobody is called 'account at s2'" in dead["error"]
        assert (await bank.tills["s1"].request("account at s1", Balance())).value() == FIRST
