"""How clients of a node are removed, and how what waits for them is dropped: at once, also while a full mailbox stops the node.

Rules:

* A removal is a record of its own in the log (``Removed``). The mailbox goes when that record is durable. It needs no room in any
  mailbox, so the remedy for a full mailbox works while that mailbox is full.
* Behind it the name is still claimed, without a mailbox. The server takes the claim back by a ``Left``, which tells all servers,
  as soon as the member takes one; also after a crash in between (``Office.yielded``).
* A record names the mailbox it is about, so that it never drops a later one of the same name.
* What is dropped is counted, by who caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from thence.errors import Busy, UsageError
from thence.runtime.journal import Removed

if TYPE_CHECKING:
    from thence.runtime.node import Node

Cause = Literal["leave", "remove", "purge"]
"""Why messages were dropped: their client left or stayed away, or an operator removed it, or only its messages."""

CAUSES: Final[tuple[Cause, ...]] = ("leave", "remove", "purge")


class Dropped(NamedTuple):
    """What was dropped."""

    messages: int = 0
    bytes: int = 0


class Removal:
    """See the module's text."""

    def __init__(self, node: Node) -> None:
        """Remove clients of ``node``."""
        self._node = node
        self.under_way: dict[str, int] = {}
        """Mailboxes, by client, whose removal is written and not durable yet."""
        self.dropped: dict[str, int] = dict.fromkeys(CAUSES, 0)
        """How many messages were dropped since the start."""

    def remove(self, client: str, cause: Cause, then: Callable[[Dropped], None] | None = None) -> None:
        """Remove a client that has a mailbox here. ``then`` is told what was dropped when that is durable."""
        self.check_durable(client)
        since = self._node.office.state.boxes[client].since
        self.under_way[client] = since

        def durable() -> None:
            dropped = self.removed(client, since)
            self.dropped[cause] += dropped.messages
            if then is not None:
                then(dropped)

        self._node.driver.write([Removed(client, since)], durable)

    def removed(self, client: str, since: int) -> Dropped:
        """Drop this mailbox, if there still is one; return what was in it."""
        if self.under_way.get(client) == since:
            del self.under_way[client]
        box = self._node.office.state.boxes.get(client)
        if box is None or box.since != since:
            return Dropped()
        dropped = Dropped(box.position - box.acknowledged, box.bytes)
        node, was_full = self._node, self._node.office.full
        handed = node.office.remove(client)
        node.forget_client(client)
        node.on_notice(handed)
        if was_full and not node.office.full:
            node.go_on_with_room()
        return dropped

    def restore(self, under_way: Mapping[str, int]) -> None:
        """Do what was written when a snapshot was made, and not durable yet."""
        for client, since in under_way.items():
            self.removed(client, since)

    def purge(self, client: str, then: Callable[[Dropped], None]) -> None:
        """Drop what waits for a client now. ``then`` is told what was dropped when that is durable."""
        self.check_durable(client)
        box = self._node.office.state.boxes[client]
        upto = box.position
        dropped = Dropped(upto - self._node.acknowledged_of(client), box.bytes)

        def durable() -> None:
            self.dropped["purge"] += dropped.messages
            then(dropped)

        self._node.acknowledge(client, upto)
        self._node.driver.when_durable(durable)

    def check_durable(self, client: str) -> None:
        """Raise if a client has no mailbox here, or if nothing can be made durable now."""
        if client not in self._node.office.state.boxes:
            raise UsageError(f"{client!r} is no client of {self._node.name!r}")
        if self._node.driver.stalled:
            raise Busy(f"nothing can be made durable now, so nothing is dropped: {self._node.driver.stalled}")
