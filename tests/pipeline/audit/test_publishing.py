"""Rows of a stream become messages of a fabric, each once, also when a batch is run again."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import thence
from tests.support.servers.running import flat, fleet, url
from thence.bridges.spark import FabricSource

pytestmark = pytest.mark.spark

ROWS = 2_000


def publish(spark: SparkSession, rows: Path, checkpoint: Path, server: str) -> None:
    """Publish what is new in a folder, as one would every night."""
    stream = spark.readStream.schema("number long").parquet(str(rows))
    made = stream.selectExpr(
        "concat('row ', number) as body",
        "case when number % 2 = 0 then array('even') end as to",
        "case when number % 2 = 1 then 'odd' end as topic",
    )
    query = made.writeStream.format("thence").option("url", server).option("name", "etl")
    query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


async def received(server: str, count: int) -> dict[str, list[int]]:
    """Return what two clients get: that it is so much, and no more."""
    got: dict[str, list[int]] = {}
    async with thence.connect(server, "even") as even, thence.connect(server, "reader") as reader:
        await reader.subscribe("odd")
        for client in (even, reader):
            got[client.name] = [int((await client.receive(within=60)).body.split()[1]) for _ in range(count)]
            client.done()
            with pytest.raises(TimeoutError):
                await client.receive(within=0.3)
    return got


def test_rows_are_published_once(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(FabricSource)
    topology = flat("s1")
    rows, checkpoint = tmp_path / "rows", tmp_path / "checkpoint"
    with fleet(topology, tmp_path / "data") as running:
        server = url(running.topology, "s1")
        asyncio.run(received(server, 0))  # Both clients exist, and follow, before anything is published.
        spark.range(0, ROWS, 1, 1).toDF("number").write.parquet(str(rows))
        publish(spark, rows, checkpoint, server)
        first = asyncio.run(received(server, ROWS // 2))
        assert first == {"even": list(range(0, ROWS, 2)), "reader": list(range(1, ROWS, 2))}
        # As if Spark had died when all was written and nothing was noted: the batch is run again.
        for commit in (checkpoint / "commits").iterdir():
            commit.unlink()
        publish(spark, rows, checkpoint, server)
        spark.range(ROWS, ROWS + 10, 1, 1).toDF("number").write.mode("append").parquet(str(rows))
        publish(spark, rows, checkpoint, server)
        again = asyncio.run(received(server, 5))
        assert again == {"even": list(range(ROWS, ROWS + 10, 2)), "reader": list(range(ROWS + 1, ROWS + 10, 2))}
    shutil.rmtree(checkpoint)


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        ("'x' as body", {"name": "etl"}, "needs .option('url', …)"),
        ("'x' as text", {"name": "etl", "url": "thence://127.0.0.1:1"}, "needs a column body; there are text"),
        ("1 as body", {"name": "etl", "url": "thence://127.0.0.1:1"}, "column body of type int"),
    ],
)
def test_what_cannot_be_published_is_said_before_anything_runs(
    spark: SparkSession, tmp_path: Path, columns: str, options: dict[str, str], complaint: str
) -> None:
    spark.dataSource.register(FabricSource)
    stream = spark.readStream.format("rate").load().selectExpr(columns)
    writer = stream.writeStream.format("thence").options(**options).option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException) as raised:
        writer.trigger(availableNow=True).start().awaitTermination(60)
    assert complaint in str(raised.value)
