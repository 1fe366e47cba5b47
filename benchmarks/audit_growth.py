"""How the audit grows with the number of processes, as a plot: time of the cores for each event, from 8 processes to 512.

A clock has an entry for each process, so a delivery costs more the more processes there are; that is what the plot shows. Time
of the cores, Java's included, since it says the same on a machine that has other things to do. The plot is drawn by the
project's own code, and stands in docs/research/benchmarks.md.

    python -m benchmarks.audit_growth --events 4000000 --out docs/research/images/audit-growth.svg
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.audit import COPIES, Side, audited, warm_up
from benchmarks.generated import Shape, generate
from thence.pipeline.report.plots import LinePlot, PlotLine, svg

PROCESSES = (8, 16, 32, 64, 128, 256, 512)
EVENTS = 4_000_000
PLANTED = 100


def drawn(measured: Mapping[str, Sequence[tuple[int, float]]], events: int) -> str:
    """The plot as a file of its own: for each way to send, microseconds for each event by the number of processes."""
    counts = sorted({count for points in measured.values() for count, _ in points})
    plot = LinePlot(
        "The audit by number of processes",
        f"Microseconds of a core for each event of the causal check, on traces of {events:,} events.",
        [
            PlotLine(name, [(math.log2(count), cost) for count, cost in points], colour=at, dash=at)
            for at, (name, points) in enumerate(measured.items())
        ],
        "processes",
        x_ticks={math.log2(count): str(count) for count in counts},
        y_words=lambda cost: f"{cost:.1f} µs",
    )
    return svg(plot)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=list(PROCESSES))
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    warm_up()
    measured: dict[str, list[tuple[int, float]]] = {}
    print("| processes | to | events/s | µs of a core for each event | slices | memory |\n|---|---|---|---|---|---|")
    for copies in COPIES:
        name = "to everyone" if copies is None else f"to {copies}"
        for count in given.processes:
            shape = Shape(events=given.events, processes=count, copies=copies, planted=PLANTED)
            ours = _best(shape, given.repeat)
            measured.setdefault(name, []).append((count, _cost(ours)))
            print(_line(count, name, ours), flush=True)
    given.out.write_text(drawn(measured, given.events), encoding="utf-8")


def _cost(side: Side) -> float:
    """Microseconds of a core for each event."""
    return side.cpu_seconds / side.events * 1e6


def _best(shape: Shape, repeat: int) -> Side:
    with tempfile.TemporaryDirectory(prefix="thence-bench-") as place:
        planted = generate(shape, Path(place))
        return max((audited(Path(place), planted) for _ in range(repeat)), key=lambda side: -side.cpu_seconds)


def _line(count: int, name: str, ours: Side) -> str:
    cells = (
        str(count),
        name,
        f"{ours.rate:,.0f}",
        f"{_cost(ours):.2f}",
        str(ours.slices),
        f"{ours.peak_bytes / 2**30:.2f} GiB",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
