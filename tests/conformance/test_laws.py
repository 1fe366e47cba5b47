"""Every law of delays keeps the rules of ``sim.laws``, those of studies too; broken ones do not pass.

A law that is added needs an entry in ``LAWS``. How laws are written in options is tried in ``unit/sim/test_laws.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from random import Random
from statistics import mean

import pytest

from thence.core.topology.durations import MAX_DELAY_NS
from thence.sim.laws import Constant, Exponential, Law, LogNormal, Pareto, Uniform
from thence.studies.parts.campus import RouterCopies, SharedDelay, WayDelay

MS = 1_000_000
DRAWS = 20_000
MARGIN = 0.03
"""Above four standard errors of the mean of so many draws of any of these."""

Make = Callable[[int], Law]
"""Makes a law with this floor; each time a new one, since one of them knows what it drew before."""

LAWS: dict[str, Make] = {
    "constant": lambda floor: Constant(3 * MS, minimum_ns=floor),
    "uniform": lambda floor: Uniform(1 * MS, 5 * MS, minimum_ns=floor),
    "exponential": lambda floor: Exponential(10 * MS, minimum_ns=floor),
    "pareto": lambda floor: Pareto(5 * MS, 3.0, minimum_ns=floor),
    "lognormal": lambda floor: LogNormal(5 * MS, 0.5, minimum_ns=floor),
    "way": lambda floor: WayDelay(2 * MS, 4 * MS, 1 * MS, minimum_ns=floor),
    "shared": lambda floor: SharedDelay(
        WayDelay(2 * MS, 4 * MS, 1 * MS),
        "p",
        ((("p", "q"), 4 * MS), (("q", "r"), 1 * MS)),
        RouterCopies(),
        minimum_ns=floor,
    ),
}


def drawn(law: Law, seed: int = 1, count: int = DRAWS) -> list[int]:
    """Return the delays that a seed gives."""
    chance = Random(seed)
    return [law.draw_ns(chance) for _ in range(count)]


# --- the rules ---------------------------------------------------------------------------------------------------------


def delays_are_whole_and_between_floor_and_ceiling(make: Make) -> None:
    for floor in (0, 4 * MS, MAX_DELAY_NS):
        law = make(floor)
        assert all(type(delay) is int and floor <= delay <= MAX_DELAY_NS for delay in (*drawn(law, count=2_000), law.mean_ns()))


def a_seed_gives_the_same_delays_each_time(make: Make) -> None:
    assert drawn(make(0), count=100) == drawn(make(0), count=100)


def chance_comes_from_the_argument_alone(make: Make) -> None:
    """And a delay is drawn at all, except where it is always the same."""
    law = make(0)
    assert drawn(law, seed=1, count=50) != drawn(make(0), seed=2, count=50) or isinstance(law, Constant)


def the_mean_is_what_it_says(make: Make) -> None:
    law = make(0)
    assert mean(drawn(law)) == pytest.approx(law.mean_ns(), rel=MARGIN)


def the_floor_lifts_what_is_below_it(make: Make) -> None:
    assert drawn(make(4 * MS), count=500) == [max(delay, 4 * MS) for delay in drawn(make(0), count=500)]


def it_is_a_value(make: Make) -> None:
    with pytest.raises(FrozenInstanceError):
        make(0).minimum_ns = 1  # type: ignore[misc]


Rule = Callable[[Make], None]
RULES: tuple[Rule, ...] = (
    delays_are_whole_and_between_floor_and_ceiling,
    a_seed_gives_the_same_delays_each_time,
    chance_comes_from_the_argument_alone,
    the_mean_is_what_it_says,
    the_floor_lifts_what_is_below_it,
    it_is_a_value,
)


@pytest.mark.parametrize("make", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_law(rule: Rule, make: Make) -> None:
    rule(make)


# --- planted -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fractional(Exponential):
    """Draws parts of nanoseconds."""

    def draw_ns(self, rng: Random) -> int:
        return max(self._draw(rng), self.minimum_ns)  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class OwnChance(Exponential):
    """Draws from a chance of its own."""

    def _draw(self, rng: Random) -> float:
        return super(OwnChance, self)._draw(_OTHER)


_OTHER = Random(3)


@dataclass(frozen=True, slots=True)
class Stuck(Exponential):
    """Always draws its average."""

    def _draw(self, rng: Random) -> float:
        return self.average_ns


@dataclass(frozen=True, slots=True)
class Boasting(Uniform):
    """Says that it is quicker than it is."""

    def _mean(self) -> float:
        return self.low_ns


@dataclass(frozen=True, slots=True)
class Shifted(Exponential):
    """Adds its floor where it should lift."""

    def draw_ns(self, rng: Random) -> int:
        return int(self._draw(rng)) + self.minimum_ns


class Changeable(Constant):
    """Can be changed while it is used."""

    __setattr__ = object.__setattr__


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (lambda floor: Fractional(MS, minimum_ns=floor), delays_are_whole_and_between_floor_and_ceiling),
        (lambda floor: OwnChance(MS, minimum_ns=floor), a_seed_gives_the_same_delays_each_time),
        (lambda floor: Stuck(MS, minimum_ns=floor), chance_comes_from_the_argument_alone),
        (lambda floor: Boasting(MS, 5 * MS, minimum_ns=floor), the_mean_is_what_it_says),
        (lambda floor: Shifted(MS, minimum_ns=floor), the_floor_lifts_what_is_below_it),
        (lambda floor: Changeable(MS, minimum_ns=floor), it_is_a_value),
    ],
)
def test_a_broken_law_is_noticed(broken: Make, rule: Rule) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        rule(broken)
