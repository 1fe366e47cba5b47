"""Old copies of members inside programs, and of servers with agents: found, fenced and told, as servers are."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

import thence
from examples.bank import Account, AccountState, Balance, Pay
from tests.integration.faults.test_epochs import ACCEPTED, FORGOTTEN, plain_copy, plain_return
from tests.support.servers.running import PATIENCE_S, flat, until, url
from thence.agents.kinds import kinds_of
from thence.cli.servers.up import free_addresses
from thence.core.topology.model import Topology
from thence.errors import Refusal, StorageError
from thence.node.options import NodeOptions
from thence.server.server import Server

FENCED = "is fenced since it met"


def elsewhere(topology: Topology) -> Topology:
    """Return the same fabric where nobody is."""
    return topology.at(dict(zip(topology.processes, free_addresses(len(topology.processes)), strict=True)))


def go_back(data: Path, copy: Path) -> None:
    shutil.rmtree(data)
    plain_return(copy, data)


@pytest.mark.parametrize("old", ["a", "b"], ids=["who calls", "who is called"])
async def test_a_member_on_an_old_copy_is_fenced_and_its_program_is_told(old: str, tmp_path: Path) -> None:
    topology = flat("a", "b")
    other = "b" if old == "a" else "a"

    def member(name: str, where: Topology = topology) -> thence.Member:
        return thence.Member(where, name=name, data=tmp_path / name)

    got: list[int] = []
    async with member(other) as beside:
        beside.on_message(lambda message: got.append(message.value(int)))
        async with member(old) as original:
            for number in range(5):
                await original.send(other, number)
            await until(lambda: len(got) == 5)
            plain_copy(tmp_path / old, tmp_path / "copy")
            for number in range(FORGOTTEN):
                await original.send(other, 100 + number)
            await until(lambda: len(got) == 5 + FORGOTTEN)
        go_back(tmp_path / old, tmp_path / "copy")
        async with member(old, elsewhere(topology)) as alone:
            for number in range(ACCEPTED):
                alone.post(other, 1000 + number)
            await alone.flush()
        with pytest.raises(StorageError, match=FENCED):
            async with member(old) as copy:
                await copy.receive(PATIENCE_S)
        with pytest.raises(StorageError, match=FENCED):  # It stays so.
            await member(old).__aenter__()
        assert beside._link.node is not None
        peer = beside._link.node.peers.peers[old]
        await until(lambda: peer.behind == "peer")
        assert f"{old!r} runs on an old copy" in peer.trouble
        assert f"--lost {old}" in peer.trouble
        await beside.send(other, 1)  # It goes on.
        await until(lambda: got[-1] == 1)
        assert not [number for number in got if number >= 1000]


async def test_agents_of_an_old_copy_react_no_more_when_it_is_fenced(tmp_path: Path) -> None:
    topology = flat("s1", "s2")

    async def bank(name: str, where: Topology = topology) -> Server:
        server = Server(where, name, NodeOptions(data=tmp_path / name), kinds_of([Account]))
        await server.start()
        return server

    async def pay(where: Topology, amount: int, count: int) -> None:
        async with thence.connect(url(where, "s1"), "till") as till:
            await till.known("bob")
            for _ in range(count):
                assert (await till.request("ann", Pay("bob", amount))).value() == "paid"

    running = {name: await bank(name) for name in topology.processes}
    async with thence.connect(url(topology, "s2"), "clerk") as clerk:
        await clerk.agents.create("bob", "Account")
        async with thence.connect(url(topology, "s1"), "till") as till:
            await till.agents.create("ann", "Account", AccountState(balance=1000))
        await clerk.known("ann")
        await pay(topology, 1, 1)
        await asyncio.to_thread(plain_copy, tmp_path / "s1", tmp_path / "copy")
        await pay(topology, 10, FORGOTTEN)
        await until_balance(clerk, 1 + 10 * FORGOTTEN)
        await running["s1"].stop(drain_s=1)
        go_back(tmp_path / "s1", tmp_path / "copy")
        alone = elsewhere(topology)
        running["s1"] = await bank("s1", alone)
        await pay(alone, 20, ACCEPTED)
        await running["s1"].stop(drain_s=0)
        running["s1"] = await bank("s1")
        await until(lambda: running["s1"].node.peers.epochs.fenced and running["s2"].node.peers.peers["s1"].behind == "peer")
        before = running["s1"].node.ledger.snapshot()
        with pytest.raises(Refusal, match=FENCED):
            await pay(topology, 1, 1)
        await running["s1"].stop(drain_s=0)
        running["s1"] = await bank("s1")
        with pytest.raises(Refusal, match=FENCED):
            await pay(topology, 1, 1)
        assert running["s1"].node.ledger.snapshot() == before
        assert (await clerk.request("bob", Balance())).value() == 1 + 10 * FORGOTTEN
    for server in running.values():
        await server.stop(drain_s=0)


async def until_balance(clerk: thence.Client, balance: int) -> None:
    while (await clerk.request("bob", Balance())).value() != balance:  # noqa: ASYNC110  An account tells nobody.
        await asyncio.sleep(0.01)
