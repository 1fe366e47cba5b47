"""What daisy §3.4 (i), forwarding early, gains and costs in the form in which it is sound: bodies go ahead (``core.ahead``).

    python -m tests.papers.early_study

Four local groups of five, each with a causal server, and a servers group over one line for each pair of servers. The same
messages by the same senders, to the same three recipients each, with and without; the mean over several seeds, since with bodies
ahead other packets draw other delays.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final, NamedTuple

from tests.papers.builders import REQUIRED, everywhere, hierarchy
from tests.papers.daisy_study import GROUPS
from thence.core.topology import Topology
from thence.sim.laws import parse_law
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.trace.events import Event
from thence.trace.judge import judge

MS: Final = 1_000_000
SEEDS: Final = range(8)
MESSAGES: Final = 300


class Setting(NamedTuple):
    """What is sent, and over which lines."""

    body_bytes: int
    burst: int
    """So many messages are sent at once, by one process to the same recipients."""
    gap_ms: int
    """The mean time between two bursts, anywhere."""
    local: str
    """The delay within a local group."""
    line_bytes_per_s: int | None
    """The line between two servers, which takes 10 ms beside."""
    loss: float = 0.0
    first_bytes: int | None = None
    """The body of the first one of a burst, if it is another one."""


SETTINGS: Final[Mapping[str, Setting]] = {
    "the study's: 300 bytes, a fast line": Setting(300, 1, 5, "exponential:10ms", 1_250_000),
    "8 kB, a slow line": Setting(8_000, 1, 20, "exponential:50ms", 200_000),
    "a note, then 8 kB": Setting(8_000, 2, 100, "exponential:50ms", 200_000, first_bytes=100),
    "a note, then 8 kB, 2 % lost": Setting(8_000, 2, 100, "exponential:50ms", 200_000, 0.02, 100),
    "8 kB, five at once": Setting(8_000, 5, 100, "exponential:50ms", 200_000),
    "8 kB, ten at once, a line that is full": Setting(8_000, 10, 400, "exponential:50ms", 100_000),
}


class Cost(NamedTuple):
    """What a setting comes to."""

    delay_ms: float
    frames: float
    """Per delivery."""
    bytes: float
    """Per delivery."""


def measure(setting: Setting, *, early: bool) -> Cost:
    """Run a setting with several seeds; the judge must be content with each."""
    delay_ns = frames = size = deliveries = 0
    for seed in SEEDS:
        simulation = _simulation(setting, early, seed)
        delay_ns += sum(simulation.statistics.delays_ns)
        frames += simulation.statistics.frames
        size += simulation.network.counters()["bytes"]
        deliveries += simulation.statistics.deliveries
    return Cost(delay_ns / deliveries / MS, frames / deliveries, size / deliveries)


def _simulation(setting: Setting, early: bool, seed: int) -> Simulation:
    built = hierarchy(GROUPS, everywhere("vector"))
    servers = built.groups[-1].members
    domains = [
        domain if domain.members == servers else domain._replace(forward_early=0 if early else None)
        for domain in built.topology.domains.values()
    ]
    pairs = [(one, other) for one in servers for other in servers if one != other]
    speed = setting.line_bytes_per_s
    events: list[Event] = []
    simulation = Simulation(
        SimulationOptions(messages=0, delay=setting.local, body_bytes=setting.body_bytes, loss=setting.loss, seed=seed),
        events.append,
        where=Topology("daisy", domains),
        delays=dict.fromkeys(pairs, parse_law("constant:10ms")),
        bandwidths_bytes_per_s={} if speed is None else dict.fromkeys(pairs, speed),
    )
    chance, at = Random(f"early/{seed}"), 0
    body = bytes(setting.body_bytes)
    for _ in range(MESSAGES // setting.burst):
        at += int(chance.expovariate(1) * setting.gap_ms * MS)
        sender = chance.choice(simulation.names)
        to = tuple(chance.sample([name for name in simulation.names if name != sender], 3))
        for number in range(setting.burst):
            first = number == 0 and setting.first_bytes is not None
            simulation.kernel.at(at, simulation.nodes[sender].submit, to, bytes(setting.first_bytes or 0) if first else body)
    simulation.run()
    assert not any(judge(events, REQUIRED).properties.values())
    assert simulation.statistics.deliveries == 3 * MESSAGES
    return simulation


def measured() -> dict[str, tuple[Cost, Cost]]:
    """Measure every setting, without and with bodies that go ahead."""
    return {name: (measure(setting, early=False), measure(setting, early=True)) for name, setting in SETTINGS.items()}


def table(found: Mapping[str, tuple[Cost, Cost]]) -> str:
    """Return what was measured as Markdown."""
    lines = [
        "| setting | mean delay | with bodies ahead | gain | frames | bytes |",
        "|---|---|---|---|---|---|",
    ]
    for name, (plain, early) in found.items():
        gain = round(1 - early.delay_ms / plain.delay_ms, 3) + 0.0
        lines.append(
            f"| {name} | {plain.delay_ms:.1f} ms | {early.delay_ms:.1f} ms | {gain:.1%} "
            f"| {early.frames / plain.frames - 1:+.1%} | {early.bytes / plain.bytes - 1:+.1%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(measured()))  # noqa: T201 - a command: its report is its output
