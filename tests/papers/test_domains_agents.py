"""*Preserving causality in a scalable message-oriented middleware*: claims M4 and M5, by running servers.

What the paper calls an agent server is a server here, its engine ``agents.engine``, its channel the member with the driver
around it, its network ``node.peers.connections``. A message consumer with its queue and clock is a place of the member
(``core.places.place``).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import thence
from tests.properties.crashes.test_agent_crashes import SOME, go
from tests.support.crashes.bank import Account, AccountState, Move, audit, state_of
from tests.support.servers.running import PATIENCE_S, assert_kept, flat, fleet, until, url, wait_for_server
from thence.agents import engine
from thence.agents.kinds import kinds_of
from thence.cli.servers.up import free_addresses
from thence.core.ordering.matrix import Matrix
from thence.core.topology.model import Topology
from thence.node.options import NodeOptions
from thence.server.server import Server
from thence.studies.parts.figures import domains_fig2


@asynccontextmanager
async def running(topology: Topology, data: Path, trace: Path | None = None) -> AsyncIterator[dict[str, Server]]:
    """Run all servers of a topology in this loop, durable, with an account ``NAME's`` at each."""
    servers: dict[str, Server] = {}
    try:
        for name in topology.processes:
            options = NodeOptions(data=data / name, trace=trace)
            servers[name] = Server(topology, name, options, kinds_of([Account]))
            await servers[name].start()
        for name, server in servers.items():
            await server.node.peers.wait_connected()
            async with thence.connect(url(topology, name), f"client-{name}") as client:
                await client.agents.create(f"{name}'s", "Account", AccountState(10))
        await until(lambda: all(at_rest(server) for server in servers.values()))
        yield servers
    finally:
        for server in servers.values():
            await server.stop(drain_s=0)


def at_rest(server: Server) -> bool:
    """Whether all servers are known here, and nothing is under way."""
    known = all(server.node.directory.home(f"{name}'s") for name in server.node.topology.processes)
    return known and not any(server.node.member.attachment.queued().values()) and server.node.driver.commits.task is None


def sent(server: Server, domain: str) -> dict[tuple[str, str], int]:
    """Return what a server's clock of one domain says: how many messages went from whom to whom."""
    ordering = server.node.member.attachment.domains[domain].ordering
    assert isinstance(ordering, Matrix)
    members = ordering.members
    counts = {(a, b): ordering.clock.value(i, j) for i, a in enumerate(members) for j, b in enumerate(members)}
    return {pair: count for pair, count in counts.items() if count}


@contextmanager
def held_store(server: Server) -> Iterator[None]:
    """Let no commit of a server end within the block."""
    store: Any = server.node.driver.store
    commit, gate = store.commit, threading.Event()

    def slow(*how: int) -> int:
        assert gate.wait(PATIENCE_S)
        return int(commit(*how))

    store.commit = slow
    try:
        yield
    finally:
        store.commit = commit
        gate.set()


def addressed(topology: Topology) -> Topology:
    """Return the topology with a free address for each server."""
    addresses = dict(zip(topology.processes, free_addresses(len(topology.processes)), strict=True))
    return Topology(topology.name, topology.domains.values(), topology.links.values(), addresses=addresses)


# --- M4: engine, channel and network; agents are persistent, reactions atomic (§3) -----------------------------------------


async def test_m4_a_message_between_agents_passes_engine_channel_and_network(tmp_path: Path) -> None:
    """M4, §3 and Fig. 1: two servers; the engine reacts, the channel stamps with its matrix, the network carries, and back up."""
    topology = flat("s1", "s2", ordering="matrix")
    async with running(topology, tmp_path) as servers, thence.connect(url(topology, "s1"), "client-s1") as client:
        s1, s2 = servers["s1"], servers["s2"]
        before = sent(s1, "D")
        await client.send("s1's", Move("m", 0, [("s2's", Move("m.0", 4))]))
        await until(lambda: s2.engine.reactions)
        assert (s1.engine.reactions, s2.engine.reactions) == (1, 1)
        after = sent(s1, "D")
        assert after["s1", "s2"] == before["s1", "s2"] + 1
        assert sent(s2, "D")["s1", "s2"] == after["s1", "s2"]
        assert [peer.up for peer in s1.node.peers.peers.values()] == [True]


@pytest.mark.slow
def test_m4_agents_are_there_again_after_kill_9(tmp_path: Path) -> None:
    """M4, §3: agents are persistent. Both servers are killed, with messages for an agent on their way, and started again."""
    with fleet(
        flat("s1", "s2", ordering="matrix"), tmp_path, tmp_path / "trace", agents=("tests.support.crashes.bank",)
    ) as servers:
        topology = servers.topology
        moves = [Move(str(number), 0, [("two", Move(f"{number}.0", 1))]) for number in range(50)]

        async def prepare() -> None:
            async with thence.connect(url(topology, "s2"), "other") as other:
                await other.agents.create("two", "Account", AccountState(100))
            async with thence.connect(url(topology, "s1"), "till") as till:
                await till.agents.create("one", "Account", AccountState(100))
                await till.known("two")
                for move in moves:
                    till.post("one", move)
                await till.flush()

        asyncio.run(prepare())
        for name in ("s1", "s2"):
            servers.kill(name)
        for name in ("s1", "s2"):
            servers.start_one(name)
        for name in ("s1", "s2"):
            wait_for_server(topology, name)

        async def states() -> dict[str, AccountState]:
            found = {}
            for server, agent in (("s1", "one"), ("s2", "two")):
                async with thence.connect(url(topology, server), "other" if server == "s2" else "till") as client:
                    found[agent] = state_of(await client.agents.show(agent))
            return found

        async def balanced() -> None:
            async with asyncio.timeout(PATIENCE_S):
                while wrong := audit(await states(), 200, moves, [], []):
                    assert not any("times" in what for what in wrong)

        asyncio.run(balanced())
        assert asyncio.run(states())["two"].balance == 150
    assert_kept(tmp_path / "trace", sends=50)


