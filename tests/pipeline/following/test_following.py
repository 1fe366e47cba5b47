"""A trace that is followed gives the judge's rows, whatever parts it comes in, and holds no more than it must."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planted import PLANTED, Planted
from tests.support.pipeline.followed import follow, judged, table_of
from tests.support.traces import parse, random_case, random_trace, text_of
from thence.errors import ConfigError, TraceError
from thence.pipeline.streaming.follower import FOLLOWED, NS, Follower
from thence.pipeline.streaming.run import FollowLimits
from thence.sim.options import SimulationOptions
from thence.sim.simulation import simulate
from thence.trace.events import INT64_MAX, INT64_MIN, Event
from thence.trace.verdict import sort_key


def chunks_of(events: Sequence[Event], chance: random.Random) -> list[Sequence[Event]]:
    """Events cut anywhere into a few chunks."""
    edges = sorted(chance.randint(0, len(events)) for _ in range(chance.randint(0, 8)))
    return [events[begin:end] for begin, end in zip([0, *edges], [*edges, len(events)], strict=True)]


def sends_once(events: Sequence[Event]) -> bool:
    sends = [(event.run, event.message) for event in events if event.kind == "send" and event.message is not None]
    return len(set(sends)) == len(sends)


def counts_on(events: Sequence[Event]) -> bool:
    """Whether no index is repeated or negative; holes do no harm."""
    places = [(event.run, event.process, event.index) for event in events]
    return len(set(places)) == len(places) and all(index >= 0 for *_, index in places)


@pytest.mark.parametrize("case", PLANTED, ids=[f"{case.file}: {case.title}" for case in PLANTED])
def test_what_was_planted_is_found(case: Planted) -> None:
    """All at once, where nothing may differ, and event by event."""
    events = parse(case.text)
    assert follow(Follower(FOLLOWED), [events]) == judged(events)
    if sends_once(events) and counts_on(events):
        assert follow(Follower(FOLLOWED), [[event] for event in events]) == judged(events)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_random_traces_are_judged_alike_in_any_chunks(seed: int) -> None:
    chance = random.Random(seed)
    events = random_case(seed)
    if sends_once(events):
        assert follow(Follower(FOLLOWED), [events]) == judged(events), text_of(events)
    follower = Follower(FOLLOWED)
    rows = follow(follower, chunks_of(events, chance))
    if sends_once(events) and counts_on(events):
        assert rows == judged(events), text_of(events)
    else:
        assert any(row.property == "well-formed" for row in rows)
    assert follower.counts.total() == len(rows)
    assert follower.events == len(events)
    assert follower.held == 0


@pytest.mark.parametrize("seed", range(5))
def test_a_follower_that_is_saved_and_read_again_goes_on(seed: int) -> None:
    events = random_trace(random.Random(seed), 5, 120, ordered=False)
    follower, rows = Follower(FOLLOWED), []
    for now, chunk in enumerate(chunks_of(events, random.Random(seed))):
        follower = pickle.loads(pickle.dumps(follower))
        rows += follower.take(table_of(chunk), now)
    rows += follower.finish()
    assert sorted(rows, key=sort_key) == judged(events)
    assert rows


def test_the_first_and_the_last_index_there_is_are_followed() -> None:
    events = parse(f"A@{INT64_MIN} deliver n\nB send m -> A\nB@{INT64_MAX} send n -> A\nA@{INT64_MAX} deliver m")
    for chunks in ([events], [[event] for event in events]):
        follower = Follower(FOLLOWED)
        assert follow(follower, chunks) == judged(events)
        assert follower.held == 0


def test_runs_are_followed_apart() -> None:
    chance = random.Random(3)
    events = [
        msgspec.structs.replace(event, run=run)
        for run in (None, "a", "b")
        for event in random_trace(chance, 4, 40, ordered=False, complete=False)
    ]
    chance.shuffle(events)
    follower = Follower(FOLLOWED)
    assert follow(follower, chunks_of(events, chance)) == judged(events)
    assert set(follower.runs) == {None, "a", "b"}


def test_a_violation_is_told_when_its_delivery_is_judged() -> None:
    events = parse("A send m1 -> B\nA send m2 -> B\nB deliver m2\nB deliver m1")
    follower = Follower(FOLLOWED)
    assert follower.take(table_of(events[:2]), 0) == []
    assert {row.property for row in follower.take(table_of(events[2:3]), 1)} == {"fifo", "causal"}
    assert follower.take(table_of(events[3:]), 2) == []


def test_names_that_appear_late_renumber_what_is_known() -> None:
    """C and D know of each other's messages before A, whose name comes first, is heard of."""
    events = parse(
        """
        D send m1 -> C
        D send m2 -> C
        C deliver m2        # too early
        C send m3 -> A D
        A deliver m3
        A send m4 -> D C B
        D deliver m4        # m3 is missing
        C deliver m4        # m1 is missing
        """
    )
    follower = Follower(FOLLOWED)
    assert follow(follower, [[event] for event in events]) == judged(events)
    assert follower.runs[None].scan.names == ["A", "B", "C", "D"]


