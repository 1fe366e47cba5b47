"""interconnect §8 in the regime that the paper argues from: a LAN far below 1 ms, and bandwidths two orders of magnitude apart.

Row I7. Within a system 0.05 ms and 10 Gbps, between them 50 ms and 100 Mbps, messages of 0.1 Mb. Outside of it, where the local
delay or what is left out of Eq. 3 counts: ``thence study run interconnect-links``.
"""

from __future__ import annotations

import pytest

from thence.studies.models.interconnect_links import Architecture, run
from thence.studies.study import Measures

INTRA_MBPS, INTER_MBPS = 10_000, 100


def measured(architecture: Architecture, links: int, load: float, processes: int, messages: int) -> Measures:
    """Return what one point of the study comes to."""
    point = {
        "architecture": architecture,
        "links": links,
        "intra_mbps": INTRA_MBPS,
        "inter_mbps": INTER_MBPS,
        "intra_delay_ms": 0.05,
        "inter_delay_ms": 50,
        "load": load,
        "processes": processes,
        "body_bytes": 12_500,
        "messages": messages,
        "idle_messages": 12,
    }
    return run(point, 1, lambda _: None)


@pytest.mark.parametrize("architecture", ["causal", "printed-delivered"])
@pytest.mark.parametrize("links", [1, 4, 10])
def test_i7_eq_3_holds_for_both_protocols(architecture: Architecture, links: int) -> None:
    """I7, Eq. 3: that a number is shorter than a message, and that we hand a message over, is under 0.3 %."""
    one = measured(architecture, links, 0, 24, 0)
    assert one["delay_ms"] == pytest.approx(one["eq3_ms"], rel=0.003)


@pytest.mark.parametrize("architecture", ["causal", "printed-delivered"])
@pytest.mark.parametrize("links", [1, 4, 10])
def test_i7_eq_2_links_multiply_the_bandwidth(architecture: Architecture, links: int) -> None:
    """I7, Eq. 2: in this regime the wait of Fig. 5 costs nothing, up to ten links. Each has two senders of its own."""
    one = measured(architecture, links, 1.5, 3 * links, 400)
    assert one["eq12_per_s"] == links * 1_000
    assert one["throughput_per_s"] == pytest.approx(one["eq12_per_s"], rel=0.15)


def test_i7_eq_4_a_hundred_links_carry_what_a_system_does() -> None:
    """I7, Eq. 4: ceil(ibw/ebw) = 100, with our protocol."""
    links = INTRA_MBPS // INTER_MBPS
    one = measured("causal", links, 1.5, links + 2, 300)
    assert one["throughput_per_s"] == pytest.approx(one["eq1_per_s"], rel=0.05)
