"""Random fabrics that change under traffic and faults, judged as a whole: see tests/support/evolving.py. A failure names its
seed.

And mistakes planted into the change itself, which must be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import takewhile
from typing import Any

import msgspec
import pytest

from tests.support.crashes.copied import ConnectedNode
from tests.support.evolving import (
    ALL_CHANGES,
    REQUIRED,
    changes_for,
    joining,
    options_for,
    part_concerned,
    run_one,
    trouble_for,
    wide,
)
from thence.core.failover.replicas import Kept, Takeover
from thence.core.member.attachment import Attachment
from thence.core.ordering.pending import PendingFrames
from thence.core.reconfig.border import Border, Crossing
from thence.core.reconfig.concern import why_everybody
from thence.core.reconfig.coordinator import Coordinator
from thence.core.reconfig.flush import Inventory, Settlement, settle
from thence.core.reconfig.protocol import Resume, Standing, View
from thence.core.reconfig.retention import Retention
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.core.wire.messages import MAX_VERSION, Envelope
from thence.errors import InternalError, UsageError
from thence.sim.faults import reconfiguration
from thence.sim.faults.reconfiguration import ChangeCommand, Changes, Trouble
from thence.sim.node import SimulatedNode
from thence.sim.options import SimulationOptions
from thence.sim.parts.participant import Participant
from thence.sim.simulation import Simulation
from thence.trace.events import Event
from thence.trace.judge import judge

SEEDS_IN_CI = 400
LOSSES_IN_CI = 128
WIDE_IN_CI = 48
JOINS_IN_CI = 32
CHUNKS = 8
LOSS_CHUNKS = 4
"""Each with so many runs that all that is counted happens in it."""
SEEDS_WITH_ALL_KINDS = 240
"""Among so many there is a change of every kind; a campaign runs them all."""

FAST = Trouble(loss=0.0, death=0.0)
"""A command that nothing happens to, so that it gets to the mistake soon."""


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_fabrics_that_change_under_traffic_keep_what_they_promise(chunk: int) -> None:
    size = SEEDS_IN_CI // CHUNKS
    outcomes = [run_one(seed) for seed in range(chunk * size, (chunk + 1) * size)]
    broken = [f"python -m tests.support.evolving {outcome.seed}: {outcome.broken[:3]}" for outcome in outcomes if outcome.broken]
    assert not broken, "\n".join(broken)
    # All of this is only worth something if everything really happens.
    counts: Counter[str] = sum((outcome.counts for outcome in outcomes), Counter())
    assert {"changes", "deaths", "crashes", "resumed", "aborted", "suspicions", "servers lost unforeseen"} <= set(+counts)
    delivered = sum(outcome.deliveries for outcome in outcomes)
    assert delivered > 60 * size
    assert delivered > 2.5 * sum(outcome.messages for outcome in outcomes), "most go to several"


@pytest.mark.parametrize("seed", [1_078_275, 1_081_046])
def test_who_died_for_good_while_it_held_stays_dead(seed: int) -> None:
    """A lease that ended led one back to normal that was dead, and it spoke for ever."""
    assert not run_one(seed).broken


def test_longer_fabrics_of_which_changes_concern_a_part_keep_what_they_promise() -> None:
    seeds = [seed for seed in range(10_000) if wide(seed)][:WIDE_IN_CI]
    outcomes = [run_one(seed) for seed in seeds]
    broken = [f"python -m tests.support.evolving {outcome.seed}: {outcome.broken[:3]}" for outcome in outcomes if outcome.broken]
    assert not broken, "\n".join(broken)
    parts = [part_concerned(seed) for seed in seeds]
    assert sum(parts) > WIDE_IN_CI, "most changes concern some only"
    with_replicas = [part for seed, part in zip(seeds, parts, strict=True) if changes_for(seed)[0].replicas]
    assert sum(with_replicas) > len(with_replicas) > WIDE_IN_CI / 10, "also where relays have replicas"


def test_servers_come_into_longer_fabrics_while_others_go_on() -> None:
    seeds = [seed for seed in range(10_000) if joining(seed)][:JOINS_IN_CI]
    outcomes = [run_one(seed) for seed in seeds]
    broken = [f"python -m tests.support.evolving {outcome.seed}: {outcome.broken[:3]}" for outcome in outcomes if outcome.broken]
    assert not broken, "\n".join(broken)
    limited = 0
    for seed in seeds:
        first, changes = changes_for(seed)
        steps = zip([first, *(change.topology for change in changes)], changes, strict=False)
        limited += sum(change.what == "add" and not why_everybody(old, change.topology) for old, change in steps)
    assert limited > JOINS_IN_CI / 2, "most who come in let some hold only"


@pytest.mark.parametrize("mistake", ["who joins delivers what was for others", "what waits for its original is not named anew"])
def test_mistakes_about_servers_that_come_in_are_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mistake == "who joins delivers what was for others":
        monkeypatch.setattr(Envelope, "version", MAX_VERSION)
        assert caught(lambda number: run_one(64 * number + 20, trouble=FAST), 40) is not None
        return
    assert run_one(1452).broken == ()
    monkeypatch.setattr(PendingFrames, "put_up", lambda pending, gate: setattr(pending, "gate", gate))
    assert run_one(1452).broken


@pytest.mark.parametrize("mistake", ["what waits is lost", "what waits overtakes", "what goes on begins anew"])
def test_mistakes_about_what_goes_on_are_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Border.open

    def reverse(border: Border) -> list[Crossing]:
        return opened(border)[::-1]

    if mistake == "what waits is lost":
        monkeypatch.setattr(Border, "open", lambda border: opened(border)[1:])
    elif mistake == "what waits overtakes":
        monkeypatch.setattr(Border, "open", reverse)
    else:
        entered = Attachment.enter
        monkeypatch.setattr(Attachment, "enter", lambda here, routes, delivered, *_: entered(here, routes, delivered))
    assert caught(lambda number: run_one(8 * number + 4, trouble=FAST), 40) is not None


@pytest.mark.parametrize(("part", "seed"), [("go_on", 188), ("take_kept", 1676)])
def test_mistakes_about_replicas_whose_domains_go_on_are_caught(part: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They forget which messages have come, or what waits for a domain that is replaced."""
    assert run_one(seed).broken == ()
    right = Takeover.take_kept

    def forgetful(takeover: Takeover, domain: str, *, everything: bool = False) -> list[Kept]:
        kept = right(takeover, domain, everything=everything)
        return [] if everything else kept

    monkeypatch.setattr(Takeover, part, forgetful if part == "take_kept" else lambda *_: None)
    assert run_one(seed).broken


