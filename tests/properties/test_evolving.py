"""Random fabrics that change under traffic and faults, judged as a whole: see tests/evolving.py. A failure names its seed.

And mistakes planted into the change itself, which must be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from tests.evolving import CHANGES, run_one
from thence.core.changeover import Changeover
from thence.core.messages import Envelope
from thence.core.views import Resume, Standing, View
from thence.errors import InternalError
from thence.sim.evolution import Command, EvolvingNode, Trouble

SEEDS_IN_CI = 240
CHUNKS = 8

FAST = Trouble(loss=0.0, death=0.0)
"""A command that nothing happens to, so that it gets to the mistake soon."""


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_fabrics_that_change_under_traffic_keep_what_they_promise(chunk: int) -> None:
    size = SEEDS_IN_CI // CHUNKS
    outcomes = [run_one(seed) for seed in range(chunk * size, (chunk + 1) * size)]
    broken = [f"python -m tests.evolving {outcome.seed}: {outcome.broken[:3]}" for outcome in outcomes if outcome.broken]
    assert not broken, "\n".join(broken)
    # All of this is only worth something if everything really happens.
    counts: Counter[str] = sum((outcome.counts for outcome in outcomes), Counter())
    assert {"changes", "deaths", "crashes", "resumed", "aborted"} <= set(+counts)
    assert {what for outcome in outcomes for what in outcome.done} == set(CHANGES)
    assert sum(outcome.deliveries for outcome in outcomes) > 100 * size


class _WithoutQuiet(Changeover):
    """Mistake: all hold, so let us switch."""

    def _quiet(self, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> bool:
        return True


def _leading(changeover: type[Changeover]) -> type[Command]:
    return type("Planted", (Command,), {"changeover_type": changeover})


def caught(run: Callable[[int], object], seeds: int) -> int | None:
    """Return the first seed whose run is found to be broken."""
    for seed in range(seeds):
        try:
            outcome = run(seed)
        except InternalError:
            return seed  # It never came to rest: the members waited for each other.
        if getattr(outcome, "broken", None):
            return seed
    return None


def test_a_switch_without_quiet_is_caught() -> None:
    assert caught(lambda seed: run_one(seed, command_type=_leading(_WithoutQuiet), trouble=FAST), 40) is not None


def test_held_submissions_that_overtake_each_other_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    release = View.release

    def reversed_release(self: View) -> tuple[Envelope, ...]:
        return release(self)[::-1]

    monkeypatch.setattr(View, "release", reversed_release)
    assert caught(lambda seed: run_one(seed, trouble=FAST), 40) is not None


def test_one_who_goes_back_though_it_is_prepared_is_caught() -> None:
    class Impatient(EvolvingNode):
        """Mistake: the command seems to be gone, so go back, prepared or not."""

        def _end_lease(self, life: int) -> None:
            view = self._member.view
            if life == self._life and view.state.phase == "prepared":
                self._handle(self._member.step(Resume(view.state.attempt, dead=True), self._kernel.now))
            else:
                super()._end_lease(life)

    dying = Trouble(loss=0.2, death=0.3)
    assert caught(lambda seed: run_one(seed, node_type=Impatient, trouble=dying), 200) is not None
