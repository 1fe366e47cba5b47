"""A trace that is followed gives the judge's rows, whatever parts it comes in, and holds no more than it must."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planted import PLANTED, Planted
from tests.support.pipeline.followed import FOLLOWED, Follower, follow, judged, table_of, without_chains
from tests.support.traces import parse, random_case, random_trace, text_of
from thence.errors import StorageError, TraceError
from thence.pipeline.streaming.run import MAX_CHAINS, MOST_BETWEEN_MS, FollowLimits
from thence.pipeline.streaming.state import from_bytes, to_bytes
from thence.sim.options import SimulationOptions
from thence.sim.simulation import simulate
from thence.trace.events import INT64_MAX, INT64_MIN, Event
from thence.trace.judge import judge


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
    assert follow(Follower(), [events]) == judged(events)
    if sends_once(events) and counts_on(events):
        assert follow(Follower(), [[event] for event in events]) == judged(events)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_random_traces_are_judged_alike_in_any_chunks(seed: int) -> None:
    chance = random.Random(seed)
    events = random_case(seed)
    if sends_once(events):
        assert follow(Follower(), [events]) == judged(events), text_of(events)
    follower = Follower(restarts=chance.random() < 0.5)
    rows = follow(follower, chunks_of(events, chance))
    if sends_once(events) and counts_on(events):
        assert rows == judged(events), text_of(events)
    else:
        assert any(row.property == "well-formed" for row in rows)
    lags = [follower.run(name).lag for name in follower.states]
    assert sum(sum(lag.counts.values()) for lag in lags) == len(rows)
    assert sum(lag.events for lag in lags) == len(events)
    assert sum(lag.held for lag in lags) == 0


def test_the_first_and_the_last_index_there_is_are_followed() -> None:
    events = parse(f"A@{INT64_MIN} deliver n\nB send m -> A\nB@{INT64_MAX} send n -> A\nA@{INT64_MAX} deliver m")
    for chunks in ([events], [[event] for event in events]):
        follower = Follower()
        assert follow(follower, chunks) == judged(events)
        assert follower.run().lag.held == 0


def test_runs_are_followed_apart() -> None:
    chance = random.Random(3)
    events = [
        msgspec.structs.replace(event, run=run)
        for run in (None, "a", "b")
        for event in random_trace(chance, 4, 40, ordered=False, complete=False)
    ]
    chance.shuffle(events)
    follower = Follower()
    assert follow(follower, chunks_of(events, chance)) == judged(events)
    assert set(follower.states) == {None, "a", "b"}


def test_a_violation_is_told_when_its_delivery_is_judged() -> None:
    events = parse("A send m1 -> B\nA send m2 -> B\nB deliver m2\nB deliver m1")
    follower = Follower()
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
    follower = Follower()
    assert follow(follower, [[event] for event in events]) == judged(events)
    assert follower.run().scan.names == ["A", "B", "C", "D"]


def test_held_is_what_waits_for_a_hole_or_a_send() -> None:
    events = parse("A@1 send m1 -> B\nB@0 deliver m2\nB@1 note\nC note")
    follower = Follower(hold_s=10)
    assert follower.take(table_of(events), 5_000) == []
    assert follower.tick(8_000) == []
    lag = follower.run().lag
    assert (lag.events, lag.held, lag.oldest, lag.oldest_s) == (1, 3, "A's event 1", 3.0)


def test_patience_gives_up_what_has_waited_too_long_and_nothing_else() -> None:
    follower = Follower(hold_s=10)
    follower.take(table_of(parse("A@1 note\nB deliver ghost")), 0)
    follower.take(table_of(parse("C deliver m1")), 9_000)
    rows = follower.tick(10_000)
    assert [(row.property, row.process) for row in rows] == [("well-formed", "A"), ("creation", "B")]
    assert follower.run().lag.held == 1, "C's delivery may still wait"
    assert follower.take(table_of(parse("D send m1 -> C")), 11_000) == []
    assert follower.run().lag.held == 0


def test_patience_does_not_run_out_while_nobody_follows() -> None:
    follower = Follower(hold_s=30)
    follower.take(table_of(parse("A@1 note")), 0)
    assert follower.tick(86_400_000) == []
    assert follower.run().lag.oldest_s == MOST_BETWEEN_MS / 1000
    assert len(follower.tick(86_400_000 + MOST_BETWEEN_MS)) == 1


def test_what_comes_after_patience_is_told_as_out_of_place_and_counts() -> None:
    follower = Follower(hold_s=1)
    follower.take(table_of(parse("A@1 note\nB deliver m1")), 0)
    follower.tick(1_000)
    rows = follower.take(table_of(parse("A@0 send m2 -> B\nC send m1 -> B")), 2_000)
    assert [(row.process, row.index, row.detail) for row in rows] == [
        ("A", 0, "A's event 0 comes where event 2 should be"),
        ("C", 0, "C's event 0 sends m1, which had been given up as never sent"),
    ]
    assert follower.take(table_of(parse("B@1 deliver m2\nA@2 note")), 3_000) == []


def test_the_first_send_judged_is_the_send() -> None:
    """The judge would take A's, and say that B's is the second."""
    follower = Follower()
    assert follower.take(table_of(parse("B send m -> C")), 0) == []
    (row,) = follower.take(table_of(parse("A send m -> C")), 1)
    assert (row.property, row.detail) == ("well-formed", "A's event 0 sends m, which B sent in its event 0")
    assert follower.take(table_of(parse("C deliver m")), 2) == []


def test_messages_that_arrived_everywhere_are_known_for_a_while() -> None:
    """So second deliveries are found; and the state stays small, however long the trace is."""
    follower = Follower(limits=FollowLimits(finished=100, history=900))
    rounds = [
        f"P{k % 3} send m{k:05d} -> P0 P1 P2\n" + "\n".join(f"P{p} deliver m{k:05d}" for p in range(3)) for k in range(2_000)
    ]
    events = parse("\n".join(rounds))
    sizes = []
    for begin in range(0, len(events), 100):
        assert follower.take(table_of(events[begin : begin + 100]), begin) == []
        assert follower.run().scan.flights.count <= 100
        sizes.append(len(to_bytes(follower.run())))
    assert max(sizes[20:]) < 1.1 * sizes[20]
    assert sum(one.events for one in follower.shelves[None].values()) == 900
    (row,) = follower.take(table_of(parse("P0@2667 deliver m01999")), 0)
    assert (row.property, row.process, row.index) == ("duplication", "P0", 2_667)
    assert follower.take(table_of(parse("P0@2668 deliver m00000")), 0) == []
    assert follower.run().lag.held == 1, "of this one nothing is known any more, so it waits"


@pytest.mark.parametrize(
    ("limits", "text", "message"),
    [
        (FollowLimits(processes=2), "[r]\nA send m -> B C", "run 'r': 3 processes; the limit is 2"),
        (FollowLimits(held=1), "A@1 note\nA@2 note", "A's event 1: 2 events are held, waiting for others; the limit is 1"),
        (FollowLimits(flights=1), "A send m1 -> B\nA send m2 -> B", "the trace: 2 messages are on their way; the limit is 1"),
    ],
)
def test_limits_are_named(limits: FollowLimits, text: str, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        Follower(limits=limits).take(table_of(parse(text)), 0)
    assert str(caught.value) == f"{message}. thence audit has no such limit"


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_pairs_that_disagree_about_an_order_are_told(seed: int) -> None:
    """The judge's pairs; each with two messages that both have delivered, in opposite orders."""
    chance = random.Random(seed)
    events = random_trace(chance, 4, 60, ordered=False, complete=False)
    rows = follow(Follower(("total",), restarts=chance.random() < 0.5), chunks_of(events, chance))
    assert [row.process for row in rows] == [row.process for row in judged(events, ("total",))], text_of(events)
    places: dict[tuple[str, str | None], int] = {}
    for event in sorted(events, key=lambda event: event.index):
        if event.kind == "deliver":
            places.setdefault((event.process, event.message), event.index)
    for row in rows:
        one, two = row.process.split(",")
        assert row.index == places[one, row.later] > places[one, row.earlier]
        assert places[two, row.later] < places[two, row.earlier]


