"""What a process has seen of the streams of relays: the vector that its own messages carry.

Design note: docs/concepts/orderings/relayed.md. Where a domain of the fabric runs ``relayed``, every process has one. It grows by
what is delivered to the application here, not by what is merely passed on: so what a relay forwards does not come after what it
forwarded before.
"""

from __future__ import annotations

from thence.core.ordering.relayed import check_vector
from thence.core.topology.model import Topology
from thence.core.wire.messages import Envelope
from thence.errors import MalformedFrame


class SeenStreams:
    """One number for each relay: up to where its stream is among the causes of what this process sends."""

    def __init__(self, entries: int) -> None:
        """Start with nothing seen."""
        self.known = [0] * entries

    @classmethod
    def of(cls, topology: Topology) -> SeenStreams:
        """Return that of a process in this fabric; it has no entries if relays there do not order by it."""
        return cls(topology.entries())

    def write(self, envelope: Envelope) -> Envelope:
        """Return a message of our own with what we have seen."""
        if not self.known:
            return envelope
        return envelope.with_vector(tuple(x for stream, number in enumerate(self.known) if number for x in (stream, number)))

    def learn(self, envelope: Envelope) -> None:
        """Take over what a message carries that is delivered here."""
        vector, known = envelope.vector or (), self.known
        for at in range(0, len(vector), 2):
            known[vector[at]] = max(known[vector[at]], vector[at + 1])

    def check(self, envelope: Envelope) -> None:
        """Refuse a message without a vector, or whose vector makes no sense."""
        if self.known and envelope.vector is None:
            raise MalformedFrame(f"message {envelope.id} does not say what its origin had seen")
        check_vector(envelope.vector or (), len(self.known))

    def fork(self) -> SeenStreams:
        """Return one that goes on from here on its own."""
        twin = SeenStreams(0)
        twin.known = list(self.known)
        return twin
