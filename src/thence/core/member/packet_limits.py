"""How large a packet of a member that keeps to the rules can be, beside the bodies in it.

What a packet takes in memory is up to forty times what it takes on the wire: a name of one byte becomes an object of 64. So
whoever reads packets of others asks here what there can be at most, before it reads a long one (``core.member.codec``).

Rules:

* No packet that a member sends in this topology is beyond these limits, whatever its version.
"""

from __future__ import annotations

from thence.core.member.codec import PacketLimits
from thence.core.stability.stable import MAX_BEYOND
from thence.core.topology.domain import Domain
from thence.core.topology.model import MAX_NAME_BYTES, Topology
from thence.core.transport.ack_all_checks import MAX_CLAIMED_RANGES, MAX_REQUESTED
from thence.core.transport.channel import WINDOW

NUMBER_BYTES = 9
"""The longest number on the wire,"""

HEAD_BYTES = 5
"""and the longest head of a text or a list."""

FRAME_BYTES = 2 * MAX_NAME_BYTES + 16 * NUMBER_BYTES
"""What a frame has beside what grows with the fabric: two names, in the envelope and in a stamp, numbers and heads."""


def limits_of(topology: Topology) -> PacketLimits:
    """Return the limits on packets in a fabric."""
    names = sum([len(name.encode()) + HEAD_BYTES for name in topology.processes])
    found = [_in_domain(domain, names) for domain in topology.domains.values()]
    return PacketLimits(max(limits.frames for limits in found), max(limits.control_bytes for limits in found))


def _in_domain(domain: Domain, names: int) -> PacketLimits:
    """Return the limits in a domain, and in a link that ends in it."""
    count = len(domain.members)
    # A window for each peer. Where all ack to all: of each stream, and what is repeated and asked for beside that.
    distributed = domain.confirmation.scheme == "distributed"
    frames = WINDOW * (count + 4) if distributed else WINDOW
    # Where all ack to all, stamps are vectors: a pair of numbers for each member. A matrix has one for each two members.
    pairs = count if distributed else count * count + count
    frame = FRAME_BYTES + names + NUMBER_BYTES * (2 * pairs + 2 * count)
    claims = count * (2 * MAX_CLAIMED_RANGES + MAX_REQUESTED + 6)
    return PacketLimits(frames, frames * frame + NUMBER_BYTES * (claims + WINDOW + MAX_BEYOND) + FRAME_BYTES)
