"""A large fabric in the simulator: 1,000 processes in 40 domains, 100,000 multicasts to 5 recipients each.

Domains of about 25, one process of each also in a domain of relays: the bus. Everything is simulated, nothing is
sampled: every message is stamped, sent, relayed, put in order and delivered. The whole trace is then judged, or
written as Parquet, or both.

    python -m benchmarks.scale
    python -m benchmarks.scale --ordering vector --messages 10000 --no-judge --profile
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.progress import Progress

from thence.core.ordering import ORDERINGS
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Result, Simulation
from thence.trace.events import Event
from thence.trace.files import TraceWriter
from thence.trace.judge import judge

PROCESSES, DOMAINS, MESSAGES, RECIPIENTS = 1_000, 40, 100_000, 5
MAX_RSS_GIB = 4.0
"""What the run must stay under."""

MIXED = ("vector", "matrix", "sequenced", "grouped")
"""What ``--ordering mixed`` deals out to the domains in turn. (Flood sends every message to everybody, by its nature.)"""


def fabric(processes: int, domains: int, ordering: str) -> Topology:
    """Return a bus: the processes dealt out to all domains but one, which holds the first process of each other."""
    names = [f"p{number}" for number in range(1, processes + 1)]
    leaves = [tuple(names[at :: domains - 1]) for at in range(domains - 1)]
    kinds = [MIXED[at % len(MIXED)] if ordering == "mixed" else ordering for at in range(domains)]
    parts = [Domain(f"d{at + 1}", members, kind) for at, (members, kind) in enumerate(zip(leaves, kinds, strict=False))]
    return Topology("scale", [*parts, Domain("bus", tuple(members[0] for members in leaves), kinds[-1])])


def peak_gib() -> float:
    """Return the most memory that this program ever held."""
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kib / (1 << 20)


def simulate(options: SimulationOptions, topology: Topology, sink: Callable[[Event], None]) -> tuple[Result, float]:
    """Run it, with a bar; return what came out and the seconds of CPU, which others on the machine change little."""
    with Progress(disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("messages", total=options.messages)
        simulation = Simulation(options, sink, where=topology)
        began = time.process_time()
        result = simulation.run(lambda count: bar.advance(task, count))
    return result, time.process_time() - began


def run(arguments: argparse.Namespace) -> int:
    """Simulate, judge and report; 1 if something is wrong."""
    topology = fabric(arguments.processes, arguments.domains, arguments.ordering)
    options = SimulationOptions(
        messages=arguments.messages,
        pattern="multicast",
        recipients=arguments.recipients,
        gap="exponential:1ms",
        loss=arguments.loss,
        seed=arguments.seed,
    )
    events: list[Event] = []
    keep: Callable[[Event], Any] = events.append if arguments.judge else _nowhere
    if arguments.trace:
        with TraceWriter(arguments.trace) as writer:

            def both(event: Event) -> None:
                keep(event)
                writer.write(event)

            result, seconds = simulate(options, topology, both)
    else:
        result, seconds = simulate(options, topology, keep)
    statistics = result.statistics
    expected = arguments.messages * min(arguments.recipients, arguments.processes - 1)
    print(f"{len(topology.processes):,} processes in {len(topology.domains):,} domains, {arguments.ordering}")
    print(f"{statistics.messages:,} messages, {statistics.deliveries:,} deliveries of {expected:,}, {result.waiting} still wait")
    print(f"{statistics.frames / max(1, statistics.deliveries):.2f} frames per delivery, ", end="")
    print(f"{statistics.control_bytes / max(1, statistics.frames):.1f} control bytes per frame")
    print(f"{seconds:,.1f} s of CPU, {result.events:,} events, {result.events / seconds:,.0f} events/s, ", end="")
    print(f"{statistics.deliveries / seconds:,.0f} deliveries/s, peak {peak_gib():.2f} GiB")
    wrong = statistics.deliveries != expected or result.waiting or peak_gib() > MAX_RSS_GIB
    if arguments.judge:
        began = time.process_time()
        verdict = judge(events)
        found = {name: count for name, count in verdict.properties.items() if count}
        print(
            f"judged {len(events):,} events in {time.process_time() - began:,.1f} s of CPU: {found or 'nothing found'}, ", end=""
        )
        print(f"peak {peak_gib():.2f} GiB")
        wrong = wrong or not verdict.kept or peak_gib() > MAX_RSS_GIB
    return 1 if wrong else 0


def _nowhere(event: Event) -> None:
    """Drop an event."""


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--domains", type=int, default=DOMAINS)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--recipients", type=int, default=RECIPIENTS)
    parser.add_argument("--ordering", choices=["mixed", *sorted(ORDERINGS)], default="mixed", help="of every domain")
    parser.add_argument("--loss", type=float, default=0.0, help="share of packets lost, which are then repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", type=Path, help="also write the trace here")
    parser.add_argument("--judge", action=argparse.BooleanOptionalAction, default=True, help="judge the whole trace")
    parser.add_argument("--profile", action="store_true", help="print where the time went")
    arguments = parser.parse_args()
    if not arguments.profile:
        return run(arguments)
    profile = cProfile.Profile()
    code: int = profile.runcall(run, arguments)
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    return code


if __name__ == "__main__":
    sys.exit(main())
