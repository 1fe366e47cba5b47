"""The audit on Spark against the judge in memory: the causal check on traces of 64 processes, events per second.

Traces are generated (``benchmarks/generated.py``), with violations planted at known places; both sides must find exactly
those. The judge is measured on a million events, which is what it can hold comfortably; it costs the same per event at any
size that fits. The session is made before the clock runs, and warmed up by a small audit: a cluster's is there already, and
compiling happens once. Memory and processor time are those of all processes of the audit together, Java included, as /proc
tells them. Chains are not looked for: ``benchmarks/audit_planted.py`` does that.

    python -m benchmarks.audit --events 1000000 10000000 100000000

`make bench` takes the first two sizes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from benchmarks.generated import Planted, Shape, generate
from benchmarks.table import Row, markdown
from thence.pipeline.audit import audit_trace
from thence.pipeline.session import spark_session
from thence.trace.files import read_trace
from thence.trace.judge import judge
from thence.trace.verdict import Violation

CAUSAL = ("causal",)
PLANTED = 1_000
JUDGED_EVENTS = 1_000_000
SIZES = (1_000_000, 10_000_000)
PROCESSES = (64,)
COPIES = (None, 5)
REPEAT = 3
SAMPLE_S = 0.5


class Side(NamedTuple):
    """What one side did."""

    events: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    slices: int = 0

    @property
    def rate(self) -> float:
        return self.events / self.seconds


class Memory:
    """The largest memory of this process and all below it while the block runs, and how long it ran."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.seconds = self.cpu_seconds = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.peak_bytes = max(self.peak_bytes, sum(map(_resident_bytes, _tree(os.getpid()))))

    def __enter__(self) -> Self:
        self.seconds, self.cpu_seconds = -time.perf_counter(), -_cpu_seconds()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.seconds += time.perf_counter()
        self.cpu_seconds += _cpu_seconds()
        self._over.set()
        self._thread.join()


def _cpu_seconds() -> float:
    """What this process and all below it have used of the processors so far."""
    ticks = 0
    for process in _tree(os.getpid()):
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _tree(root: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def _resident_bytes(process: int) -> int:
    """What a process has for itself; pages that workers share with the one they were forked from count once."""
    try:
        fields = dict(line.split(":") for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:])
        return int(fields["Pss"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0


def audited(folder: Path, planted: list[Planted]) -> Side:
    """Audit a trace, and refuse the figure if it found anything but what was planted."""
    with Memory() as used:
        found = audit_trace(spark_session(), str(folder), require=CAUSAL, explain=0)
    _refuse_other(found.violations, planted)
    return Side(found.events, used.seconds, used.cpu_seconds, used.peak_bytes, found.slices)


def judged(folder: Path, planted: list[Planted]) -> Side:
    """The same for the judge, reading included."""
    with Memory() as used:
        verdict = judge(read_trace(folder), CAUSAL)
    _refuse_other(verdict.violations, planted)
    return Side(verdict.events, used.seconds, used.cpu_seconds, used.peak_bytes)


def _refuse_other(found: list[Violation], planted: list[Planted]) -> None:
    if sorted((row.process, row.later, row.earlier) for row in found) != sorted(planted):
        raise AssertionError(f"{len(found)} violations were found where {len(planted)} were planted")


def measure(shape: Shape, repeat: int = REPEAT) -> tuple[Side, Side]:
    """Generate, audit, and judge a part of it that the judge can hold, by turns; the best of each counts."""
    with tempfile.TemporaryDirectory(prefix="thence-bench-") as place:
        whole, part = Path(place) / "whole", Path(place) / "part"
        planted = generate(shape, whole)
        smaller = shape._replace(events=min(shape.events, JUDGED_EVENTS), planted=min(shape.planted, JUDGED_EVENTS // 10_000))
        fewer = generate(smaller, part)
        ours, theirs = zip(*((audited(whole, planted), judged(part, fewer)) for _ in range(repeat)), strict=True)
        most = max(side.peak_bytes for side in ours)
        return min(ours, key=_seconds)._replace(peak_bytes=most), min(theirs, key=_seconds)


def _seconds(side: Side) -> float:
    return side.seconds


def warm_up() -> None:
    """Make the session, and compile what has to be compiled."""
    with tempfile.TemporaryDirectory(prefix="thence-bench-") as place:
        planted = generate(Shape(events=20_000, planted=1), Path(place))
        for _ in range(3):
            audited(Path(place), planted)


def rows(sizes: Sequence[int], processes: Sequence[int], copies: Sequence[int | None], repeat: int = REPEAT) -> list[Row]:
    """A row for each size, number of processes and of copies."""
    warm_up()
    made = []
    for count in processes:
        for to in copies:
            for events in sizes:
                planted = min(PLANTED, events // 10_000)
                ours, theirs = measure(Shape(events=events, processes=count, copies=to, planted=planted), repeat)
                made.append(
                    Row(
                        what=f"{events:,} events, {count} processes, to {'everyone' if to is None else to}",
                        ours=f"{ours.rate:,.0f} events/s, {ours.slices} slices, {ours.seconds:.1f} s "
                        f"({ours.cpu_seconds:.0f} s of the cores), {_gib(ours)}",
                        peer=f"judge: {theirs.rate:,.0f} events/s",
                        ratio=ours.rate / theirs.rate,
                    )
                )
                print(made[-1], flush=True)
    return made


def _gib(side: Side) -> str:
    return f"{side.peak_bytes / 2**30:.2f} GiB"


def run() -> list[Row]:
    return rows(SIZES, PROCESSES, COPIES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--processes", type=int, nargs="+", default=list(PROCESSES))
    parser.add_argument("--to", choices=("everyone", "5", "both"), default="both")
    parser.add_argument("--repeat", type=int, default=REPEAT)
    given = parser.parse_args()
    copies = {"everyone": (None,), "5": (5,), "both": COPIES}[given.to]
    print(markdown(rows(given.events, given.processes, copies, given.repeat)))


if __name__ == "__main__":
    main()
