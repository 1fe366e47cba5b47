"""The audit of one trace in every layout: how files lie and how clocks go must not decide how long it takes.

Each row is the same trace of 64 processes, written another way and audited on Spark; the ratio is to the judge in memory, on a
part of it, in the same run. Both sides must find what was planted. Every layout is read once from files of its own.

    python -m benchmarks.audit_layouts --events 10000000
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.audit import Side, audited, judged, warm_up
from benchmarks.generated import Shape, generate
from benchmarks.table import Row, markdown

JUDGED_EVENTS = 1_000_000
ROWS_PER_GROUP = 250_000
COPIES = 5
MS = 1_000_000

Layout = Callable[[pa.Table], pa.Table]


def _by_process(table: pa.Table) -> pa.Table:
    return table.sort_by([("process", "ascending"), ("index", "ascending")])


def _shuffled(table: pa.Table) -> pa.Table:
    return table.take(np.random.default_rng(1).permutation(len(table)))


def _untimed(table: pa.Table) -> pa.Table:
    return _by_process(table).drop_columns(["time"])


def _wandering(most_ms: float) -> Layout:
    """The clock of each process goes up and down, by another rhythm each."""

    def wander(table: pa.Table) -> pa.Table:
        code = table["process"].combine_chunks().dictionary_encode().indices.to_numpy()
        time = table["time"].to_numpy()
        off = (np.sin(time / 1e9 * (1 + code % 7) + code) * most_ms * MS).astype(np.int64)
        return table.set_column(table.column_names.index("time"), "time", pa.array(time + off))

    return wander


def _skewed(table: pa.Table) -> pa.Table:
    """The clock of each process is wrong by up to an hour, and stays so."""
    code = table["process"].combine_chunks().dictionary_encode().indices.to_numpy()
    off = np.random.default_rng(2).integers(0, 3_600_000 * MS, int(code.max()) + 1)[code]
    return table.set_column(table.column_names.index("time"), "time", pc.add(table["time"], pa.array(off)))


LAYOUTS: dict[str, Layout] = {
    "in time order": lambda table: table,
    "sorted by process": _by_process,
    "shuffled": _shuffled,
    "clocks that wander by 0.1 ms": _wandering(0.1),
    "clocks that wander by 5 ms": _wandering(5),
    "clocks wrong by up to an hour": _skewed,
    "no times, sorted by process": _untimed,
}


def measure(shape: Shape, repeat: int) -> tuple[dict[str, Side], Side]:
    """Audit the trace in each layout, and judge a part of it; of several runs the fastest counts."""
    with tempfile.TemporaryDirectory(prefix="thence-bench-") as place:
        planted = generate(shape, Path(place) / "plain")
        part = shape._replace(events=min(shape.events, JUDGED_EVENTS), planted=min(shape.planted, JUDGED_EVENTS // 10_000))
        fewer = generate(part, Path(place) / "part")
        table = pq.read_table(Path(place) / "plain", columns=["process", "index", "kind", "message", "to", "time"])
        found: dict[str, list[Side]] = {name: [] for name in LAYOUTS}
        theirs = []
        for name, layout in LAYOUTS.items():
            (Path(place) / name).mkdir()
            pq.write_table(layout(table), Path(place) / name / "part-00000.parquet", row_group_size=ROWS_PER_GROUP)
        del table
        for _ in range(repeat):
            theirs.append(judged(Path(place) / "part", fewer))
            for name in LAYOUTS:
                found[name].append(audited(Path(place) / name, planted))
        best = {name: min(sides, key=lambda side: side.seconds) for name, sides in found.items()}
        return best, min(theirs, key=lambda side: side.seconds)


def rows(events: int, repeat: int) -> list[Row]:
    """A row for each layout."""
    warm_up()
    ours, judge = measure(Shape(events=events, processes=64, copies=COPIES, planted=events // 10_000), repeat)
    return [
        Row(
            what=f"{events:,} events, {name}",
            ours=f"{side.rate:,.0f} events/s, {side.seconds:.1f} s ({side.cpu_seconds:.0f} s of the cores), "
            f"{side.peak_bytes / 2**30:.2f} GiB",
            peer=f"judge: {judge.rate:,.0f} events/s",
            ratio=side.rate / judge.rate,
        )
        for name, side in ours.items()
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=2)
    given = parser.parse_args()
    print(markdown(rows(given.events, given.repeat)))


if __name__ == "__main__":
    main()
