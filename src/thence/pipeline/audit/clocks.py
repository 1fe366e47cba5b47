"""What the clocks of a trace are worth: those that it logs, and by how much the times of processes differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thence.pipeline.audit.transforms import Layout
from thence.pipeline.kernels.encoder import encode, order_of
from thence.pipeline.kernels.logged_clocks import MAX_CLOCKED_EVENTS, Compared, compare
from thence.pipeline.tables import arrow_schema, columns, ddl
from thence.trace.events import DELIVER, SEND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMPARED: Final = columns("run string, compared bigint, differ bigint, skipped bigint, examples array<string>")

LOOKED_AT: Final = 1_000_000
"""About how many messages are looked at to find out by how much clocks differ."""


def compare_clocks(sliced: DataFrame, layout: Layout, *, any_logged: bool) -> DataFrame:
    """Compare the clocks that runs log with those that follow from their messages, each run as a whole."""
    from pyspark.sql import functions as f

    if not any_logged:
        return sliced.sparkSession.createDataFrame([], ddl(COMPARED))
    logging = sliced.where(f.col("clock").isNotNull()).select("run_number").distinct()
    rows = sliced.join(logging, "run_number").drop("slice", "bin", "time")
    fitting = [at for at, run in enumerate(layout.runs) if run.events <= MAX_CLOCKED_EVENTS]
    small = rows.where(f.col("run_number").isin(fitting)).groupBy("run_number").applyInArrow(_comparing(layout), ddl(COMPARED))
    large = logging.where(~f.col("run_number").isin(fitting))
    return small.unionByName(large.select(f.lit(1).cast("bigint").alias("skipped")), allowMissingColumns=True)


def _comparing(layout: Layout) -> Callable[[pa.Table], pa.Table]:
    """Return what compares the clocks of a run."""

    def compare_run(table: pa.Table) -> pa.Table:
        run = layout.runs[table["run_number"][0].as_py()]
        found = compared_in(table, run.processes)
        row: dict[str, Any] = {"run": run.name, "compared": found.clocks, "differ": found.differ, "skipped": found.skipped}
        return pa.Table.from_pylist([{**row, "examples": found.examples}], arrow_schema(COMPARED))

    return compare_run


def compared_in(table: pa.Table, processes: list[str]) -> Compared:
    """Compare the clocks in the rows of a whole run."""
    encoded, _, _ = encode(table, processes)
    logged = table["clock"].to_pylist()
    clocks = [None if logged[row] is None else dict(logged[row]) for row in order_of(table, processes).tolist()]
    return compare(encoded, processes, clocks)


def least_lags(sliced: DataFrame, layout: Layout) -> dict[int, npt.NDArray[np.float64]]:
    """Return for each run the least time from a send of one process to its delivery at another, of some of the messages."""
    from pyspark.sql import functions as f

    share = max(1, sum(run.events for run in layout.runs) // (6 * LOOKED_AT))
    some = sliced.where(f.pmod(f.xxhash64("message"), f.lit(share)) == 0)
    keys = ["run_number", "message"]
    sent = some.where(f.col("kind") == SEND).select(*keys, f.col("process").alias("sender"), f.col("time").alias("sent"))
    came = some.where(f.col("kind") == DELIVER).select(*keys, f.col("process").alias("receiver"), f.col("time").alias("came"))
    lags = (
        sent.join(came, keys).groupBy("run_number", "sender", "receiver").agg(f.min(f.col("came") - f.col("sent")).alias("lag"))
    )
    found: dict[int, list[tuple[str, str, int]]] = defaultdict(list)
    for row in lags.where("lag is not null").toLocalIterator():
        found[row["run_number"]].append((row["sender"], row["receiver"], row["lag"]))
    return dict(_matrices(found, layout))


def _matrices(found: dict[int, list[tuple[str, str, int]]], layout: Layout) -> Iterator[tuple[int, npt.NDArray[np.float64]]]:
    for run, lags in found.items():
        if any(lag < 0 for *_, lag in lags):
            number = {name: at for at, name in enumerate(layout.runs[run].processes)}
            least = np.full((len(number), len(number)), np.inf)
            for sender, receiver, lag in lags:
                least[number[sender], number[receiver]] = lag
            yield run, least
