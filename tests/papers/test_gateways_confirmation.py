"""gateways §2.3, claim G5: who confirms receipt to whom, when, and who repeats what was lost, compared over a lossy network.

The study behind it prints a table: ``python -m benchmarks confirmation``. Design note: docs/confirmation.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from thence.core.confirmation_frames import ConfirmationOptions
from thence.sim.confirming import ConfirmingOptions, Cost, Group

DELAYED: dict[str, Any] = {"confirm_after_messages": 8, "confirm_after_ns": 50_000_000}
LOSSES = (0.0, 0.05, 0.2)


def cost(loss: float, *, senders: int | None = None, **confirmation: Any) -> Cost:
    """Add up what several runs of a group of eight at two sites cost: 1 ms within a site, 40 ms between them."""
    rows = []
    for seed in range(3):
        options = ConfirmingOptions(
            confirmation=ConfirmationOptions(**confirmation), members=8, messages=100, loss=loss, senders=senders, seed=seed
        )
        group = Group(options)
        rows.append(group.run())
        expected = sorted(group.sent_at)
        for released in group.released.values():
            assert sorted((message.origin, message.number) for _, message in released) == expected, "everything exactly once"
    assert [row.left for row in rows] == [0, 0, 0], "nobody keeps anything in the end"
    late = sum(row.late for row in rows)
    recovery = sum(row.recovery_ns * row.late for row in rows) // max(1, late)
    added = Cost(*(sum(column) for column in zip(*rows, strict=True)))
    return added._replace(late=late, recovery_ns=recovery, peak=max(row.peak for row in rows))


@pytest.mark.parametrize("loss", LOSSES)
def test_g5_distributed_confirmation_costs_more_and_finds_losses_sooner(loss: float) -> None:
    """G5, §2.3, Fig. 3: confirmation to all destinations against confirmation to the sender.

    Each destination tells n - 1 others instead of one. For that, a destination detects a loss from what others confirm, and
    need not wait until the sender has waited in vain.
    """
    decentralised, distributed = cost(loss, scheme="decentralised"), cost(loss, scheme="distributed")
    assert distributed.confirmations > 6 * decentralised.confirmations
    assert distributed.bytes > decentralised.bytes
    assert decentralised.requests == 0
    if loss:
        assert distributed.requests > 0, "destinations ask"
        assert distributed.recovery_ns < 0.5 * decentralised.recovery_ns
    else:
        assert decentralised.late == distributed.late == distributed.requests == 0


@pytest.mark.parametrize("scheme", ["centralised", "decentralised", "distributed"])
@pytest.mark.parametrize("loss", LOSSES)
def test_g5_delayed_confirmation_sends_fewer(scheme: str, loss: float) -> None:
    """G5, §2.3: a confirmation waits for some number of messages, for some time, or for a message that it can travel with.

    Deviation: the time runs from the first unconfirmed message, not from the last, so that it is a bound.
    """
    at_once, delayed = cost(loss, scheme=scheme), cost(loss, scheme=scheme, **DELAYED)
    assert delayed.confirmations < 0.5 * at_once.confirmations
    assert delayed.frames < at_once.frames
    assert delayed.peak >= at_once.peak or loss, "what is confirmed later is kept longer"


@pytest.mark.parametrize("loss", LOSSES[1:])
@pytest.mark.parametrize("confirmation", [{}, DELAYED], ids=["at-once", "delayed"])
def test_g5_the_nearest_destination_repeats_sooner_than_a_far_sender(loss: float, confirmation: dict[str, Any]) -> None:
    """G5, §2.3, Fig. 4: destination retransmission. One member sends, and half of the others are far from it.

    The price: every destination keeps what it got until it knows that all have it.
    """
    by_sender = cost(loss, senders=1, scheme="distributed", **confirmation)
    by_nearest = cost(loss, senders=1, scheme="distributed", retransmission="nearest", **confirmation)
    assert by_nearest.recovery_ns < 0.8 * by_sender.recovery_ns, (by_nearest, by_sender)
    assert by_nearest.peak > by_sender.peak


@pytest.mark.parametrize("loss", LOSSES)
def test_g5_centralised_is_totally_ordered_and_waits_for_it(loss: float) -> None:
    """G5, §2.3, Fig. 2: through a controller, which repeats. All deliver in one order, so a loss holds up what follows."""
    options = ConfirmingOptions(
        confirmation=ConfirmationOptions(scheme="centralised"), members=8, messages=100, loss=loss, seed=5
    )
    group = Group(options)
    group.run()
    orders = {tuple(message for _, message in released) for released in group.released.values()}
    assert len(orders) == 1
    centralised, decentralised = cost(loss, scheme="centralised"), cost(loss, scheme="decentralised")
    assert centralised.data > decentralised.data, "one hop more, unless the controller sends"
    assert centralised.late >= decentralised.late
    if loss:
        assert centralised.late > 4 * decentralised.late, "one lost message is waited for by all that follow"
