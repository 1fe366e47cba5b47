"""What ack costs: packets, bytes, recovery and buffers of the ways of gateways §2.3, at 0 to 20 % loss.

Simulated, not timed: the figures are the same on every machine. Domains of 4, 8 and 16 members at two sites, 1 ms within a
site and 40 ms between them, 200 messages. The peer is ``decentralised``, where each destination acks at once to the
sender, who repeats. *recovered* is the share of messages that arrived later than their way takes, and how much later on
average; *late* the share of deliveries that were, since they or what had to come before them was lost; *kept* the most
messages that one member kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.table import Row, markdown
from thence.studies.parts.site_groups import WAYS, AckCost, SiteGroup

SIZES = (4, 8, 16)
LOSSES = (0.0, 0.01, 0.05, 0.2)
MESSAGES = 200
PEER = "decentralised"
SEED = 1


def run() -> Iterator[Row]:
    """Measure every way at every size and loss. The ratio is of packets: above 1, ours sends fewer than the peer."""
    for members in SIZES:
        for loss in LOSSES:
            peer = measure(PEER, loss, members)
            for way in WAYS:
                ours = measure(way, loss, members)
                what = f"{way}, {members} members, {loss:.0%} loss"
                yield Row(what, described(ours), described(peer), peer.packets / ours.packets)


def measure(how: str, loss: float, members: int) -> AckCost:
    """Run one way of acknowledging."""
    return SiteGroup(how, members=members, loss=loss, seed=SEED).run(MESSAGES)


def described(cost: AckCost) -> str:
    """Return the figures of a run, per message."""
    return (
        f"{cost.packets / MESSAGES:.1f} packets and {cost.bytes / MESSAGES:.0f} B, "
        f"{cost.recovered / cost.deliveries:.1%} recovered in {cost.recovery_ms:.0f} ms, "
        f"{cost.late / cost.deliveries:.1%} late, {cost.peak} kept"
    )


if __name__ == "__main__":
    print(markdown(run()))
