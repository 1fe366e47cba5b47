"""Which servers claim the name of each client, and how much memory those names take.

Rules:

* Of the servers that claim a name the one whose own name comes first has the client, everywhere. Mostly there is only that one.
* A name of another server for which there is no room (``node.directory.announcement_memory``) is left out and counted.
"""

from __future__ import annotations

from collections.abc import Collection, Container

from thence.node.directory.announcement_memory import MAX_NAMES_BYTES, NAME_BYTES, Announced


class Claims:
    """The claims on names that one server knows of."""

    def __init__(self, server: str, servers: Collection[str], claims: dict[str, list[str]]) -> None:
        """``servers`` are all of the fabric; ``claims`` is changed here and saved elsewhere."""
        self.servers = frozenset(servers)
        self.announced, self.left_out = Announced(MAX_NAMES_BYTES, NAME_BYTES), 0
        """How much names of clients of other servers take, and how many were left out for want of room."""
        self.server = server
        self._claims = claims

    def home(self, client: str) -> str | None:
        """Return the server of a client."""
        if client in self.servers:
            return client
        claims = self._claims.get(client)
        return claims[0] if claims else None

    def claimed_by(self, client: str, server: str) -> bool:
        """Return whether a server claims a name, or has it since it is its own."""
        return server in self._claims.get(client, ()) or (client == server and server in self.servers)

    def add(self, client: str, server: str) -> tuple[list[str] | None, bool]:
        """Note that a server claims a name; return all who do, or None if it was left out, and whether that is new."""
        claims = self._claims.get(client)
        if claims is None and server != self.server and not self.announced.has_room(server, client):
            self.left_out += 1
            return None, False
        claims = self._claims.setdefault(client, [])
        if server in claims:
            return claims, False
        claims.append(server)
        claims.sort()
        self.announced.add(server, client)
        return claims, True

    def drop(self, client: str, server: str) -> bool | None:
        """Note that a server gives a name up; return whether it had the client, or None if it did not claim the name."""
        claims = self._claims.get(client, [])
        if server not in claims:
            return None
        had_it = claims[0] == server
        claims.remove(server)
        self.announced.drop(server, client)
        if not claims:
            del self._claims[client]
        return had_it

    def without(self, mailboxes: Container[str]) -> list[str]:
        """Return the names that this server claims and that have no mailbox: these claims must be taken back."""
        return [client for client, claims in self._claims.items() if self.server in claims and client not in mailboxes]

    def change(self, servers: Collection[str]) -> list[str]:
        """The fabric has these servers now; return the clients that are gone."""
        self.servers = frozenset(servers)
        gone = []
        for client, claims in list(self._claims.items()):
            claims[:] = [server for server in claims if server in self.servers or server == self.server]
            if not claims:
                del self._claims[client]
                gone.append(client)
        self._weigh()
        return gone

    def restore(self, claims: dict[str, list[str]]) -> None:
        """Go on with the claims of a snapshot."""
        self._claims = claims
        self._weigh()

    def _weigh(self) -> None:
        self.announced.forget()
        for client, claims in self._claims.items():
            for server in claims:
                self.announced.add(server, client)
