"""Room in queues: one limit for many queues, of which each has a share that no other queue can take.

A peer that is away must not stop what goes to others. So half of a limit is *reserved*, in equal shares, one for each queue. The
other half is for whoever needs it first. A queue is full when it has used its share and nothing of the common half is left. So:

* All queues together hold what the limit says, and at most one message more in each.
* A queue that has used less than its share is never full, whatever waits in the others.
* A single queue may use the whole limit.

A transport says how many queues it has: one for each peer or, where one message waits for all members together
(``core.transport.ack_all``), one for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from thence.core.transport.base import Transport

RESERVED_PART = 2
"""One part in so many of a limit is reserved in equal shares; the rest is for whoever needs it first."""


class Limit(NamedTuple):
    """The most that some queues may hold together."""

    name: str
    most: int
    unit: str

    def share(self, queues: int) -> int:
        """Return how much of it is reserved for each of so many queues."""
        return max(1, self.most // (RESERVED_PART * max(1, queues)))

    def common(self, queues: int) -> int:
        """Return how much is left for whoever needs it first."""
        return max(0, self.most - queues * self.share(queues))


class QueueLimits(NamedTuple):
    """What some queues may hold together, by frames and by bytes: in the order of ``Queues.size``."""

    frames: Limit
    bytes: Limit


class FullQueue(NamedTuple):
    """A queue that takes no more: in which domain or link, who has not acknowledged what is in it, and by which limit."""

    place: str
    peer: str
    why: str

    def __str__(self) -> str:
        return f"the queue to {self.peer!r} in {self.place!r} is full: {self.why}"


def harmless(most: int) -> int:
    """Return how much may wait in all queues together, by a limit of ``most``, before one of them can be full."""
    return most - most // RESERVED_PART


def first_full(
    limits: QueueLimits, transports: Sequence[Transport], asked: Collection[tuple[Transport, str]], *, unacked: bool = False
) -> FullQueue | None:
    """Return the first full queue of those that are ``asked`` for, each by its transport and peer; None if all have room.

    ``transports`` share the limits. ``unacked`` leaves out what was acknowledged and is kept until it is stable.
    """
    queues = [one.unacked if unacked else one.queues for one in transports]
    count = sum([one.count for one in queues])
    for at, limit in enumerate(limits):
        share = limit.share(count)
        for transport, peer in asked:
            size = (transport.unacked if unacked else transport.queues).size(peer)[at]
            if size < share:
                continue
            if sum([max(0, sizes[at] - share) for one in queues for sizes in one.sizes()]) < limit.common(count):
                break  # The others have room as well.
            why = f"{size} {limit.unit} are not acknowledged; {limit.name} is {limit.most}"
            if count > 1:
                why += f", of which each of {count} queues has {share} for itself"
            return FullQueue(transport.name, transport.queues.slowest(peer), why)
    return None


def fullest(limits: QueueLimits, transports: Sequence[Transport]) -> float:
    """Return how full the fullest queue is, as a part of what it may hold now; 1 is full."""
    queues = [one.queues for one in transports]
    count = sum([one.count for one in queues])
    most = 0.0
    for at, limit in enumerate(limits):
        share, common = limit.share(count), limit.common(count)
        sizes = [found[at] for one in queues for found in one.sizes()]
        beyond = [max(0, size - share) for size in sizes]
        left = common - sum(beyond)
        most = max([most, *[size / max(1, share + left + over) for size, over in zip(sizes, beyond, strict=True)]])
    return most
