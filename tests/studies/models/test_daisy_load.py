"""The model of daisy §5.1: what can be known without running long, and that a seed gives the same numbers."""

from __future__ import annotations

import math
from random import Random

import pytest

from thence.studies.models.daisy_load import Load, MessageTree, TimeAverage, run
from thence.studies.parts.campus import NS_PER_MS, Campus, Map, WayDelay, stamp_bytes
from thence.studies.study import Point
from thence.trace.events import Event
from thence.trace.judge import judge

SMALL: Point = {
    "architecture": "daisy", "daisies": 2, "groups": 2, "group_size": 3, "building_ms": 2.0, "campus_ms": 10.0, "lan_ms": 0.05,
    "speed_bytes_per_s": 12_500_000, "body_bytes": 300, "warm_up": 20, "messages": 60, "rate_per_s": 20,
}  # fmt: skip
PAPER = Campus(3, 4, 5, 2.0, 10.0, 0.05, 12_500_000)


def ignore(_: Event) -> None:
    """Take an event."""


def test_sixty_processes_in_three_levels() -> None:
    """§5.1: twelve local groups of five, three groups of four servers, one of three hyper-servers; 20 bytes against 248."""
    where = Map(PAPER)
    assert len(where.names) == 60
    assert sorted(len(domain.members) for domain in where.daisy.domains.values()) == [3, 4, 4, 4, *[5] * 12]
    assert (stamp_bytes(5, flat=False), stamp_bytes(60, flat=True)) == (20, 248)


def test_ways() -> None:
    """What lies between two processes: LANs, which are constant, and backbones with their own means and the speed."""
    where = Map(PAPER)
    assert where.way("p1-1-2", "p1-1-3", 20) == WayDelay(50_000)
    assert where.way("p1-2-2", "p1-3-2", 250) == WayDelay(100_000 + 20_000, 2_000_000)
    assert where.way("p1-2-2", "p2-3-2", 250) == WayDelay(100_000 + 60_000, 2_000_000, 10_000_000, 2_000_000)
    assert where.hops("p1-2-2", "p2-3-2") == 3
    assert where.hops("p1-1-2", "p2-1-2") == 1, "the first server of each daisy is its hyper-server"


def test_what_the_network_alone_takes() -> None:
    """Two LANs, three backbones, and the control information over the speed on each of these."""
    where = Map(PAPER)
    at_most = 2 * 0.05 + 14
    assert where.network_ms(where.flat) == pytest.approx(at_most + 3 * 248 / 12_500, rel=0.003), "servers have one LAN less"
    assert where.network_ms(where.daisy) == pytest.approx(at_most + (16 + 12 + 16) / 12_500, rel=0.003)


def test_the_slowest_acknowledgement() -> None:
    """With one kind of backbone the mean of the slowest of n round trips can be added up by hand."""
    where = Map(Campus(2, 2, 1, 0.0, 10.0, 0.0, 10**12))
    # Four processes; from each, two lie behind the campus: the slower of two sums of two exponentials of 10 ms takes 27.5 ms.
    assert where.stability_ms() == pytest.approx(27.5, rel=1e-3)


def test_a_window_averages_over_time() -> None:
    window = TimeAverage(100, 200)
    window.add(0, 150, 8)
    window.add(175, 400, 4)
    window.add(300, 400, 1000)
    assert (window.messages, window.bytes) == (0.75, 5.0)


@pytest.mark.parametrize("architecture", ["flat", "daisy"])
def test_a_seed_gives_the_same_numbers(architecture: str) -> None:
    point = {**SMALL, "architecture": architecture}
    one, other = run(point, 7, ignore), run(point, 7, ignore)
    assert one == pytest.approx(other, rel=0, abs=0, nan_ok=True)
    assert one["delay_ms"] != run(point, 8, ignore)["delay_ms"]


