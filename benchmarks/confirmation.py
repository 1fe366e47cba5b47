"""What confirmation costs: frames, bytes, recovery and buffers of the ways of gateways §2.3, at 0 to 20 % loss.

Simulated, not timed: the figures are the same on every machine. Groups of 4, 8 and 16 members at two sites, 1 ms within a
site and 40 ms between them, 200 messages. The peer is ``decentralised``, where each destination confirms at once to the
sender, who repeats. *late* is the share of deliveries that came later than the way takes, and how much later those came on
average; in the ``centralised`` way also what had to wait for another one is late. *kept* is the most messages that one
member kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.table import Row, markdown
from thence.core.confirmation_frames import ConfirmationOptions
from thence.sim.confirming import ConfirmingOptions, Cost, Group

SIZES = (4, 8, 16)
LOSSES = (0.0, 0.01, 0.05, 0.2)
MESSAGES = 200
DELAY_MESSAGES = 8
DELAY_NS = 50_000_000

PEER = "decentralised"
WAYS: dict[str, ConfirmationOptions] = {
    "centralised": ConfirmationOptions(scheme="centralised"),
    PEER: ConfirmationOptions(scheme="decentralised"),
    "decentralised, delayed": ConfirmationOptions(
        scheme="decentralised", confirm_after_messages=DELAY_MESSAGES, confirm_after_ns=DELAY_NS
    ),
    "distributed": ConfirmationOptions(scheme="distributed"),
    "distributed, delayed": ConfirmationOptions(
        scheme="distributed", confirm_after_messages=DELAY_MESSAGES, confirm_after_ns=DELAY_NS
    ),
    "nearest": ConfirmationOptions(scheme="distributed", retransmission="nearest"),
    "nearest, delayed": ConfirmationOptions(
        scheme="distributed", retransmission="nearest", confirm_after_messages=DELAY_MESSAGES, confirm_after_ns=DELAY_NS
    ),
}


def measure(way: str, members: int, loss: float, seed: int = 1, messages: int = MESSAGES) -> Cost:
    """Run one way of confirming."""
    return Group(ConfirmingOptions(confirmation=WAYS[way], members=members, loss=loss, messages=messages, seed=seed)).run()


def run() -> Iterator[Row]:
    """Measure every way at every size and loss. The ratio is of frames: above 1, ours sends fewer than the peer."""
    for members in SIZES:
        for loss in LOSSES:
            peer = measure(PEER, members, loss)
            for way in WAYS:
                ours = measure(way, members, loss)
                what = f"{way}, {members} members, {loss:.0%} loss"
                yield Row(what, _described(ours, members), _described(peer, members), peer.frames / ours.frames)


def _described(cost: Cost, members: int) -> str:
    deliveries = MESSAGES * members
    return (
        f"{cost.frames / MESSAGES:.1f} frames and {cost.bytes / MESSAGES:.0f} B a message, "
        f"{cost.late / deliveries:.1%} late by {cost.recovery_ns / 1e6:.0f} ms, {cost.peak} kept"
    )


if __name__ == "__main__":
    print(markdown(run()))
