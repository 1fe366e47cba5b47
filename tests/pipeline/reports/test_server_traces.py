"""The folder into which servers write their traces, read by Spark as it is, while they write and are killed; and what it says."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import thence
from tests.support.servers.running import PATIENCE_S, assert_kept, flat, fleet, url
from thence.cli.servers.up import Fleet
from thence.pipeline.tables import TRACE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

APART_S = 0.3
"""Between two messages: parts are finished every five seconds."""


async def talk(running: Fleet, seen: list[int]) -> int:
    """Send messages to a room and to a client, while the server of the sender dies and comes back, until it was seen to grow.

    Return how many went to the room.
    """
    topology = running.topology
    async with (
        asyncio.timeout(2 * PATIENCE_S),
        thence.connect(url(topology, "s1"), "ann") as ann,
        thence.connect(url(topology, "s_2"), "bob") as bob,
    ):
        await bob.subscribe("room")
        await bob.known("ann")
        await bob.send("ann", "ready")
        await ann.receive()  # Behind this, the server of ann knows of the subscription.
        number, killed = 0, False
        while not killed or len(set(seen)) < 3:
            if seen and not killed:
                killed = True
                running.kill("s1")
                running.start_one("s1")
            await ann.publish("room", number)
            await ann.send("bob", number)
            for _ in range(2):
                await bob.receive()
            bob.done()
            await asyncio.sleep(APART_S)
            number += 1
        return number


def holes(frame: DataFrame) -> dict[str, int]:
    """Return of each process by how much its last index is off: what is read must be a beginning of all there is."""
    from pyspark.sql import functions

    ends = frame.groupBy("process").agg(functions.max("index"), functions.count("index")).collect()
    return {process: last + 1 - count for process, last, count in ends if last + 1 != count}


def test_spark_reads_the_folder_of_servers_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    from thence.pipeline.metrics import write_metrics

    trace = tmp_path / "trace"
    seen: list[int] = []
    with fleet(flat("s1", "s_2"), tmp_path / "data", trace) as running, ThreadPoolExecutor(1) as pool:
        talking = pool.submit(asyncio.run, talk(running, seen))
        while not talking.done():
            if list(trace.glob("start=s1.0000/part-*.parquet")):
                frame = spark.read.parquet(str(trace))
                assert holes(frame) == {}
                seen.append(frame.count())
            time.sleep(1)
        messages = talking.result()
    assert sorted(seen) == seen
    events = assert_kept(trace, sends=2 * messages)
    frame = spark.read.parquet(str(trace))
    assert frame.dtypes == [*((name, kind) for name, kind, _ in TRACE), ("start", "string")]
    assert {start for (start,) in frame.select("start").distinct().collect()} == {"s1.0000", "s1.0001", "s_2.0000"}
    assert frame.count() == len(events)

    write_metrics(spark, frame, tmp_path / "metrics")
    (run,) = pq.read_table(tmp_path / "metrics" / "runs").to_pylist()
    others = sum(event.kind == "deliver" and not (event.message or "").startswith(f"{event.process}:") for event in events)
    assert run["waits"] == others > 2 * messages
    assert run["negative_waits"] == 0
    rows = {(row["client"], row["topic"]): row for row in pq.read_table(tmp_path / "metrics" / "clients").to_pylist()}
    assert set(rows) == {("ann", "room"), ("ann", None), ("bob", None), (None, None)}
    assert rows["ann", "room"]["messages"] == rows["ann", None]["messages"] == messages
    assert rows["ann", None]["waits"] == messages
