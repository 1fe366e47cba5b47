"""A server for clients: a node, one listener for peers and clients, and a session for each client.

Rules:

* A client's first frame gives its name. A name that is new is told to all servers before the client is welcome, so that whoever
  hears of the client can write to it. A name has one server; elsewhere it is refused, with the server named.
* A client has one connection: a newer one takes the place of an older one.
* A temporary client that stays away for ``AWAY_S`` is forgotten, with what waits for it.
* Agents live in the server, under names like those of clients (``agents.engine``); nobody connects under such a name.
* When the access file (``net.security.access``) changes, that holds at once, also for those who are connected.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from thence.agents.admin import AgentAdmin
from thence.agents.engine import AgentEngine
from thence.agents.kinds import Kind
from thence.core.member.member import describe_wait
from thence.core.topology.model import Topology
from thence.core.wire.messages import MAX_NAME_CHARACTERS
from thence.errors import Busy, ConfigError, MalformedFrame, UsageError
from thence.net.control import hang_up, refuse, tell
from thence.net.framing import Connection
from thence.net.protocol import (
    ClientHello,
    Denied,
    NameFound,
    Refused,
)
from thence.net.reconnect import Heartbeat
from thence.net.security.access import Guest, objection_to_new
from thence.node.directory.directory import DirectoryChange
from thence.node.directory.homes import FENCED, begins, new_mailbox
from thence.node.fair_turns import Rounds
from thence.node.listener import Listener
from thence.node.node import Node
from thence.node.options import NodeOptions
from thence.node.peers.stalls import MailboxStall
from thence.node.session import Session
from thence.node.status import backlog, clients, memory, peers, relay, topics, unsafe
from thence.runtime.polling import polling_of
from thence.runtime.printable import printable
from thence.runtime.reload import LOOK_EVERY_S
from thence.runtime.tasks import tell_if_it_fails
from thence.server.admin import ClientAdmin
from thence.server.admission import Answering
from thence.server.chatter import ChatterAccounts
from thence.server.churn import Churn
from thence.server.connection import ClientConnection, reject
from thence.server.revocation import Revocation
from thence.storage.bodies import Joined, Left
from thence.storage.rejections import Rejected

AWAY_S: Final = 30.0
LONG_AGO: Final = -AWAY_S
DRAIN_S: Final = 10.0
"""How long a server that is told to stop waits for its peers to ack."""
DRAIN_LOOK_S: Final = 0.02
"""How often it looks whether they have."""
CLIENT_SILENCE_S: Final = 20.0
HEARTBEAT_S: Final = 1.0
"""After how long a client that gets nothing gets a ping."""
MAX_FINDING: Final = 10_000
"""How many others one client may be waiting for at a time."""
MAX_WAITS_LISTED: Final = 1_000
"""How many waiting messages a status lists, of those that wait longest; ``waiting_left_out`` counts the others."""

log = logging.getLogger("thence.server")


class Server:
    """See the module's text."""

    def __init__(self, topology: Topology, name: str, options: NodeOptions, kinds: Mapping[str, Kind] | None = None) -> None:
        """Bring back what is in the store; ``start`` opens the listener. ``kinds`` are the classes of agents that it knows."""
        self.node = Node(topology, name, options)
        self.engine = AgentEngine(self.node, kinds or {})
        self.admin = AgentAdmin(self.node, self.engine)
        self.operator_admin = ClientAdmin(self)
        self.revocation = Revocation(self)
        self.stopped: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        """Done when the server cannot go on, with the reason."""
        self.address = ""
        self._clients: dict[str, ClientConnection] = {}
        self._connections: dict[ClientConnection, None] = {}
        """All of them: also of those who wait to be let in, or only ask."""
        self._joining: dict[str, ClientConnection] = {}
        self._finding: dict[str, dict[ClientConnection, None]] = {}
        """Who wants to know when there is a client of a name."""
        self._away: dict[str, float] = {}
        """Temporary clients that are not connected, since when."""
        self._taking_back: dict[str, None] = {}
        """Names that we claim without a mailbox, and of which nobody could be told yet that they are free."""
        self.started_at = time.time()
        node = self.node
        node.hooks.on_answered = self._answered
        node.hooks.on_messages = self._messages
        node.hooks.on_safe = self._safe
        node.hooks.on_notice = self._notice
        self.rounds = Rounds(self._is_here, lambda: bool(self._takes_nothing))
        """In which clients are served whose messages have to wait."""
        self.senders: set[Session] = set()
        """Those of whom something is on its way to the disk: they share ``MAX_IN_FLIGHT``."""
        node.hooks.on_room = self._room
        node.hooks.on_failed = node.peers.on_failed = self._failed
        node.security.on_access = self._access_changed
        node.peers.epochs.on_fenced = self._fenced
        self._listener = Listener((node.name, node.topology.name), node.security, node.peers.callers.called, self._called)
        self._listener.holder_of = lambda name: (node.homes.holder(name), self._joining.get(name))
        self._listener.limit = node.memory.limits.connections
        self.accounts = ChatterAccounts()
        """How much clients may still say that moves nothing."""
        self.churn = Churn(self.rounds.wake)
        """The turns of those who follow and leave topics again and again."""
        self.answering = Answering()
        """The turns of those who ask."""
        self._ticker: asyncio.Task[None] | None = None
        self._mailboxes = MailboxStall()
        self.stopping = False

    async def start(self, listen: str | None = None) -> None:
        """Open the listener and call the peers."""
        node = self.node
        address = listen or node.topology.addresses.get(node.name)
        if address is None:
            raise ConfigError(f"no address for {node.name!r}: the topology needs [servers.{node.name}] address, or give --listen")
        self.address = await self._listener.open(address, peers=bool(node.peers.peers))
        now = time.monotonic()
        self._away = {name: now for name, mailbox in node.directory.state.mailboxes.items() if mailbox.temporary}
        self._taking_back = dict.fromkeys(node.directory.claims.without(node.directory.state.mailboxes))
        node.start()
        self.revocation.review()
        if not node.peers.epochs.fenced:
            self.engine.start()
        self._ticker = asyncio.get_running_loop().create_task(self._tick())
        tell_if_it_fails(self._ticker, f"the clock of {node.name!r}", self._failed)
        log.info("%s of %s listens on %s", node.name, node.topology.name, self.address)
        if node.reconfiguration.left:
            log.warning("%s has left %s, which had version %d", node.name, node.topology.name, node.topology.version)

    async def stop(self, *, drain_s: float = DRAIN_S) -> None:
        """Take nothing more, wait for what is on its way to peers that are there to be acknowledged, and stop."""
        self.stopping = True
        await self._listener.close()
        for client in list(self._connections):
            hang_up(client.connection, Refused(f"{self.node.name} is stopping", later=True))
        await self.engine.close()
        deadline = time.monotonic() + drain_s
        # The core tells nobody when a queue is empty, so this looks. With a switch meanwhile, others are there.
        while time.monotonic() < deadline:
            there = {name for name, peer in self.node.peers.peers.items() if peer.up}
            if not any(queued and name in there for name, queued in self.node.member.queued().items()):
                break
            await asyncio.sleep(DRAIN_LOOK_S)
        if unacked := sum(self.node.member.queued().values()):
            log.warning("%d frames are not acknowledged; they are in the store and go out at the next start", unacked)
        if self._ticker is not None:
            self._ticker.cancel()
        await self.node.close()

    # Clients.

    def _called(self, connection: Connection, hello: ClientHello, guest: Guest | None) -> bool:
        reason = self._objection(hello.name) if hello.name else ""
        if hello.name and hello.name not in self.node.directory.state.mailboxes:
            reason = reason or objection_to_new(hello.name, guest)
        if reason and not begins(hello) and self.node.directory.home(hello.name) not in (None, self.node.name):
            reject(self.node, connection, hello.name, self._lost_name(hello.name))
            return False
        if reason:
            refuse(connection, reason, claims=f"client {hello.name!r}")
            return False
        refused = self.node.homes.objection(hello) if hello.name else None
        if refused is not None:
            reject(self.node, connection, hello.name, refused)
            return False
        client = ClientConnection(self, connection, hello.name, guest, hello.program)
        self._connections[client] = None
        if not hello.name:
            client.greet()
            return True  # Only questions.
        if hello.name in self._taking_back:
            hang_up(connection, Refused(f"{hello.name!r} is being removed from {self.node.name!r}: try again", later=True))
            return True
        self._away.pop(hello.name, None)
        if hello.name in self.node.directory.state.mailboxes:
            self._meet(client, hello)
            return True
        older = self._joining.pop(hello.name, None)
        if older is not None and older.program and older.program == hello.program:
            older.replaced()
        elif older is not None:
            older.fence(0)
        self._joining[hello.name] = client
        try:
            entry = "" if guest is None else guest.rights.entry
            joined = Joined(hello.name, self.node.name, hello.temporary, entry=entry, mailbox_id=new_mailbox())
            self.node.intake.announce(joined)
        except Busy as error:
            del self._joining[hello.name]
            hang_up(connection, Refused(str(error), later=True))
        return True

    def _meet(self, client: ClientConnection, hello: ClientHello) -> None:
        """Let a program have the mailbox that is there. It is welcome, and whoever had it is told, when that is durable."""
        older = self._clients.pop(hello.name, None)
        if older is not None:
            older.silence()
        self._clients[hello.name] = client
        there = "" if older is None else older.program
        takes_over = self.node.homes.takes_over(hello, there)

        def durable(accepted: int) -> None:
            if older is not None and takes_over:
                older.fence(accepted)
            elif older is not None:
                older.replaced()
            if self._clients.get(hello.name) is client:
                client.welcome()

        self.node.homes.meet(hello, durable, there)

    def _lost_name(self, name: str) -> Refused:
        home = self.node.directory.home(name)
        reason = f"another program has the name {name!r} since: {home!r} gave it the name too, while it and {self.node.name!r} "
        return Refused(f"{reason}could not hear each other. Choose another name, or connect to {home!r}", cause=FENCED)

    def _objection(self, name: str) -> str:
        if self.node.peers.epochs.fenced:
            return self.node.peers.epochs.fenced
        if self.node.name in self.node.topology.fellows:
            return f"{self.node.name!r} is a replica of a relay: it carries messages of others and has no clients"
        if self.node.reconfiguration.left and name not in self.node.directory.state.mailboxes:
            return f"{self.node.name!r} has left the fabric {self.node.topology.name!r}: connect to another server"
        home = self.node.directory.home(name)
        if home == name:
            return f"{name!r} is the name of a server"
        if home is not None and home != self.node.name:
            return f"{name!r} is a client of {home!r}; connect there, or choose another name"
        if name in self.node.ledger.agents:
            return f"{name!r} is an agent of {home!r}"
        return self.node.directory.objection(name)

    def lost(self, client: ClientConnection) -> None:
        """A client's connection is gone."""
        self._connections.pop(client, None)
        self.node.intake.waiters.drop(client)
        for name in client.finding:
            waiting = self._finding[name]
            del waiting[client]
            if not waiting:
                del self._finding[name]
        for table in (self._clients, self._joining):
            if table.get(client.name) is client:
                del table[client.name]
                self.node.directory.mailboxes.here.discard(client.name)
                mailbox = self.node.directory.state.mailboxes.get(client.name)
                if mailbox is not None and mailbox.temporary:
                    self._away[client.name] = time.monotonic()

    def forget(self, name: str) -> None:
        """Give up a client's name, with all that waits for it."""
        try:
            if name in self.node.directory.state.mailboxes:
                self.node.removal.remove(name, "leave")
            self._away.pop(name, None)
        except Busy:
            self._away[name] = LONG_AGO  # Tried again by the clock.

    def _take_back(self, name: str) -> None:
        """Tell all servers that a name is free which we claim without a mailbox: now, or when there is room for that."""
        self._taking_back.pop(name, None)
        try:
            self.node.intake.announce(Left(name, self.node.name))
        except Busy:
            self._taking_back[name] = None
        except UsageError:
            pass  # We have left: there is nobody to tell, now or later.

    def end_session(self, name: str, reason: str) -> bool:
        """End the connection of a client for good, and tell it why; return whether there is one."""
        client = self._clients.get(name)
        if client is not None:
            hang_up(client.connection, Refused(reason))
            self.lost(client)
        return client is not None

    def connected_from(self) -> dict[str, str]:
        """Return the addresses of clients that are connected, by name."""
        return {name: client.connection.address for name, client in self._clients.items()}

    def _fenced(self, reason: str) -> None:
        """This is an old copy: clients and agents must see nothing more of it. Whoever only asks stays, and is answered."""
        self.engine.halt()
        for client in list(self._connections):
            if client.name:
                refuse(client.connection, reason, claims=f"client {client.name!r}")

    # Files that change.

    def reload(self) -> None:
        """Read certificates and the access file again."""
        self.node.security.reload()

    def _access_changed(self) -> None:
        """The access file says something else: that holds for those who are here too."""
        access = self.node.security.access
        for client in list(self._connections):
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

    def guest(self, name: str) -> Guest | None:
        """Return what a client of this name that is connected has proved, if there is one."""
        client = self._clients.get(name)
        return None if client is None else client.guest

    def tell_withdrawn(self, name: str, topic: str, reason: str) -> None:
        """Tell a client, if it is here, that it follows a topic no longer since it may not."""
        client = self._clients.get(name)
        if client is not None:
            tell(client.connection, Denied("topic", topic, reason))

    # What the node tells.

    def _answered(self, name: str, upto: int, rejected: Rejected | None) -> None:
        client = self._clients.get(name)
        if client is not None and client.session is not None:
            client.session.answered(name, upto, rejected)

    def _messages(self, names: Collection[str]) -> None:
        for name in names:
            client = self._clients.get(name)
            if client is not None and client.session is not None:
                client.session.feed()
        if self.node.ledger.agents:
            self.engine.messages(names)

    def _safe(self, names: Collection[str]) -> None:
        for name in names:
            client = self._clients.get(name)
            if client is not None and client.session is not None:
                client.session.tell_safe()

    def _notice(self, change: DirectoryChange) -> None:
        self.admin.notice(change)
        if change.joined is not None:
            self._joined(change.joined)
        for name in change.known:
            self._found(name)
        if change.yielded is not None:
            self._take_back(change.yielded)
            waiting = self._joining.pop(change.yielded, None)
            if waiting is not None:
                refuse(waiting.connection, self._objection(change.yielded))
        if change.left is not None:
            self.engine.forget(change.left)
            if change.lost is not None and change.left in self._clients:
                reject(self.node, self._clients.pop(change.left).connection, change.left, self._lost_name(change.left))
            self.end_session(change.left, f"{change.left!r} is no longer a client of {self.node.name!r}")
            if change.yielded is None and self.node.name in self.node.directory.state.claims.get(change.left, ()):
                self._take_back(change.left)
        elif change.follows is not None:
            self.revocation.followed(change.follows)
            client = self._clients.get(change.follows.client)
            if client is not None and client.session is not None:
                client.session.followed(change.follows)

    def _joined(self, name: str) -> None:
        """There is a client of this name: let it in if it is here and waits, and tell those who asked."""
        mailbox = self.node.directory.state.mailboxes.get(name)
        if name in self.node.ledger.agents and name in self._joining:
            refuse(self._joining.pop(name).connection, self._objection(name))
        elif mailbox is not None and name in self._joining:
            waiting = self._clients[name] = self._joining.pop(name)
            waiting.welcome()
        elif mailbox is not None and mailbox.temporary and name not in self._clients:
            self._away[name] = time.monotonic()  # It has gone before it was let in.
        self._found(name)

    def _found(self, name: str) -> None:
        for client in self._finding.pop(name, ()):
            del client.finding[name]
            tell(client.connection, NameFound(name))

    def find(self, client: ClientConnection, name: str) -> None:
        """Tell a client as soon as there is one of this name."""
        if self.node.directory.home(name) is not None:
            tell(client.connection, NameFound(name))
            return
        if len(name) > MAX_NAME_CHARACTERS:
            raise MalformedFrame(f"client {client.name!r} looks for a name of {len(name)} characters")
        if len(client.finding) >= MAX_FINDING:
            raise MalformedFrame(f"client {client.name!r} looks for more than {MAX_FINDING} others")
        client.finding[name] = None
        self._finding.setdefault(name, {})[client] = None

    def _room(self) -> None:
        for name in list(self._taking_back):
            self._take_back(name)
        sessions = [client.session for client in self._clients.values()]
        self.rounds.wake([session for session in sessions if session is not None and session.waiting])

    def _is_here(self, session: Session) -> bool:
        """Return whether a session is that of a connected client: what an older one has left undone comes again."""
        client = self._clients.get(session.client)
        return client is not None and client.session is session

    def _failed(self, error: Exception) -> None:
        if not self.stopped.done():
            self.stopped.set_result(error)

    async def _tick(self) -> None:
        heartbeat = Heartbeat(HEARTBEAT_S, CLIENT_SILENCE_S)
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.node.history.tick()
            self.node.reconfiguration.tick()
            self.node.look_after_backlog()
            self.node.security.look()
            self.revocation.tick()
            self._room()
            now, loop_now = time.monotonic(), asyncio.get_running_loop().time()
            for name in [name for name, since in self._away.items() if now - since > AWAY_S]:
                self.forget(name)
            self._mailboxes.look(self.node.directory.mailboxes.why_full, now)
            self._look_after_memory(loop_now)
            for client in list(self._connections):
                if client.connection.paused:
                    client.connection.rest()
                    client.connection.check_reader(loop_now)
                else:
                    heartbeat.beat(client.connection, loop_now)

    def _look_after_memory(self, now: float) -> None:
        """Let those go on who wait for memory; if that lasts, show out whoever holds most of it."""
        for client in self._connections:
            client.count_waiting()
        self.node.memory.pools.clients.look(now, self._hungriest)
        self.node.memory.pools.peers.look(now, self.node.peers.hungriest)

    def _hungriest(self) -> Callable[[str], None] | None:
        most = max(self._connections, key=lambda client: client.connection.holding.bytes, default=None)
        return None if most is None or not most.connection.holding.bytes else most.show_out

    # Seen from outside.

    @property
    def connected(self) -> int:
        """How many clients are connected."""
        return len(self._clients)

    @property
    def turned_away(self) -> int:
        """How many strangers were, since there were too many."""
        return self._listener.turned_away

    def complain(self, address: str, text: str) -> None:
        """Write into the log what somebody at an address did that it should not have; what comes to any port counts together."""
        self._listener.complaints.say(address, text)

    @property
    def stalled(self) -> str:
        """Why nothing is taken at the moment, or nothing for some peers, if so."""
        return self._takes_nothing or "; ".join([str(stall) for stall in self.node.intake.stalls.all()])

    @property
    def _takes_nothing(self) -> str:
        return self.node.peers.epochs.fenced or self.node.intake.full or self.node.directory.mailboxes.why_full

    @property
    def remedy(self) -> str:
        """What to do about the mailbox that stops everybody, if one does."""
        client, node = self.node.directory.mailboxes.in_the_way, self.node
        if not client or node.peers.epochs.fenced or node.intake.full:
            return ""
        scheme = "thence" if node.options.tls is None else "thences"
        make_room = f"thence client show|purge|remove {scheme}://{self.address} {shlex.quote(client)}"
        return printable(f"start the program of {client!r}, or make room: {make_room}")

    @property
    def waiting_clients(self) -> int:
        """How many clients have sent something that waits for room."""
        sessions = [client.session for client in self._clients.values()]
        return sum([session is not None and session.waiting > 0 for session in sessions])

    @property
    def not_ready(self) -> str:
        """Why it should be sent nothing now, if so."""
        if self.stopping:
            return f"{self.node.name} is stopping"
        if self.node.reconfiguration.left:
            return f"{self.node.name} has left the fabric"
        if 0 < len(self.node.peers.peers) == len(self.node.intake.stalls.peers):
            return self.stalled  # It takes only what its own clients have for each other.
        return self._takes_nothing

    def status(self) -> dict[str, Any]:
        """Return how everything is, for people and programs."""
        node, now = self.node, self.node.driver.clock.now()
        waits = sorted(node.member.waiting(), key=lambda wait: wait.since or now)
        oldest = min((wait.since for wait in waits if wait.since), default=now)
        return {
            "server": node.name,
            "fabric": node.topology.name,
            "version": node.topology.version,
            "fingerprint": node.topology.fingerprint,
            "change": node.reconfiguration.status(),
            "address": self.address,
            "up_seconds": round(time.time() - self.started_at, 3),
            "awake": polling_of(asyncio.get_running_loop()).status(),
            "stalled": self.stalled,
            "waiting_clients": self.waiting_clients,
            "fenced": node.peers.epochs.fenced,
            "neighbours": peers(node),
            "relay": relay(node),
            "clients": clients(node, self.connected_from()),
            "clients_count": len(node.directory.state.mailboxes) - len(node.ledger.agents),
            "agents": {
                "count": len(node.ledger.agents),
                "reactions": self.engine.reactions,
                "failed_attempts": self.engine.failures,
                "dead_letters": len(node.ledger.state.dead),
                "stopped": dict(self.engine.stopped),
                "state_bytes": node.ledger.states_bytes,
            },
            "topics": topics(node),
            "topics_count": len(node.directory.state.followers),
            "clocks": node.member.clocks(),
            "held_deliveries": node.dispatch.held,
            "waiting": [describe_wait(wait, now) for wait in waits[:MAX_WAITS_LISTED]],
            "waiting_count": len(waits),
            "waiting_left_out": max(0, len(waits) - MAX_WAITS_LISTED),
            "oldest_wait_seconds": round(max(0, now - oldest) / 1e9, 3),
            "letters_accepted": node.intake.messages_accepted,
            "letters_delivered": node.dispatch.handover.messages_delivered,
            "letters_undeliverable": dict(node.returning.counts),
            "letters_withheld": self.revocation.withheld,
            "messages_forwarded": node.member.forwarded,
            "refused_frames": dict(node.peers.refusals.counts),
            "store": {
                "durable": node.options.data is not None,
                "commits": node.driver.commits.count,
                "mean_commit_ms": round(1e3 * node.driver.commits.seconds.total / max(1, node.driver.commits.count), 3),
                "bytes_since_snapshot": node.driver.store.bytes_since_snapshot,
            },
            "backlog": backlog(node),
            "memory": memory(node),
            "queued_bytes": node.member.queued_bytes,
            "unstable": len(node.member.unstable()) if node.topology.stability else None,
            "unsafe": unsafe(node),
        }
