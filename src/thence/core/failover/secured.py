"""Which messages of our own outlive us: only then do they count as accepted.

Where a domain's ordering sees to it that enough others hold a message (``Traits.secures``, ``core.ordering.resilient``), it says
when they do. A message is secured when all such domains into which we put it have said so, and all before it are secured. With
other domains it is secured at once: it is on disk here.
"""

from __future__ import annotations

from collections.abc import Iterable

from thence.core.wire.messages import Envelope


class Secured:
    """The messages of one member that are not secured."""

    def __init__(self, me: str, last: int = 0) -> None:
        """All messages up to ``last`` are secured."""
        self._me = me
        self.last = last
        """The last message that was sent."""
        self._said = 0
        self._open: dict[int, int] = {}
        """In how many domains each message is not held by enough, oldest first."""

    @property
    def upto(self) -> int:
        """Up to which number all are secured."""
        return next(iter(self._open), self.last + 1) - 1

    def fork(self) -> Secured:
        """Return one that goes on from here on its own."""
        twin = Secured(self._me, self.last)
        twin._said, twin._open = self._said, dict(self._open)
        return twin

    def sent(self, envelope: Envelope) -> None:
        """Note that a message of our own was sent."""
        self.last = envelope.number

    def put_into(self, envelope: Envelope) -> None:
        """Note that a message was put into a domain that will say when enough hold it."""
        if envelope.origin == self._me:
            self._open[envelope.number] = self._open.get(envelope.number, 0) + 1

    def note(self, envelopes: Iterable[Envelope]) -> None:
        """Note that a domain says so of these."""
        for envelope in envelopes:
            left = self._open.get(envelope.number, 0) - 1 if envelope.origin == self._me else -1
            if left > 0:
                self._open[envelope.number] = left
            elif left == 0:
                del self._open[envelope.number]

    def load(self, last: int, unsecured: Iterable[Envelope]) -> None:
        """Go on from a snapshot: what domains say is not held by enough, in any order."""
        self.last, self._open = last, {}
        for envelope in sorted(unsecured, key=lambda envelope: envelope.number):
            self.put_into(envelope)

    def news(self) -> int:
        """Return up to which number all are secured, if that was not told yet; else 0."""
        upto = self.upto
        if upto <= self._said:
            return 0
        self._said = upto
        return upto
