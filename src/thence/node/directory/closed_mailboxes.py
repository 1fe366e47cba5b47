"""The mailboxes of a server that are closed, how much came for each of them since, and of which others must hear."""

from __future__ import annotations

from collections.abc import Iterator


class ClosedMailboxes:
    """Closed mailboxes, by client: how many bytes each had in memory when it closed, and how many more it has now."""

    def __init__(self) -> None:
        """Begin with none."""
        self.late = 0
        """How many bytes came for closed mailboxes and are in memory."""
        self.changed: dict[str, None] = {}
        """Clients whose mailbox has closed or opened since that was announced."""
        self._before: dict[str, int] = {}
        self._late: dict[str, int] = {}

    def __contains__(self, client: object) -> bool:
        return client in self._before

    def __iter__(self) -> Iterator[str]:
        return iter(self._before)

    def __len__(self) -> int:
        return len(self._before)

    def close(self, client: str, before: int) -> None:
        """Close a mailbox that had so many bytes in memory before what comes late."""
        self._before[client], self.changed[client] = before, None

    def open(self, client: str) -> None:
        """Open a mailbox again, if it is closed."""
        if self._before.pop(client, None) is not None:
            self.late -= self._late.pop(client, 0)
            self.changed[client] = None

    def weigh(self, client: str, in_memory: int) -> None:
        """Note how many bytes a mailbox has in memory now, if it is closed."""
        if client in self._before:
            late = max(0, in_memory - self._before[client])
            self.late += late - self._late.get(client, 0)
            self._late[client] = late

    def latest(self) -> str:
        """Return the client for whom most came late."""
        return max(self._late, key=lambda client: self._late[client], default="")
