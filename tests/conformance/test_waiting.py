"""What waits is named, waits for the right thing, is bounded, and costs nothing to whom it does not concern."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import permutations
from typing import Any

import pytest

from tests.conformance.suite import MEMBERS, Variant, every_ordering
from tests.support.runs import Flight, Run
from thence.core.ordering import ArrivalOrder, Ordering, pending
from thence.core.ordering.pending import MAX_HELD, HeldFrame
from thence.core.wire.messages import FRAME_WEIGHT
from thence.errors import OverflowingFrame


def hold_back(run: Run, sender: str, target: str, count: int) -> list[Flight]:
    """Let ``sender`` send ``count`` + 1 messages and all but its first frame arrive at ``target``; return that first frame."""
    for _ in range(count + 1):
        run.send(sender, None)
    for _ in range(count):
        run.arrive(sender, target, 1)
    return [flight for flight in run.flights() if (flight.source, flight.target) == (sender, target)]


def two_senders(variant: Variant) -> tuple[str, str, str]:
    """Return two members and a third to whom both write directly, whoever the message is for."""
    for one, other, target in permutations(MEMBERS, 3):
        run = variant.run()
        run.send(one, None)
        run.send(other, None)
        if all(run.on_the_way.get((source, target)) for source in (one, other)):
            return one, other, target
    raise AssertionError(f"{variant.label}: nobody is written to by two others")


def nothing_ever_waits(variant: Variant) -> bool:
    one, _, target = two_senders(variant)
    run = variant.run()
    if variant.traits.arrival is ArrivalOrder.ANY:
        hold_back(run, one, target, 3)
    return not run.waiting()


@every_ordering
def test_a_wait_is_named(variant: Variant) -> None:
    one, _, target = two_senders(variant)
    if nothing_ever_waits(variant):
        assert not variant.traits.guarantees or variant.traits.arrival is ArrivalOrder.FIFO, "order without waiting?"
        return
    run = variant.run()
    (first,) = hold_back(run, one, target, 3)
    waits = run.orderings[target].waiting()
    assert [str(wait.message) for wait in waits] == [f"{one}:2", f"{one}:3", f"{one}:4"]
    assert {wait.peer for wait in waits} == {one}
    assert [wait.missing for wait in waits] == [(one, 1), (one, 2), (one, 3)]
    assert [wait.since for wait in waits] == [4, 5, 6]
    assert run.arrive(first.source, first.target, first.place) is not None
    if variant.confirms:
        confirmed = [wait.missing for wait in run.orderings[target].waiting()]
        assert confirmed == [(one, 1), (one, 2), (one, 3), (f"acks of {one}", 1)], "now the first is to be acknowledged"
        run.arrive_everything(random.Random(0))
    assert run.orderings[target].waiting() == []


def waits_of(ordering: Ordering) -> dict[tuple[int, int], tuple[int, int]]:
    """Return what waits, as (stream, number), and for what."""
    return {(held.stream, held.number): (stream, number) for stream, number, held in ordering.pending.entries()}


@every_ordering
def test_a_wait_names_the_one_that_is_missing(variant: Variant) -> None:
    """A wait changes exactly when the one that it names is released, and that one comes from the peer that it names."""
    for seed in range(6):
        run = variant.busy_run(seed, 8)
        while flights := run.flights():
            for flight in flights:
                check_progress(run.orderings[flight.target], flight)
            chosen = flights[(seed * 5 + run.steps * 3) % len(flights)]
            run.arrive(chosen.source, chosen.target, chosen.place)
        assert run.waiting() == 0


def check_progress(ordering: Ordering, flight: Flight) -> None:
    """Try one arrival: who waited for what it releases moves on, and nobody else."""
    twin = ordering.fork()
    sender = twin.index[flight.source]
    arrived = twin._check(sender, flight.frame)
    before = waits_of(twin)
    named = {(wait.missing.sender.removeprefix("acks of "), wait.missing.number) for wait in twin.waiting()}
    twin.accept(flight.source, flight.frame, 0)
    after = waits_of(twin)
    moved = {who for who, missing in before.items() if after.get(who) != missing}
    released = {stream: twin._released(stream) for stream, _ in before.values()}
    assert moved == {who for who, (stream, number) in before.items() if number <= released[stream]}
    if arrived in before.values():
        assert (flight.source, arrived[1]) in named, "the missing one comes from another peer than the wait says"


@every_ordering
@pytest.mark.parametrize("limit", ["max_held", "MAX_HELD_BYTES"])
def test_waiting_is_bounded_and_the_missing_one_gets_through(
    variant: Variant, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if nothing_ever_waits(variant):
        return
    one, _, target = two_senders(variant)
    run = variant.run(max_held=3 if limit == "max_held" else MAX_HELD)
    if limit == "MAX_HELD_BYTES":
        monkeypatch.setattr(pending, limit, 3 * FRAME_WEIGHT)
    hold_back(run, one, target, 3)
    for _ in range(2):
        run.send(one, None)
    ordering = run.orderings[target]
    before = ordering.snapshot()
    for place in (1, 2):
        with pytest.raises(OverflowingFrame, match=f"{one}:{place + 4}.*{limit}"):
            run.arrive(one, target, place)
    assert ordering.snapshot() == before
    run.arrive(one, target, 0)
    if variant.confirms:
        assert len(ordering.waiting()) == 4, "the missing one is taken beyond the limit: it waits for its ack alone"
        arrive_what_is_taken(run)
    else:
        assert ordering.waiting() == []
        run.arrive(one, target, 1)
        run.arrive(one, target, 0)
    while flights := run.flights():
        run.arrive(flights[0].source, flights[0].target, 0)
    assert run.complaints() == []


def arrive_what_is_taken(run: Run) -> None:
    """Let everything arrive that is not refused for want of room, until nothing is left or all is refused."""
    taken = True
    while taken:
        taken = False
        for flight in run.flights():
            with suppress(OverflowingFrame):
                run.arrive(flight.source, flight.target, flight.place)
                taken = True
                break


def counting(kind: type[Ordering]) -> tuple[type[Ordering], list[int]]:
    """Return the ordering with a counter of how many frames it looks at."""
    calls = [0]

    class Counting(kind):  # type: ignore[misc, valid-type]
        def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
            calls[0] += 1
            missing: tuple[int, int] | None = super()._missing(held)
            return missing

    return Counting, calls


def looks(variant: Variant, waiting: int) -> tuple[int, int]:
    """Return how many frames are looked at for one that does not concern the others, and how many wait meanwhile."""
    one, other, target = two_senders(variant)
    kind, calls = counting(variant.kind)
    run = variant.run(kind=kind)
    if variant.traits.arrival is ArrivalOrder.ANY:
        hold_back(run, one, target, waiting)
    run.send(other, None)
    before = calls[0]
    run.arrive(other, target)
    return calls[0] - before, len(run.orderings[target].waiting())


@every_ordering
def test_who_waits_costs_nothing_to_whom_it_does_not_concern(variant: Variant) -> None:
    few, few_wait = looks(variant, 10)
    many, many_wait = looks(variant, 1000)
    # Over FIFO channels nothing is held back; there the one itself may wait, until others have been heard of.
    assert (few_wait, many_wait) in ({(11, 1001)} if variant.confirms else {(10, 1000), (0, 0), (1, 1)})
    assert few == many == 1


@every_ordering
def test_a_long_wait_is_looked_at_once_per_frame(variant: Variant) -> None:
    """Each frame of a chain is looked at when it comes and when its predecessor is released, and not more often."""
    one, _, target = two_senders(variant)
    kind, calls = counting(variant.kind)
    run = variant.run(kind=kind)
    if variant.traits.arrival is ArrivalOrder.FIFO:
        return
    hold_back(run, one, target, 500)
    run.arrive(one, target)
    if variant.confirms:
        assert calls[0] == 501, "the first one waits for its ack, and the others still for it"
        return
    assert run.orderings[target].waiting() == []
    assert calls[0] <= 2 * 501
