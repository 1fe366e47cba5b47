"""The options of daisy §3.4 beside the daisy itself: one traffic, one table of delay, frames and control bytes.

    python -m tests.papers.daisy_study

The same messages by the same senders, to the same recipients, under the same law of delays; only what the groups keep order
by differs. All figures are per delivery but the delay, which is the mean from sending to delivering.

The last row is no configuration but a bound for the option that is not built, forwarding early (§3.4 (i), docs/errata.md): the
relays forward whatever arrives as it arrives, and an oracle that knows the causal past of everything holds a message at its
destination exactly as long as needed. No rule can be quicker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tests.papers.builders import Choice, Group, assert_order_kept, everywhere, hierarchy, star
from thence.core.domain import Domain
from thence.core.topology import Topology
from thence.sim.options import SimulationOptions
from thence.sim.simulation import simulate
from thence.trace.events import Event

GROUPS: Final = [5, 5, 5, 5]
"""Four local groups of five, one of each being its causal server."""

GAP: Final = "exponential:5ms"


def star_below(group: Group) -> str | tuple[str, Mapping[str, Any]]:
    """§3.4 (iii): point to point through the server in the local groups; the servers group as it was."""
    return star(group) if group.layer == 1 else ("vector", {"stamps": "full"})


CONFIGURATIONS: Final[dict[str, Choice]] = {
    "daisy": everywhere("vector", stamps="full"),
    "daisy, changed stamps": everywhere("vector"),
    "recipients only": everywhere("matrix", stamps="full"),
    "recipients only, updates": everywhere("matrix"),
    "recipients only, 1 copy": everywhere("resilient", copies=1),
    "recipients only, 2 copies": everywhere("resilient", copies=2),
    "star": star_below,
}


class Cost(NamedTuple):
    """What one configuration costs."""

    delay_ms: float
    frames: float
    control_bytes: float
    """Per delivery."""
    bytes_per_frame: float


def traffic(gap: str) -> SimulationOptions:
    """600 messages to three others each. Nobody answers, so what is sent does not depend on what is delivered when."""
    return SimulationOptions(messages=600, pattern="multicast", recipients=3, replies=0.0, gap=gap, seed=1)


def measure(choose: Choice, gap: str = GAP) -> Cost:
    """Run the traffic over one configuration; the judge must be content with it."""
    result, _ = assert_order_kept(hierarchy(GROUPS, choose).topology, traffic(gap))
    counted = result.statistics
    return Cost(
        sum(counted.delays_ns) / len(counted.delays_ns) / 1e6,
        counted.frames / counted.deliveries,
        counted.control_bytes / counted.deliveries,
        counted.control_bytes / counted.frames,
    )


class Oracle:
    """Holds messages at their destinations until all that happened before them and is for the same process is delivered there."""

    def __init__(self) -> None:
        self.past: dict[str, set[str]] = {}
        self.delivered: dict[str, set[str]] = {}
        self.held: dict[str, list[str]] = {}
        self.causes: dict[str, set[str]] = {}
        self.to: dict[str, tuple[str, ...]] = {}
        self.sent_at: dict[str, int] = {}
        self.delays_ns: list[int] = []

    def hear(self, event: Event) -> None:
        """Take what a network without any order did, event by event."""
        process, message, past = event.process, str(event.message), self.past.setdefault(event.process, set())
        if event.kind == "send":
            self.causes[message], self.to[message] = set(past), event.to or ()
            self.sent_at[message] = event.time or 0
            past.add(message)
            return
        held, delivered = self.held.setdefault(process, []), self.delivered.setdefault(process, set())
        held.append(message)
        while ready := next((each for each in held if self._ready(process, each, delivered)), None):
            held.remove(ready)
            delivered.add(ready)
            past |= {ready, *self.causes[ready]}
            self.delays_ns.append((event.time or 0) - self.sent_at[ready])

    def _ready(self, process: str, message: str, delivered: set[str]) -> bool:
        return all(process not in self.to[cause] or cause in delivered for cause in self.causes[message])


def least_delay_ms(gap: str = GAP) -> float:
    """Return the mean delay that no rule for forwarding early can beat."""
    groups = hierarchy(GROUPS, everywhere("vector")).groups
    bare = Topology("bare", [Domain(group.name, group.members, "unordered") for group in groups], promise="nothing")
    _, events = simulate(traffic(gap), bare)
    oracle = Oracle()
    for event in sorted(events, key=lambda event: event.time or 0):
        oracle.hear(event)
    return sum(oracle.delays_ns) / len(oracle.delays_ns) / 1e6


def costs() -> dict[str, Cost]:
    """Measure all configurations."""
    return {name: measure(choose) for name, choose in CONFIGURATIONS.items()}


def table(measured: Mapping[str, Cost]) -> str:
    """Return what was measured as Markdown, with the bound below."""
    lines = ["| configuration | mean delay, ms | frames | control bytes | bytes per frame |", "|---|---|---|---|---|"]
    for name, cost in measured.items():
        figures = (f"{cost.delay_ms:.1f}", f"{cost.frames:.1f}", f"{cost.control_bytes:.0f}", f"{cost.bytes_per_frame:.1f}")
        lines.append(f"| {name} | {' | '.join(figures)} |")
    lines.append(f"| forwarded early, by an oracle | {least_delay_ms():.1f} | | | |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(costs()))  # noqa: T201 - a command: its report is its output