@pytest.mark.parametrize("seed", range(10))
def test_chains_are_the_judges_as_far_as_history_reaches(seed: int) -> None:
    events = random_trace(random.Random(seed), 5, 120, ordered=False)
    whole = set(judge(events, FOLLOWED).violations)
    for history in (10**6, 40, 0):
        follower = Follower(limits=FollowLimits(history=history))
        rows = [row for at in range(0, len(events), 30) for row in follower.take(table_of(events[at : at + 30]), at)]
        late = [row for row in rows if row.property in ("fifo", "causal")]
        assert without_chains([*rows, *follower.finish()]) == judged(events)
        with_chain = {row for row in late if row.chain}
        assert with_chain <= whole
        if history == 10**6:
            assert len(with_chain) >= min(len(late), MAX_CHAINS) / 2
        assert bool(with_chain) == (history > 0)
        assert all(row.chain == () for row in rows if row not in late)


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
    follower = Follower()
    assert follow(follower, parts) == judged(events)
    assert follower.run().lag.events == len(events)


def test_a_state_of_another_version_is_refused() -> None:
    follower = Follower()
    follower.take(table_of(parse("A send m -> B")), 0)
    content = to_bytes(follower.run())
    assert from_bytes(content).lag == follower.run().lag
    for other in (b"\x80\x05pickle", content.replace(b"thence run 1", b"thence run 2", 1)):
        with pytest.raises(StorageError, match="another version of thence; begin with a new checkpoint"):
            from_bytes(other)
