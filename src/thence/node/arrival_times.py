"""When the messages that a node has not delivered yet came in, for the trace: from then to its delivery a message waits.

Rules:

* Only messages of others that are for this node are looked at: nobody waits here for what it passes on.
* The first copy counts. Copies that come behind the delivery stay, until ``MAX_ARRIVED`` later ones have come.
* With more than ``MAX_ARRIVED`` of them the oldest are forgotten, and of those nobody knows how long they waited.
* Records that are stepped through again say when they were made, so that the times are the same after a crash.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from thence.core.failover.early_payloads import BodyAhead
from thence.core.wire.messages import Envelope, Frame
from thence.core.wire.records import Owed, Received, Record

MAX_ARRIVED: Final = 32_768
"""Of how many messages that wait it is known when they came in."""

SavedTimes = list[tuple[str, int, int]]
"""Origin and number of each message, and when it came in; the oldest first."""


def _envelopes(came: Record | Frame[Any]) -> Iterable[Envelope]:
    frame = came.frame if isinstance(came, Received) else came
    if isinstance(frame, Frame):
        return () if frame.envelope is None or type(frame.stamp) is BodyAhead else (frame.envelope,)
    return frame.envelopes if isinstance(frame, Owed) else ()


class ArrivalTimes:
    """When messages came in that wait for their turn."""

    def __init__(self, server: str) -> None:
        """Nothing has come in."""
        self._server = server
        self._times: OrderedDict[tuple[str, int], int] = OrderedDict()

    def note(self, came: Iterable[Record | Frame[Any]], at: int) -> None:
        """These records were made, or these frames came in."""
        server, times = self._server, self._times
        for one in came:
            for envelope in _envelopes(one):
                if envelope.origin != server and (envelope.to is None or server in envelope.to):
                    times.setdefault((envelope.origin, envelope.number), at)
        while len(times) > MAX_ARRIVED:
            times.popitem(last=False)

    def take(self, envelope: Envelope) -> int | None:
        """Return when a message came in that is delivered now, and forget it; None: nobody knows."""
        return self._times.pop((envelope.origin, envelope.number), None)

    def save(self) -> SavedTimes:
        """Return what is to be in a snapshot."""
        return [(origin, number, at) for (origin, number), at in self._times.items()]

    def load(self, saved: SavedTimes) -> None:
        """Go on from a snapshot."""
        self._times = OrderedDict(((origin, number), at) for origin, number, at in saved)
