"""How clients of a node are removed, and how what waits for them is dropped: at once, also while a full mailbox stops the node.

Rules:

* A removal is a record of its own in the log (``Removed``). The mailbox goes when that record is durable. It needs no room in any
  mailbox, so the remedy for a full mailbox works while that mailbox is full.
* Behind it the name is still claimed, without a mailbox. The server takes the claim back by a ``Left``, which tells all servers,
  as soon as the member takes one; also after a crash in between (``Directory.yielded``).
* A record names the mailbox it is about, so that it never drops a later one of the same name.
* What is dropped is counted, by who caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from thence.errors import Busy, UsageError
from thence.node.directory.directory import Directory
from thence.node.driver.driver import Driver
from thence.node.hooks import NodeHooks
from thence.node.messages.acknowledgements import Acknowledgements
from thence.storage.journal import Removed

Cause = Literal["leave", "remove", "purge"]
"""Why messages were dropped: their client left or stayed away, or an operator removed it, or only its messages."""

CAUSES: Final[tuple[Cause, ...]] = ("leave", "remove", "purge")


class Dropped(NamedTuple):
    """What was dropped."""

    messages: int = 0
    bytes: int = 0


class Removal:
    """Removes clients of a server, and drops what waits for them."""

    def __init__(
        self,
        directory: Directory,
        driver: Driver,
        acknowledgements: Acknowledgements,
        hooks: NodeHooks,
        forget: Callable[[str], None],
        on_room: Callable[[], None],
    ) -> None:
        """Remove clients of ``directory``.

        ``forget`` lets the other parts of the node forget a name; ``on_room`` is called when a full mailbox has gone.
        """
        self.forget = forget
        self._directory = directory
        self._driver = driver
        self._acknowledgements = acknowledgements
        self._hooks = hooks
        self._on_room = on_room
        self.under_way: dict[str, int] = {}
        """Mailboxes, by client, whose removal is written and not durable yet."""
        self.dropped: dict[str, int] = dict.fromkeys(CAUSES, 0)
        """How many messages were dropped since the start."""

    def remove(self, client: str, cause: Cause, then: Callable[[Dropped], None] | None = None) -> None:
        """Remove a client that has a mailbox here. ``then`` is told what was dropped when that is durable."""
        self.check_durable(client)
        since = self._directory.state.mailboxes[client].since
        self.under_way[client] = since

        def durable() -> None:
            dropped = self.removed(client, since)
            self.dropped[cause] += dropped.messages
            if then is not None:
                then(dropped)

        self._driver.write([Removed(client, since)], durable)

    def removed(self, client: str, since: int) -> Dropped:
        """Drop this mailbox, if there still is one; return what was in it."""
        if self.under_way.get(client) == since:
            del self.under_way[client]
        mailbox = self._directory.state.mailboxes.get(client)
        if mailbox is None or mailbox.since != since:
            return Dropped()
        dropped = Dropped(mailbox.position - mailbox.acknowledged, mailbox.bytes)
        was_full = self._directory.mailboxes.full or client in self._directory.mailboxes.closed
        change = self._directory.remove(client)
        self.forget(client)
        self._hooks.on_notice(change)
        if was_full and not self._directory.mailboxes.full:
            self._on_room()
        return dropped

    def restore(self, under_way: Mapping[str, int]) -> None:
        """Do what was written when a snapshot was made, and not durable yet."""
        for client, since in under_way.items():
            self.removed(client, since)

    def purge(self, client: str, then: Callable[[Dropped], None]) -> None:
        """Drop what waits for a client now. ``then`` is told what was dropped when that is durable."""
        self.check_durable(client)
        mailbox = self._directory.state.mailboxes[client]
        upto = mailbox.position
        dropped = Dropped(upto - self._acknowledgements.of(client), mailbox.bytes)

        def durable() -> None:
            self.dropped["purge"] += dropped.messages
            then(dropped)

        self._acknowledgements.acknowledge(client, upto)
        self._driver.when_durable(durable)

    def check_durable(self, client: str) -> None:
        """Raise if a client has no mailbox here, or if nothing can be made durable now."""
        if client not in self._directory.state.mailboxes:
            raise UsageError(f"{client!r} is no client of {self._directory.server!r}")
        if self._driver.commits.stalled:
            raise Busy(f"nothing can be made durable now, so nothing is dropped: {self._driver.commits.stalled}")
