"""The model of gateways §2.3 to §4: what must come out without loss, what makes no sense, and that a seed repeats itself."""

from __future__ import annotations

import math

import pytest

from thence.studies.models.gateways_concurrency import CLOCKS, MEASURES, run
from thence.studies.parts.site_groups import WAYS
from thence.studies.study import Point
from thence.trace.events import Event
from thence.trace.judge import judge

POINT: Point = {"processes": 12, "messages": 30, "recipients": 4, "subgroups": 4, "loss": 0.0}


def ignore(_: Event) -> None:
    """Take an event."""


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize("scheme", [*CLOCKS, *WAYS])
def test_every_scheme_keeps_order_and_repeats_itself(scheme: str, loss: float) -> None:
    """Same seed, same numbers; and whatever a scheme costs, everything is delivered once and in causal order."""
    point = {**POINT, "scheme": scheme, "loss": loss}
    events: list[Event] = []
    one = run(point, 5, events.append)
    assert not any(judge(events).properties.values())
    assert one == pytest.approx(run(point, 5, ignore), rel=0, abs=0, nan_ok=True)
    assert tuple(one) == MEASURES


@pytest.mark.parametrize("scheme", WAYS)
def test_without_loss_the_ways_to_confirm_are_what_one_can_count(scheme: str) -> None:
    """Eleven others get each message, and ack it once to one or to eleven; nothing is repeated, asked for or late."""
    measured = run({**POINT, "scheme": scheme}, 1, ignore)
    assert (measured["repeats"], measured["requests"], measured["late_share"]) == (0, 0, 0)
    assert math.isnan(measured["recovery_ms"])
    expected = {"decentralised": (22, 11), "distributed": (132, 121), "nearest": (132, 121)}
    if scheme in expected:
        assert (measured["packets"], measured["confirmations"]) == expected[scheme]


def test_the_delay_without_loss_is_that_of_the_way() -> None:
    """Broadcasts over sites of three: two of eleven others are 1 ms away, nine 40 ms, and the sender delivers at once."""
    assert run({**POINT, "scheme": "distributed"}, 1, ignore)["delay_ms"] == pytest.approx((2 * 1 + 9 * 40) / 12)


def test_with_subgroups_of_one_own_vectors_order_nothing_in_vain() -> None:
    """§4, the theorem: there it holds; and a clock among gateways that counts no markers orders nothing in vain either."""
    alone = {**POINT, "subgroups": 12, "messages": 60}
    own, clock = (run({**alone, "scheme": scheme}, 1, ignore) for scheme in ("own vectors", "gateway clock"))
    assert own["false_share"] == own["overlooked"] == clock["overlooked"] == clock["false_share"] == 0


def test_pairs_from_one_subgroup_are_counted_apart() -> None:
    """A clock among gateways puts all that one subgroup sends into an order; own vectors leave some of it alone."""
    own, clock = (run({**POINT, "messages": 60, "scheme": scheme}, 1, ignore) for scheme in ("own vectors", "gateway clock"))
    assert own["false_share_home"] < clock["false_share_home"] == 1
    assert own["false_share"] < own["false_share_all"] < own["false_share_home"]


def test_what_makes_no_sense_has_no_figure() -> None:
    assert math.isnan(run({**POINT, "scheme": "own vectors"}, 1, ignore)["packets"])
    assert math.isnan(run({**POINT, "scheme": "nearest"}, 1, ignore)["false_share"])
