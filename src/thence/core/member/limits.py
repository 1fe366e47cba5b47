"""The limits of a member, and how it works: named constants, and the options that change them.

``core.member.admission`` says what happens when a limit is reached, and why nobody waits for ever.
"""

from __future__ import annotations

import msgspec

from thence.core.ordering import MAX_HELD
from thence.core.places.link_end import MAX_EARLY_BYTES
from thence.core.topology.ack_options import RESEND_AFTER_NS
from thence.core.transport.ack_all.copies import MAX_COPIES_BYTES
from thence.core.transport.spill_queue import SpillRoom

MAX_QUEUED = 100_000
"""How many frames may wait for acknowledgement, in all queues together. Each queue has its share (``core.transport.quotas``):
when one is full, what the application sends by way of it is refused as busy."""

MAX_QUEUED_HARD = 16 * MAX_QUEUED
"""The same for frames that we send on for others, in all queues of one domain or link. What would go into a queue that is full is
not taken, so that its senders push back in turn."""

MAX_QUEUED_BYTES = 256 * 1024 * 1024
"""How many bytes those frames may take before the application's sends are refused as busy."""

MAX_QUEUED_BYTES_HARD = 4 * MAX_QUEUED_BYTES
"""The same for frames that we send on for others."""

MIN_QUEUED_BYTES_HARD = 64 * 1024 * 1024
"""The least that it is made where ``max_queued_bytes`` is less than usual: a few messages as large as can be."""

MAX_ECHOES = MAX_QUEUED_HARD
"""How many messages that we put into a domain may be on their way back to us, by way of a sequencer: we keep their names. Further
ones are put in for all but us."""

MAX_ECHO_BYTES = 64 * 1024 * 1024
"""How many bytes those messages may have. Whoever hands them back has room for so many for each member: so it is the same for all
members, however much memory they have."""

MAX_UNCONSUMED = 100_000
"""How many deliveries may wait for the application to be done with them before no more frames are taken."""

MAX_UNCONSUMED_BYTES = 256 * 1024 * 1024
"""How many bytes those deliveries may have."""


class MemberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a member works. The defaults are for a real network and a real disk."""

    reliable: bool = True
    """Number, acknowledge and repeat frames. Without it the network is trusted to be exact, as in the explorer."""
    durable: bool = True
    """Ask for records to be made durable, and keep deliveries until they are consumed."""
    max_held: int = MAX_HELD
    max_queued: int = MAX_QUEUED
    max_queued_bytes: int = MAX_QUEUED_BYTES
    max_unconsumed: int = MAX_UNCONSUMED
    max_unconsumed_bytes: int = MAX_UNCONSUMED_BYTES
    max_early_bytes: int = MAX_EARLY_BYTES
    """How many bytes may have come over each link and wait for those before them."""
    max_copies_bytes: int = MAX_COPIES_BYTES
    """How many bytes of others' messages are kept to repeat them, beside what may be on its way
    (``core.transport.ack_all.copies``)."""
    resend_after_ns: int = RESEND_AFTER_NS
    ack_within_ns: int = 0
    """How long an ack may wait for a frame that goes the same way, where the domain does not say
    (``core.transport.channel``)."""
    retain_bytes: int = 0
    """How many bytes of copies of messages to keep, so that members can be lost without harm to others
    (``core.reconfig.retention``)."""
    spill: SpillRoom | None = None
    """How much may wait for a peer in memory, where whoever runs the member keeps more of it elsewhere
    (``core.transport.spill_queue``)."""


def hard_bytes(options: MemberOptions) -> int:
    """Return how many bytes may be queued of what we send on for others: less where the application's limit is less."""
    return min(MAX_QUEUED_BYTES_HARD, max(4 * options.max_queued_bytes, MIN_QUEUED_BYTES_HARD))
