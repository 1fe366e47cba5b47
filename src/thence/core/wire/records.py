"""What a member must find again after a crash: the inputs that changed it, in order.

A member is deterministic, so its state is its last snapshot plus the inputs since then, stepped through again. That
is why a few kinds of record are enough, why payload and position can never be stored apart, and why nothing in an
ordering needs to know that there is a disk.

What other members acknowledged is not recorded: at worst it is sent once more, and they know that they have it.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

from thence.core.wire.messages import Envelope, Frame

StampT = TypeVar("StampT")


class Submitted(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Our own application sent this."""

    envelope: Envelope
    at: int = 0
    """When; for the trace. 0: it was stored by a version that did not say."""


class Received(msgspec.Struct, Generic[StampT], frozen=True, array_like=True, tag=2):
    """This frame came from ``peer``, with this number on the channel, and was accepted."""

    domain: str
    peer: str
    number: int
    frame: Frame[StampT]
    at: int = 0
    """When it was taken: an ordering may go by it, and must do so again when the record is stepped through again."""
    to: tuple[int, ...] | None = None
    """For which members the message is, by number, where we may have to repeat it to others; None: for all."""


class Skipped(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The frame with this number from ``peer`` was refused for good: it is acknowledged and never asked for again."""

    domain: str
    peer: str
    number: int


class Suspecting(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """From here on we suspected ``peer`` to be dead, or no longer. What we forwarded for it depends on that."""

    peer: str
    suspected: bool
    at: int = 0
    safe: tuple[tuple[str, int], ...] = ()
    """Up to which number all messages of each origin were known to be safe: of these nothing is forwarded again."""


class Changed(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A step of a change of the fabric (``core.reconfig.protocol``)."""

    phase: Literal["holding", "prepared", "barred", "switched", "resumed", "expelled", "followed"]
    attempt: int
    text: str = ""
    """Of ``holding``: the topology that is to follow; of ``followed``, the one that others have gone on to."""
    greetings: tuple[Envelope, ...] = ()
    """Of ``switched``: what was sent before all that waited."""
    lost: tuple[str, ...] = ()
    """Of ``holding`` and ``barred``: who is gone for good."""
    at: int = 0
    kept: tuple[str, ...] | None = None
    """Of ``holding`` and ``followed``: which of our places go on as they are; None: the change concerns everybody."""
    untouched: bool = False
    """Of ``holding``: whether all of them do, and we get no others."""
    absent: tuple[str, ...] = ()
    """Of ``holding``: who has no part in the attempt."""


class Passed(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """In a domain with safe delivery these have become safe, and what followed from it came here. Only programs between 0.1 and
    0.2.0 wrote it."""

    domain: str
    upto: tuple[tuple[str, int], ...]
    """Of each sender, up to which number; of ourselves, how many messages."""
    at: int = 0


class Owed(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Messages that we lacked when members were lost, to be delivered at the switch (``core.reconfig.flush``): one part of
    them."""

    attempt: int
    list_id: str
    at: int
    last: bool
    envelopes: tuple[Envelope, ...]


class Shared(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Others have all messages of our own up to this number, so that we may forward them (``core.failover.replicas``)."""

    upto: int
    at: int = 0


class SafeUpto(msgspec.Struct, frozen=True, array_like=True, tag=35):
    """Deliveries up to this position were known to be safe, and went to the application (``core.stability.safe_turn``)."""

    position: int
    at: int = 0


Record = Submitted | Received[Any] | Skipped | Suspecting | Changed | Passed | Owed | Shared | SafeUpto


def happened_at(record: Record) -> int:
    """Return when a record was made; 0: it does not say. Nothing is sent or delivered because of those that never do."""
    return 0 if isinstance(record, Skipped | Owed) else record.at
