"""The long campaign: many thousands of random runs of every ordering, with faults, each judged.

``make campaign`` runs 100,000 and reports; CI runs a few thousand through ``tests/properties/test_simulation.py``,
with the same code. A run that breaks something prints the one command that repeats it.

    python -m tests.campaign --runs 100000 --first 0 --workers 2
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import Any, NamedTuple

from rich.progress import Progress

from thence.core.ordering import ORDERINGS
from thence.sim.options import SimulationOptions
from thence.sim.simulation import simulate
from thence.trace.judge import judge

ALWAYS = frozenset({"well-formed", "creation", "duplication", "completeness"})
CHUNK = 50


class Outcome(NamedTuple):
    """What one run came to."""

    ordering: str
    messages: int
    deliveries: int
    faults: Counter[str]
    broken: dict[str, int]
    replay: str


def options_for(seed: int) -> SimulationOptions:
    """Return the options of run number ``seed``: everything about it is drawn from the number."""
    chance = Random(f"campaign/{seed}")
    ordering = sorted(ORDERINGS)[seed % len(ORDERINGS)]
    processes = chance.randint(2, 7)
    faulty = chance.random() < 0.7
    return SimulationOptions(
        ordering=ordering,
        ordering_options=_variant(ordering, processes, chance),
        processes=processes,
        messages=chance.randint(1, 40),
        pattern=chance.choice(("broadcast", "unicast", "multicast")),
        recipients=chance.randint(1, 3),
        body_bytes=chance.choice((0, 10, 100)),
        gap=chance.choice(("exponential:1ms", "exponential:10ms", "constant:3ms", "exponential:100ms")),
        replies=chance.choice((0.0, 0.5, 0.9)),
        delay=chance.choice(("exponential:10ms", "uniform:1ms..80ms", "pareto:3ms,1.3", "constant:5ms")),
        bandwidth_bytes_per_s=chance.choice((None, None, 50_000)),
        loss=chance.choice((0.0, 0.05, 0.3)) if faulty else 0.0,
        duplication=chance.choice((0.0, 0.1, 0.5)) if faulty else 0.0,
        reordering=chance.choice((0.0, 0.2)) if faulty else 0.0,
        partitions=chance.choice((0, 0, 1, 2)) if faulty else 0,
        crashes=chance.choice((0, 0, 1, 4)) if faulty else 0,
        sync=chance.choice(("constant:100us", "exponential:5ms")),
        seed=seed,
    )


def _variant(ordering: str, processes: int, chance: Random) -> dict[str, Any]:
    if ordering in ("vector", "matrix") and chance.random() < 0.3:
        return {"stamps": "full"}
    if ordering == "flood":
        return {"links": chance.choice(("full", "ring"))}
    if ordering == "sequenced":
        return {"coordinator": f"p{chance.randint(1, processes)}"}
    return {}


def run_one(seed: int) -> Outcome:
    """Simulate and judge one run."""
    options = options_for(seed)
    result, events = simulate(options)
    verdict = judge(events, ALWAYS | ORDERINGS[options.ordering].guarantees)
    broken = {name: count for name, count in verdict.properties.items() if count}
    if result.waiting:
        broken["still waiting"] = result.waiting
    if result.statistics.repeated_deliveries:
        broken["repeated deliveries"] = result.statistics.repeated_deliveries
    faults = Counter({name: result.network[name] for name in ("lost", "duplicated", "reordered", "cut")})
    faults["crashes"] = result.statistics.crashes
    return Outcome(options.ordering, options.messages, result.statistics.deliveries, faults, broken, options.replay())


def run_many(seeds: Iterable[int]) -> list[Outcome]:
    """Run some, one after the other."""
    return [run_one(seed) for seed in seeds]


def main() -> int:
    """Run the campaign and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the first run's number")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    began = time.monotonic()
    runs: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    broken: list[Outcome] = []
    chunks = [
        range(at, min(at + CHUNK, arguments.first + arguments.runs))
        for at in range(arguments.first, arguments.first + arguments.runs, CHUNK)
    ]
    with ProcessPoolExecutor(arguments.workers) as pool, Progress(disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("runs", total=arguments.runs)
        for outcomes in pool.map(run_many, chunks):
            for outcome in outcomes:
                runs[outcome.ordering] += 1
                totals.update(messages=outcome.messages, deliveries=outcome.deliveries)
                faults.update(outcome.faults)
                if outcome.broken:
                    broken.append(outcome)
                    print(f"BROKEN {outcome.broken}: {outcome.replay}", flush=True)
            bar.advance(task, len(outcomes))
    seconds = time.monotonic() - began
    print(
        f"{sum(runs.values()):,} runs in {seconds:,.0f} s: "
        + ", ".join(f"{name} {count:,}" for name, count in sorted(runs.items()))
    )
    print(f"sent {totals['messages']:,} messages, delivered {totals['deliveries']:,}")
    print("faults: " + ", ".join(f"{name} {count:,}" for name, count in sorted(faults.items())))
    print(f"runs that broke a promise: {len(broken)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
