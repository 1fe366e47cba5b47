"""Parquet: the schema, other writers' flavours, and what is said about what cannot be read."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.trace.test_jsonl import FULL
from thence.errors import TraceError
from thence.trace.complaints import EXPECTED
from thence.trace.events import COLUMNS, REQUIRED, Event
from thence.trace.files import read_trace
from thence.trace.parquet import ParquetSink, schema

ROW = {"process": ["A", "B"], "index": [0, 0], "kind": ["note", "note"]}


def read(tmp_path: Path, columns: dict[str, object]) -> list[Event]:
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.table(columns), path)
    return read_trace(path)


def complaint(tmp_path: Path, columns: dict[str, object]) -> str:
    with pytest.raises(TraceError) as raised:
        read(tmp_path, columns)
    return str(raised.value).replace(f"{tmp_path}/", "")


def test_the_schema_agrees_with_the_event() -> None:
    assert tuple(schema().names) == COLUMNS
    assert tuple(field.name for field in schema() if not field.nullable) == REQUIRED
    words = {
        pa.string(): "a string",
        pa.int64(): "an integer",
        pa.int32(): "an integer of 32 bits",
        pa.list_(pa.string()): "a list of strings",
        pa.map_(pa.string(), pa.int64()): "a map from strings to integers",
    }
    assert {field.name: words[field.type] for field in schema()} == {name: EXPECTED[name][0] for name in COLUMNS}


def test_only_required_columns_are_needed_and_others_ignored(tmp_path: Path) -> None:
    assert read(tmp_path, {**ROW, "colour": [1.5, 2.5]}) == [
        Event(process="A", index=0, kind="note"),
        Event(process="B", index=0, kind="note"),
    ]


def test_other_writers_types_are_read(tmp_path: Path) -> None:
    columns = {
        "process": pa.array(["A", "B"]).dictionary_encode(),
        "index": pa.array([0, 0], pa.uint8()),
        "kind": pa.array(["send", "note"], pa.large_string()),
        "message": pa.array(["m", None], pa.string_view()),
        "to": pa.array([["B"], None], pa.large_list(pa.large_string())),
        "bytes": pa.array([5, None], pa.int64()),
        "time": pa.nulls(2),
        "clock": pa.array([[("A", 1)], None], pa.map_(pa.string(), pa.int32())),
    }
    assert read(tmp_path, columns) == [
        Event(process="A", index=0, kind="send", message="m", to=("B",), bytes=5, clock={"A": 1}),
        Event(process="B", index=0, kind="note"),
    ]


def test_destinations_that_are_all_empty_or_all_null_are_read(tmp_path: Path) -> None:
    empty = read(tmp_path, {**ROW, "to": pa.array([[], []], pa.list_(pa.null()))})
    null = read(tmp_path, {**ROW, "to": pa.nulls(2)})
    assert [event.to for event in empty] == [(), ()]
    assert [event.to for event in null] == [None, None]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"index": ["x", "y"]}, "column 'index': expected an integer, found the type string"),
        ({"index": [0.0, 1.0]}, "column 'index': expected an integer, found the type double"),
        ({"process": [1, 2]}, "column 'process': expected a string, found the type int64"),
        ({"kind": [b"a", b"b"]}, "column 'kind': expected a string, found the type binary"),
        ({"to": ["B", "C"]}, "column 'to': expected a list of strings, found the type string"),
        ({"to": [[1], [2]]}, "column 'to': expected a list of strings, found the type list<"),
        ({"clock": [{"A": 1}, {"A": 2}]}, "column 'clock': expected a map from strings to integers, found the type str"),
        ({"bytes": [True, False]}, "column 'bytes': expected an integer of 32 bits, found the type bool"),
    ],
)
def test_a_column_of_the_wrong_type_is_named(tmp_path: Path, columns: dict[str, object], said: str) -> None:
    assert complaint(tmp_path, {**ROW, **columns}).startswith(f"trace.parquet: {said}")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"process": ["A", None]}, "column 'process': expected a string, found null"),
        ({"index": [0, None]}, "column 'index': expected an integer, found null"),
        ({"to": [["B"], ["B", None]]}, "column 'to': expected a list of strings, found [\"B\",null]"),
        ({"bytes": [1, 2**31]}, "column 'bytes': expected an integer of 32 bits, found 2147483648"),
        (
            {"index": pa.array([0, 2**63], pa.uint64())},
            "column 'index': expected an integer, found 9223372036854775808",
        ),
        (
            {"clock": pa.array([[("A", 1)], [("A", None)]], pa.map_(pa.string(), pa.int64()))},
            "column 'clock': expected a map from strings to integers, found {\"A\":null}",
        ),
    ],
)
def test_a_bad_row_is_named_with_its_column(tmp_path: Path, columns: dict[str, object], said: str) -> None:
    assert complaint(tmp_path, {**ROW, **columns}) == f"trace.parquet: row 2: {said}"


@pytest.mark.parametrize("column", REQUIRED)
def test_a_required_column_must_be_there(tmp_path: Path, column: str) -> None:
    left = {name: values for name, values in ROW.items() if name != column}
    words = EXPECTED[column][0]
    said = f"trace.parquet: column '{column}': expected {words}, found no such column"
    assert complaint(tmp_path, dict(left)) == said


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    names = ["process", "index", "kind", "kind"]
    pq.write_table(pa.Table.from_arrays([pa.array(["A"]), pa.array([0]), pa.array(["x"]), pa.array(["y"])], names), path)
    with pytest.raises(TraceError, match="column 'kind': expected one such column, found 2"):
        read_trace(path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 nothing of the kind PAR1", b"\x00" * 100])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.parquet"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"trace\.parquet: cannot be read as Parquet"):
        read_trace(path)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.table(ROW), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TraceError, match=r"trace\.parquet: cannot be read as Parquet"):
        read_trace(path)


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    pq.write_table(pa.table({"process": bad, "index": [0], "kind": ["k"]}), path)
    with pytest.raises(TraceError, match=r"trace\.parquet: cannot be read as Parquet"):
        read_trace(path)


def test_rows_are_written_in_groups_and_parts(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, rows_per_group=10, rows_per_part=30)
    events = [msgspec.structs.replace(FULL, index=n) for n in range(75)]
    for event in events:
        sink.write(event)
    sink.close()
    parts = sorted(tmp_path.iterdir())
    assert [part.name for part in parts] == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    groups = [pq.ParquetFile(part).metadata for part in parts]
    assert [(meta.num_rows, meta.num_row_groups) for meta in groups] == [(30, 3), (30, 3), (15, 2)]
    assert read_trace(tmp_path) == events
