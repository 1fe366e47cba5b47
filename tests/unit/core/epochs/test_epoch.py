"""Epochs, tried on a model of two sides that number, crash between any two steps of a meeting, and go back to old copies.

The model knows the truth, which the module under test does not: which run of a side sent each number. A finding is right if it
names a side exactly when a number that one side took was sent by a run that the other side has forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import pytest

from thence.core.epochs.epoch import NEVER_MET, Claim, Epoch, EpochFit, Held, Side, compare
from thence.core.epochs.progress import Progress

SEEDS = 400
STEPS = 60


@dataclass(frozen=True)
class Disk:
    """What a side has stored. ``sent`` and ``taken`` hold, for each number, which run sent it."""

    claim: Claim = NEVER_MET
    sent: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


@dataclass
class Run:
    """One side: its disk, all that its disk ever was, and which run of it this is."""

    name: str
    disk: Disk = field(default_factory=Disk)
    copies: list[Disk] = field(default_factory=lambda: [Disk()])
    run: int = 0
    rolled_back: bool = False

    def store(self, disk: Disk) -> None:
        self.disk = disk
        self.copies.append(disk)

    def start(self) -> None:
        self.run += 1
        self.store(replace(self.disk, claim=self.disk.claim.started({"d": len(self.disk.sent)})))

    def send(self) -> None:
        self.store(replace(self.disk, sent=(*self.disk.sent, f"{self.name}{self.run}")))

    def side(self) -> Side:
        """Acks are not stored, as in the member, so nothing is known as acknowledged: only epochs can show anything."""
        return Side(
            self.name, self.disk.claim, {"d": Progress(len(self.disk.sent), 0, len(self.disk.taken), len(self.disk.taken))}
        )


def forgot(who: Run, other: Run) -> bool:
    """Whether ``other`` took a number that ``who`` does not know, or knows otherwise."""
    return other.disk.taken != who.disk.sent[: len(other.disk.taken)]


class World:
    """Two sides and a chance."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.a, self.b = Run("a"), Run("b")
        self.ids = 0
        self.refused: EpochFit | None = None

    def meet(self) -> None:
        """Let one call the other; a crash may come between any two steps, and then nothing more happens."""
        caller, called = (self.a, self.b) if self.chance.random() < 0.5 else (self.b, self.a)
        for _ in range(self.chance.randrange(3)):
            self.chance.choice((caller, called)).send()  # What waits while they are apart.
        here = compare(called.side(), caller.side())
        there = compare(caller.side(), called.side())
        assert bool(here.reason) == bool(there.reason)
        wrong = forgot(caller, called) or forgot(called, caller)
        if here.reason:
            self.refused = here
            assert self.a.rolled_back or self.b.rolled_back, here.reason
            older = {"me": called, "peer": caller}.get(here.behind)
            assert older is None or older.rolled_back, here.reason
            return
        assert not wrong, "two that use one number twice went on"
        self.ids += 1
        fresh = Epoch(here.next_number, f"e{self.ids}")
        called.store(replace(called.disk, claim=called.disk.claim.offer(here.common, fresh)))
        if self.chance.random() < 0.3:
            return
        caller.store(replace(caller.disk, claim=caller.disk.claim.agree(fresh)))
        if self.chance.random() < 0.3:
            return
        if self.chance.random() < 0.7:
            called.store(replace(called.disk, claim=called.disk.claim.agree(fresh)))
        self.talk(caller, called)

    def talk(self, one: Run, two: Run) -> None:
        """Send both ways on the connection, and let some of it arrive."""
        for source, target in ((one, two), (two, one)):
            for _ in range(self.chance.randrange(3)):
                source.send()
            upto = self.chance.randint(len(target.disk.taken), len(source.disk.sent))
            target.store(replace(target.disk, taken=source.disk.sent[:upto]))

    def step(self, *, faults: bool) -> None:
        what = self.chance.random()
        side = self.chance.choice((self.a, self.b))
        if what < 0.6:
            self.meet()
        elif what < 0.9 or not faults:
            side.start()
        else:
            side.disk = self.chance.choice(side.copies[-6:])
            side.rolled_back = True
            side.start()


@pytest.mark.parametrize("block", range(4))
def test_sides_that_only_crash_always_go_on(block: int) -> None:
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        world = World(seed)
        for _ in range(STEPS):
            world.step(faults=False)
            assert world.refused is None, (seed, world.refused)


@pytest.mark.parametrize("block", range(4))
def test_no_number_is_used_twice_whatever_copy_a_side_goes_back_to(block: int) -> None:
    refused = 0
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        world = World(seed)
        for _ in range(STEPS):
            world.step(faults=True)
            if world.refused is not None:
                refused += 1
                break
    assert refused > SEEDS // 2, "old copies were hardly ever noticed: the model does not do what it says"


def test_counters_alone_do_not_show_what_the_model_does() -> None:
    """The search finds the loss at once if epochs are left out, so its silence above means something."""
    found = 0
    for seed in range(SEEDS):
        world = World(seed)
        for _ in range(STEPS):
            world.step(faults=True)
            a, b = world.a, world.b
            bare = compare(a.side()._replace(claim=None), b.side()._replace(claim=None))
            if not bare.reason and (forgot(a, b) or forgot(b, a)):
                found += 1
            if world.refused is not None:
                break
    assert found > 20


def held(number: int, name: str) -> Claim:
    return NEVER_MET.agree(Epoch(number, name))


def test_the_side_with_the_older_epoch_is_named() -> None:
    comparison = compare(Side("s1", held(3, "c"), {}), Side("s2", held(2, "b"), {}))
    assert comparison.behind == "peer"
    assert "'s1' is in epoch 3 (c) with 's2', and 's2' is in epoch 2 (b) with 's1': 's2' runs on an old copy" in comparison.reason


def test_two_copies_that_went_as_far_are_told_apart_by_their_ids() -> None:
    comparison = compare(Side("s1", held(3, "c"), {}), Side("s2", held(3, "x"), {}))
    assert (comparison.behind, bool(comparison.reason)) == ("unclear", True)


def test_a_peer_that_knows_no_epochs_is_compared_by_counters() -> None:
    me = Side("s1", NEVER_MET, {"d": Progress(0, 0, 7, 7)})
    assert not compare(me, Side("s2", None, {"d": Progress(7, 0, 0, 0)})).reason
    assert compare(me, Side("s2", None, {"d": Progress(6, 0, 0, 0)})).behind == "peer"


def test_a_peer_that_agreed_on_an_epoch_and_knows_none_now_is_an_old_copy() -> None:
    assert compare(Side("s1", held(1, "a"), {}), Side("s2", None, {})).behind == "peer"


def test_numbers_that_begin_anew_leave_nothing_of_the_reach() -> None:
    held = [Held(Epoch(number, f"e{number}"), {"d": number}) for number in range(1, 4)]
    claim = Claim(held[0], held[2], (held[1],)).renumbered()
    assert [one.epoch for one in claim.held] == [one.epoch for one in held]
    assert all(one.reach is None for one in claim.held)
    assert Claim(held[0]).renumbered() == Claim(Held(held[0].epoch))
