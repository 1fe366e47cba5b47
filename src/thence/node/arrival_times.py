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


class ArrivalTimes:
    """When messages came in that wait for their turn."""

    def __init__(self, server: str) -> None:
        """Nothing has come in."""
        self._server = server
        self._times: OrderedDict[tuple[str, int], int] = OrderedDict()

    def note(self, came: Iterable[Record | Frame[Any]], at: int) -> None:
        """These records were made, or these frames came in."""
        for one in came:
            frame = one.frame if isinstance(one, Received) else one
            if isinstance(frame, Frame):
                if frame.envelope is not None and type(frame.stamp) is not BodyAhead:
                    self._note(frame.envelope, at)
            elif isinstance(frame, Owed):
                for envelope in frame.envelopes:
                    self._note(envelope, at)

    def _note(self, envelope: Envelope, at: int) -> None:
        if envelope.origin != self._server and (envelope.to is None or self._server in envelope.to):
            self._times.setdefault((envelope.origin, envelope.number), at)
            if len(self._times) > MAX_ARRIVED:
                self._times.popitem(last=False)

    def take(self, envelope: Envelope) -> int | None:
        """Return when a message came in that is delivered now, and forget it; None: nobody knows."""
        return self._times.pop((envelope.origin, envelope.number), None)

    def save(self) -> SavedTimes:
        """Return what is to be in a snapshot."""
        return [(origin, number, at) for (origin, number), at in self._times.items()]

    def load(self, saved: SavedTimes) -> None:
        """Go on from a snapshot."""
        self._times = OrderedDict(((origin, number), at) for origin, number, at in saved)