def test_the_changes_are_of_every_kind() -> None:
    assert {change.what for seed in range(SEEDS_WITH_ALL_KINDS) for change in changes_for(seed)[1]} == set(ALL_CHANGES)


@pytest.mark.parametrize("chunk", range(LOSS_CHUNKS))
def test_survivors_of_servers_that_are_lost_keep_what_they_promise(chunk: int) -> None:
    size = LOSSES_IN_CI // LOSS_CHUNKS
    outcomes = [run_one(seed, wanted="lose") for seed in range(10_000 + chunk * size, 10_000 + (chunk + 1) * size)]
    broken = [
        f"python -m tests.support.evolving {outcome.seed} lose: {outcome.broken[:3]}" for outcome in outcomes if outcome.broken
    ]
    assert not broken, "\n".join(broken)
    counts: Counter[str] = sum((outcome.counts for outcome in outcomes), Counter())
    assert {"servers lost", "servers lost by mistake", "handed over"} <= set(+counts)


def _twin(version: int, *relays: str) -> Topology:
    """Return two domains and the relay between them, with its replicas."""
    names = ", ".join(f'"{name}"' for name in relays)
    replicas = f"[[relays]]\nreplicas = [{names}]\n" if len(relays) > 1 else ""
    domains = "".join(f'[domains.{name}]\nmembers = ["{name}1", "{name}2", {names}]\n' for name in "ad")
    return parse(f'name = "twin"\nversion = {version}\n{domains}{replicas}')


@pytest.mark.parametrize("seed", range(8))
def test_a_relay_gets_a_replica_and_loses_it_again(seed: int) -> None:
    versions = [_twin(1, "r1"), _twin(2, "r1", "r2"), _twin(3, "r1")]
    events: list[Event] = []
    changes = Changes(versions, trouble_for(seed))
    simulation = Simulation(options_for(seed), events.append, where=changes, max_events=3_000_000)
    simulation.run()
    verdict = judge(events, REQUIRED)
    assert not verdict.violations, verdict.violations[:3]
    assert simulation.reconfiguration is not None
    assert simulation.reconfiguration.counts["changes"] == 2


@pytest.mark.parametrize("seed", range(0, 16, 2))
def test_processes_that_have_connections_change_too(seed: int) -> None:
    """Two kinds of faults in one run: crashes with connections in epochs, and changes of who is connected with whom."""
    first, changes = changes_for(seed)
    planned = [change.topology for change in takewhile(lambda change: not change.lost, changes)]
    events: list[Event] = []
    options = SimulationOptions(messages=20, pattern="mixed", gap="exponential:30ms", crashes=2, seed=seed)
    run = Simulation(options, events.append, where=Changes([first, *planned], FAST), node_type=ConnectedNode, max_events=300_000)
    verdict = run.run().copies
    assert verdict is not None
    assert (verdict.broken, verdict.refused) == ((), 0)
    assert judge(events, REQUIRED).kept
    assert run.reconfiguration is not None
    assert run.reconfiguration.counts["changes"] == len(planned)


def copied(kind: str, seed: int) -> tuple[str, ...]:
    """Return what is wrong with a run in which the fabric changes and one process runs on a copy."""
    first, changes = changes_for(seed)
    planned = [change.topology for change in takewhile(lambda change: not change.lost, changes)]
    faults: dict[str, Any] = {kind: 1}
    options = SimulationOptions(messages=20, pattern="mixed", gap="exponential:30ms", durable=True, seed=seed, **faults)
    run = Simulation(options, lambda _: None, where=Changes([first, *planned], FAST), max_events=300_000)
    verdict = run.run().copies
    assert verdict is not None
    return verdict.broken