@pytest.mark.parametrize("architecture", ["flat", "daisy"])
def test_all_is_delivered_by_all_in_causal_order(architecture: str) -> None:
    """§5.2: every message that is measured is delivered by all; nothing of the model gets in the way of the ordering."""
    events: list[Event] = []
    load = Load({**SMALL, "architecture": architecture}, 3, events.append)
    load.simulation.run()
    assert len(load.log.deliveries) == 80 * len(load.names)
    assert len(load.log.arrivals) == 80 * (len(load.names) - 1)
    assert not any(judge(events).properties.values())


@pytest.mark.parametrize("architecture", ["flat", "daisy"])
def test_without_waiting_the_delay_is_that_of_the_network(architecture: str) -> None:
    """One message every few seconds waits for nothing."""
    measured = run({**SMALL, "architecture": architecture, "rate_per_s": 0.01, "messages": 1_000}, 1, ignore)
    assert measured["buffer_messages"] < 0.001
    assert measured["delay_ms"] == pytest.approx(measured["formula_ms"], rel=0.05)


def test_flat_stability_is_what_was_computed() -> None:
    measured = run({**SMALL, "architecture": "flat", "messages": 1_000}, 1, ignore)
    assert measured["stability_ms"] == pytest.approx(measured["stability_formula_ms"], rel=0.03)
    assert math.isnan(run(SMALL, 1, ignore)["stability_formula_ms"])


@pytest.mark.parametrize("architecture", ["flat", "daisy"])
def test_who_passes_on_acknowledges_what_is_stable_behind(architecture: str) -> None:
    """§3.1.2: where only LANs take time, the sender waits for the farthest process: over its own LAN, over that one, and back."""
    still: Point = {**SMALL, "building_ms": 1e-6, "campus_ms": 1e-6, "lan_ms": 1.0, "rate_per_s": 0.01, "warm_up": 1}
    load = Load({**still, "architecture": architecture}, 1, ignore)
    load.simulation.run()
    for message, (sent_at, _) in load.log.sends.items():
        tree = MessageTree(message, load, Random(0))
        lans = 2 if message.origin.endswith("-1") else 4
        assert tree.stable_at[message.origin] - sent_at == pytest.approx(lans * NS_PER_MS, rel=0.01), "a server is on backbones"
        assert len(list(tree.kept())) == len(load.names), "everybody keeps it for a while"


def test_the_directions_of_the_figures() -> None:
    """Fig. 6-9 in short runs: what the study shows at full length with intervals."""
    sixty = {**SMALL, "daisies": 3, "groups": 4, "group_size": 5, "warm_up": 50, "messages": 150, "rate_per_s": 40}
    flat, daisy = (run({**sixty, "architecture": kind}, 1, ignore) for kind in ("flat", "daisy"))
    assert daisy["delay_ms"] > flat["delay_ms"]
    assert daisy["buffer_bytes"] < flat["buffer_bytes"]
    assert daisy["storage_bytes"] < flat["storage_bytes"]
    assert daisy["control_bytes"] < 20 < flat["control_bytes"]


def test_routers_that_forward_one_copy_serve_all_behind_them_at_once() -> None:
    """§5.1: "a message received by a router is immediately forwarded on the other network": one copy, not one each."""
    ways, chance = Map(PAPER).shared_ways(), Random(1)
    took = {two: ways["p1-2-2", two].draw_ns(chance) for two in Map(PAPER).names if two != "p1-2-2"}
    assert took["p2-3-2"] == took["p2-3-5"] == took["p2-3-1"] + 50_000, "the router itself needs no LAN"
    assert took["p2-3-2"] != took["p2-4-2"], "another router on the same backbone has a delay of its own"
    assert took["p1-2-3"] == 50_000
    again = ways["p1-2-2", "p2-3-2"].draw_ns(chance)
    assert again != took["p2-3-2"], "the next message"


def test_shared_copies_keep_order_and_take_as_long_on_average_without_waiting() -> None:
    events: list[Event] = []
    shared = run({**SMALL, "architecture": "flat, shared copies"}, 3, events.append)
    assert not any(judge(events).properties.values())
    assert shared["formula_ms"] == run({**SMALL, "architecture": "flat"}, 3, ignore)["formula_ms"]
