"""Which mailboxes are closed, of all servers, as these announce them: whoever writes to one waits.

Rules:

* Of a mailbox its own server tells, as long as it claims the name of its client. It tells of so many (``MAX_CLOSED``) that others
  need little memory for it. Whoever writes to one that is left out does not wait: it arrives late, where that is bounded, too.
* A message waits if one of those it is for has a closed mailbox: one that it names, one who follows its topic, or, if it is for
  everyone, anybody. What goes back to its sender (``node.messages.returns``) does not wait, nor does an agent whose own mailbox
  is closed: it is who makes room there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from thence.node.directory.claims import Claims
from thence.node.directory.closed_mailboxes import ClosedMailboxes
from thence.node.directory.subscriptions import Subscriptions
from thence.storage.bodies import Closing
from thence.storage.mailbox import Batch

MAX_CLOSED: Final = 10_000
"""How many closed mailboxes of one server the others know of."""

CLOSED_BYTES: Final = 110
"""What each takes there."""


class Closings:
    """The closed mailboxes that one server knows of."""

    def __init__(self, claims: Claims, closed: dict[str, str], ours: ClosedMailboxes) -> None:
        """``claims`` say who is where; ``closed``, by client its server, is changed here and saved elsewhere.

        ``ours`` are those of this server, announced or not.
        """
        self._claims = claims
        self._ours = ours
        self.restore(closed)

    def take(self, notice: Closing) -> bool:
        """Note what a server tells; return whether a mailbox is open again."""
        opened, server = False, notice.server
        for client in notice.clients:
            if not notice.closed:
                opened = self.forget(client, server) or opened
            elif client not in self.closed and self._count[server] < MAX_CLOSED and self._claims.claimed_by(client, server):
                self.closed[client] = server
                self._count[server] += 1
        return opened

    def forget(self, client: str, server: str) -> bool:
        """Note that a mailbox at a server is open again, or gone; return whether it was closed."""
        if self.closed.get(client) != server:
            return False
        del self.closed[client]
        self._count[server] -= 1
        return True

    def is_closed(self, client: str) -> bool:
        """Return whether the mailbox of a client is closed, here or elsewhere."""
        return client in self._ours or client in self.closed

    def of(self, server: str) -> list[str]:
        """Return the clients whose mailbox is closed at a server."""
        return [client for client, home in self.closed.items() if home == server]

    def to(self, batch: Batch, subscriptions: Subscriptions) -> str:
        """Return a client whose closed mailbox a batch would go into; nothing if there is none."""
        if not self._ours and not self.closed:
            return ""
        names = batch.to if batch.topic is None else subscriptions.followers_of(batch.topic)
        if names is None:
            return next(iter(self._ours), "") or self._elsewhere(self.closed)
        if len(self.closed) < len(names):
            return next((name for name in self._ours if name in names), "") or self._elsewhere(
                [name for name in self.closed if name in names]
            )
        return next((name for name in names if name in self._ours), "") or self._elsewhere(names)

    def _elsewhere(self, names: Collection[str]) -> str:
        """Return the first of these whose mailbox is closed at another server, if there is one."""
        me = self._claims.server
        return next((name for name in names if self.closed.get(name, me) != me), "")

    def change(self) -> None:
        """The fabric has other servers: forget the mailboxes of those that are gone."""
        for client, server in list(self.closed.items()):
            if not self._claims.claimed_by(client, server):
                self.forget(client, server)

    def restore(self, closed: dict[str, str]) -> None:
        """Go on with the closed mailboxes of a snapshot."""
        self.closed = closed
        self._count = Counter(closed.values())
