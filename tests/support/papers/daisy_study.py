"""The two tables of docs/research/configurations.md about the options of daisy §3.4, from the model of the study
``daisy-options``.

    python -m tests.support.papers.daisy_study

The study itself repeats until its intervals are narrow; here a few seeds are enough to see what an option saves and costs, and
the figures are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from thence.studies.models.daisy_options import TRAFFIC, OptionCost, measure
from thence.studies.study import Point
from thence.trace.events import Event

POINT: Final[Point] = {"messages": 300}
SEEDS: Final = range(8)
CONFIGURATIONS: Final[Mapping[str, str]] = {
    "daisy": "plain",
    "daisy, changed stamps": "changed",
    "recipients only": "recipients",
    "recipients only, updates": "recipients, updates",
    "daisy, whole": "whole",
    "recipients only, 1 copy": "1 copy",
    "recipients only, 2 copies": "2 copies",
    "star": "star",
}
LINES: Final = tuple(name for name, traffic in TRAFFIC.items() if traffic.line_bytes_per_s is not None)


def mean_cost(option: str, traffic: str, load: float = 1) -> OptionCost:
    """Return what an option costs, on average over the seeds."""
    rows = [measure(option, TRAFFIC[traffic].times(load), POINT, seed, _ignore) for seed in SEEDS]
    return OptionCost(*(sum(column) / len(rows) for column in zip(*rows, strict=True)))


def _ignore(_: Event) -> None:
    """Take an event."""


def costs() -> dict[str, OptionCost]:
    """Measure all configurations under the even traffic."""
    return {name: mean_cost(option, "even") for name, option in CONFIGURATIONS.items()}


def table(measured: Mapping[str, OptionCost]) -> str:
    """Return what was measured as Markdown, with the bound below."""
    lines = [
        "| configuration | mean delay, ms | frames | control bytes | bytes | control bytes per frame |",
        "|---|---|---|---|---|---|",
    ]
    for name, cost in measured.items():
        counts = (f"{cost.control_bytes:.0f}", f"{cost.bytes:.0f}", f"{cost.frame_control_bytes:.1f}")
        figures = (f"{cost.delay_ms:.1f}", f"{cost.frames:.1f}", *counts)
        lines.append(f"| {name} | {' | '.join(figures)} |")
    lines.append(f"| forwarded early, by an oracle | {mean_cost('oracle', 'even').delay_ms:.1f} | | | | |")
    return "\n".join(lines)


def bodies_ahead() -> dict[str, tuple[OptionCost, OptionCost]]:
    """Measure every traffic over slow lines, without and with bodies that go ahead."""
    return {name: (mean_cost("plain", name), mean_cost("early", name)) for name in LINES}


def table_of_lines(found: Mapping[str, tuple[OptionCost, OptionCost]]) -> str:
    """Return what was measured as Markdown."""
    lines = [
        "| traffic | mean delay | with bodies ahead | gain | frames | bytes |",
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
    print(table_of_lines(bodies_ahead()), table(costs()), sep="\n\n")  # noqa: T201 - a command: its report is its output