def test_held_is_what_waits_for_a_hole_or_a_send() -> None:
    events = parse("A@1 send m1 -> B\nB@0 deliver m2\nB@1 note\nC note")
    follower = Follower(FOLLOWED, hold_s=10)
    assert follower.take(table_of(events), 5 * NS) == []
    lag = follower.lag(8 * NS)
    assert (lag.events, lag.held, lag.oldest, lag.oldest_s) == (1, 3, "A's event 1", 3.0)
    assert not follower.is_overdue(14 * NS)
    assert follower.tick(14 * NS) == []


def test_patience_gives_up_what_has_waited_too_long_and_nothing_else() -> None:
    follower = Follower(FOLLOWED, hold_s=10)
    follower.take(table_of(parse("A@1 note\nB deliver ghost")), 0)
    follower.take(table_of(parse("C deliver m1")), 9 * NS)
    assert follower.is_overdue(10 * NS)
    rows = follower.tick(10 * NS)
    assert [(row.property, row.process) for row in rows] == [("well-formed", "A"), ("creation", "B")]
    assert follower.held == 1, "C's delivery may still wait"
    assert follower.take(table_of(parse("D send m1 -> C")), 11 * NS) == []
    assert follower.held == 0


def test_what_comes_after_patience_is_told_as_out_of_place_and_counts() -> None:
    follower = Follower(FOLLOWED, hold_s=1)
    follower.take(table_of(parse("A@1 note\nB deliver m1")), 0)
    follower.tick(NS)
    rows = follower.take(table_of(parse("A@0 send m2 -> B\nC send m1 -> B")), 2 * NS)
    assert [(row.process, row.index, row.detail) for row in rows] == [
        ("A", 0, "A's event 0 comes where event 2 should be"),
        ("C", 0, "C's event 0 sends m1, which had been given up as never sent"),
    ]
    assert follower.take(table_of(parse("B@1 deliver m2\nA@2 note")), 3 * NS) == []


def test_the_first_send_judged_is_the_send() -> None:
    """The judge would take A's, and say that B's is the second."""
    follower = Follower(FOLLOWED)
    assert follower.take(table_of(parse("B send m -> C")), 0) == []
    (row,) = follower.take(table_of(parse("A send m -> C")), 1)
    assert (row.property, row.detail) == ("well-formed", "A's event 0 sends m, which B sent in its event 0")
    assert follower.take(table_of(parse("C deliver m")), 2) == []


def test_messages_that_arrived_everywhere_are_known_for_a_while() -> None:
    """So second deliveries are found; and the state stays small, however long the trace is."""
    follower = Follower(FOLLOWED, limits=FollowLimits(finished=100))
    rounds = [
        f"P{k % 3} send m{k:05d} -> P0 P1 P2\n" + "\n".join(f"P{p} deliver m{k:05d}" for p in range(3)) for k in range(2_000)
    ]
    events = parse("\n".join(rounds))
    sizes = []
    for begin in range(0, len(events), 100):
        assert follower.take(table_of(events[begin : begin + 100]), begin) == []
        assert follower.runs[None].scan.flights.count <= 100
        sizes.append(len(pickle.dumps(follower)))
    assert max(sizes[10:]) < 1.1 * sizes[10]
    (row,) = follower.take(table_of(parse("P0@2667 deliver m01999")), 0)
    assert (row.property, row.process, row.index) == ("duplication", "P0", 2_667)
    assert follower.take(table_of(parse("P0@2668 deliver m00000")), 0) == []
    assert follower.held == 1, "of this one nothing is known any more, so it waits"


@pytest.mark.parametrize(
    ("limits", "text", "message"),
    [
        (FollowLimits(runs=1), "A note\n[r2]\nA note", "the trace: 2 runs; the limit is 1"),
        (FollowLimits(processes=2), "[r]\nA send m -> B C", "run 'r': 3 processes; the limit is 2"),
        (FollowLimits(held=1), "A@1 note\nA@2 note", "A's event 1: 2 events are held, waiting for others; the limit is 1"),
        (FollowLimits(flights=1), "A send m1 -> B\nA send m2 -> B", "the trace: 2 messages are on their way; the limit is 1"),
    ],
)
def test_limits_are_named(limits: FollowLimits, text: str, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        Follower(FOLLOWED, limits=limits).take(table_of(parse(text)), 0)
    assert str(caught.value) == message


def test_total_cannot_be_followed() -> None:
    with pytest.raises(ConfigError, match="total cannot be followed"):
        Follower(("causal", "total"))


@pytest.mark.parametrize("seed", range(12))
def test_simulated_runs_are_judged_alike(seed: int) -> None:
    """Real protocols, with faults, in parts of which some come out of order."""
    ordering = ("unordered", "fifo", "vector", "matrix", "sequenced", "flood")[seed % 6]
    options = SimulationOptions(
        ordering=ordering,
        processes=5,
        messages=60,
        pattern=("unicast", "multicast", "broadcast")[seed % 3],
        seed=seed,
        loss=0.05,
        crashes=seed % 2,
    )
    _, events = simulate(options)
    parts = [events[begin : begin + 20] for begin in range(0, len(events), 20)]
    for begin in range(0, len(parts) - 4, 4):
        parts[begin : begin + 4] = reversed(parts[begin : begin + 4])
    follower = Follower(FOLLOWED)
    assert follow(follower, parts) == judged(events)
    assert follower.events == len(events)
