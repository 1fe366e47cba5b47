"""The example of a declarative pipeline runs with Spark's own command, twice: the second run judges what is new."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thence.trace.events import Event
from thence.trace.judge import judge
from thence.trace.parquet import to_batch

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "declarative"


def orders(count: int) -> list[Event]:
    """A tells B and C of orders, and B tells C of payments; each third payment overtakes its order."""
    events: list[Event] = []
    index: Counter[str] = Counter()

    def happens(process: str, kind: str, message: str, to: tuple[str, ...] = ()) -> None:
        events.append(Event(process=process, index=index[process], kind=kind, message=message, to=to))
        index[process] += 1

    for n in range(count):
        order, paid = f"order-{n}", f"paid-{n}"
        happens("A", "send", order, ("B", "C"))
        happens("B", "deliver", order)
        happens("B", "send", paid, ("C",))
        for message in (paid, order) if n % 3 == 0 else (order, paid):
            happens("C", "deliver", message)
    return events


def run(project: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    # A catalog that is still there when the command has ended, as that of a cluster is.
    catalog = ["--conf", "spark.sql.catalogImplementation=hive"]
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run", *catalog]
    ran = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3_000:]


@pytest.mark.campaign
@pytest.mark.spark
def test_each_run_judges_what_is_new(tmp_path: Path) -> None:
    for file in EXAMPLE.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    spec = tmp_path / "spark-pipeline.yml"
    text = spec.read_text(encoding="utf-8").replace("hdfs://namenode/audit", (tmp_path / "storage").as_uri())
    spec.write_text(text.replace("configuration:\n", 'configuration:\n  spark.sql.shuffle.partitions: "2"\n'), encoding="utf-8")
    events = orders(12)
    (tmp_path / "events").mkdir()
    cut = 33  # in the middle of an order that is on its way
    for at, part in enumerate((events[:cut], events[cut:])):
        expected = judge(events[: cut if at == 0 else None], ["fifo", "causal"]).violations
        pq.write_table(pa.Table.from_batches([to_batch(part)]), tmp_path / "events" / f"part-{at}.parquet")
        run(tmp_path)
        assert len(expected) == (2, 4)[at]
        found = pq.read_table(tmp_path / "spark-warehouse" / "violations").to_pylist()
        assert sorted((row["property"], row["process"], row["later"], row["earlier"]) for row in found) == sorted(
            (row.property, row.process, row.later, row.earlier) for row in expected
        )
        counts = pq.read_table(tmp_path / "spark-warehouse" / "violations_by_process").to_pylist()
        assert {(row["property"], row["process"]): row["count"] for row in counts} == Counter(
            (row.property, row.process) for row in expected
        )
