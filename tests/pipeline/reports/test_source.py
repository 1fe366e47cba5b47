"""The data source in real Spark: a batch is the trace, and a stream reads each part once, over restarts."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.traces import random_trace
from tests.unit.trace.test_jsonl import FULL
from thence.trace import COLUMNS, Event, LiveTraceWriter, read_trace, write_trace
from thence.trace.jsonl import encode_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

EVENTS = [FULL, *random_trace(random.Random(3), 6, 600, ordered=False)]
PATIENCE_S = 120


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    from thence.pipeline.source import ThenceSource

    spark.dataSource.register(ThenceSource)
    return spark


def event_of(row: Row) -> Event:
    values: dict[str, Any] = row.asDict()
    return Event(**{**values, "to": None if values["to"] is None else tuple(values["to"])})


def lines(events: list[Event]) -> Counter[bytes]:
    return Counter(map(encode_line, events))


@pytest.mark.parametrize("name", ["trace", "trace.jsonl"])
def test_a_batch_is_what_read_trace_reads(session: SparkSession, tmp_path: Path, name: str) -> None:
    path = tmp_path / "run=7" / name
    write_trace(path, EVENTS)
    found = session.read.format("thence").option("targetBytes", "4096").load(str(tmp_path))
    assert found.columns == list(COLUMNS)
    assert lines([event_of(row) for row in found.collect()]) == lines(read_trace(tmp_path))
    assert name == "trace" or found.rdd.getNumPartitions() > 5


def test_fewer_columns_can_be_asked_for_and_errors_come_through(session: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    write_trace(tmp_path / "trace", EVENTS)
    few = session.read.format("thence").schema("kind string, process string").load(f"file:{tmp_path}/trace")
    assert Counter(map(tuple, few.collect())) == Counter((event.kind, event.process) for event in EVENTS)
    (tmp_path / "trace" / "bad.jsonl").write_text("7\n", encoding="utf-8")
    with pytest.raises(PySparkException, match=r"bad\.jsonl: the line at byte 0: expected a JSON object"):
        session.read.format("thence").load(str(tmp_path / "trace")).collect()


class Followed:
    """A query that copies what it reads into Parquet, by Spark's own exactly-once sink, so that it can be stopped and started."""

    def __init__(self, session: SparkSession, source: Path, folder: Path) -> None:
        self._session, self._source, self._folder = session, source, folder

    def start(self, **trigger: Any) -> StreamingQuery:
        stream = self._session.readStream.format("thence").option("maxPartsPerTrigger", "2").load(str(self._source))
        writer = stream.writeStream.format("parquet").option("path", str(self._folder / "out"))
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).trigger(**trigger).start()

    def found(self) -> list[Event]:
        from thence.pipeline.source.reader import house_schema

        # Spark reads what its log of finished steps names. Before the first one is there, it would read whatever lies about;
        # what is not finished has a name that begins with a dot.
        if not list((self._folder / "out" / "_spark_metadata").glob("[0-9]*")):
            return []
        copied: DataFrame = self._session.read.schema(house_schema()).parquet(str(self._folder / "out"))
        return [event_of(row) for row in copied.collect()]

    def offsets(self) -> list[dict[str, str]]:
        files = sorted((self._folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
        return [json.loads(file.read_text(encoding="utf-8").splitlines()[-1]) for file in files]


def eventually(holds: Callable[[], bool], query: StreamingQuery) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert query.isActive, query.exception()
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.2)


def test_a_stream_reads_each_part_once_over_restarts(session: SparkSession, tmp_path: Path) -> None:
    followed = Followed(session, tmp_path / "live", tmp_path)
    writer = LiveTraceWriter(tmp_path / "live", rows_per_part=50, max_age_s=10 * PATIENCE_S)

    def write(first: int, last: int) -> None:
        for event in EVENTS[first:last]:
            writer.write(event)

    query = followed.start(processingTime="100 milliseconds")
    write(0, 220)
    eventually(lambda: len(followed.found()) >= 200, query)
    assert lines(followed.found()) == lines(EVENTS[:200]), "four parts are whole, the fifth is not"
    write(220, 300)
    eventually(lambda: len(followed.found()) >= 300, query)
    query.stop()
    write(300, 420)
    write_trace(tmp_path / "live" / "early-00000.jsonl", [EVENTS[0]])
    assert len(followed.found()) == 300
    query = followed.start(processingTime="100 milliseconds")
    write(420, len(EVENTS))
    writer.close()
    eventually(lambda: len(followed.found()) >= len(EVENTS) + 1, query)
    query.stop()
    assert lines(followed.found()) == lines([*EVENTS, EVENTS[0]])
    last = followed.offsets()[-1]
    assert last["5:6:early-.jsonl"] == "0"
    assert last["5:5:part-.parquet"] == f"0-{(len(EVENTS) - 1) // 50}"


def test_a_step_that_was_cut_off_is_done_again_the_same(session: SparkSession, tmp_path: Path) -> None:
    followed = Followed(session, tmp_path / "live", tmp_path)
    for number in range(5):
        write_trace(tmp_path / "live" / f"part-{number:05d}.jsonl", EVENTS[number * 10 : number * 10 + 10])
    followed.start(availableNow=True).awaitTermination(PATIENCE_S)
    assert lines(followed.found()) == lines(EVENTS[:50])
    steps = followed.offsets()
    assert len(steps) == 3, "two parts at most in one step"
    # As after a crash between the plan of the last step and its end: the plan is there, the commit and the rows are not.
    for gone in (tmp_path / "checkpoint" / "commits" / "2", tmp_path / "out" / "_spark_metadata" / "2"):
        gone.unlink()
        (gone.parent / f".{gone.name}.crc").unlink(missing_ok=True)
    write_trace(tmp_path / "live" / "part-00005.jsonl", EVENTS[50:60])
    assert lines(followed.found()) == lines(EVENTS[:40])
    followed.start(availableNow=True).awaitTermination(PATIENCE_S)
    assert lines(followed.found()) == lines(EVENTS[:60])
    assert followed.offsets()[: len(steps)] == steps
