"""Random runs in which processes come back on old copies of their disks, on empty ones, or run beside copies of themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Final, NamedTuple

from thence.sim.faults.copies import CopiesVerdict
from thence.sim.node import SimulatedNode
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation

ORDERINGS: Final = ("fifo", "vector", "matrix", "unordered")


class Outcome(NamedTuple):
    """What one run came to."""

    ordering: str
    messages: int
    deliveries: int
    faults: Counter[str]
    broken: tuple[str, ...]
    replay: str


def options_for(seed: int) -> SimulationOptions:
    """Return the options of run number ``seed``: everything about it is drawn from the number."""
    chance = Random(f"copies/{seed}")
    return SimulationOptions(
        ordering=chance.choice(ORDERINGS),
        processes=chance.randint(2, 4),
        messages=chance.randint(5, 60),
        pattern=chance.choice(("broadcast", "unicast", "mixed")),
        gap=chance.choice(("exponential:20ms", "exponential:50ms")),
        replies=chance.choice((0.0, 0.5)),
        loss=chance.choice((0.0, 0.0, 0.02)),
        partitions=chance.choice((0, 0, 1)),
        crashes=chance.choice((0, 1, 5)),
        rollbacks=chance.choice((0, 1, 2)),
        clones=chance.choice((0, 0, 1, 2)),
        lost_disks=chance.choice((0, 0, 1)),
        sync=chance.choice(("constant:100us", "exponential:20ms")),
        snapshots=chance.choice((0, 0, 1, 2)),
        durable=True,
        reliable=True,
        seed=seed,
    )


class ConnectedNode(SimulatedNode):
    """A process that has connections, also where nobody forgets."""

    connected = True


def verdict_of(options: SimulationOptions, node_type: type[SimulatedNode] = ConnectedNode) -> tuple[CopiesVerdict, Simulation]:
    """Run, and return what became of what was accepted."""
    simulation = Simulation(options, lambda _: None, node_type=node_type)
    verdict = simulation.run().copies
    assert verdict is not None
    return verdict, simulation


def run_many(seeds: Iterable[int]) -> list[Outcome]:
    """Run some, one after the other. Also those in which nobody forgets have connections here."""
    outcomes = []
    for seed in seeds:
        options = options_for(seed)
        verdict, simulation = verdict_of(options)
        counts = simulation.network.counters()
        faults = Counter({"lost packets": counts["lost"], "cut": counts["cut"], "crashes": simulation.statistics.crashes})
        faults.update(fenced=verdict.fenced, refused=verdict.refused, rollbacks=options.rollbacks)
        faults.update({"clones": options.clones, "lost disks": options.lost_disks, "snapshots": options.snapshots})
        replay = options.replay() if options.copied else f"python -m tests.campaign --kind rollbacks --first {seed} --runs 1"
        deliveries = simulation.statistics.deliveries
        outcomes.append(Outcome(options.ordering, options.messages, deliveries, faults, verdict.broken, replay))
    return outcomes
