"""gateways §2.3, claim G5: who acks receipt to whom, when, and who repeats what was lost, compared over a lossy network.

Real members of one domain, simulated. The study behind it prints a table: ``python -m benchmarks confirmation``. Design note:
docs/concepts/acks.md.
"""

from __future__ import annotations

from functools import cache

import pytest

from thence.studies.parts.site_groups import AckCost, SiteGroup
from thence.trace.judge import judge

LOSSES = (0.0, 0.05, 0.2)


@cache
def cost(how: str, loss: float, senders: int | None = None) -> AckCost:
    """Add up what several runs of a domain of eight at two sites cost: 1 ms within a site, 40 ms between them."""
    rows = []
    for seed in range(3):
        group = SiteGroup(how, members=8, loss=loss, seed=seed)
        rows.append(group.run(100, senders))
        assert not any(judge(group.events).properties.values()), "everything exactly once, in causal order"
    assert [row.deliveries for row in rows] == [800, 800, 800]
    assert [row.left for row in rows] == [0, 0, 0], "nobody keeps anything in the end"
    added = AckCost(*(sum(column) for column in zip(*rows, strict=True)))
    return added._replace(peak=max(row.peak for row in rows))


@pytest.mark.parametrize("loss", LOSSES)
def test_g5_distributed_confirmation_costs_more_and_finds_losses_sooner(loss: float) -> None:
    """G5, §2.3, Fig. 3: ack to all destinations against ack to the sender.

    Each destination tells n - 1 others instead of one. For that, a destination detects a loss from what others ack, and
    need not wait until the sender has waited in vain.
    """
    decentralised, distributed = cost("decentralised", loss), cost("distributed", loss)
    assert distributed.confirmations > 6 * decentralised.confirmations
    assert distributed.bytes > 2 * decentralised.bytes
    assert decentralised.requests == 0
    if loss:
        assert distributed.requests > 0, "destinations ask"
        assert distributed.recovery_ms < 0.5 * decentralised.recovery_ms
        assert distributed.late < decentralised.late, "so less waits for what was lost"
    else:
        assert decentralised.late == distributed.late == distributed.requests == 0


@pytest.mark.parametrize("scheme", ["centralised", "decentralised", "distributed"])
@pytest.mark.parametrize("loss", LOSSES)
def test_g5_delayed_confirmation_sends_fewer(scheme: str, loss: float) -> None:
    """G5, §2.3: an ack waits for some number of messages, for some time, or for a message that it can travel with.

    Deviation: the time runs from the first unacknowledged message, not from the last, so that it is a bound.
    """
    at_once, delayed = cost(scheme, loss), cost(f"{scheme}, delayed", loss)
    assert delayed.confirmations < 0.5 * at_once.confirmations
    assert delayed.packets < at_once.packets
    if not loss:
        assert delayed.bytes < at_once.bytes
        assert delayed.late == at_once.late == 0
        assert delayed.frames == at_once.frames, "nobody takes an ack that waits for a loss"
        assert delayed.peak >= at_once.peak, "what is acknowledged later is kept longer"


@pytest.mark.parametrize("loss", LOSSES[1:])
@pytest.mark.parametrize("delayed", ["", ", delayed"], ids=["at-once", "delayed"])
def test_g5_the_nearest_destination_repeats_sooner_than_a_far_sender(loss: float, delayed: str) -> None:
    """G5, §2.3, Fig. 4: destination retransmission. One member sends, and half of the others are far from it.

    The price: every destination keeps what it got until it knows that all have it.
    """
    by_sender = cost(f"distributed{delayed}", loss, senders=1)
    by_nearest = cost(f"nearest{delayed}", loss, senders=1)
    assert by_nearest.recovery_ms < 0.8 * by_sender.recovery_ms, (by_nearest, by_sender)
    assert by_nearest.peak > by_sender.peak


@pytest.mark.parametrize("loss", LOSSES)
def test_g5_centralised_is_totally_ordered_and_waits_for_it(loss: float) -> None:
    """G5, §2.3, Fig. 2: through a controller, which repeats. All deliver in one order, so a loss holds up what follows."""
    group = SiteGroup("centralised", members=8, loss=loss, seed=5)
    group.run(100)
    assert not judge(group.events, ["total"]).violations
    centralised, decentralised = cost("centralised", loss), cost("decentralised", loss)
    assert centralised.frames > decentralised.frames, "one hop more, unless the controller sends"
    if loss:
        assert centralised.late > decentralised.late, "one lost message is waited for by all that follow"
    else:
        assert centralised.late == 0
