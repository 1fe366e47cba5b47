"""Two servers without sockets, with accounts as agents, driven by hand; either may crash before or after anything it does.

Nodes, stores, drivers and engines are the real ones. The network is a list of packets, and the store's thread is the test's own,
so that the same run does the same things in the same order. What a crash leaves is the folder of the store and the network.

What is done is counted: each commit to disk, each packet sent, each message called accepted, each delivery handed over, each
acknowledgement of an agent that takes effect, and each snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from tests.support.crashes.bank import Account, AccountState, Move, Poison, audit
from tests.support.stores import Inline
from thence.agents.engine import AgentEngine
from thence.agents.kinds import kinds_of
from thence.core.member.codec import decode_packet, encode_packet
from thence.core.member.contract import Connected, Delivery
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.core.wire.messages import Envelope, Packet
from thence.errors import Busy
from thence.net.protocol import BatchItem, encode_value, read_messages, write_messages
from thence.node.directory.directory import DirectoryChange
from thence.node.node import Node
from thence.node.options import NodeOptions
from thence.storage.bodies import Joined
from thence.storage.mailbox import Batch
from thence.storage.rejections import Rejected

HOMES = {"ann": "s1", "bob": "s2", "carl": "s1"}
FIRST_BALANCE = 100
CLIENT = "till"
MAX_TURNS = 3_000


class Crash(Exception):
    """The process is gone."""


class CrashingNode(Node):
    """A node that counts what it does, and may end before or after any of it."""

    bank: Bank | None = None

    def count(self, what: str) -> None:
        if self.bank is not None:
            self.bank.operation(self, what)

    def attach(self, bank: Bank) -> None:
        """From now on everything counts."""
        self.bank = bank
        self.driver.commits.thread = cast("Any", Inline())
        actions = cast("Any", self.driver.actions)
        accepted, deliver = actions.accepted, actions.deliver
        store, commit, compact = cast("Any", self.driver.store), self.driver.store.commit, cast("Any", self.driver.store).compact

        def committed(most_bytes: int, over_limit: bool) -> int:
            self.count("persist")
            durable = commit(most_bytes, over_limit)
            self.count("persisted")
            return durable

        def compacted(snapshot: bytes, upto: int) -> None:
            self.count("snapshot")
            compact(snapshot, upto)
            self.count("snapshot is there")

        def transmit(peer: str, packet: Packet[Any]) -> None:
            self.count("send")
            bank.network.append((self.name, peer, encode_packet(packet)))
            self.count("sent")

        def accept(envelope: Envelope) -> None:
            self.count("accept")
            accepted(envelope)

        def delivering(deliveries: Sequence[Delivery]) -> None:
            self.count("deliver")
            deliver(deliveries)
            self.count("delivered")

        react = self.acknowledgements.reacted

        def reacted(agent: str, since: int, upto: int) -> None:
            self.count("acknowledge")
            react(agent, since, upto)
            self.count("acknowledged")

        store.commit, store.compact = committed, compacted
        self.acknowledgements.reacted = reacted  # type: ignore[method-assign]
        actions.transmit, actions.accepted, actions.deliver = transmit, accept, delivering


class Bank:
    """Both servers, what they keep, and a client of s1 that sends each move until it is accepted, and then never again."""

    def __init__(self, folder: Path, *, crash_at: Collection[int] = (), compact_every: int = 0) -> None:
        self.folder = folder
        self.crash_at = frozenset(crash_at)
        self.compact_every = compact_every
        """After how many turns each server makes a snapshot; 0: never."""
        self.operations = 0
        self.kinds_of_operation: set[str] = set()
        self.armed = False
        self.crashes: list[str] = []
        self.network: list[tuple[str, str, bytes]] = []
        self.accepted: set[int] = set()
        self.topology: Topology = parse('name = "bank"\n[domains.D]\nmembers = ["s1", "s2"]\n')
        self.nodes: dict[str, CrashingNode] = {}
        self.engines: dict[str, AgentEngine] = {}
        self.dead: set[str] = set()
        """Servers that have to be started again."""
        self._gone: dict[str, CrashingNode] = {}
        """What they were before they crashed."""
        self._sent: list[tuple[str, Move | Poison]] = []

    def operation(self, node: CrashingNode, what: str) -> None:
        if node is not self.nodes.get(node.name):
            raise Crash  # It is gone, and does nothing any more.
        if self.armed:
            self.operations += 1
            self.kinds_of_operation.add(what)
            if self.operations in self.crash_at:
                self.crashes.append(f"{node.name}: {what}")
                self.dead.add(node.name)
                self._gone[node.name] = self.nodes.pop(node.name)
                raise Crash

    # Starting.

    async def open(self) -> None:
        """Start both servers, with their accounts and the client."""
        for name in self.topology.processes:
            self._start(name)
        self._connect()
        for account, home in HOMES.items():
            state = encode_value(AccountState(FIRST_BALANCE))
            self.nodes[home].intake.announce(Joined(account, home, temporary=False, kind="Account", state=state))
        self.nodes["s1"].intake.announce(Joined(CLIENT, "s1", temporary=False))
        await self.settle()
        self.armed = True

    def _start(self, name: str) -> None:
        node = CrashingNode(self.topology, name, NodeOptions(data=self.folder / name))
        self.nodes[name] = node
        node.attach(self)
        engine = self.engines[name] = AgentEngine(node, kinds_of([Account]))
        node.hooks.on_messages = engine.messages
        node.hooks.on_answered = self._on_answered
        node.hooks.on_notice = lambda handed: self._on_notice(engine, handed)
        engine.start()

    def _on_notice(self, engine: AgentEngine, handed: DirectoryChange) -> None:
        if handed.left is not None:
            engine.forget(handed.left)

    def _on_answered(self, client: str, upto: int, rejected: Rejected | None) -> None:
        assert rejected is None, rejected
        self.accepted.update(range(1, upto + 1))

    def _connect(self) -> None:
        for name, node in list(self.nodes.items()):
            for peer in list(self.nodes):
                if peer != name:
                    self._do(lambda node=node, peer=peer: node.driver.step(Connected(peer)))  # type: ignore[misc]

    def _do(self, action: Callable[[], Any]) -> None:
        """Do something that a crash may interrupt, or that cannot be done in a moment of being full or gone."""
        with suppress(Crash, Busy):
            action()

    # What happens.

    def send(self, account: str, move: Move | Poison) -> None:
        """Let the client send; if its server crashes before that is on disk it sends again."""
        self._sent.append((account, move))
        self._submit()

    def _submit(self) -> None:
        node = self.nodes.get("s1")
        if node is None:
            return
        for number in range(node.directory.state.mailboxes[CLIENT].sent + 1, len(self._sent) + 1):
            account, move = self._sent[number - 1]
            messages = write_messages([BatchItem(encode_value(move), coded=True)])
            self._do(lambda n=number, a=account, w=messages: node.intake.submit(Batch(CLIENT, n, 1, (a,), None, w)))  # type: ignore[misc]

    async def settle(self) -> None:
        """Let everything happen until nothing is left to do."""
        for turn in range(MAX_TURNS):
            if self.dead:
                await self._restart()
            if self.network:
                source, target, written = self.network.pop(0)
                node = self.nodes.get(target)
                if node is not None:
                    packet = decode_packet(written, source)
                    self._do(lambda node=node, source=source, packet=packet: node.peers.events.arrived(source, packet))  # type: ignore[misc]
            await asyncio.sleep(0)
            if self.compact_every and turn % self.compact_every == 0:
                await self._compact()
            if self._at_rest():
                return
        raise AssertionError("the bank never comes to rest")

    async def _compact(self) -> None:
        for node in list(self.nodes.values()):
            if node.driver.commits.task is None and node.driver.store.bytes_since_snapshot:
                try:
                    await node.driver.commits.compact()
                except Crash:
                    node.driver.commits.closed = True

    async def _restart(self) -> None:
        dead, self.dead = sorted(self.dead), set()  # On the way some may crash again.
        for name in dead:
            engine = self.engines.pop(name)
            gone = self._gone.pop(name, None) or self.nodes[name]
            gone.driver.commits.closed = True
            await engine.close()
            while gone.driver.commits.task is not None:  # noqa: ASYNC110  It ends, since the store does nothing any more.
                await asyncio.sleep(0)
            gone.driver.stop_waking()
            gone.driver.store.close()
            self._start(name)
        self._connect()
        self._submit()

    def _at_rest(self) -> bool:
        return not self.network and not self.dead and all(self._rests(name) for name in self.topology.processes)

    def _rests(self, name: str) -> bool:
        node, engine = self.nodes[name], self.engines[name]
        unreacted = any(node.directory.state.mailboxes[agent].position > kept.done for agent, kept in node.ledger.agents.items())
        committed = node.driver.commits.task is None and node.driver.store.durable == node.driver.store.appended
        return committed and engine.idle and not unreacted and not any(node.member.attachment.queued().values())

    # The end.

    async def close(self) -> None:
        for name, node in self.nodes.items():
            await self.engines[name].close()
            node.driver.stop_waking()
            node.driver.commits.closed = True
            node.driver.store.close()

    def wrong(self) -> list[str]:
        """Audit what is there, in memory."""
        states = {account: self._state(account) for account in HOMES}
        moves = [move for _, move in self._sent if isinstance(move, Move)]
        poison = [move.id for _, move in self._sent if isinstance(move, Poison)]
        dead = [self._id(one.batch) for node in self.nodes.values() for one in node.ledger.dead_letters()]
        wrong = audit(states, FIRST_BALANCE * len(HOMES), moves, dead, poison)
        unaccepted = sorted(self.accepted - set(range(1, self.nodes["s1"].directory.state.mailboxes[CLIENT].sent + 1)))
        return wrong + [f"message {number} was accepted and is not known" for number in unaccepted]

    def _state(self, account: str) -> AccountState:
        return msgspec.msgpack.decode(self.nodes[HOMES[account]].ledger.agents[account].state, type=AccountState)

    def _id(self, batch: Batch) -> str:
        return str(msgspec.msgpack.decode(read_messages(batch.messages, "")[0].body)["id"])
