"""Sends a client what waits in its mailbox.

Rules:

* Messages go out as far as the client's credit and its connection take them, and ``WINDOW_BYTES`` of them that are not done
  with. So a slow client has bounded work in its memory, however large its messages are.
* What is safe is said of messages that were sent to the client, and only if it has asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from thence.errors import MalformedFrame, StorageError
from thence.net.protocol import WINDOW_MESSAGES
from thence.node.node import Node
from thence.storage.mailbox import Batch
from thence.storage.mailbox_spill import MailboxReader

WINDOW_BYTES: Final = 64 * 1024 * 1024
"""How many bytes of messages a client is given that it is not done with, and one batch more."""

Withhold = Callable[[int, int, Batch], bool]
"""Takes what ``FeedOutlet.deliver`` takes; says whether the client does not get it, and has told it so."""


class FeedOutlet(Protocol):
    """The way to a client, for what is in its mailbox."""

    def deliver(self, position: int, skip: int, batch: Batch) -> None:
        """Deliver messages."""

    def on_safe(self, upto: int, reason: str) -> None:
        """Say that all messages up to a position are safe; or that nobody finds out, for this reason."""

    def damaged(self, error: StorageError) -> None:
        """Say that what is kept for it cannot be read; nothing more comes."""

    @property
    def blocked(self) -> bool:
        """Whether it takes nothing for now; ``MailboxFeed.send`` is called when it does again."""


class MailboxFeed:
    """The messages for one client, from its mailbox to its outlet."""

    def __init__(self, node: Node, client: str, outlet: FeedOutlet, withhold: Withhold | None) -> None:
        """Begin behind what the client has done with, here and in earlier connections."""
        self._node = node
        self._client = client
        self._outlet = outlet
        self._withhold = withhold
        self._limit = 0
        """The last position that the client takes."""
        self._next = node.directory.state.mailboxes[client].front
        """The position of the first message of the next batch to send."""
        self._unfinished: deque[tuple[int, int]] = deque()
        """Batches that the client has and is not done with: the position of the last message of each, and how many bytes."""
        self._unfinished_bytes = 0
        """How many bytes these batches have together."""
        self._reader = MailboxReader(node.directory.mailboxes.spill, client)
        self._acknowledged = node.acknowledgements.of(client)
        self._safety: tuple[int, str] | None = None
        """What was said to be safe, or why nothing is said; None: the client does not want to know."""

    def acknowledge(self, upto: int, limit: int, then: Callable[[], None] | None = None) -> bool:
        """Note up to where the client has done with its messages, and takes more; return whether that is news.

        ``then`` is called when it is on disk.
        """
        position = self._node.directory.state.mailboxes[self._client].position
        if upto > position or limit > upto + WINDOW_MESSAGES:
            raise MalformedFrame(f"{self._client!r} acknowledges message {upto} of {position} and takes up to {limit}")
        news = upto > self._acknowledged or limit > self._limit
        self._limit = max(self._limit, limit)
        if upto > self._acknowledged:
            self._acknowledged = upto
            unfinished = self._unfinished
            while unfinished and unfinished[0][0] <= upto:
                self._unfinished_bytes -= unfinished.popleft()[1]
            self._node.acknowledgements.acknowledge(self._client, upto, then)
        elif then is not None:
            self._node.acknowledgements.acknowledge(self._client, self._acknowledged, then)
        self.send()
        return news

    def pass_by(self, batch: Batch) -> bool:
        """Deliver messages to a program in this process without its mailbox, if it takes them now; return whether it does."""
        mailbox, first = self._node.directory.state.mailboxes[self._client], self._next
        if first != mailbox.position + 1 or first > self._limit or not mailbox.pass_by(batch):
            return False
        self._next += batch.count
        self._outlet.deliver(first, 0, batch)
        return True

    def want_safety(self) -> None:
        """Say from now on which messages are safe, and at once where that stands."""
        self._safety = (-1, "")
        self.send_safety()

    def send_safety(self) -> None:
        """Say which of the messages that were sent are safe, if the client wants to know and that is news."""
        if self._safety is None or self._outlet.blocked or self._client not in self._node.directory.state.mailboxes:
            return
        before, why = self._safety
        upto, reason = max(0, before), self._node.why_unknown
        if not reason:
            upto = max(upto, min(self._node.safe_of(self._client), max(self._next - 1, self._acknowledged)))
        if upto > before or reason != why:
            self._safety = (upto, reason)
            self._outlet.on_safe(upto, reason)

    def send(self) -> None:
        """Send what the client takes."""
        mailbox = self._node.directory.state.mailboxes.get(self._client)
        if mailbox is None:
            return  # It has lost its name, and its connection ends.
        outlet = self._outlet
        while (first := self._next) <= mailbox.position and first <= self._limit and not outlet.blocked:
            if self._unfinished_bytes >= WINDOW_BYTES:
                break
            batch = mailbox.waiting.get(first)
            if batch is None:
                if first < mailbox.front:  # It was acknowledged before it was sent: by an earlier connection.
                    self._next = mailbox.front
                    continue
                try:
                    first, batch = self._reader.at(mailbox, first, self._acknowledged)
                except StorageError as error:
                    outlet.damaged(error)
                    return
            self._next = first + batch.count
            if self._acknowledged >= self._next - 1:
                continue
            self._unfinished.append((self._next - 1, len(batch.messages)))
            self._unfinished_bytes += len(batch.messages)
            skip = max(0, self._acknowledged - first + 1)
            if batch.topic is None or self._withhold is None or not self._withhold(first + skip, skip, batch):
                outlet.deliver(first + skip, skip, batch)
        if self._safety is not None:
            self.send_safety()
