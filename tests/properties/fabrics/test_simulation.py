"""Random runs of every ordering, with every fault, judged; and mistakes planted in the process's own loop, which must be seen."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.campaign import options_for, run_many, run_one
from thence.core.member.contract import Ready
from thence.core.ordering import ORDERINGS
from thence.errors import InternalError
from thence.sim.node import SimulatedNode
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation, simulate
from thence.trace.events import Event
from thence.trace.judge import judge

SEEDS_IN_CI = 2_000
CHUNKS = 14
HALF = [pytest.param(chunk, marks=pytest.mark.campaign) if chunk >= CHUNKS // 2 else chunk for chunk in range(CHUNKS)]
"""`make test` runs half of them, `make test-all` all, and `make campaign` far more."""
EVENTS_ENOUGH = 50_000
"""The crashing runs below take about 5,000 events when nothing is wrong."""
CRASHING = SimulationOptions(
    ordering="matrix",
    processes=4,
    messages=120,
    pattern="multicast",
    recipients=2,
    crashes=12,
    loss=0.05,
    sync="exponential:20ms",
)


@pytest.mark.parametrize("chunk", HALF)
def test_thousands_of_random_runs_keep_what_their_ordering_promises(chunk: int) -> None:
    """Every ordering, every pattern, every fault: see tests/campaign.py. A failure names the command that repeats it."""
    size = SEEDS_IN_CI // CHUNKS
    outcomes = run_many(range(chunk * size, (chunk + 1) * size))
    assert [(outcome.broken, outcome.replay) for outcome in outcomes if outcome.broken] == []
    assert {outcome.ordering for outcome in outcomes} == set(ORDERINGS)
    faults: Counter[str] = sum((outcome.faults for outcome in outcomes), Counter())
    # The campaign is only worth something if the faults really happen.
    assert set(+faults) == {"lost", "duplicated", "reordered", "cut", "crashes"}


def test_unordered_is_caught_by_the_same_campaign() -> None:
    """The check can fail: held to causal order, the baseline breaks it in many runs."""
    broken = 0
    for seed in range(300):
        options = options_for(seed)
        if options.ordering == "unordered":
            broken += judge(simulate(options)[1], ["causal"]).properties["causal"] > 0
    assert broken > 20


def test_the_replay_command_repeats_the_run() -> None:
    outcome = run_one(12)
    command = shlex.split(outcome.replay)
    thence = Path(sys.executable).parent / "thence"
    done = subprocess.run([str(thence), *command[1:], "--json"], capture_output=True, check=True, timeout=60)
    assert msgspec.json.decode(done.stdout)["deliveries"] == outcome.deliveries


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_same_seed_same_trace_byte_for_byte_in_every_process(tmp_path: Path, hash_seed: str) -> None:
    options = "--ordering grouped --pattern multicast --loss 0.2 --crashes 3 --partitions 1 --messages 80 --seed 5"
    digests = set()
    for suffix in (".jsonl", ""):
        path = tmp_path / f"trace{suffix}"
        thence = Path(sys.executable).parent / "thence"
        command = [str(thence), "simulate", *options.split(), "--trace", str(path)]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run(command, check=True, capture_output=True, env=environment, timeout=60)
        files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        digests.add(hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest())
    _, events = simulate(
        SimulationOptions(ordering="grouped", pattern="multicast", loss=0.2, crashes=3, partitions=1, messages=80, seed=5)
    )
    from thence.trace import write_trace

    expected = set()
    for suffix in (".jsonl", ""):
        path = tmp_path / f"here{suffix}"
        write_trace(path, events)
        files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        expected.add(hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest())
    assert digests == expected


class SendsBeforeTheDisk(SimulatedNode):
    """A mistake: packets and acknowledgements leave before the records are durable."""

    def _handle(self, ready: Ready) -> None:
        for peer, packet in ready.send:
            self._transmit(peer, packet)
        super()._handle(msgspec.structs.replace(ready, send=()))


class ForgetsItsRecords(SimulatedNode):
    """A mistake: submissions are not written to disk."""

    def _handle(self, ready: Ready) -> None:
        super()._handle(msgspec.structs.replace(ready, persist=()))


class ForgetsWhatItConsumed(SimulatedNode):
    """A mistake: after a crash the application does not know how far it was."""

    def crash(self) -> None:
        self.knowledge.consumed = 0
        super().crash()


class DeliversBeforeTheDisk(SimulatedNode):
    """A mistake: the application sees a message that a crash then undoes, and sees it again."""

    def _handle(self, ready: Ready) -> None:
        for delivery in ready.deliver:
            self._deliver(delivery)
        super()._handle(msgspec.structs.replace(ready, deliver=()))


class LosesWhatItHadQueued(SimulatedNode):
    """A mistake: after a restart, frames that were not acknowledged are not sent again."""

    def restart(self) -> None:
        super().restart()
        for place in self.member.attachment.places.values():
            for state in place.transport.save().values():
                state.queue.clear()


def _broken(node_type: type[SimulatedNode], seeds: int = 25) -> Counter[str]:
    broken: Counter[str] = Counter()
    for seed in range(seeds):
        events: list[Event] = []
        options = msgspec.structs.replace(CRASHING, seed=seed)
        try:
            Simulation(options, events.append, node_type=node_type, max_events=EVENTS_ENOUGH).run()
        except InternalError:
            broken["never ends"] += 1
        broken.update({name: count for name, count in judge(events).properties.items() if count})
    return broken


def test_the_loop_as_it_is_breaks_nothing() -> None:
    assert _broken(SimulatedNode) == Counter()


@pytest.mark.parametrize(
    ("mistake", "seen_as"),
    [
        (SendsBeforeTheDisk, {"creation", "completeness", "never ends"}),
        (ForgetsItsRecords, {"completeness"}),
        (ForgetsWhatItConsumed, {"duplication"}),
        (DeliversBeforeTheDisk, {"causal", "fifo", "duplication", "completeness"}),
        (LosesWhatItHadQueued, {"completeness"}),
    ],
)
def test_a_mistake_in_the_loop_is_seen(mistake: type[SimulatedNode], seen_as: set[str]) -> None:
    assert seen_as & set(_broken(mistake, seeds=8)), f"{mistake.__name__} was not seen"
