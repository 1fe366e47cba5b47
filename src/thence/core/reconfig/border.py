"""The border of what a change replaces: what is to cross it waits there, in order (``core.reconfig.concern``).

A member that holds may be in places that go on and in places that are replaced. What it releases in one that goes on, and
what would go into one that is replaced, waits here until the change is made or left.
"""

from __future__ import annotations

from collections.abc import Iterable

from thence.core.topology.routing import RoutePlan
from thence.core.wire.messages import Envelope, weight_of

MAX_CROSSINGS = 100_000
"""How many messages may wait before no more is taken that would, so that senders push back."""

MAX_CROSSING_BYTES = 256 * 1024 * 1024
"""About how many bytes they may take."""

Crossing = tuple[str, Envelope]
"""A message that waits, and the place by which it came."""


class Border:
    """What waits at one member, and before which of its places."""

    def __init__(self) -> None:
        """Nothing is replaced."""
        self.closed: frozenset[str] = frozenset()
        """The places that are to be replaced, and take nothing from the others."""
        self.crossings: list[Crossing] = []
        self._bytes = 0

    def close(self, places: Iterable[str]) -> None:
        """Let everything wait that would go into these places."""
        self.closed = frozenset(places)

    def open(self) -> list[Crossing]:
        """Let nothing wait any more; return what did, in order."""
        waited, self.crossings, self._bytes, self.closed = self.crossings, [], 0, frozenset()
        return waited

    def stops(self, came_by: str, plan: RoutePlan) -> bool:
        """Return whether a message that came by a place is to wait, as far as it goes into what is replaced."""
        return came_by not in self.closed and not self.closed.isdisjoint((*plan.into, *plan.across))

    def wait(self, came_by: str, envelope: Envelope) -> None:
        """Let a message wait."""
        self.crossings.append((came_by, envelope))
        self._bytes += weight_of(envelope)

    @property
    def full(self) -> str:
        """Say that no more may wait, if so."""
        if len(self.crossings) < MAX_CROSSINGS and self._bytes < MAX_CROSSING_BYTES:
            return ""
        limits = f"MAX_CROSSINGS is {MAX_CROSSINGS}, MAX_CROSSING_BYTES {MAX_CROSSING_BYTES}"
        return f"{len(self.crossings)} messages of {self._bytes} bytes wait for the fabric to change; {limits}"

    def load(self, crossings: Iterable[Crossing]) -> None:
        """Go on with what a snapshot has."""
        self.crossings = list(crossings)
        self._bytes = sum(weight_of(envelope) for _, envelope in self.crossings)

    def fork(self) -> Border:
        """Return a border that goes on from here on its own."""
        twin = Border()
        twin.close(self.closed)
        twin.load(self.crossings)
        return twin


def inside(plan: RoutePlan, places: Iterable[str]) -> RoutePlan:
    """Return as much of a plan as goes into these places."""
    names = frozenset(places)
    into = {name: members for name, members in plan.into.items() if name in names}
    return RoutePlan(into, tuple(name for name in plan.across if name in names))
