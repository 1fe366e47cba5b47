"""How far a process can have come with each peer: the highest number that went out to it (``core.epochs.epoch``).

A process that starts again knows what its store had. One that goes on without a start, but in an older state, as a machine does
that is brought back from a snapshot of its memory, knows what it wrote to a connection before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from thence.core.wire.messages import Packet


class Reach:
    """The highest number that went out to each peer in each place, since the start or before it."""

    def __init__(self) -> None:
        """Nothing has."""
        self._before: Mapping[str, Mapping[str, int]] = {}
        self._written: dict[str, dict[str, int]] = {}
        self._repeated: set[str] = set()
        """Places where others may repeat our frames: there a peer may have more than we wrote to it."""

    def start(self, before: Mapping[str, Mapping[str, int]]) -> None:
        """Note what the store knew of when we started."""
        self._before = before

    def written_to(self, peer: str) -> dict[str, int]:
        """Return the highest number that was written to a peer, by place, to be kept up to date by ``write``."""
        return self._written.setdefault(peer, {})

    def write(self, written: dict[str, int], packet: Packet[Any]) -> None:
        """Note a packet that is written to a connection."""
        numbers = packet.numbers
        if packet.group_acks is not None:
            self._repeated.add(packet.domain)
        elif numbers and numbers[-1] > written.get(packet.domain, 0):
            written[packet.domain] = numbers[-1]

    def of(self, peer: str, places: Iterable[str]) -> dict[str, int]:
        """Return how far we can have come with a peer in those of these places where nobody else repeats our frames."""
        before, written = self._before.get(peer, {}), self._written.get(peer, {})
        return {place: max(before.get(place, 0), written.get(place, 0)) for place in places if place not in self._repeated}
