"""Random fabrics with random traffic and faults, judged: see tests/support/fabrics.py. A failure prints the fabric and the
command."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.support.fabrics import CAUSAL, MAX_DOMAINS, MAX_PROCESSES, fabric_for, options_for, promise_for, run_many, run_one
from thence.core.topology.toml import parse, write
from thence.sim.simulation import simulate
from thence.trace.judge import judge

SEEDS_IN_CI = 800
CHUNKS = 8
HALF = [pytest.param(chunk, marks=pytest.mark.campaign) if chunk >= CHUNKS // 2 else chunk for chunk in range(CHUNKS)]
"""`make test` runs half of them, `make test-all` all, and `make campaign` far more."""


@pytest.mark.parametrize("chunk", HALF)
def test_thousands_of_random_fabrics_keep_what_they_promise(chunk: int) -> None:
    size = SEEDS_IN_CI // CHUNKS
    outcomes = run_many(range(chunk * size, (chunk + 1) * size))
    broken = [outcome.explain() for outcome in outcomes if outcome.broken]
    assert not broken, f"{len(broken)} of {size} fabrics broke a promise\n" + "\n".join(broken[:2])
    # All of this is only worth something if the fabrics have all parts and the faults really happen.
    faults: Counter[str] = sum((outcome.faults for outcome in outcomes), Counter())
    shape: Counter[str] = sum((outcome.shape for outcome in outcomes), Counter())
    assert set(+faults) - {"deaths"} == {"lost", "duplicated", "reordered", "cut", "crashes", "suspicions"}
    assert {*CAUSAL, "fifo", "stamps", "coordinator", "groups", "relays", "replicas", "links", "inner"} <= set(+shape)
    assert {"stability", "takeover_links"} <= set(+shape)
    assert {"decentralised", "centralised", "distributed", "sender", "nearest", "delayed", "at once", "early"} <= set(+shape)
    assert shape["pairs"] > shape["links"]
    assert {outcome.kind for outcome in outcomes} == {"causal", "fifo"}
    assert sum(outcome.deliveries for outcome in outcomes) > 50 * size


def test_the_fabrics_are_as_large_as_they_are_said_to_be() -> None:
    fabrics = [fabric_for(seed) for seed in range(400)]
    assert max(len(fabric.processes) for fabric in fabrics if not fabric.replicas) == MAX_PROCESSES
    # A link whose relays take over counts as a domain, too.
    assert max(sum(not domain.pairs for domain in fabric.domains.values()) for fabric in fabrics) == MAX_DOMAINS
    assert max(len(link.relays) for fabric in fabrics for link in fabric.links.values()) == 3
    assert max(len(homes) for fabric in fabrics for homes in fabric.homes.values()) >= 3


def test_a_fabric_survives_being_written_and_read() -> None:
    for seed in range(100):
        fabric = fabric_for(seed, promise_for(seed))
        again = parse(write(fabric))
        assert (again.domains, again.links, again.promise) == (fabric.domains, fabric.links, fabric.promise)
        assert again.replicas == fabric.replicas


def test_fifo_fabrics_held_to_causal_order_are_caught() -> None:
    """The check can fail: what promises less keeps less."""
    seeds = [seed for seed in range(800) if promise_for(seed) == "fifo"]
    traces = [simulate(options_for(seed), fabric_for(seed, "fifo"))[1] for seed in seeds]
    assert sum(judge(events, ["causal"]).properties["causal"] > 0 for events in traces) > 5


def test_the_printed_command_repeats_the_run(tmp_path: Path) -> None:
    outcome = next(found for found in map(run_one, range(50)) if found.faults["crashes"] and found.shape["links"])
    written = subprocess.run(
        [sys.executable, "-m", "tests.support.fabrics", str(outcome.seed), "--folder", str(tmp_path)],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    program, *arguments = shlex.split(written.stdout)
    thence = Path(sys.executable).parent / program
    done = subprocess.run([str(thence), *arguments, "--json"], capture_output=True, check=True, timeout=60)
    summary = msgspec.json.decode(done.stdout)
    assert summary["deliveries"] == outcome.deliveries
    assert {name: summary[f"network_{name}"] for name in ("lost", "cut")} == {
        name: outcome.faults[name] for name in ("lost", "cut")
    }


def test_copies_and_what_was_handed_on_become_stable() -> None:
    """A relay that suspects others gets messages of a ``resilient`` domain twice: the second one has nothing to wait for."""
    assert run_one(560).broken == {}
