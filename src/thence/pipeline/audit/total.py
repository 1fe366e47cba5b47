"""Total order: a pair of processes that deliver the same two messages in opposite orders.

Where others look at slices, this looks at pairs of processes: what each has delivered, in its order. Processes are dealt into
blocks, and a task takes two blocks; so it holds the deliveries of a few processes and never those of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thence.pipeline.audit.transforms import Layout
from thence.pipeline.kernels.replay import Longs
from thence.pipeline.scan.rows import FOUND, FOUND_SCHEMA, found
from thence.pipeline.tables import ddl
from thence.trace.events import DELIVER
from thence.trace.words import contradicted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELIVERIES_PER_TASK: Final = 20_000_000
"""Blocks are made so small that two of them have no more deliveries than this; but a block has one process at least."""


def block_size(processes: int, events: int, most: int = DELIVERIES_PER_TASK) -> int:
    """Return how many processes a block has."""
    return max(1, min(processes, most * processes // max(1, 2 * events)))


def total_order(sliced: DataFrame, layout: Layout) -> DataFrame:
    """Return a row for each pair of processes that disagree; the events are those of ``assign_slices``."""
    from pyspark.sql import functions as f

    pairs: list[tuple[int, str, int, int]] = []
    number = 0
    for at, run in enumerate(layout.runs):
        size = block_size(len(run.processes), run.events)
        blocks = [run.processes[begin : begin + size] for begin in range(0, len(run.processes), size)]
        for one, two in combinations_with_replacement(range(len(blocks)), 2):
            pairs += [(at, name, number, side) for side, block in enumerate(sorted({one, two})) for name in blocks[block]]
            number += 1
    dealt = sliced.sparkSession.createDataFrame(pairs, "run_number int, process string, pair int, side int")
    made = sliced.where((f.col("kind") == DELIVER) & f.col("message").isNotNull())
    made = made.select("run_number", "process", "index", "message").join(f.broadcast(dealt), ["run_number", "process"])
    return made.groupBy("pair").applyInArrow(_comparing([run.name for run in layout.runs]), ddl(FOUND))


def _comparing(runs: Sequence[str | None]) -> Callable[[pa.Table], pa.Table]:
    """Return what compares the processes of two blocks, or those of one."""

    def compare(table: pa.Table) -> pa.Table:
        return pa.Table.from_batches(list(contradictions(runs[table["run_number"][0].as_py()], table)), FOUND_SCHEMA)

    return compare


def contradictions(run: str | None, table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Return a row for each pair of processes that disagree; if they are of two blocks, only for pairs of one of each."""
    first = set(table["process"].filter(pc.equal(table["side"], 0)).unique().to_pylist())
    one_block = len(first) == len(table["process"].unique())
    code = table["message"].combine_chunks().dictionary_encode()
    names, message = code.dictionary, code.indices.to_numpy()
    rank = np.empty(len(names), np.int64)
    rank[pc.sort_indices(names).to_numpy()] = np.arange(len(names))
    who = table["process"].combine_chunks().dictionary_encode()
    every, index = who.dictionary.to_pylist(), table["index"].to_numpy()
    delivered: dict[str, tuple[Longs, Longs]] = {}
    for place, process in enumerate(every):
        mine = np.flatnonzero(who.indices.to_numpy() == place)
        mine = mine[np.lexsort((rank[message[mine]], index[mine]))]  # An index may be repeated; rows come in any order.
        _, at = np.unique(message[mine], return_index=True)
        mine = mine[np.sort(at)]  # first deliveries count
        delivered[process] = message[mine].astype(np.int64), index[mine]
    place_there = np.full(len(names), -1, np.int64)
    processes = sorted(every)
    for before, two in enumerate(processes):
        place_there[delivered[two][0]] = np.arange(len(delivered[two][0]))
        for one in processes[:before]:
            witness = contradiction(delivered[one][0], place_there) if one_block or (one in first) != (two in first) else None
            if witness:
                early, late = witness
                earlier, later = (str(names[int(delivered[one][0][place])].as_py()) for place in (early, late))
                values: dict[str, Any] = {"process": [f"{one},{two}"], "later": [later], "earlier": [earlier]}
                detail = [contradicted(one, two, earlier, later)]
                yield found(run, "total", 1, **values, index=[int(delivered[one][1][late])], detail=detail)
        place_there[delivered[two][0]] = -1


def contradiction(messages: Longs, place_there: Longs) -> tuple[int, int] | None:
    """Where in this order the first message stands that the other process delivered before one that stands before it here."""
    places = place_there[messages]
    common = np.flatnonzero(places >= 0)
    places = places[common]
    behind = places < np.maximum.accumulate(places)
    if not behind.any():
        return None
    late = int(np.argmax(behind))
    return int(common[int(np.argmax(places > places[late]))]), int(common[late])
