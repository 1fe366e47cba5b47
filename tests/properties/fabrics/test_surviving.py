"""Random fabrics through deaths, changes and all other faults: tests/support/crashes/surviving.py. A failure names its seed.

And mistakes planted into what makes survivors whole, each of which must be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest

from tests.support.crashes.surviving import BLOCKED, People, run_one
from tests.support.planted.planted_resilient import NotHandedOn
from thence.core.failover.replicas import Kept, Takeover
from thence.core.ordering import ORDERINGS
from thence.core.ordering.resilient import Resilient
from thence.core.reconfig.coordinator import Coordinator
from thence.core.reconfig.protocol import Standing
from thence.core.topology.domain import Domain
from thence.core.transport.ack_all.own_stream import OwnStream
from thence.errors import ThenceError
from thence.sim.faults.failures import mortal
from thence.sim.faults.reconfiguration import ChangeCommand

SEEDS_IN_CI: Final = 48
"""`make campaign` runs 100,000."""
MOST: Final = 25
"""How many runs it takes at most to find a planted mistake."""


def test_survivors_of_everything_at_once_lack_nothing() -> None:
    outcomes = [run_one(seed) for seed in range(SEEDS_IN_CI)]
    broken = [f"{outcome.replay}: {outcome.broken[:3]}" for outcome in outcomes if outcome.broken]
    assert not broken, "\n".join(broken)
    # All of this is only worth something if everything really happens.
    happened: Counter[str] = sum((outcome.faults for outcome in outcomes), Counter())
    assert {"died unmissed", "died during a change", "changes given up for the dead", "servers lost"} <= set(+happened)
    assert {"split", "merge", "add", "remove", "changes", "crashes", "suspicions", "lost", "duplicated"} <= set(+happened)
    assert sum(outcome.deliveries for outcome in outcomes) > 30 * SEEDS_IN_CI


def test_members_of_all_kinds_die() -> None:
    fabrics = [People(seed).first for seed in range(200)]
    kinds: Counter[str] = Counter()
    for fabric in fabrics:
        linked = {name for domain in fabric.domains.values() if domain.pairs for name in domain.members}
        for name in mortal(fabric):
            carries = name in linked or name in fabric.fellows
            kinds["relays of links" if name in linked else "causal servers" if carries else "ordinary"] += 1
            kinds.update(f"in {fabric.domains[home].ordering}" for home in fabric.homes[name])
    assert {"relays of links", "causal servers", "ordinary", "in resilient", "in vector"} <= set(kinds)


def test_the_table_names_each_ordering_that_blocks() -> None:
    hands_on = {name for name in ORDERINGS if Domain("d", ("a", "b", "c"), name).hands_on}
    causal = {name for name, ordering in ORDERINGS.items() if "causal" in ordering.traits.guarantees}
    assert set(BLOCKED) == causal - hands_on
    assert "resilient" in hands_on


class _Hasty(Coordinator):
    """Mistake: a split does not wait for what is not acknowledged."""

    def _quiet(self, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> bool:
        return True


class _HastyCommand(ChangeCommand):
    coordinator_type = _Hasty


def _nothing_handed_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Resilient, "custody_type", NotHandedOn)


def _successor_skips(patch: pytest.MonkeyPatch) -> None:
    take_kept = Takeover.take_kept

    def skipping(self: Takeover, domain: str, *, everything: bool = False) -> list[Kept]:
        return take_kept(self, domain, everything=everything)[1:]

    patch.setattr(Takeover, "take_kept", skipping)


def _suspicion_drops(patch: pytest.MonkeyPatch) -> None:
    suspect = OwnStream.suspect

    def dropping(self: OwnStream, member: int, suspected: bool) -> None:
        suspect(self, member, suspected)
        if suspected:
            self.acked(member, list(self._state.queue))

    patch.setattr(OwnStream, "suspect", dropping)


def _copies_counted_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Takeover, "is_first", lambda *_: True)


def _nothing(patch: pytest.MonkeyPatch) -> None:
    pass


@pytest.mark.parametrize(
    ("mistake", "command_type"),
    [
        pytest.param(_nothing_handed_on, ChangeCommand, id="a holder hands no copy on"),
        pytest.param(_nothing, _HastyCommand, id="a split forgets what is not acknowledged"),
        pytest.param(_successor_skips, ChangeCommand, id="a successor skips what it missed"),
        pytest.param(_suspicion_drops, ChangeCommand, id="a suspicion drops what is queued"),
        pytest.param(_copies_counted_twice, ChangeCommand, id="a wrong suspicion doubles"),
    ],
)
def test_mistakes_are_found(
    mistake: Callable[[pytest.MonkeyPatch], None], command_type: type[ChangeCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    assert _found(range(MOST), command_type) is not None


def _found(seeds: Sequence[int], command_type: type[ChangeCommand]) -> int | None:
    for seed in seeds:
        try:
            if run_one(seed, command_type=command_type).broken:
                return seed
        except ThenceError:
            return seed  # It never came to rest, or one contradicted another.
    return None
