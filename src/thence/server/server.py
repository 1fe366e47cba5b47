"""A server for clients: a node, one listener for peers and clients, and a session for each client.

Rules:

* Agents live in the server, under names like those of clients (``agents.engine``); nobody connects under such a name.
* When the access file (``net.security.access``) changes, that holds at once, also for those who are connected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from thence.agents.admin import AgentAdmin
from thence.agents.engine import AgentEngine
from thence.agents.kinds import Kind
from thence.core.topology.model import Topology
from thence.errors import ConfigError
from thence.net.control import hang_up, refuse
from thence.net.protocol import (
    Refused,
)
from thence.node.directory.directory import DirectoryChange
from thence.node.listener import Listener
from thence.node.node import Node
from thence.node.options import NodeOptions
from thence.node.peers.stalls import MailboxStall
from thence.node.sessions.fair_turns import Rounds
from thence.node.sessions.large_turns import LargeTurns
from thence.node.sessions.session import Session
from thence.server.admin import ClientAdmin
from thence.server.answers import ServerAnswers
from thence.server.chatter import ChatterAccounts
from thence.server.churn import Churn
from thence.server.clients import ConnectedClients, NameSearches
from thence.server.connection import ClientConnection, Service
from thence.server.reception import Reception
from thence.server.revocation import Revocation
from thence.server.status import ServerStatus

DRAIN_S: Final = 10.0
"""How long a server that is told to stop waits for its peers to ack."""
DRAIN_LOOK_S: Final = 0.02
"""How often it looks whether they have."""
log = logging.getLogger("thence.server")


class Server:
    """A node with its listener, its clients and its agents."""

    def __init__(self, topology: Topology, name: str, options: NodeOptions, kinds: Mapping[str, Kind] | None = None) -> None:
        """Bring back what is in the store; ``start`` opens the listener. ``kinds`` are the classes of agents that it knows."""
        self.node = node = Node(topology, name, options)
        self.engine = AgentEngine(node, kinds or {})
        self.stopped: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        """Done when the server cannot go on, with the reason."""
        self.clients = ConnectedClients()
        self.revocation = Revocation(node, self.clients, self.engine)
        self.status = ServerStatus(node, self.clients, self.engine, self.revocation)
        self.searches = NameSearches(node.directory)
        self._rounds: Rounds[Session] = Rounds(self.clients.is_here, lambda: bool(self.status.takes_nothing))
        self._agents = AgentAdmin(node, self.engine)
        self.reception = self._open_reception()
        self.listener = Listener((node.name, node.topology.name), node.security, node.peers.callers.called, self.reception.called)
        self.listener.holder_of = lambda name: (node.homes.holder(name), self.reception.joining.get(name))
        self.listener.limit = node.memory.limits.connections
        self._mailboxes = MailboxStall()
        node.hooks.on_answered = self.clients.answered
        node.hooks.on_messages = self._messages
        node.hooks.on_safe = self.clients.tell_safe
        node.hooks.on_notice = self._notice
        node.hooks.on_room = self._room
        node.hooks.on_tick = self._tick
        node.hooks.on_failed = node.peers.on_failed = self._failed
        node.security.on_access = self._access_changed
        node.peers.epochs.on_fenced = self._fenced

    def _open_reception(self) -> Reception:
        """Make what the connections of clients use, and who lets them in."""
        node, clients, status = self.node, self.clients, self.status
        reception = Reception(node, clients, self.searches)
        reception.make = partial(
            ClientConnection,
            Service(
                node,
                ServerAnswers(node, status, self._agents, ClientAdmin(node, clients, status, reception.end_session)),
                self.revocation,
                self.searches,
                self._rounds,
                large=self._share_large(),
                churn=Churn(self._rounds.wake),
                senders=set(),
                accounts=ChatterAccounts(),
                forget=reception.forget,
                lost=reception.lost,
            ),
        )
        return reception

    def _share_large(self) -> LargeTurns:
        """Make what gives large messages their part of the time."""
        loop, node = asyncio.get_running_loop(), self.node

        def queues() -> dict[str, int]:
            sizes, peers = node.member.attachment.queued_bytes_by_peer(), node.peers.peers
            return {name: size for name, size in sizes.items() if name in peers and peers[name].up}

        return LargeTurns(loop.time, loop.call_later, queues, lambda: self._rounds.wake(self.clients.waiting()))

    async def start(self, listen: str | None = None) -> None:
        """Open the listener and call the peers."""
        node = self.node
        address = listen or node.topology.addresses.get(node.name)
        if address is None:
            raise ConfigError(f"no address for {node.name!r}: the topology needs [servers.{node.name}] address, or give --listen")
        self.status.address = await self.listener.open(address, peers=bool(node.peers.peers))
        self.reception.start()
        node.start()
        self.revocation.review()
        if not node.peers.epochs.fenced:
            self.engine.start()
        log.info("%s of %s listens on %s", node.name, node.topology.name, self.address)
        if node.reconfiguration.left:
            log.warning("%s has left %s, which had version %d", node.name, node.topology.name, node.topology.version)

    async def stop(self, *, drain_s: float = DRAIN_S) -> None:
        """Take nothing more, wait for what is on its way to peers that are there to be acknowledged, and stop."""
        self.status.stopping = True
        await self.listener.close()
        for client in list(self.clients.all):
            hang_up(client.connection, Refused(f"{self.node.name} is stopping", later=True))
        await self.engine.close()
        deadline = time.monotonic() + drain_s
        # The core tells nobody when a queue is empty, so this looks. With a switch meanwhile, others are there.
        while time.monotonic() < deadline:
            there = {name for name, peer in self.node.peers.peers.items() if peer.up}
            if not any(queued and name in there for name, queued in self.node.member.attachment.queued().items()):
                break
            await asyncio.sleep(DRAIN_LOOK_S)
        if unacked := sum(self.node.member.attachment.queued().values()):
            log.warning("%d frames are not acknowledged; they are in the store and go out at the next start", unacked)
        await self.node.close()

    def _fenced(self, reason: str) -> None:
        """This is an old copy: clients and agents must see nothing more of it. Whoever only asks stays, and is answered."""
        self.engine.halt()
        for client in list(self.clients.all):
            if client.name:
                refuse(client.connection, reason, claims=f"client {client.name!r}")

    # Files that change.

    def reload(self) -> None:
        """Read certificates and the access file again."""
        self.node.security.reload()

    def _access_changed(self) -> None:
        """The access file says something else: that holds for those who are here too."""
        access = self.node.security.access
        for client in list(self.clients.all):
            if access is None or client.guest is None:
                continue
            guest = access.admit_again(client.guest)
            if guest is None:
                reason = f"the access file has the token of {client.guest.rights.entry!r} no longer"
            else:
                client.guest, reason = guest, guest.rights.objection_to_name(client.name)
            if reason:
                refuse(client.connection, reason, claims=f"client {client.name!r}")
        self.revocation.review()

    # What the node tells.

    def _messages(self, names: Collection[str]) -> None:
        self.clients.feed(names)
        if self.node.ledger.agents:
            self.engine.messages(names)

    def _notice(self, change: DirectoryChange) -> None:
        self._agents.notice(change)
        if change.joined is not None:
            self.reception.joined(change.joined)
        for name in change.known:
            self.searches.found(name)
        if change.left is not None:
            self.engine.forget(change.left)
        self.reception.changed(change)
        if change.left is None and change.follows is not None:
            self.revocation.followed(change.follows)
            self.clients.followed(change.follows)

    def _room(self) -> None:
        self.reception.try_again()
        self._rounds.wake(self.clients.waiting())

    def _failed(self, error: Exception) -> None:
        if not self.stopped.done():
            self.stopped.set_result(error)

    def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        self.revocation.tick()
        self.reception.tick()
        self._mailboxes.look(self.node.directory.mailboxes, time.monotonic())
        self._look_after_memory(now)
        self.clients.beat(now)

    def _look_after_memory(self, now: float) -> None:
        """Let those go on who wait for memory; if that lasts, show out whoever holds most of it."""
        for client in self.clients.all:
            client.count_waiting()
        self.listener.limit = self.node.memory.limits.connections
        self.node.memory.pools.clients.look(now, self.clients.hungriest)
        self.node.memory.pools.peers.look(now, self.node.peers.hungriest)

    # Seen from outside.

    @property
    def address(self) -> str:
        """Where the server listens, once it does."""
        return self.status.address

    @property
    def turned_away(self) -> int:
        """How many strangers were, since there were too many."""
        return self.listener.turned_away

    def complain(self, address: str, text: str) -> None:
        """Write into the log what somebody at an address did that it should not have; what comes to any port counts together."""
        self.listener.complaints.say(address, text)
