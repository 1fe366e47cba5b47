"""The part of a member whose frames may be elsewhere: what it asks of whoever runs it, and what it is told
(``core.transport.spill_queue``).

This is the lower half of ``core.member.member``, below ``core.member.forward``, in a file of its own so that each can be read in
one go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from thence.core.member.contract import Fetched, Ready, Spilled
from thence.core.member.forward import Forwarding
from thence.core.transport.channel import Channel
from thence.core.transport.channels import PeerChannels
from thence.core.transport.spill_queue import Numbered
from thence.errors import UsageError


class Way(NamedTuple):
    """From here to a peer, in a domain or over a link."""

    place: str
    peer: str

    def __str__(self) -> str:
        return f"{self.peer} in {self.place}"


class Spilling(Forwarding):
    """See the module's text."""

    @property
    def in_memory(self) -> int:
        """How many frames are not acknowledged and in memory."""
        return self._queued

    def take_attention(self) -> list[Way]:
        """Return the ways to look at, once each time: frames should go elsewhere, or may be wanted back."""
        ways: list[Way] = []
        for name, place in self._places.items():
            if place.transport.attention:
                ways += [Way(name, peer) for peer in place.transport.attention]
                place.transport.attention.clear()
        return ways

    def attend_to_all(self) -> None:
        """Look at all ways the next time."""
        for name, peer in self.ways():
            self._places[name].transport.attention[peer] = None

    def block_to_spill(self, way: Way) -> Numbered:
        """Return the next frames that should go elsewhere, if any should. ``Spilled`` says that they are there."""
        channel = self._way(way)
        return [] if channel is None else channel.block_to_spill()

    def elsewhere(self, way: Way) -> tuple[int, int] | None:
        """Return the first and the last number of the frames that are elsewhere, if some are."""
        channel = self._way(way)
        found = None if channel is None else channel.state.elsewhere
        return None if found is None else (found.first, found.last)

    def wants(self, way: Way) -> bool:
        """Return whether the first of these could be sent now. ``Fetched`` hands it in."""
        channel = self._way(way)
        return channel is not None and channel.wanted

    def ways(self) -> Iterator[Way]:
        """Give all ways on which frames may be elsewhere."""
        for name, place in self._places.items():
            if isinstance(place.transport, PeerChannels):
                yield from [Way(name, peer) for peer in place.transport.channels]

    def ways_elsewhere(self) -> list[Way]:
        """Return those on which some are."""
        return [way for way in self.ways() if self.elsewhere(way) is not None]

    def _way(self, way: Way) -> Channel | None:
        place = self._places.get(way.place)
        if place is None or not isinstance(place.transport, PeerChannels):
            return None
        return place.transport.channels.get(way.peer)

    def _moved_elsewhere(self, change: Spilled | Fetched, now: int) -> Ready:
        place = self._places.get(change.place)
        if place is None or not isinstance(place.transport, PeerChannels) or change.peer not in place.transport.channels:
            raise UsageError(f"{change.peer!r} in {change.place!r} is no way of {self.name!r}")
        if isinstance(change, Spilled):
            place.transport.spilled(change.peer, change.upto)
            self._count_queued()
            return Ready(wake=self._wake())
        place.transport.fetched(change.peer, change.frames)
        self._count_queued()
        return Ready(send=self._collect(now), wake=self._wake())
