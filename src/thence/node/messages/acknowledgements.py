"""What clients and agents of a node have done with: their mailboxes have room when that is durable."""

from __future__ import annotations

from collections.abc import Callable

from thence.node.directory.directory import Directory
from thence.node.driver.driver import Driver
from thence.storage.journal import Acknowledged


class Acknowledgements:
    """Up to which position each client has done with its messages, durable or not."""

    def __init__(self, directory: Directory, driver: Driver, on_room: Callable[[], None]) -> None:
        """``on_room`` is called when a mailbox that was full stops nobody any more."""
        self.under_way: dict[str, int] = {}
        """What clients have acknowledged and is not durable yet."""
        self._directory = directory
        self._driver = driver
        self._on_room = on_room

    def acknowledge(self, client: str, upto: int, then: Callable[[], None] | None = None) -> None:
        """Store that a client has done with its messages up to a position, and call ``then`` when that is durable."""
        self.under_way[client] = upto
        self._driver.write([Acknowledged(client, upto)], lambda: self.durable(client, upto, then))

    def of(self, client: str) -> int:
        """Return up to which position a client has done with its messages, durable or not."""
        return max(self._directory.state.mailboxes[client].acknowledged, self.under_way.get(client, 0))

    def durable(self, client: str, upto: int, then: Callable[[], None] | None = None) -> None:
        """Make room in a mailbox: the acknowledgement is durable, now or in what is being brought back."""
        if self.under_way.get(client) == upto:
            del self.under_way[client]
        mailboxes = self._directory.mailboxes
        was_full, was_closed = mailboxes.full, client in mailboxes.refused or client in mailboxes.closed
        mailboxes.acknowledge(client, upto)
        if then is not None:
            then()
        if not mailboxes.full and (was_full or (was_closed and client not in mailboxes.closed)):
            mailboxes.refused.discard(client)
            self._on_room()

    def reacted(self, agent: str, since: int, upto: int) -> None:
        """An agent has done with its messages up to a position, unless it is another one of that name by now."""
        mailbox = self._directory.state.mailboxes.get(agent)
        if mailbox is not None and mailbox.since == since:
            self.durable(agent, upto)
