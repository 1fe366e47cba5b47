"""A trace may be named by a path, a glob or a URL, and reaches Spark or Arrow as it was named."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.audit.test_audit import timed
from tests.support.pipeline.audited import write
from tests.support.traces import random_trace
from thence.errors import TraceError
from thence.pipeline import files
from thence.pipeline.audit import audit_trace
from thence.trace.events import Event
from thence.trace.judge import judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def events() -> list[Event]:
    return timed(random_trace(random.Random(4), 4, 80, ordered=False), random.Random(5))


def test_a_url_and_a_glob_name_the_same_files(events: list[Event], tmp_path: Path) -> None:
    write(tmp_path / "day=1" / "trace", events)

    def named(source: str) -> list[str]:
        return files.listing(source, ".parquet").paths

    plain = named(str(tmp_path))
    assert len(plain) > 3
    assert named(tmp_path.as_uri()) == plain
    for glob in ("day=*", "day=?/trace", "day=[12]/tr*/*.parquet", "*/*"):
        assert named(f"{tmp_path}/{glob}") == plain
        assert named(f"{tmp_path.as_uri()}/day=*/trace") == plain
    assert named(f"{tmp_path}/*.parquet") == []  # a star does not look into folders
    with pytest.raises(TraceError, match="no such file or folder"):
        named(f"{tmp_path}/nothing")


def test_an_object_store_keeps_its_slashes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def from_uri(uri: str) -> tuple[None, str]:
        asked.append(uri)
        return None, uri.partition("://")[2]

    monkeypatch.setattr("thence.pipeline.files.pafs", SimpleNamespace(FileSystem=SimpleNamespace(from_uri=from_uri)))
    assert files.absolute("s3a://bucket/a//b") == "s3a://bucket/a//b"
    assert files.filesystem("s3a://bucket/a//b/")[1] == "bucket/a//b"
    assert files.absolute("dbfs:/tables/t") == "dbfs:/tables/t"
    files.filesystem("gs://bucket/a")
    assert asked == ["s3://bucket/a//b/", "gs://bucket/a"]


@pytest.mark.spark
def test_audits_by_url_and_by_what_only_spark_can_read(spark: SparkSession, events: list[Event], tmp_path: Path) -> None:
    write(tmp_path / "trace", events)
    spark.conf.set("fs.viewfs.mounttable.here.link./there", tmp_path.as_uri())
    expected = judge(events, ["causal"]).violations
    assert expected
    for source in (f"{tmp_path.as_uri()}/trace", f"{tmp_path}/tr*", "viewfs://here/there/trace", "viewfs://here/there/tr*"):
        assert audit_trace(spark, source, require=["causal"]).violations == expected, source


@pytest.mark.spark
def test_a_url_that_nobody_can_read_is_named_as_it_was_given(spark: SparkSession) -> None:
    with pytest.raises(TraceError, match=r'^nowhere://bucket//a/b: .*No FileSystem for scheme "nowhere"'):
        audit_trace(spark, "nowhere://bucket//a/b")
