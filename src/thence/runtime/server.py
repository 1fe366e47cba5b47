"""A server for clients: a node, one door for neighbours and clients, and a session for each client.

Rules:

* A client's first frame gives its name. A name that is new is told to all servers before the client is welcome, so that whoever
  hears of the client can write to it. A name has one server; elsewhere it is refused, with the server named.
* A client has one connection: a newer one takes the place of an older one.
* A temporary client that stays away for ``AWAY_S`` is forgotten, with what waits for it.
* Agents live in the server, under names like those of clients (``runtime.engine``); nobody connects under such a name.
* Whatever a client says that cannot be ends its own connection and nothing else.
* With an access file (``runtime.access``) a client gets no further than its entry allows: what it may not do is refused, told
  to it and logged, and it goes on. When the file changes, that holds at once, also for those who are connected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal

import msgspec

from thence.core.member import describe_wait
from thence.core.messages import MAX_NAME_CHARACTERS
from thence.core.topology import Topology
from thence.errors import Busy, ConfigError, MalformedFrame, StorageError, UsageError
from thence.runtime.access import EVERYTHING, Guest, Rights
from thence.runtime.agent_desk import AgentDesk
from thence.runtime.agent_kinds import Kind
from thence.runtime.boxes import Bundle, Rejected
from thence.runtime.door import Door, hang_up, refuse, tell
from thence.runtime.engine import Engine
from thence.runtime.node import Node
from thence.runtime.node_options import NodeOptions
from thence.runtime.office import Handed, Joined, Left
from thence.runtime.polling import polling_of
from thence.runtime.protocol import (
    Accepted,
    Acknowledge,
    AgentAnswer,
    AgentQuestion,
    ClientHello,
    ClientWelcome,
    Deliver,
    Denied,
    Find,
    Found,
    Leave,
    Ping,
    Publish,
    Refused,
    Safe,
    SafetyWanted,
    Said,
    Stable,
    StableQuestion,
    StatusAnswer,
    StatusQuestion,
    Subscribe,
    Subscribed,
    Undeliverable,
    ViewRequest,
    understand,
)
from thence.runtime.reloading import LOOK_EVERY_S
from thence.runtime.sessions import Session
from thence.runtime.status import backlog, clients, neighbours, relay, unsafe
from thence.runtime.tasks import tell_if_it_fails
from thence.runtime.watching import Watcher
from thence.runtime.wire import MAX_CLIENT_FRAME_BYTES, Connection

AWAY_S: Final = 30.0
LONG_AGO: Final = -AWAY_S
ACCEPTED_WITHIN_S: Final = 0.005
"""How much later a client for whose letters nobody waits is told that they are accepted, if nothing else goes to it before."""
ACCEPTED_EVERY: Final = 4_096
"""After how many letters it is told at once all the same."""
DRAIN_S: Final = 10.0
"""How long a server that is told to stop waits for its neighbours to confirm."""
DRAIN_LOOK_S: Final = 0.02
"""How often it looks whether they have."""
CLIENT_SILENCE_S: Final = 20.0
MAX_FINDING: Final = 10_000
"""How many others one client may be waiting for at a time."""
MAX_WAITS_TOLD: Final = 1_000
"""How many waiting messages a status lists."""

log = logging.getLogger("thence.server")


class ClientConnection:
    """One connected client: the outlet of its session."""

    def __init__(self, server: Server, connection: Connection, name: str, guest: Guest | None) -> None:
        """Take over a connection that has said hello, and proved its token if it is a guest."""
        self.name = name
        self.guest = guest
        """Without an access file there are no guests, and all may do everything."""
        self.connection = connection
        self.session: Session | None = None
        self.since = time.time()
        self.finding = 0
        """How many others it is waiting for."""
        self._server = server
        self._accepted = 0
        self._told = 0
        """Up to which number the client was told that its letters are accepted,"""
        self._hurried = 0
        """and up to which somebody waits for that."""
        self._telling: asyncio.TimerHandle | None = None
        connection.max_frame_bytes = MAX_CLIENT_FRAME_BYTES
        connection.on_frame = self._frame
        connection.on_lost = self._lost
        connection.on_writable = lambda _: self.session.feed() if self.session else None

    def welcome(self) -> None:
        """The client has its name: go on."""
        node = self._server.node
        box = node.office.state.boxes[self.name]
        self.session = Session(node, self.name, self, self._objection_to_letters if self.guest is not None else None)
        node.office.here.add(self.name)
        accepted, acknowledged = min(node.accepted_of(self.name), box.sent), node.acknowledged_of(self.name)
        unheard = [rejected for rejected in box.rejected if rejected.last <= accepted]  # Perhaps: that is the client's to know.
        answered = unheard[0].first - 1 if unheard else accepted
        self.greet(box.sent, answered, acknowledged, box.since + node.restored)
        for rejected in unheard:
            self.session.answered(self.name, rejected.last, rejected)
        if unheard:
            tell(self.connection, Accepted(accepted))

    def greet(self, number: int = 0, accepted: int = 0, position: int = 0, box: int = 0) -> None:
        """Say who we are, and where the client stands."""
        node, proof = self._server.node, b"" if self.guest is None else self.guest.proof
        tell(self.connection, ClientWelcome(node.name, node.topology.name, number, accepted, position, box, proof))

    def _frame(self, connection: Connection, frame: memoryview) -> None:
        connection.check_kept_up()
        said = understand(frame, self.name)
        session = self.session
        if type(said) is Publish and session is not None:  # First what comes most often.
            if said.hurry:
                self._hurried = said.first + said.count - 1
            session.publish(said)
        elif isinstance(said, Ping):
            pass
        elif isinstance(said, StatusQuestion | AgentQuestion | ViewRequest):
            self._question(connection, said)
        elif session is None:
            raise MalformedFrame(f"a {type(said).__name__} before it was welcome")
        elif isinstance(said, Acknowledge):
            session.acknowledge(said.upto, said.limit)
        elif isinstance(said, Subscribe):
            if not said.wanted or not self._denied("topic", said.topic, self.rights.objection_to_subscription(said.topic)):
                session.follow(said.topic, said.wanted)
        elif isinstance(said, Find):
            if not self._denied("name", said.name, self.rights.objection_to_letter((said.name,), None)):
                self._server.find(self, said.name)
        else:
            self._seldom(connection, said)

    def _seldom(self, connection: Connection, said: Said) -> None:
        if isinstance(said, StableQuestion):
            self._server.node.patience.ask(self, lambda reason: tell(connection, Stable(said.upto, reason)))
        elif isinstance(said, SafetyWanted) and self.session is not None:
            self.session.want_safety()
        elif isinstance(said, Leave):
            self._server.forget(self.name)
        else:
            raise MalformedFrame(f"a {type(said).__name__}, which no client says")

    def _question(self, connection: Connection, said: StatusQuestion | AgentQuestion | ViewRequest) -> None:
        """Answer what may be asked also by whoever has no name."""
        if isinstance(said, StatusQuestion):
            if not self._denied("question", "", self.rights.objection_to_status()):
                tell(connection, StatusAnswer(msgspec.json.encode(self._server.status())))
        elif isinstance(said, AgentQuestion):
            reason = self.rights.objection_to_agents()
            if reason:
                self._complain(reason)
                tell(connection, AgentAnswer(said.number, b"", reason, forbidden=True))
            else:
                self._server.desk.ask(connection, said)
        elif not self._denied("question", "", self.rights.objection_to_change()):
            self._server.node.evolution.request(said, lambda answer: tell(connection, answer))

    # What it may do.

    @property
    def rights(self) -> Rights:
        """What it may do."""
        return EVERYTHING if self.guest is None else self.guest.rights

    def _denied(self, asked: Literal["topic", "name", "question"], about: str, reason: str) -> bool:
        """Tell the client why it may not, if so, and return whether that is so."""
        if reason:
            self._complain(reason)
            tell(self.connection, Denied(asked, about, reason))
        return bool(reason)

    def _objection_to_letters(self, publish: Publish) -> str:
        reason = self.rights.objection_to_letter(publish.to, publish.topic)
        if reason:
            self._complain(reason)
        return reason

    def _complain(self, what: object) -> None:
        self.connection.complain(f"client {self.name!r}: {what}" if self.name else f"a client without a name: {what}")

    def _lost(self, connection: Connection, error: Exception | None) -> None:
        if error is not None:
            self._complain(error)
        self._server.lost(self)

    # Outlet.

    def accepted(self, upto: int) -> None:
        """Letters of the client are accepted."""
        self._accepted = upto
        if self._told < self._hurried or upto - self._told >= ACCEPTED_EVERY:
            self._tell_accepted()
        elif self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(ACCEPTED_WITHIN_S, self._tell_later)

    def _tell_later(self) -> None:
        self._telling = None
        self._tell_accepted()

    def _tell_accepted(self) -> None:
        if self._accepted > self._told:
            self._told = self._accepted
            tell(self.connection, Accepted(self._accepted))

    def undeliverable(self, first: int, count: int, reason: str, *, forbidden: bool) -> None:
        """Some never will be."""
        self._tell_accepted()
        tell(self.connection, Undeliverable(first, count, reason, forbidden))

    def deliver(self, position: int, skip: int, bundle: Bundle) -> None:
        """Letters for the client."""
        tell(self.connection, Deliver(position, skip, bundle.sender, bundle.topic, bundle.letters))

    def told_safe(self, upto: int, reason: str) -> None:
        """Some of its letters are safe, or nobody finds out."""
        tell(self.connection, Safe(upto, reason))

    def damaged(self, error: StorageError) -> None:
        """What is kept for the client cannot be read: others may go on."""
        refuse(self.connection, f"the letters for {self.name!r} cannot be read: {error}")

    def subscribed(self, topic: str, wanted: bool) -> None:
        """The client follows a topic, or no longer."""
        tell(self.connection, Subscribed(topic, wanted))

    def not_subscribed(self, topic: str, reason: str) -> None:
        """It cannot be followed here any more, or no longer be followed."""
        tell(self.connection, Denied("topic", topic, reason, forbidden=False))

    @property
    def blocked(self) -> bool:
        """Whether its connection is full."""
        return self.connection.full


class Server:
    """See the module's text."""

    def __init__(self, topology: Topology, name: str, options: NodeOptions, kinds: Mapping[str, Kind] | None = None) -> None:
        """Bring back what is in the store; ``start`` opens the door. ``kinds`` are the classes of agents that it knows."""
        self.node = Node(topology, name, options)
        self.engine = Engine(self.node, kinds or {})
        self.desk = AgentDesk(self.node, self.engine)
        self.stopped: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        """Done when the server cannot go on, with the reason."""
        self.address = ""
        self._clients: dict[str, ClientConnection] = {}
        self._connections: dict[ClientConnection, None] = {}
        """All of them: also of those who wait to be let in, or only ask."""
        self._joining: dict[str, ClientConnection] = {}
        self._finding: dict[str, list[ClientConnection]] = {}
        """Who wants to know when there is a client of a name."""
        self._away: dict[str, float] = {}
        """Temporary clients that are not connected, since when."""
        self.started_at = time.time()
        node = self.node
        node.on_answered = self._answered
        node.on_letters = self._letters
        node.on_safe = self._safe
        node.on_notice = self._notice
        node.on_room = self._room
        node.on_failed = node.peers.on_failed = self._failed
        node.security.on_access = self._access_changed
        self._door = Door((node.name, node.topology.name), node.security, node.peers.called, self._called)
        self._ticker: asyncio.Task[None] | None = None
        self._watcher = Watcher(node)
        self.stopping = False

    async def start(self, listen: str | None = None) -> None:
        """Open the door and call the neighbours."""
        node = self.node
        address = listen or node.topology.addresses.get(node.name)
        if address is None:
            raise ConfigError(f"no address for {node.name!r}: the topology needs [servers.{node.name}] address, or give --listen")
        self.address = await self._door.open(address, neighbours=bool(node.peers.neighbours))
        now = time.monotonic()
        self._away = {name: now for name, box in node.office.state.boxes.items() if box.temporary}
        self._away |= dict.fromkeys(node.office.yielded(), LONG_AGO)
        node.peers.start()
        self.engine.start()
        self._ticker = asyncio.get_running_loop().create_task(self._tick())
        tell_if_it_fails(self._ticker, f"the clock of {node.name!r}", self._failed)
        self._watcher.start()
        log.info("%s of %s listens on %s", node.name, node.topology.name, self.address)

    async def stop(self, *, drain_s: float = DRAIN_S) -> None:
        """Take nothing more, wait for what is on its way to neighbours that are there to be confirmed, and stop."""
        self.stopping = True
        await self._door.close()
        for client in list(self._connections):
            hang_up(client.connection, Refused(f"{self.node.name} is stopping", later=True))
        await self.engine.close()
        deadline = time.monotonic() + drain_s
        # The core tells nobody when a queue is empty, so this looks. With a switch meanwhile, others are there.
        while time.monotonic() < deadline:
            there = {name for name, peer in self.node.peers.neighbours.items() if peer.up}
            if not any(queued and name in there for name, queued in self.node.member.queued().items()):
                break
            await asyncio.sleep(DRAIN_LOOK_S)
        if unconfirmed := sum(self.node.member.queued().values()):
            log.warning("%d frames are not confirmed; they are in the store and go out at the next start", unconfirmed)
        if self._ticker is not None:
            self._ticker.cancel()
        self._watcher.stop()
        await self.node.close()

    # Clients.

    def _called(self, connection: Connection, hello: ClientHello, guest: Guest | None) -> bool:
        reason = self._objection(hello.name) if hello.name else ""
        if reason:
            refuse(connection, reason, claims=f"client {hello.name!r}")
            return False
        client = ClientConnection(self, connection, hello.name, guest)
        self._connections[client] = None
        if not hello.name:
            client.greet()
            return True  # Only questions.
        older = self._clients.pop(hello.name, None) or self._joining.pop(hello.name, None)
        if older is not None:
            refuse(older.connection, f"another connection has taken the name {hello.name!r}", claims=f"client {hello.name!r}")
        self._away.pop(hello.name, None)
        if hello.name in self.node.office.state.boxes:
            self._clients[hello.name] = client
            client.welcome()
            return True
        self._joining[hello.name] = client
        try:
            self.node.announce(Joined(hello.name, self.node.name, hello.temporary))
        except Busy as error:
            del self._joining[hello.name]
            hang_up(connection, Refused(str(error), later=True))
        return True

    def _objection(self, name: str) -> str:
        if self.node.name in self.node.topology.fellows:
            return f"{self.node.name!r} is a replica of a relay: it carries messages of others and has no clients"
        if len(name) > MAX_NAME_CHARACTERS:
            return f"a name of {len(name)} characters; MAX_NAME_CHARACTERS is {MAX_NAME_CHARACTERS}"
        if self.node.evolution.left and name not in self.node.office.state.boxes:
            return f"{self.node.name!r} has left the fabric {self.node.topology.name!r}: connect to another server"
        home = self.node.office.home(name)
        if home == name:
            return f"{name!r} is the name of a server"
        if home is not None and home != self.node.name:
            return f"{name!r} is a client of {home!r}; connect there, or choose another name"
        if name in self.node.ledger.agents:
            return f"{name!r} is an agent of {home!r}"
        return ""

    def lost(self, client: ClientConnection) -> None:
        """A client's connection is gone."""
        self._connections.pop(client, None)
        self.node.patience.drop(client)
        if client.finding:
            self._finding = {
                name: waiting
                for name, clients in self._finding.items()
                if (waiting := [other for other in clients if other is not client])
            }
        for table in (self._clients, self._joining):
            if table.get(client.name) is client:
                del table[client.name]
                self.node.office.here.discard(client.name)
                box = self.node.office.state.boxes.get(client.name)
                if box is not None and box.temporary:
                    self._away[client.name] = time.monotonic()

    def forget(self, name: str) -> None:
        """Give up a client's name."""
        try:
            self.node.announce(Left(name, self.node.name))
            self._away.pop(name, None)
        except Busy:
            self._away[name] = LONG_AGO  # Tried again by the clock.
        except UsageError as error:
            self._away.pop(name, None)  # We have left: there is nobody to tell, now or later.
            if name in self._clients:
                refuse(self._clients.pop(name).connection, str(error))

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

    # What the node tells.

    def _answered(self, name: str, upto: int, rejected: Rejected | None) -> None:
        client = self._clients.get(name)
        if client is not None and client.session is not None:
            client.session.answered(name, upto, rejected)

    def _letters(self, names: Collection[str]) -> None:
        for name in names:
            client = self._clients.get(name)
            if client is not None and client.session is not None:
                client.session.feed()
        if self.node.ledger.agents:
            self.engine.letters(names)

    def _safe(self, names: Collection[str]) -> None:
        for name in names:
            client = self._clients.get(name)
            if client is not None and client.session is not None:
                client.session.tell_safe()

    def _notice(self, handed: Handed) -> None:
        self.desk.notice(handed)
        if handed.joined is not None:
            self._joined(handed.joined)
        for name in handed.known:
            self._found(name)
        if handed.yielded is not None:
            self.forget(handed.yielded)
            waiting = self._joining.pop(handed.yielded, None)
            if waiting is not None:
                refuse(waiting.connection, self._objection(handed.yielded))
        if handed.left is not None:
            self.engine.forget(handed.left)
            client = self._clients.pop(handed.left, None)
            if client is not None:
                refuse(client.connection, f"{handed.left!r} is no longer a client of {self.node.name!r}")
        elif handed.follows is not None:
            client = self._clients.get(handed.follows.client)
            if client is not None and client.session is not None:
                client.session.followed(handed.follows)

    def _joined(self, name: str) -> None:
        """There is a client of this name: let it in if it is here and waits, and tell those who asked."""
        box = self.node.office.state.boxes.get(name)
        if name in self.node.ledger.agents and name in self._joining:
            refuse(self._joining.pop(name).connection, self._objection(name))
        elif box is not None and name in self._joining:
            waiting = self._clients[name] = self._joining.pop(name)
            waiting.welcome()
        elif box is not None and box.temporary and name not in self._clients:
            self._away[name] = time.monotonic()  # It has gone before it was let in.
        self._found(name)

    def _found(self, name: str) -> None:
        for client in self._finding.pop(name, ()):
            client.finding -= 1
            tell(client.connection, Found(name))

    def find(self, client: ClientConnection, name: str) -> None:
        """Tell a client as soon as there is one of this name."""
        if self.node.office.home(name) is not None:
            tell(client.connection, Found(name))
            return
        if len(name) > MAX_NAME_CHARACTERS:
            raise MalformedFrame(f"client {client.name!r} looks for a name of {len(name)} characters")
        if client.finding >= MAX_FINDING:
            raise MalformedFrame(f"client {client.name!r} looks for more than {MAX_FINDING} others")
        client.finding += 1
        self._finding.setdefault(name, []).append(client)

    def _room(self) -> None:
        for client in self._clients.values():
            if client.session is not None and client.session.waiting:
                client.session.go_on()

    def _failed(self, error: Exception) -> None:
        if not self.stopped.done():
            self.stopped.set_result(error)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.node.history.tick()
            self.node.evolution.tick()
            self.node.look_after_backlog()
            self.node.security.look()
            self._room()
            now, loop_now = time.monotonic(), asyncio.get_running_loop().time()
            for name in [name for name, since in self._away.items() if now - since > AWAY_S]:
                self.forget(name)
            for client in list(self._connections):
                if loop_now - client.connection.heard_at > CLIENT_SILENCE_S:
                    client.connection.fail(TimeoutError(f"silent for {CLIENT_SILENCE_S:g} s"))
                elif loop_now - client.connection.wrote_at > 1.0:
                    tell(client.connection, Ping())

    # Seen from outside.

    @property
    def connected(self) -> int:
        """How many clients are connected."""
        return len(self._clients)

    @property
    def turned_away(self) -> int:
        """How many strangers were, since there were too many."""
        return self._door.turned_away

    def complain(self, address: str, text: str) -> None:
        """Write into the log what somebody at an address did that it should not have; what comes to any port counts together."""
        self._door.complaints.say(address, text)

    @property
    def stalled(self) -> str:
        """Why nothing is taken at the moment, if so."""
        return self.node.driver.full or self.node.office.why_full

    @property
    def not_ready(self) -> str:
        """Why it should be sent nothing now, if so."""
        if self.stopping:
            return f"{self.node.name} is stopping"
        if self.node.evolution.left:
            return f"{self.node.name} has left the fabric"
        return self.stalled

    def status(self) -> dict[str, Any]:
        """Return how everything is, for people and programs."""
        node, now = self.node, self.node.clock.now()
        waits = node.member.waiting()
        oldest = min((wait.since for wait in waits if wait.since), default=now)
        return {
            "server": node.name,
            "fabric": node.topology.name,
            "version": node.topology.version,
            "fingerprint": node.topology.fingerprint,
            "change": node.evolution.status(),
            "address": self.address,
            "up_seconds": round(time.time() - self.started_at, 3),
            "awake": polling_of(asyncio.get_running_loop()).status(),
            "stalled": self.stalled,
            "neighbours": neighbours(node),
            "relay": relay(node),
            "clients": clients(node, {name: client.connection.address for name, client in self._clients.items()}),
            "agents": {
                "count": len(node.ledger.agents),
                "reactions": self.engine.reactions,
                "failed_attempts": self.engine.failures,
                "dead_letters": len(node.ledger.state.dead),
                "state_bytes": node.ledger.states_bytes,
            },
            "topics": {topic: len(followers) for topic, followers in node.office.state.followers.items()},
            "clocks": node.member.clocks(),
            "held_deliveries": node.held,
            "waiting": [describe_wait(wait, now) for wait in waits[:MAX_WAITS_TOLD]],
            "waiting_count": len(waits),
            "oldest_wait_seconds": round(max(0, now - oldest) / 1e9, 3),
            "letters_accepted": node.letters_accepted,
            "letters_delivered": node.letters_delivered,
            "messages_forwarded": node.member.forwarded,
            "refused_frames": dict(node.refusals),
            "store": {
                "durable": node.options.data is not None,
                "commits": node.driver.commits,
                "mean_commit_ms": round(1e3 * node.driver.commit_seconds.total / max(1, node.driver.commits), 3),
                "bytes_since_snapshot": node.store.bytes_since_snapshot,
            },
            "backlog": backlog(node),
            "queued_bytes": node.member.queued_bytes,
            "unstable": len(node.member.unstable()) if node.topology.stability else None,
            "unsafe": unsafe(node),
        }
