"""Lines in blocks, decoded a batch at a time, and the places that folders' names give."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from thence.errors import TraceError
from thence.pipeline.importers.lines import decode_batches
from thence.pipeline.importers.native import decode_house_line
from thence.pipeline.importers.sources import partition_of
from thence.pipeline.importers.staged import BESIDE, MAX_RAW_CHARACTERS, STAGED, Partition, Row, batch
from thence.pipeline.tables import TRACE, arrow_schema
from thence.trace.events import COLUMNS
from thence.trace.parquet import schema

GOOD = b'{"process":"a","index":0,"kind":"send","message":"m","to":["b"],"clock":{"b":2,"a":1}}'


def lines(*rows: tuple[str, int, bytes]) -> pa.RecordBatch:
    columns = [pa.array(values) for values in zip(*rows, strict=True)]
    return pa.record_batch(columns, names=["source", "block", "value"])


def staged(*batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for found in decode_batches(batches, decode_house_line) for row in found.to_pylist(maps_as_pydicts="strict")]


def test_every_line_is_an_event_or_a_bad_row_with_its_place() -> None:
    rows = staged(
        lines(("f", 0, b"\xef\xbb\xbf" + GOOD), ("f", 0, b" "), ("f", 0, b"{}"), ("f", 70, GOOD)),
        lines(("f", 70, b"\xff"), ("run=7/g", 0, GOOD)),
    )
    assert [(row["what"], row["source"], row["block"], row["line"], row["run"]) for row in rows] == [
        ("event", "f", 0, 1, None),
        ("bad", "f", 0, 3, None),
        ("event", "f", 70, 1, None),
        ("bad", "f", 70, 2, None),
        ("event", "run=7/g", 0, 1, "7"),
    ]
    assert rows[0]["clock"] == {"a": 1, "b": 2}
    assert rows[1]["reason"].startswith("column 'process': expected a string, found no such column")
    assert (rows[3]["raw"], rows[3]["reason"][:24]) == ("\\xff", "expected a JSON object: ")
    assert all(row["lines"] == 1 for row in rows)


def test_what_a_decoder_ignores_is_counted_and_long_lines_are_cut() -> None:
    def decode(line: bytes, _partition: Partition) -> list[Row]:
        if line == b"skip":
            return []
        raise TraceError("no")

    rows = [
        row for found in decode_batches([lines(("f", 0, b"skip"), ("f", 0, b"x" * 5_000))], decode) for row in found.to_pylist()
    ]
    assert [row["what"] for row in rows] == ["ignored", "bad"]
    assert len(rows[1]["raw"]) == MAX_RAW_CHARACTERS + 1


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("file:/a/run=7/process=p%20q/x.jsonl", {"run": "7", "process": "p q"}),
        ("file:/a/run=__HIVE_DEFAULT_PARTITION__/x", {"run": None}),
        ("file:/a/colour=red/run=7", {}),
    ],
)
def test_folders_give_columns(path: str, expected: dict[str, str | None]) -> None:
    assert partition_of(path) == expected


def test_the_staged_columns_are_those_of_the_trace() -> None:
    assert tuple(column.name for column in TRACE) == COLUMNS
    assert arrow_schema(TRACE).types == schema().types
    assert batch([]).schema.names == [column.name for column in (*TRACE, *BESIDE)]
    assert (*TRACE, *BESIDE) == STAGED
    assert batch([]).num_rows == 0
