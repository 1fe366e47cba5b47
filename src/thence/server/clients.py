"""The clients that are connected to a server: what the node tells goes to their sessions, and their connections are looked after.

Rules:

* A client has one connection under its name: a newer one takes the place of an older one (``server.reception``).
* A connection that is silent for ``CLIENT_SILENCE_S`` ends. One that gets nothing for ``HEARTBEAT_S`` gets a ping.
* A client may look for ``MAX_FINDING`` others at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Final

from thence.core.wire.messages import MAX_NAME_CHARACTERS
from thence.errors import MalformedFrame
from thence.net.control import refuse, tell
from thence.net.protocol import Denied, NameFound, Refused, Subscribed
from thence.net.reconnect import Heartbeat
from thence.net.security.access import Guest
from thence.node.directory.directory import Directory
from thence.node.sessions.session import Session
from thence.storage.bodies import Follows
from thence.storage.rejections import Rejected

if TYPE_CHECKING:
    from thence.server.connection import ClientConnection

CLIENT_SILENCE_S: Final = 20.0
HEARTBEAT_S: Final = 1.0
"""After how long a client that gets nothing gets a ping."""
MAX_FINDING: Final = 10_000
"""How many others one client may be waiting for at a time."""


class NameSearches:
    """Who wants to know when there is a client of a name."""

    def __init__(self, directory: Directory) -> None:
        """Look for names in ``directory``."""
        self._directory = directory
        self.waiting: dict[str, dict[ClientConnection, None]] = {}

    def find(self, client: ClientConnection, name: str) -> None:
        """Tell a client as soon as there is one of this name."""
        if self._directory.home(name) is not None:
            tell(client.connection, NameFound(name))
            return
        if len(name) > MAX_NAME_CHARACTERS:
            raise MalformedFrame(f"client {client.name!r} looks for a name of {len(name)} characters")
        if len(client.finding) >= MAX_FINDING:
            raise MalformedFrame(f"client {client.name!r} looks for more than {MAX_FINDING} others")
        client.finding[name] = None
        self.waiting.setdefault(name, {})[client] = None

    def found(self, name: str) -> None:
        """Tell all who look for a client of this name that there is one."""
        for client in self.waiting.pop(name, ()):
            del client.finding[name]
            tell(client.connection, NameFound(name))

    def drop(self, client: ClientConnection) -> None:
        """Forget what a client looks for: it is gone."""
        for name in client.finding:
            waiting = self.waiting[name]
            del waiting[client]
            if not waiting:
                del self.waiting[name]


class ConnectedClients:
    """The clients that are connected to one server."""

    def __init__(self) -> None:
        """Start with nobody."""
        self.here: dict[str, ClientConnection] = {}
        """Those that were let in, by name."""
        self.all: dict[ClientConnection, None] = {}
        """All of them: also those who wait to be let in, or only ask."""

    def _session(self, name: str) -> Session | None:
        client = self.here.get(name)
        return None if client is None else client.session

    # What the node tells.

    def answered(self, name: str, upto: int, rejected: Rejected | None) -> None:
        """Tell a client that its messages are accepted, or never will be."""
        if (session := self._session(name)) is not None:
            session.answered(name, upto, rejected)

    def feed(self, names: Collection[str]) -> None:
        """Send clients what has come for them."""
        for name in names:
            if (session := self._session(name)) is not None:
                session.feed.send()

    def tell_safe(self, names: Collection[str]) -> None:
        """Tell clients which of their messages are safe."""
        for name in names:
            if (session := self._session(name)) is not None:
                session.feed.send_safety()

    def followed(self, notice: Follows) -> None:
        """Tell a client that it follows a topic, or no longer."""
        if self._session(notice.client) is not None:
            tell(self.here[notice.client].connection, Subscribed(notice.topic, notice.wanted))

    def tell_withdrawn(self, name: str, topic: str, reason: str) -> bool:
        """Tell a client that it follows a topic no longer since it may not; return whether it is here."""
        client = self.here.get(name)
        if client is not None:
            tell(client.connection, Denied("topic", topic, reason))
        return client is not None

    # Seen from outside.

    def addresses(self) -> dict[str, str]:
        """Return the addresses of clients, by name."""
        return {name: client.connection.address for name, client in self.here.items()}

    def guest(self, name: str) -> Guest | None:
        """Return what a client has proved, if it is here."""
        client = self.here.get(name)
        return None if client is None else client.guest

    def is_here(self, session: Session) -> bool:
        """Return whether a session is that of a connected client: what an older one has left undone comes again."""
        return self._session(session.client) is session

    def waiting(self) -> list[Session]:
        """Return the sessions of clients that have sent something that waits for room."""
        return [session for client in self.here.values() if (session := client.session) is not None and session.waiting]

    # Looking after connections.

    def beat(self, now: float) -> None:
        """Ping the quiet, and end the connections of the silent and of those who do not read; to be called now and then."""
        heartbeat = Heartbeat(HEARTBEAT_S, CLIENT_SILENCE_S)
        for client in list(self.all):
            if client.connection.paused:
                client.connection.rest()
                client.connection.check_reader(now)
                if not client.connection.writer.full:
                    heartbeat.ping(client.connection, now)
            else:
                heartbeat.beat(client.connection, now)

    def hungriest(self) -> Callable[[str], None] | None:
        """Return how to show out whoever holds most memory, if anybody holds some."""
        most = max(self.all, key=lambda client: client.connection.holding.bytes, default=None)
        return None if most is None or not most.connection.holding.bytes else partial(_show_out, most)


def _show_out(client: ClientConnection, why: str) -> None:
    """End the connection of a client: others wait for the memory that is held for it. It may come again."""
    connection = client.connection
    reason = f"{connection.holding.bytes} bytes are on their way to and from it, more than for any other client; {why}"
    if connection.writer.full:
        connection.fail(MalformedFrame(f"shown out: {reason}"))  # It reads nothing.
    else:
        refuse(connection, Refused(f"shown out: {reason}", later=True), claims=f"client {client.name!r}")
