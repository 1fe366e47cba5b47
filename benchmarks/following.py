"""Following a folder: does it keep up with events that come at some rate, and how soon does it say something of large parts?

A trace of 64 processes to 5 is generated, with violations planted. With ``--rate``, a part with the events of one second appears
each second; without, all parts are there when following begins. What is found must be what was planted. The state is what
Spark writes down of it in one step: the size of the newest changelogs of its state store.

    python -m benchmarks.following --rate 50000 --events 3000000
    python -m benchmarks.following --parts 3 --events 30000000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.audit import Memory
from benchmarks.generated import Shape, generate
from thence.pipeline.session import spark_session
from thence.pipeline.streaming.sink import StepLag
from thence.pipeline.streaming.stream import Options, follow

PLANTED = 100
ROWS_PER_GROUP = 250_000
IDLE_S = 15.0
MIB = 1 << 20


def chunks(folder: Path, rows: int) -> Iterator[pa.Table]:
    """Return a trace in tables of so many rows."""
    left: list[pa.RecordBatch] = []
    for batch in ds.dataset(folder).to_batches(fragment_readahead=1):
        given = batch
        while sum(one.num_rows for one in left) + given.num_rows >= rows:
            count = rows - sum(one.num_rows for one in left)
            yield pa.Table.from_batches([*left, given.slice(0, count)])
            left, given = [], given.slice(count)
        left.append(given)
    if any(one.num_rows for one in left):
        yield pa.Table.from_batches(left)


def feed(tables: Iterator[pa.Table], folder: Path, begin: threading.Event, every_s: float) -> None:
    """Let a part appear each ``every_s`` seconds."""
    begin.wait()
    due_s = time.monotonic()
    for number, table in enumerate(tables):
        file = folder / f".part-{number:06d}.parquet"
        pq.write_table(table, file, row_group_size=ROWS_PER_GROUP, compression="zstd")
        file.rename(folder / file.name[1:])
        due_s += every_s
        time.sleep(max(0.0, due_s - time.monotonic()))


def state_bytes(checkpoint: Path, batch: int) -> int:
    """Return how many bytes of state a batch has written."""
    return sum(file.stat().st_size for file in (checkpoint / "spark" / "state").glob(f"**/{batch + 1}*.changelog"))


def main() -> None:
    """Generate, follow, and print how far behind it was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=3_000_000)
    parser.add_argument("--rate", type=int, default=None)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--require", default="causal")
    given = parser.parse_args()
    told: list[tuple[float, StepLag, int]] = []
    with tempfile.TemporaryDirectory(prefix="thence-bench-") as name:
        root = Path(name)
        (root / "live").mkdir()
        planted = generate(Shape(given.events, copies=5, planted=PLANTED), root / "trace")
        begin = threading.Event()
        rows = given.rate or -(-given.events // given.parts)
        feeder = threading.Thread(
            target=feed, args=(chunks(root / "trace", rows), root / "live", begin, 1.0 if given.rate else 0.0), daemon=True
        )
        feeder.start()
        if not given.rate:
            begin.set()
            feeder.join()
        spark = spark_session("local[2]")
        spark.range(10).count()
        started_s = time.monotonic()

        def hear(lag: StepLag, _: pa.Table) -> None:
            told.append((time.monotonic() - started_s, lag, state_bytes(root / "checkpoint", lag.step)))
            print(f"{told[-1][0]:.1f} s: {lag.events:,} events, {lag.unread:,} unread", file=sys.stderr, flush=True)

        with Memory() as memory:
            begin.set()
            options = Options(str(root / "live"), str(root / "checkpoint"), None, given.require.split(","), until_idle_s=IDLE_S)
            state = follow(spark, options, hear)
    late = sum(state.counts[name] for name in ("fifo", "causal"))
    print(f"{given.events:,} events, {len(told)} steps; violations: {late}, planted: {len(planted)}")
    print("| from | to | events a second | behind, median | behind, most | held, most | unread, most | state, most |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    read = [one for one in told if one[1].behind_s is not None]
    size = max(1, -(-len(read) // 6))
    before_s, before = 0.0, 0
    for at in range(0, len(read), size):
        some = read[at : at + size]
        end_s, last, _ = some[-1]
        rate = (last.events - before) / max(1e-9, end_s - before_s)
        behind = [lag.behind_s or 0.0 for _, lag, _ in some]
        print(
            f"| {before_s:.0f} s | {end_s:.0f} s | {rate:,.0f} | {median(behind):.1f} s | {max(behind):.1f} s "
            f"| {max(lag.held for _, lag, _ in some):,} | {max(lag.unread for _, lag, _ in some):,} "
            f"| {max(size for *_, size in some) / MIB:.1f} MiB |"
        )
        before_s, before = end_s, last.events
    first_s, first, _ = read[0]
    print(f"first step after {first_s:.1f} s, {first.events:,} events; peak memory {memory.peak_bytes / MIB:,.0f} MiB")


if __name__ == "__main__":
    main()
