"""How much memory names and topics take that other servers announce: each of these servers has a part of its own.

Rules:

* A server's own clients are limited before it tells of them (``node.directory.directory``). But others may have more memory, or
  mean ill: so what each tells of is weighed here, too. Long names count for more than short ones.
* A name for which there is no room is left out, counted and logged. Who writes to it from here is told that nobody has the name.
  A name that somebody has is taken note of all the same: all must agree on who has it.
* Subscriptions for which there is no room are not left out, since messages would be lost unseen: their server *follows
  everything* from then on (``node.directory.subscriptions``). It gets what is published on any topic, and hands on what is
  followed.
"""

from __future__ import annotations

from sys import getsizeof
from typing import Final

MAX_NAMES_BYTES: Final = 256 * 1024 * 1024
"""How many bytes names of clients of one other server take: about a million of 20 messages, or a quarter of the longest."""

MAX_TOPICS_BYTES: Final = 256 * 1024 * 1024
"""The same for what clients of one other server follow."""

NAME_BYTES: Final = 200
"""How many bytes a name takes beside its messages."""

TOPIC_BYTES: Final = 400
"""How many bytes a subscription takes, with whoever tells of it."""


class Announced:
    """What other servers have told of, by server: how many bytes it takes."""

    def __init__(self, limit: int, each: int) -> None:
        """``limit`` is for each server; ``each`` counts beside the messages of what is told."""
        self.limit = limit
        self._each = each
        self._bytes: dict[str, int] = {}

    def __getitem__(self, server: str) -> int:
        return self._bytes.get(server, 0)

    def has_room(self, server: str, text: str) -> bool:
        """Return whether one more text of a server may be kept."""
        return self[server] + self._each + getsizeof(text) <= self.limit

    def add(self, server: str, text: str) -> None:
        """Count a text that is kept."""
        self._bytes[server] = self[server] + self._each + getsizeof(text)

    def drop(self, server: str, text: str) -> None:
        """Count a text no longer."""
        self._bytes[server] = max(0, self[server] - self._each - getsizeof(text))

    def forget(self) -> None:
        """Nothing is kept."""
        self._bytes = {}