def test_m4_a_reaction_is_atomic_wherever_its_server_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """M4, §3: reactions are atomic, allowing recovery. Every fifth point of a run; tests/properties tries all of them."""
    monkeypatch.setattr(engine, "FIRST_RETRY_S", 0.0)
    points = go(SOME).operations
    assert points > 60
    runs = [(point, go(SOME, {point})) for point in range(1, points + 1, 5)]
    # Acks may wait for company, so that on a busy machine a run may have fewer operations than the first one.
    assert all(bank.crashes or bank.operations < point for point, bank in runs)
    assert sum(bool(bank.crashes) for _, bank in runs) > 12


# --- M5: one queue and clock per domain, static routing, save before send, acknowledge after save (§5) ----------------------


async def test_m5_a_message_takes_the_shortest_path_and_counts_in_the_domains_that_it_passes(tmp_path: Path) -> None:
    """M5, §5, Fig. 6-7, on the eight servers of Fig. 2: S1 to S8 over S3 and S6, one clock per domain, the others untouched."""
    topology = addressed(domains_fig2())
    async with (
        running(topology, tmp_path, tmp_path / "trace") as servers,
        thence.connect(url(topology, "S1"), "client-S1") as client,
    ):
        for name, server in servers.items():
            assert set(server.node.member.attachment.domains) == set(topology.homes[name])
            for domain, place in server.node.member.attachment.domains.items():
                assert place.ordering.members == topology.domains[domain].members

        def clocks() -> dict[tuple[str, str], dict[tuple[str, str], int]]:
            return {(name, domain): sent(server, domain) for name, server in servers.items() for domain in topology.homes[name]}

        before = clocks()
        await client.send("S1's", Move("m", 0, [("S8's", Move("m.0", 1))]))
        await until(lambda: servers["S8"].engine.reactions and all(at_rest(server) for server in servers.values()))
        after = clocks()
        changed = {where for where in after if after[where] != before[where]}
        hops = {("A", "S1", "S3"), ("D", "S3", "S6"), ("C", "S6", "S8")}
        assert changed == {(server, domain) for domain, *ends in hops for server in ends}
        for domain, source, target in hops:
            for end in (source, target):
                earlier = before[end, domain].get((source, target), 0)
                assert after[end, domain] == before[end, domain] | {(source, target): earlier + 1}
    assert_kept(tmp_path / "trace", sends=8)


async def test_m5_the_queue_of_one_domain_does_not_wait_for_another(tmp_path: Path) -> None:
    """M5, §5: a router has a queue for each domain. What waits for S6 in D does not hold up what goes to S2 in A."""
    topology = addressed(domains_fig2())
    async with running(topology, tmp_path) as servers, thence.connect(url(topology, "S3"), "client-S3") as client:
        router = servers["S3"].node
        await servers["S6"].stop(drain_s=0)
        await client.send("S3's", Move("m", 0, [("S6's", Move("m.0", 1)), ("S2's", Move("m.1", 2))]))
        await until(lambda: servers["S2"].engine.reactions)
        await until(lambda: not router.member.attachment.domains["A"].transport.queued)
        assert router.member.attachment.domains["D"].transport.queued == 1


async def test_m5_nothing_is_sent_before_it_is_saved(tmp_path: Path) -> None:
    """M5, Fig. 7: while the sender's disk has not answered, the receiver hears nothing of a message; then it does."""
    topology = flat("s1", "s2", ordering="matrix")
    async with running(topology, tmp_path) as servers, thence.connect(url(topology, "s1"), "client-s1") as client:
        s1, s2 = servers["s1"], servers["s2"]
        before = sent(s2, "D").get(("s1", "s2"), 0)
        with held_store(s1):
            sending = asyncio.create_task(client.send("s2's", Move("m", 0)))
            # It is queued, or gone already, and then what follows fails.
            await until(lambda: sum(s1.node.member.attachment.queued().values()) or sent(s2, "D").get(("s1", "s2"), 0) != before)
            for _ in range(50):
                await asyncio.sleep(0.002)
            assert sent(s2, "D").get(("s1", "s2"), 0) == before
            assert not sending.done()
        await sending
        await until(lambda: s2.engine.reactions)
        assert sent(s2, "D")["s1", "s2"] == before + 1


async def test_m5_nothing_is_acknowledged_before_it_is_saved(tmp_path: Path) -> None:
    """M5, Fig. 7: while the receiver's disk has not answered, the sender keeps the message; then it lets go of it."""
    topology = flat("s1", "s2", ordering="matrix")
    async with running(topology, tmp_path) as servers, thence.connect(url(topology, "s1"), "client-s1") as client:
        s1, s2 = servers["s1"], servers["s2"]
        before = sent(s2, "D").get(("s1", "s2"), 0)
        with held_store(s2):
            await client.send("s2's", Move("m", 0))
            await until(lambda: sent(s2, "D").get(("s1", "s2"), 0) == before + 1)  # It came, and is in memory,
            for _ in range(50):
                await asyncio.sleep(0.002)
            assert sum(s1.node.member.attachment.queued().values()) == 1  # and is not acknowledged,
            assert s2.engine.reactions == 0  # nor handed to the agent.
        await until(lambda: s2.engine.reactions and not any(s1.node.member.attachment.queued().values()))
