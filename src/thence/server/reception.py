"""How clients come and go at a server: who is let in under which name, who is away, and who has lost a name.

Rules:

* A client's first frame gives its name. A name that is new is told to all servers before the client is welcome, so that whoever
  hears of the client can write to it. A name has one server; elsewhere it is refused, with the server named.
* A newer connection of a client takes the place of an older one.
* A temporary client that stays away for ``AWAY_S`` is forgotten, with what waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from thence.errors import Busy, UsageError
from thence.net.control import hang_up, refuse
from thence.net.framing import Connection
from thence.net.protocol import ClientHello, Refused
from thence.net.security.access import Guest, objection_to_new
from thence.node.directory.directory import DirectoryChange
from thence.node.directory.homes import FENCED, begins, new_mailbox
from thence.node.node import Node
from thence.server.clients import ConnectedClients, NameSearches
from thence.server.connection import ClientConnection, reject
from thence.storage.bodies import Joined, Left

AWAY_S: Final = 30.0
LONG_AGO: Final = -AWAY_S

MakeClient = Callable[[Connection, str, Guest | None, str], ClientConnection]
"""Takes over a connection that has said hello: its name, what it has proved, and which program it is."""


class Reception:
    """Lets clients in, and notes who has gone."""

    make: MakeClient
    """Makes a client of a connection."""

    def __init__(self, node: Node, clients: ConnectedClients, searches: NameSearches) -> None:
        """Let clients of ``node`` in; ``start`` looks who is away."""
        self.joining: dict[str, ClientConnection] = {}
        """Those whose names are being told to all servers."""
        self._node = node
        self._clients = clients
        self._searches = searches
        self.away: dict[str, float] = {}
        """Temporary clients that are not connected, since when."""
        self._taking_back: dict[str, None] = {}
        """Names that we claim without a mailbox, and of which nobody could be told yet that they are free."""

    def start(self) -> None:
        """Find out who is away, and which names nobody has."""
        directory, now = self._node.directory, time.monotonic()
        self.away = {name: now for name, mailbox in directory.state.mailboxes.items() if mailbox.temporary}
        self._taking_back = dict.fromkeys(directory.claims.without(directory.state.mailboxes))

    def tick(self) -> None:
        """Forget those who are away for too long; to be called now and then."""
        now = time.monotonic()
        for name in [name for name, since in self.away.items() if now - since > AWAY_S]:
            self.forget(name)

    # Coming.

    def called(self, connection: Connection, hello: ClientHello, guest: Guest | None) -> bool:
        """Somebody at the listener says that it is a client; return whether we go on with it."""
        reason = self._objection(hello.name) if hello.name else ""
        if hello.name and hello.name not in self._node.directory.state.mailboxes:
            reason = reason or objection_to_new(hello.name, guest)
        if reason and not begins(hello) and self._node.directory.home(hello.name) not in (None, self._node.name):
            reject(self._node, connection, hello.name, self._lost_name(hello.name))
            return False
        if reason:
            refuse(connection, reason, claims=f"client {hello.name!r}")
            return False
        refused = self._node.homes.objection(hello) if hello.name else None
        if refused is not None:
            reject(self._node, connection, hello.name, refused)
            return False
        client = self.make(connection, hello.name, guest, hello.program)
        self._clients.all[client] = None
        if not hello.name:
            client.greet()
            return True  # Only questions.
        if hello.name in self._taking_back:
            hang_up(connection, Refused(f"{hello.name!r} is being removed from {self._node.name!r}: try again", later=True))
            return True
        self.away.pop(hello.name, None)
        if hello.name in self._node.directory.state.mailboxes:
            self._meet(client, hello)
            return True
        older = self.joining.pop(hello.name, None)
        if older is not None and older.program and older.program == hello.program:
            _replace(older)
        elif older is not None:
            older.fence(0)
        self.joining[hello.name] = client
        try:
            entry = "" if guest is None else guest.rights.entry
            joined = Joined(hello.name, self._node.name, hello.temporary, entry=entry, mailbox_id=new_mailbox())
            self._node.intake.announce(joined)
        except Busy as error:
            del self.joining[hello.name]
            hang_up(connection, Refused(str(error), later=True))
        return True

    def _meet(self, client: ClientConnection, hello: ClientHello) -> None:
        """Let a program have the mailbox that is there. It is welcome, and whoever had it is told, when that is durable."""
        older = self._clients.here.pop(hello.name, None)
        if older is not None:
            older.silence()
        self._clients.here[hello.name] = client
        there = "" if older is None else older.program
        takes_over = self._node.homes.takes_over(hello, there)

        def durable(accepted: int) -> None:
            if older is not None and takes_over:
                older.fence(accepted)
            elif older is not None:
                _replace(older)
            if self._clients.here.get(hello.name) is client:
                client.welcome()

        self._node.homes.meet(hello, durable, there)

    def _lost_name(self, name: str) -> Refused:
        home = self._node.directory.home(name)
        reason = f"another program has the name {name!r} since: {home!r} gave it the name too, while it and {self._node.name!r} "
        return Refused(f"{reason}could not hear each other. Choose another name, or connect to {home!r}", cause=FENCED)

    def _objection(self, name: str) -> str:
        if self._node.peers.epochs.fenced:
            return self._node.peers.epochs.fenced
        if self._node.topology.only_carries(self._node.name):
            return f"{self._node.name!r} is a replica of a relay: it carries messages of others and has no clients"
        if self._node.reconfiguration.left and name not in self._node.directory.state.mailboxes:
            return f"{self._node.name!r} has left the fabric {self._node.topology.name!r}: connect to another server"
        home = self._node.directory.home(name)
        if home == name:
            return f"{name!r} is the name of a server"
        if home is not None and home != self._node.name:
            return f"{name!r} is a client of {home!r}; connect there, or choose another name"
        if name in self._node.ledger.agents:
            return f"{name!r} is an agent of {home!r}"
        return self._node.directory.objection(name)

    def joined(self, name: str) -> None:
        """There is a client of this name: let it in if it is here and waits, and tell those who asked."""
        mailbox = self._node.directory.state.mailboxes.get(name)
        if name in self._node.ledger.agents and name in self.joining:
            refuse(self.joining.pop(name).connection, self._objection(name))
        elif mailbox is not None and name in self.joining:
            waiting = self._clients.here[name] = self.joining.pop(name)
            waiting.welcome()
        elif mailbox is not None and mailbox.temporary and name not in self._clients.here:
            self.away[name] = time.monotonic()  # It has gone before it was let in.
        self._searches.found(name)

    # Going.

    def lost(self, client: ClientConnection) -> None:
        """A client's connection is gone."""
        self._clients.all.pop(client, None)
        self._node.intake.waiters.drop(client)
        self._searches.drop(client)
        for table in (self._clients.here, self.joining):
            if table.get(client.name) is client:
                del table[client.name]
                self._node.directory.mailboxes.here.discard(client.name)
                mailbox = self._node.directory.state.mailboxes.get(client.name)
                if mailbox is not None and mailbox.temporary:
                    self.away[client.name] = time.monotonic()

    def forget(self, name: str) -> None:
        """Give up a client's name, with all that waits for it."""
        try:
            if name in self._node.directory.state.mailboxes:
                self._node.removal.remove(name, "leave")
            self.away.pop(name, None)
        except Busy:
            self.away[name] = LONG_AGO  # Tried again by the clock.

    def _take_back(self, name: str) -> None:
        """Tell all servers that a name is free which we claim without a mailbox: now, or when there is room for that."""
        self._taking_back.pop(name, None)
        try:
            self._node.intake.announce(Left(name, self._node.name))
        except Busy:
            self._taking_back[name] = None
        except UsageError:
            pass  # We have left: there is nobody to tell, now or later.

    def end_session(self, name: str, reason: str) -> bool:
        """End the connection of a client for good, and tell it why; return whether there is one."""
        client = self._clients.here.get(name)
        if client is not None:
            hang_up(client.connection, Refused(reason))
            self.lost(client)
        return client is not None

    def try_again(self) -> None:
        """Tell all servers of free names, if there is room for that now."""
        for name in list(self._taking_back):
            self._take_back(name)

    def changed(self, change: DirectoryChange) -> None:
        """A name of a client of ours was given up, or given to another server."""
        if change.yielded is not None:
            self._take_back(change.yielded)
            waiting = self.joining.pop(change.yielded, None)
            if waiting is not None:
                refuse(waiting.connection, self._objection(change.yielded))
        if change.left is not None:
            if change.lost is not None and change.left in self._clients.here:
                reject(self._node, self._clients.here.pop(change.left).connection, change.left, self._lost_name(change.left))
            self.end_session(change.left, f"{change.left!r} is no longer a client of {self._node.name!r}")
            if change.yielded is None and self._node.name in self._node.directory.state.claims.get(change.left, ()):
                self._take_back(change.left)


def _replace(older: ClientConnection) -> None:
    """End a connection: the same program has another one."""
    hang_up(older.connection, Refused(f"{older.name!r} has another connection", later=True))