COPIES = ("rollbacks", "clones", "lost_disks", "snapshots")


@pytest.mark.parametrize("kind", COPIES)
def test_where_processes_run_on_copies_while_the_fabric_changes_nothing_vanishes_without_a_word(kind: str) -> None:
    for seed in (*range(0, 12, 2), 52, 164):
        assert copied(kind, seed) == (), seed


def test_what_vanishes_at_a_border_where_processes_run_on_copies_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Border.open
    monkeypatch.setattr(Border, "open", lambda border: opened(border)[1:])
    assert copied("clones", 164)


class _WithoutQuiet(Coordinator):
    """Mistake: all hold, so let us switch."""

    def _quiet(self, before: Mapping[str, Standing], answers: Mapping[str, Standing]) -> bool:
        return True


def _leading(coordinator: type[Coordinator]) -> type[ChangeCommand]:
    return type("Planted", (ChangeCommand,), {"coordinator_type": coordinator})


def caught(run: Callable[[int], object], seeds: int) -> int | None:
    """Return the first seed whose run is found to be broken."""
    for seed in range(seeds):
        try:
            outcome = run(seed)
        except (InternalError, UsageError):
            return seed  # It never came to rest, since members waited for each other, or one contradicted another.
        if getattr(outcome, "broken", None):
            return seed
    return None


def test_a_switch_without_quiet_is_caught() -> None:
    assert caught(lambda seed: run_one(seed, command_type=_leading(_WithoutQuiet), trouble=FAST), 40) is not None


def caught_with_replicas(seeds: int) -> int | None:
    """Return the first run with replicas that is found to be broken."""
    return caught(lambda number: run_one(2 * number + 1, trouble=FAST), seeds)


def test_a_successor_that_forgets_what_it_kept_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    take_kept = Takeover.take_kept
    monkeypatch.setattr(Takeover, "take_kept", lambda self, domain: take_kept(self, domain)[1:])
    assert caught_with_replicas(60) is not None


def test_second_copies_that_are_taken_for_first_ones_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Takeover, "is_first", lambda *_: True)
    assert caught_with_replicas(20) is not None


def test_held_submissions_that_overtake_each_other_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    release = View.release

    def reversed_release(self: View, greetings: int = 0, depth: int | None = None) -> tuple[Envelope, ...]:
        return release(self, greetings, depth)[::-1]

    monkeypatch.setattr(View, "release", reversed_release)
    assert caught(lambda seed: run_one(seed, trouble=FAST), 40) is not None


def test_one_who_goes_back_though_it_is_prepared_is_caught() -> None:
    class Impatient(Participant):
        """Mistake: the command seems to be gone, so go back, prepared or not."""

        def _end_lease(self, life: int) -> None:
            state = self._member().view.state
            if life == self._queue.life and state.phase == "prepared":
                self._step(Resume(state.attempt, dead=True))
            else:
                super()._end_lease(life)

    dying = Trouble(loss=0.2, death=0.3)
    node_type: type[SimulatedNode] = type("ImpatientNode", (SimulatedNode,), {"participant_type": Impatient})
    assert caught(lambda seed: run_one(seed, node_type=node_type, trouble=dying), 200) is not None


LOSING = Trouble(loss=0.0, death=0.0, mistaken=0.5)


def caught_losing(seeds: int) -> int | None:
    """Return the first seed whose run is broken where servers are lost."""
    return caught(lambda seed: run_one(seed, trouble=LOSING, wanted="lose"), seeds)


def test_survivors_that_are_given_nothing_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(lost: Collection[str], reports: Mapping[str, Inventory]) -> Settlement:
        return settle(lost, reports)._replace(owed=dict.fromkeys(reports, ()))

    monkeypatch.setattr(reconfiguration, "settle", nothing)
    assert caught_losing(60) is not None


def test_messages_that_are_handed_over_by_name_and_not_by_depth_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_name(lost: Collection[str], reports: Mapping[str, Inventory]) -> Settlement:
        found = settle(lost, reports)
        return found._replace(owed={name: tuple(sorted(owed)) for name, owed in found.owed.items()})

    monkeypatch.setattr(reconfiguration, "settle", by_name)
    assert caught_losing(120) is not None


def test_what_is_handed_over_to_those_who_have_it_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_it(lost: Collection[str], reports: Mapping[str, Inventory]) -> Settlement:
        return settle(lost, {name: msgspec.structs.replace(report, latest={}) for name, report in reports.items()})

    monkeypatch.setattr(reconfiguration, "settle", all_of_it)
    assert caught_losing(20) is not None


def test_taking_more_while_all_compare_what_they_have_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "deaf_to", lambda *_: False)
    assert caught_losing(200) is not None


def test_keeping_no_copy_of_what_was_delivered_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retention, "keep", lambda *_: None)
    assert caught_losing(60) is not None
