"""What a connected client is told: of its messages, of those for it, and of what it follows.

Rules:

* A client for whose messages nobody waits is told that they are accepted ``ACCEPTED_WITHIN_S`` later, unless something else goes
  to it before, or ``ACCEPTED_EVERY`` are.
* Of all acks that a client wants to know to be on disk, it is told the last.
* A client that does not read, or for which there is no memory, gets nothing more until it does, or there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from thence.errors import StorageError
from thence.net.control import refuse, tell
from thence.net.framing import Connection
from thence.net.protocol import Accepted, Acknowledge, Deliver, Denied, Safe, Subscribed, Undeliverable
from thence.node.node import Node
from thence.server.chatter import IDLE_POINTS, Chatter
from thence.storage.mailbox import Batch

ACCEPTED_WITHIN_S: Final = 0.005
ACCEPTED_EVERY: Final = 4_096


class ClientOutlet:
    """The way from a session to the client at the other end of a connection."""

    def __init__(self, node: Node, name: str, connection: Connection, chatter: Chatter, on_room: Callable[[], None]) -> None:
        """``on_room`` is called when there may be memory again for what is for the client."""
        self.hurried = 0
        """The number of the last message until whose acceptance somebody waits."""
        self._node = node
        self._name = name
        self._connection = connection
        self._chatter = chatter
        self._on_room = on_room
        self._accepted = 0
        self._sent_accepted = 0
        """The number up to which the client has heard that its messages are accepted."""
        self._timer: asyncio.TimerHandle | None = None
        self._syncing = False
        """Whether an ack is on its way to the disk, of which the client is told then."""
        self._unsynced: Acknowledge | None = None
        """The ack that goes to the disk after that one."""

    def accepted(self, upto: int) -> None:
        """Say that messages of the client are accepted, now or with others."""
        self._accepted = upto
        if self._sent_accepted < self.hurried or upto - self._sent_accepted >= ACCEPTED_EVERY:
            self._send_accepted()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ACCEPTED_WITHIN_S, self._send_later)

    def _send_later(self) -> None:
        self._timer = None
        self._send_accepted()

    def _send_accepted(self) -> None:
        if self._accepted > self._sent_accepted:
            self._sent_accepted = self._accepted
            tell(self._connection, Accepted(self._accepted, self._node.intake.accepted_of(self._name)))

    def undeliverable(self, first: int, count: int, reason: str, *, forbidden: bool) -> None:
        """Say that messages of the client never will be accepted."""
        self._chatter.spend(IDLE_POINTS)
        self._send_accepted()
        tell(self._connection, Undeliverable(first, count, reason, forbidden))

    def deliver(self, position: int, skip: int, batch: Batch) -> None:
        """Send messages."""
        everyone = batch.to is None and batch.topic is None
        tell(self._connection, Deliver(position, skip, batch.sender, batch.topic, batch.messages, everyone))

    def on_safe(self, upto: int, reason: str) -> None:
        """Say which messages are safe, or why nobody finds out."""
        tell(self._connection, Safe(upto, reason))

    def damaged(self, error: StorageError) -> None:
        """End the connection: what is kept for the client cannot be read. Others may go on."""
        refuse(self._connection, f"the messages for {self._name!r} cannot be read: {error}")

    def subscribed(self, topic: str, wanted: bool) -> None:
        """Say that the client follows a topic, or no longer."""
        tell(self._connection, Subscribed(topic, wanted))

    def not_subscribed(self, topic: str, reason: str) -> None:
        """Say why a topic cannot be followed here any more, or no longer be followed."""
        tell(self._connection, Denied("topic", topic, reason, forbidden=False))

    @property
    def blocked(self) -> bool:
        """Whether the connection is full, or there is no memory for more that is on its way."""
        connection = self._connection
        if connection.writer.full:
            return True
        pool = connection.holding.pool
        if 2 * pool.used <= pool.limit or pool.has_room(connection.holding.bytes):  # Said again: it is asked with every batch.
            return False
        pool.wait(self._on_room)
        return True

    def acknowledged(self, said: Acknowledge) -> None:
        """Say that an ack is on disk, when it is."""
        self._unsynced = said
        self._sync()

    def _sync(self) -> None:
        if self._unsynced is not None and not self._syncing:
            said, self._unsynced, self._syncing = self._unsynced, None, True
            self._node.driver.when_durable(partial(self._synced, said))

    def _synced(self, said: Acknowledge) -> None:
        self._syncing = False
        tell(self._connection, Acknowledge(said.upto, said.limit))
        self._sync()
