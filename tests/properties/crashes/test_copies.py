"""Random runs on old copies, clones and lost disks: nothing vanishes without a word; and planted mistakes, which must be seen."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.crashes.copied import ORDERINGS, options_for, run_many, verdict_of
from tests.support.planted.planted_epochs import (
    AgreesBeforeItIsStored,
    AnswersBeforeItIsStored,
    ComparesCountersOnly,
    FindsNothing,
    ForgetsTheEpochInCommon,
    KeepsNoReach,
    KeepsTheEpoch,
    ReachesAnewAtEachStart,
    ShowsNoReach,
    StoresNoClaims,
    TrustsItsMemory,
    node_with,
)
from thence.core.epochs.handshake import Handshake
from thence.errors import ConfigError
from thence.sim.options import SimulationOptions
from thence.sim.parts.connections import Connections

SEEDS_IN_CI = 240
CHUNKS = 4
SEEDS_ENOUGH = 120
"""Within how many runs each mistake is seen."""

FORGETTING = SimulationOptions(
    ordering="fifo",
    processes=2,
    messages=60,
    pattern="unicast",
    gap="exponential:20ms",
    replies=0.0,
    rollbacks=1,
    crashes=3,
    sync="exponential:20ms",
)
"""One goes back; the other forgets what it was told, too."""

RESUMING = SimulationOptions(
    ordering="fifo", processes=2, messages=60, pattern="unicast", gap="exponential:20ms", replies=0.0, snapshots=1
)
"""One goes on from an old snapshot of its memory, and starts again or not."""

CRASHING = SimulationOptions(
    ordering="fifo", processes=3, messages=40, gap="exponential:50ms", crashes=10, loss=0.02, sync="exponential:20ms"
)
"""Nobody goes back, so nobody may be refused."""


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_nothing_vanishes_without_a_word(chunk: int) -> None:
    size = SEEDS_IN_CI // CHUNKS
    outcomes = run_many(range(chunk * size, (chunk + 1) * size))
    assert [(outcome.broken[:3], outcome.replay) for outcome in outcomes if outcome.broken] == []
    assert {outcome.ordering for outcome in outcomes} == set(ORDERINGS)
    faults: Counter[str] = sum((outcome.faults for outcome in outcomes), Counter())
    assert {"rollbacks", "clones", "lost disks", "snapshots", "crashes", "fenced", "lost packets", "cut"} <= set(+faults)
    assert sum(outcome.deliveries for outcome in outcomes) > 10 * size


def test_processes_that_only_crash_are_never_refused() -> None:
    for seed in range(20):
        verdict, _ = verdict_of(_seeded(CRASHING, seed))
        assert (verdict.broken, verdict.fenced, verdict.refused) == ((), 0, 0)
        assert verdict.accepted > CRASHING.messages // 2


@pytest.mark.parametrize(
    ("mistake", "options"),
    [
        (FindsNothing, FORGETTING),
        (ComparesCountersOnly, FORGETTING),
        (ShowsNoReach, FORGETTING),
        (ReachesAnewAtEachStart, FORGETTING),
        (TrustsItsMemory, RESUMING),
        (KeepsNoReach, RESUMING),
        (KeepsTheEpoch, CRASHING),
        (ForgetsTheEpochInCommon, CRASHING),
        (AgreesBeforeItIsStored, CRASHING),
        (AnswersBeforeItIsStored, CRASHING),
        (StoresNoClaims, CRASHING),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_planted_mistake_is_seen(mistake: type[Handshake | Connections], options: SimulationOptions) -> None:
    for seed in range(SEEDS_ENOUGH):
        verdict, _ = verdict_of(_seeded(options, seed), node_with(mistake))
        if verdict.broken:
            return
    pytest.fail(f"{SEEDS_ENOUGH} runs do not show {mistake.__name__}")


def test_one_seed_is_one_run() -> None:
    options = next(options for options in map(options_for, range(100)) if options.rollbacks and options.clones)
    first, one = verdict_of(options)
    again, other = verdict_of(options)
    assert first == again
    assert (one.kernel.now, one.network.counters()) == (other.kernel.now, other.network.counters())


def test_what_connections_do_not_do_is_refused() -> None:
    with pytest.raises(ConfigError, match="drop --duplication, --reordering"):
        SimulationOptions(rollbacks=1, duplication=0.1).check()


def _seeded(options: SimulationOptions, seed: int) -> SimulationOptions:
    values = {name: getattr(options, name) for name in options.__struct_fields__}
    return SimulationOptions(**{**values, "seed": seed})
