"""Frames that are elsewhere: which should go there, which are there, which are wanted back (``core.transport.spill_queue``).

Whoever runs a member stores the frames. It asks here what to do, and says what it has done by ``Spilled`` and ``Fetched``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from thence.core.member.attachment import Attachment
from thence.core.member.contract import Fetched, Ready, Spilled
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


class SpillWays:
    """The ways on which frames may be elsewhere."""

    def __init__(self, attachment: Attachment) -> None:
        """Be those of ``attachment``."""
        self._attachment = attachment

    def take_attention(self) -> list[Way]:
        """Return the ways to look at, once each time: frames should go elsewhere, or may be wanted back."""
        ways: list[Way] = []
        for name, place in self._attachment.places.items():
            if place.transport.attention:
                ways += [Way(name, peer) for peer in place.transport.attention]
                place.transport.attention.clear()
        return ways

    def attend_to_all(self) -> None:
        """Look at all ways the next time."""
        for name, peer in self.all():
            self._attachment.places[name].transport.attention[peer] = None

    def block(self, way: Way) -> Numbered:
        """Return the next frames that should go elsewhere, if any should. ``Spilled`` says that they are there."""
        channel = self._channel(way)
        return [] if channel is None else channel.block_to_spill()

    def elsewhere(self, way: Way) -> tuple[int, int] | None:
        """Return the first and the last number of the frames that are elsewhere, if some are."""
        channel = self._channel(way)
        found = None if channel is None else channel.state.elsewhere
        return None if found is None else (found.first, found.last)

    def wants(self, way: Way) -> bool:
        """Return whether the first of these could be sent now. ``Fetched`` hands it in."""
        channel = self._channel(way)
        return channel is not None and channel.wanted

    def all(self) -> Iterator[Way]:
        """Give all ways on which frames may be elsewhere."""
        for name, place in self._attachment.places.items():
            if isinstance(place.transport, PeerChannels):
                yield from [Way(name, peer) for peer in place.transport.channels]

    def used(self) -> list[Way]:
        """Return the ways on which some are."""
        return [way for way in self.all() if self.elsewhere(way) is not None]

    def moved(self, done: Spilled | Fetched, now: int) -> Ready:
        """Note that frames are elsewhere, or take them back."""
        here = self._attachment
        place = here.places.get(done.place)
        if place is None or not isinstance(place.transport, PeerChannels) or done.peer not in place.transport.channels:
            raise UsageError(f"{done.peer!r} in {done.place!r} is no way of {here.name!r}")
        if isinstance(done, Spilled):
            place.transport.spilled(done.peer, done.upto)
            here.count_frames()
            return Ready(wake=here.wake())
        place.transport.fetched(done.peer, done.frames)
        here.count_frames()
        return here.ready(now)

    def _channel(self, way: Way) -> Channel | None:
        place = self._attachment.places.get(way.place)
        if place is None or not isinstance(place.transport, PeerChannels):
            return None
        return place.transport.channels.get(way.peer)
