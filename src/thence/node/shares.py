"""Who holds how many connections of a listener, and who makes room when there are no more.

A connection counts for somebody: a stranger for the place that it came from, a client for its entry in the access file, and one
without a token for its place. When there is no room, whoever holds most gives up a connection. So nobody takes all of them,
and somebody who is alone may have as many as there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

HeldT = TypeVar("HeldT", bound=Hashable)


class ConnectionShares(Generic[HeldT]):
    """Connections by whom they count for, the oldest first."""

    def __init__(self) -> None:
        """Start with none."""
        self._holders: dict[HeldT, str] = {}
        self._counts: Counter[str] = Counter()

    def add(self, connection: HeldT, holder: str) -> None:
        """Count a connection for somebody."""
        self.drop(connection)
        self._holders[connection] = holder
        self._counts[holder] += 1

    def drop(self, connection: HeldT) -> None:
        """Count a connection no longer, if it was counted."""
        holder = self._holders.pop(connection, None)
        if holder is not None:
            self._counts[holder] -= 1
            if not self._counts[holder]:
                del self._counts[holder]

    def holder(self, connection: HeldT) -> str:
        """Return for whom a connection counts."""
        return self._holders[connection]

    def held_by(self, holder: str) -> int:
        """Return how many connections somebody has."""
        return self._counts[holder]

    def largest(self) -> str:
        """Return who has most of them; there must be one."""
        return max(self._counts, key=self._counts.__getitem__)

    def oldest_of(self, holder: str) -> HeldT:
        """Return the connection of somebody that has been there for longest."""
        return next(connection for connection, whose in self._holders.items() if whose == holder)

    def newest_of(self, holder: str) -> HeldT:
        """Return the connection of somebody that came last."""
        return next(connection for connection, whose in reversed(self._holders.items()) if whose == holder)

    def gives_way_to(self, holder: str) -> HeldT | None:
        """Return the connection that makes room for one more of somebody; None: it would have as many as anybody else."""
        if not self._holders:
            return None
        largest = self.largest()
        return self.newest_of(largest) if self._counts[holder] + 1 < self._counts[largest] else None

    def __len__(self) -> int:
        return len(self._holders)

    def __iter__(self) -> Iterator[HeldT]:
        return iter(self._holders)
