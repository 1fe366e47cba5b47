"""Whatever the network does, every member hands over every message exactly once, and in the end nobody keeps anything.

First with arrivals, losses, repetitions and timers chosen one by one; then in the simulator, with delays, loss and duplication.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.core.confirmation import Confirming
from thence.core.confirmation_frames import Claim, ConfirmationOptions, Data, Frame, Outcome
from thence.core.numbers import NumberSet
from thence.sim.confirming import ConfirmingOptions, Group

NAMES = ("a", "b", "c", "d", "e")
MS = 1_000_000
QUIET_ROUNDS = 200
"""After so many rounds without faults, all must be over."""

DELAYED: dict[str, Any] = {"confirm_after_messages": 4, "confirm_after_ns": 30 * MS}
WAYS = {
    "centralised": ConfirmationOptions(scheme="centralised", max_kept=16),
    "centralised-delayed": ConfirmationOptions(scheme="centralised", max_kept=16, controller="b", **DELAYED),
    "decentralised": ConfirmationOptions(scheme="decentralised"),
    "decentralised-delayed": ConfirmationOptions(scheme="decentralised", **DELAYED),
    "distributed": ConfirmationOptions(scheme="distributed"),
    "distributed-delayed": ConfirmationOptions(scheme="distributed", **DELAYED),
    "nearest": ConfirmationOptions(scheme="distributed", retransmission="nearest"),
    "nearest-delayed": ConfirmationOptions(scheme="distributed", retransmission="nearest", **DELAYED),
}
every_way = pytest.mark.parametrize("way", WAYS)

choices = st.lists(st.tuples(st.sampled_from("sssaaaaaalrt"), st.integers(0, 999)), max_size=80)


class Flight(NamedTuple):
    """A frame on its way."""

    source: str
    target: str
    frame: Frame


class Bag:
    """Members, and the frames between them in no order at all."""

    def __init__(self, options: ConfirmationOptions, count: int, kind: type[Confirming] = Confirming) -> None:
        self.names = NAMES[:count]
        self.members = {name: kind(name, self.names, options) for name in self.names}
        self.flights: list[Flight] = []
        self.wakes: dict[str, int | None] = {}
        self.released: dict[str, list[tuple[str, int]]] = {name: [] for name in self.names}
        self.sent: list[tuple[str, int]] = []
        self.now = 0

    def follow(self, name: str, outcome: Outcome) -> None:
        self.flights += [Flight(name, peer, frame) for peer, frame in outcome.send]
        self.released[name] += [(message.origin, message.number) for message in outcome.deliver]
        self.wakes[name] = outcome.wake

    def send(self, name: str) -> None:
        self.sent.append((name, sum(origin == name for origin, _ in self.sent) + 1))
        self.follow(name, self.members[name].send(b"x", self.now))

    def arrive(self, at: int) -> None:
        flight = self.flights.pop(at)
        self.follow(flight.target, self.members[flight.target].arrived(flight.source, flight.frame, self.now))

    def tick(self) -> bool:
        """Go on to the next timer; false if there is none."""
        times = [time for time in self.wakes.values() if time is not None]
        if not times:
            return False
        self.now = max(self.now, min(times))
        for name, time in list(self.wakes.items()):
            if time is not None and time <= self.now:
                self.follow(name, self.members[name].timer(self.now))
        return True

    def play(self, kind: str, number: int) -> None:
        if kind == "s" and len(self.sent) < 12:
            self.send(self.names[number % len(self.names)])
        elif kind == "t":
            self.tick()
        elif self.flights:
            at = number % len(self.flights)
            if kind == "l":
                del self.flights[at]
            elif kind == "r":
                self.flights.append(self.flights[at])
            else:
                self.arrive(at)

    def settle(self) -> None:
        """Let everything arrive, the newest first, until no timer is left."""
        for _ in range(QUIET_ROUNDS):
            while self.flights:
                self.arrive(len(self.flights) - 1)
            if not self.tick():
                return
        raise AssertionError(f"not at rest: {self.wakes}")


@every_way
@given(count=st.integers(2, 5), schedule=choices)
def test_exactly_once_and_nothing_is_kept(way: str, count: int, schedule: list[tuple[str, int]]) -> None:
    bag = Bag(WAYS[way], count)
    for kind, number in schedule:
        bag.play(kind, number)
        for released in bag.released.values():
            assert len(set(released)) == len(released), "nothing twice"
    bag.settle()
    for released in bag.released.values():
        assert sorted(released) == sorted(bag.sent)
    if way.startswith("centralised"):
        assert len({tuple(released) for released in bag.released.values()}) == 1, "one order for all"
    assert [member.kept for member in bag.members.values()] == [0] * count


@every_way
@given(schedule=choices)
def test_nothing_is_stable_that_somebody_lacks(way: str, schedule: list[tuple[str, int]]) -> None:
    """What a member would drop is really everywhere. With a controller, streams end at it and only its own goes to all."""
    bag = Bag(WAYS[way], 4)
    for kind, number in schedule:
        bag.play(kind, number)
        for member in bag.members.values():
            if way.startswith("centralised"):
                continue
            for stream in bag.names:
                stable = {(stream, number + 1) for number in range(member.stable(stream))}
                assert all(stable <= set(released) for released in bag.released.values())
    bag.settle()
    controller = WAYS[way].controller or "a"
    own = bag.members[controller].stable(controller)
    assert own == (len(bag.sent) if way.startswith("centralised") else sum(origin == controller for origin, _ in bag.sent))


# --- these schedules have teeth --------------------------------------------------------------------------------------------


class NeverAgain(Confirming):
    """Never repeats by itself: what everybody lost stays lost."""

    def _resend(self, now: int, send: list[tuple[int, Frame]]) -> None:
        for kept in self._kept.values():
            kept.due = now + 10**18


class TakesCopies(Confirming):
    """Hands over every copy."""

    def _take(self, source: int, data: Data, now: int, send: list[tuple[int, Frame]]) -> None:
        self._taken[data.stream] = NumberSet()
        super()._take(source, data, now, send)


class OneIsEnough(Confirming):
    """Drops a message as soon as one destination has it."""

    def _confirmed(self, source: int, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._kept.pop(number, None)


class BareMaximum(Confirming):
    """Confirms up to the highest number that has come, holes or not."""

    def _claim(self, stream: int) -> Claim:
        claim = super()._claim(stream)
        return (stream, max(claim[1:]))


class NeverTold(Confirming):
    """Keeps copies and does not ask who has them."""

    def _probe(self, now: int, send: list[tuple[int, Frame]]) -> None:
        self._probe_at = None


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        (NeverAgain, "decentralised"),
        (TakesCopies, "decentralised"),
        (OneIsEnough, "decentralised"),
        (OneIsEnough, "centralised"),
        (BareMaximum, "decentralised"),
        (NeverTold, "nearest"),
    ],
)
def test_planted_mistakes_are_found(kind: type[Confirming], way: str) -> None:
    assert any(goes_wrong(kind, WAYS[way], seed) for seed in range(60))
    assert not any(goes_wrong(Confirming, WAYS[way], seed) for seed in range(60))


def goes_wrong(kind: type[Confirming], options: ConfirmationOptions, seed: int) -> bool:
    chance = Random(seed)
    bag = Bag(options, 3, kind)
    for _ in range(60):
        bag.play(chance.choice("ssaaaalllrt"), chance.randrange(999))
    try:
        bag.settle()
    except AssertionError:
        return True
    expected = sorted(bag.sent)
    return any(sorted(released) != expected for released in bag.released.values()) or any(m.kept for m in bag.members.values())


# --- in the simulator ------------------------------------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("seed", range(3))
def test_in_the_simulator_with_loss_duplication_and_reordering(way: str, seed: int) -> None:
    confirmation = WAYS[way]
    if confirmation.controller:
        confirmation = ConfirmationOptions(scheme="centralised", max_kept=16, controller="m1", **DELAYED)
    options = ConfirmingOptions(
        confirmation=confirmation, members=3 + seed, messages=60, gap="exponential:2ms",
        loss=0.2, duplication=0.2, jitter="exponential:10ms", seed=seed,
    )  # fmt: skip
    group = Group(options)
    cost = group.run()
    expected = sorted(group.sent_at)
    assert len(expected) == 60
    for released in group.released.values():
        assert sorted((message.origin, message.number) for _, message in released) == expected
    assert cost.left == 0
    assert cost.peak <= 60 * 2


def test_same_options_same_run() -> None:
    options = ConfirmingOptions(members=5, messages=50, loss=0.1, duplication=0.1, jitter="exponential:10ms", seed=3)
    assert Group(options).run() == Group(options).run()
