"""The model of interconnect-links: the same for a seed, right where it can be said by hand, and near its formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest

from thence.studies.models.interconnect_links import run
from thence.trace.events import Event

POINT: dict[str, Any] = {
    "architecture": "causal",
    "links": 3,
    "intra_mbps": 40,
    "inter_mbps": 10,
    "intra_delay_ms": 5,
    "inter_delay_ms": 50,
    "load": 0,
    "processes": 6,
    "body_bytes": 12_500,
    "messages": 150,
    "idle_messages": 24,
}
ARCHITECTURES = ("causal", "printed-delivered", "printed-sent", "daisy", "daisy-all-pairs")


def measured(seed: int = 1, **changed: Any) -> dict[str, float]:
    return run({**POINT, **changed}, seed, lambda _: None)


def test_one_seed_one_result() -> None:
    traces: list[list[Event]] = [[], [], []]
    found = [run({**POINT, "load": 0.9}, seed, trace.append) for seed, trace in zip((7, 7, 8), traces, strict=True)]
    assert repr(found[0]) == repr(found[1]) != repr(found[2])
    assert traces[0] == traces[1] != traces[2]
    assert sum(event.kind == "send" for event in traces[0]) == POINT["messages"]
    assert sum(event.kind == "deliver" for event in traces[0]) == POINT["messages"] * 2 * POINT["processes"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("links", [1, 2, 3])
def test_without_load_it_takes_what_follows_from_the_protocol(architecture: str, links: int) -> None:
    found = measured(architecture=architecture, links=links)
    assert found["delay_ms"] == pytest.approx(found["derived_ms"], rel=0.01)
    assert found["messages"] == pytest.approx(found["derived_messages"], rel=0.03)
    assert math.isnan(found["throughput_per_s"])


def test_eq_3_by_hand() -> None:
    """0.1 Mb over 40 Mbps is 2.5 ms, over 10 Mbps 10 ms; three links: (3 - 1/3) (5 + 2.5) + 50 + 10."""
    assert measured()["eq3_ms"] == pytest.approx(80)
    # One link: as printed there is no number to send, ours hands nothing over, and the daisy is one link too.
    for architecture in ARCHITECTURES:
        found = measured(architecture=architecture, links=1)
        assert found["eq3_ms"] == pytest.approx(75)
        assert found["delay_ms"] == pytest.approx(75, rel=0.01)


def test_counts_of_8_2() -> None:
    """Two systems of 3n = 6: 11 messages with three slow ones in the daisy, 12 with a slow one as printed, or 11."""
    daisy, printed, ours = (measured(architecture=name) for name in ("daisy", "printed-delivered", "causal"))
    assert (daisy["messages"], daisy["slow_messages"], daisy["hops_least"], daisy["hops_most"]) == (11, 3, 3, 3)
    assert 11 < printed["messages"] < 12
    assert (printed["slow_messages"], printed["hops_least"], printed["hops_most"]) == (1, 3, 4)
    assert ours["messages"] == pytest.approx(11 + 4 / 3)
    assert (ours["slow_messages"], ours["hops_least"], ours["hops_most"]) == (1, 3, 5)
    assert daisy["local_delay_ms"] > 1.5 * ours["local_delay_ms"]


@pytest.mark.parametrize(("links", "per_s"), [(1, 100), (2, 200), (3, 300)])
def test_links_are_the_bottleneck(links: int, per_s: float) -> None:
    """Eq. 2: 10 Mbps for messages of 0.1 Mb are 100 a second for each link; 1.5 times of this is sent."""
    found = measured(links=links, load=1.5)
    assert found["eq12_per_s"] == pytest.approx(per_s)
    assert found["throughput_per_s"] == pytest.approx(per_s, rel=0.04)
    assert found["kept_up"] < 0.8
    assert math.isnan(found["with_enough_links_per_s"]), "Eq. 4: it takes four"


def test_the_system_is_the_bottleneck() -> None:
    """Eq. 1: more than ceil(15/10) = 2 links carry no more than the 150 a second that fit within a system."""
    for links in (2, 3):
        found = measured(links=links, load=1.5, intra_mbps=15)
        assert found["with_enough_links_per_s"] == found["throughput_per_s"] == pytest.approx(150, rel=0.04)


def test_the_printed_wait_is_the_bottleneck() -> None:
    """1/(2.5 ms + (1 - 1/3) 5 ms) is 171 a second, where three links would carry 300; with 0.2 ms it does no harm."""
    for wait in ("printed-delivered", "printed-sent"):
        found = measured(architecture=wait, load=1.5, messages=300)
        assert found["derived_per_s"] == pytest.approx(171.4, rel=0.001)
        assert found["throughput_per_s"] == pytest.approx(171.4, rel=0.1)
        assert measured(architecture=wait, load=1.5, intra_delay_ms=0.2)["throughput_per_s"] > 0.85 * 300


def test_the_two_printed_waits_are_alike() -> None:
    """A relay delivers what it broadcasts at once, so it never waits for a message that it passed on itself."""
    for load in (0.9, 1.5):
        one, other = (measured(architecture=wait, load=load, intra_delay_ms=2) for wait in ("printed-delivered", "printed-sent"))
        assert repr(one) == repr(other)


def test_the_daisy_saturates_first() -> None:
    """Each of its slow links carries every message three times; at half of what our links carry it does not keep up."""
    assert measured(architecture="causal", load=0.5)["kept_up"] > 0.9
    assert measured(architecture="daisy", load=0.5)["kept_up"] < 0.85
    assert measured(architecture="daisy", load=1.5)["throughput_per_s"] == pytest.approx(100, rel=0.2)
    assert measured(architecture="daisy-all-pairs", load=1.5)["throughput_per_s"] == pytest.approx(300, rel=0.15)
