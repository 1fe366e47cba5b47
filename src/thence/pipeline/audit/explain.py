"""Chains and cones: how the later message of a violation follows from the earlier one.

Rules:

* Chains are looked for in windows: the slices from the one that sent the earlier message to the one with the offending delivery.
  Windows that overlap are one, as long as they have no more than ``WINDOW_EVENTS`` events; a chain that is longer than that is
  not told.
* A cone of more than ``MAX_CONE_EVENTS`` events is told by its chain alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from thence.pipeline.audit.transforms import Layout, slices_in
from thence.pipeline.kernels.slices import Slice, without
from thence.pipeline.scan.rows import Resent
from thence.pipeline.scan.window import SliceWindow
from thence.pipeline.tables import arrow_schema, columns, ddl
from thence.trace.words import tell_chain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOW_EVENTS: Final = 4_000_000
MAX_CONE_EVENTS: Final = 2_000

EXPLAINED: Final = columns("number int, chain array<string>, story string, cone binary")


class Ends(NamedTuple):
    """A violation whose chain is asked for."""

    number: int
    run_number: int
    since: int
    until: int
    earlier: str
    later: str
    process: str
    position: int
    """The index of the offending event."""
    cone: bool
    """Whether its cone is asked for too."""


class Window(NamedTuple):
    """Some slices of a run, and the violations that lie in them."""

    run: int
    first: int
    last: int
    ends: list[Ends]


def windows_of(wanted: Sequence[Ends], events: Mapping[tuple[int, int], int], most: int = WINDOW_EVENTS) -> list[Window]:
    """Put violations together that lie close to each other; leave out those that are spread too far."""
    windows: list[Window] = []
    sizes: list[int] = []
    by_run = defaultdict(list)
    for ends in wanted:
        by_run[ends.run_number].append(ends)
    for run, some in sorted(by_run.items()):
        fresh = True
        for ends in sorted(some, key=lambda ends: (ends.since, ends.until)):
            size = sum(events.get((run, at), 0) for at in range(ends.since, ends.until + 1))
            if size > most:
                continue
            before = None if fresh else windows[-1]
            if before is not None and ends.since <= before.last:
                more = sum(events.get((run, at), 0) for at in range(before.last + 1, ends.until + 1))
                if sizes[-1] + more <= most:
                    windows[-1] = before._replace(last=max(before.last, ends.until), ends=[*before.ends, ends])
                    sizes[-1] += more
                    continue
            windows.append(Window(run, ends.since, ends.until, [ends]))
            sizes.append(size)
            fresh = False
    return windows


class Explanation(NamedTuple):
    """The chain of a violation, the chain in words, and its cone as JSON lines."""

    number: int
    chain: tuple[str, ...]
    story: str
    cone: bytes


def explain_window(slices: Sequence[Slice], processes: list[str], wanted: Sequence[Ends]) -> Iterator[Explanation]:
    """Tell the chains of violations that lie within some consecutive slices."""
    window = SliceWindow(processes, slices)
    for ends in wanted:
        chain = window.chain(ends.earlier, ends.later)
        cone = b""
        if ends.cone:
            events = window.cone(ends.earlier, ends.later, ends.process, ends.position, MAX_CONE_EVENTS)
            cone = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
        yield Explanation(ends.number, chain, tell_chain(chain, window.senders(chain)), cone)


def explain(slices: DataFrame, layout: Layout, windows: Sequence[Window], resent: Mapping[int, Resent]) -> DataFrame:
    """Return the chain of each violation in these windows, by its number."""
    from pyspark.sql import functions as f

    rows = [(at, window.run, window.first, window.last) for at, window in enumerate(windows)]
    wanted = slices.sparkSession.createDataFrame(rows, "window int, of int, low int, high int")
    inside = (f.col("run_number") == f.col("of")) & f.col("slice").between(f.col("low"), f.col("high"))
    placed = slices.join(f.broadcast(wanted), inside).drop("of", "low", "high").repartitionById(len(windows), "window")
    return placed.sortWithinPartitions("slice").mapInArrow(_Explain(layout, windows, resent), ddl(EXPLAINED))


class _Explain:
    """Explains the violations of a window; a class, so that it pickles by name."""

    def __init__(self, layout: Layout, windows: Sequence[Window], resent: Mapping[int, Resent]) -> None:
        self.layout, self.windows, self.resent = layout, windows, resent

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slices: list[Slice] = []
        window: Any = None
        for row, given in slices_in(batches):
            window = self.windows[row["window"].as_py()]
            slices.append(without(given, self.resent.get(window.run, {})))
        if window is not None:
            explanations = explain_window(slices, self.layout.runs[window.run].processes, window.ends)
            yield pa.RecordBatch.from_pylist([one._asdict() for one in explanations], arrow_schema(EXPLAINED))
