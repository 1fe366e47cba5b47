"""A restored ordering goes on exactly as the original would, and what is not its own snapshot is refused."""

from __future__ import annotations

import random

import pytest

from tests.conformance.suite import MEMBERS, VARIANTS, Variant, every_ordering
from tests.support.runs import Run, destinations
from thence.core.ordering import ORDERINGS, make_ordering
from thence.errors import StorageError

STEPS = 45


def reborn(run: Run, variant: Variant, members: tuple[str, ...] = MEMBERS) -> None:
    """Let everybody go on from a snapshot."""
    for name, ordering in run.orderings.items():
        twin = make_ordering(variant.name, name, members, variant.options_for(members))
        twin.restore(ordering.snapshot())
        assert twin.snapshot() == ordering.snapshot()
        assert twin.waiting() == ordering.waiting()
        run.orderings[name] = twin


def play(variant: Variant, seed: int, restart_at: frozenset[int]) -> list[bytes]:
    """Return all outputs of a random run in which everybody restarts before the steps in ``restart_at``."""
    chance = random.Random(seed)
    run = variant.run()
    for step in range(STEPS):
        if step in restart_at:
            reborn(run, variant)
        flights = run.flights()
        if flights and chance.random() < 0.6:
            flight = chance.choice(flights)
            run.arrive(flight.source, flight.target, flight.place)
        else:
            sender = chance.choice(MEMBERS)
            run.send(sender, destinations(chance, MEMBERS, sender, chance.choice(["unicast", "multicast", "broadcast"])))
    run.arrive_everything(chance)
    assert run.complaints() == []
    return run.outputs


@every_ordering
def test_restoring_at_any_one_step_changes_nothing(variant: Variant) -> None:
    expected = play(variant, 1, frozenset())
    for step in range(STEPS):
        assert play(variant, 1, frozenset({step})) == expected, f"restarted before step {step}"


@every_ordering
def test_restoring_at_every_step_changes_nothing(variant: Variant) -> None:
    for seed in range(5):
        assert play(variant, seed, frozenset(range(STEPS))) == play(variant, seed, frozenset())


@every_ordering
def test_a_fork_goes_its_own_way(variant: Variant) -> None:
    run = variant.busy_run(2)
    for flight in run.flights():
        ordering = run.orderings[flight.target]
        before = ordering.snapshot()
        twin = ordering.fork()
        assert twin.snapshot() == before
        twin.accept(flight.source, flight.frame, 0)
        assert twin.snapshot() != before
        assert ordering.snapshot() == before


@every_ordering
def test_a_snapshot_of_somebody_else_is_refused(variant: Variant) -> None:
    run = variant.busy_run(4)
    mine = run.orderings["A"]
    before = mine.snapshot()
    elsewhere = Variant(variant.label, variant.name, variant.options_for).run((*MEMBERS, "F")).orderings["A"]
    turned_round = make_ordering(variant.name, "A", MEMBERS[::-1], variant.options_for(MEMBERS))
    for other in (run.orderings["B"], elsewhere, turned_round):
        with pytest.raises(StorageError):
            mine.restore(other.snapshot())
        assert mine.snapshot() == before


@every_ordering
def test_a_snapshot_of_another_ordering_is_refused(variant: Variant) -> None:
    mine = variant.busy_run(4).orderings["A"]
    before = mine.snapshot()
    for name in ORDERINGS:
        if name != variant.name:
            with pytest.raises(StorageError):
                mine.restore(make_ordering(name, "A", MEMBERS).snapshot())
    assert mine.snapshot() == before


@pytest.mark.parametrize("name", ORDERINGS)
def test_a_snapshot_with_other_options_is_refused(name: str) -> None:
    """An ordering with other options would read the same numbers in another way."""
    variants = [variant for variant in VARIANTS if variant.name == name]
    for one in variants:
        for other in variants:
            mine = one.run().orderings["A"]
            theirs = other.busy_run(4).orderings["A"].snapshot()
            if one is other:
                mine.restore(theirs)
                assert mine.snapshot() == theirs
            else:
                with pytest.raises(StorageError):
                    mine.restore(theirs)


@every_ordering
@pytest.mark.parametrize("garbage", [b"", b"\x00", b"garbage", b"\xc1", b"\x96" + b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff"])
def test_garbage_is_refused(variant: Variant, garbage: bytes) -> None:
    mine = variant.busy_run(4).orderings["A"]
    before = mine.snapshot()
    with pytest.raises(StorageError):
        mine.restore(garbage)
    with pytest.raises(StorageError):
        mine.restore(before[:-1])
    assert mine.snapshot() == before
