"""The data source, as far as it needs no Java: rows are planned once and read as ``read_trace`` does, offsets stay small."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import StructType

from tests.support.traces import random_trace
from tests.unit.trace.test_jsonl import FULL
from thence.errors import ConfigError, TraceError
from thence.pipeline.source import batches as batches_module
from thence.pipeline.source.batches import batches
from thence.pipeline.source.offsets import names_of, to_offset
from thence.pipeline.source.pieces import Piece, packed, pieces, plan
from thence.pipeline.source.reader import MAX_PARTS_PER_TRIGGER, ReadTask, ThenceSource, TraceStreamReader, house_schema
from thence.trace import COLUMNS, Event, read_trace, write_trace
from thence.trace.files import trace_files
from thence.trace.parquet import ParquetSink

EVENTS = [FULL, *random_trace(random.Random(2), 5, 400, ordered=False)]


def read(given: Sequence[Piece], columns: Sequence[str] = COLUMNS) -> list[Event]:
    found: list[Event] = []
    for piece in given:
        for batch in batches(piece, columns):
            for row in batch.to_pylist():
                to, clock = row.get("to"), row.get("clock")
                made = {**row, "to": None if to is None else tuple(to), "clock": None if clock is None else dict(clock)}
                found.append(Event(**made))
    return found


def write_groups(folder: Path, rows_per_group: int, rows_per_part: int) -> Path:
    folder.mkdir()
    sink = ParquetSink(folder, rows_per_group, rows_per_part)
    for event in EVENTS:
        sink.write(event)
    sink.close()
    return folder


# --- the plan ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 150))
def test_tasks_hold_every_piece_once_and_are_no_larger_than_need_be(sizes: list[int], target: int) -> None:
    given_pieces = [Piece(str(number), False, 0, None, size) for number, size in enumerate(sizes)]
    found = packed(given_pieces, target)
    assert [piece for task in found for piece in task] == given_pieces
    for task in found:
        assert len(task) == 1 or sum(piece.size_bytes for piece in task) <= target
    for task, following in pairwise(found):
        assert sum(piece.size_bytes for piece in task) + following[0].size_bytes > target


@pytest.mark.parametrize("target", [1, 700, 3_000, 10_000, 10**9])
@pytest.mark.parametrize("name", ["trace.jsonl", "trace"])
def test_any_cut_gives_each_row_once(tmp_path: Path, name: str, target: int) -> None:
    path = tmp_path / name
    if name == "trace":
        write_groups(path, 20, 100)
    else:
        write_trace(path, EVENTS)
    found = plan(trace_files(path), path, target)
    assert [event for task in found for event in read(task)] == EVENTS
    assert len(found) == 1 or target < 10**9
    assert target >= 10_000 or len(found) > 5


@given(st.binary(max_size=60).map(lambda data: data.replace(b"\r", b" ")), st.integers(1, 20))
def test_lines_are_cut_anywhere(data: bytes, step: int) -> None:
    """Each line belongs to the stretch that it begins in, whatever the bytes."""
    marks = [*range(0, len(data), step), len(data)]
    found = [
        line
        for start, end in pairwise(marks)
        for _, line in batches_module.lines_of(io.BytesIO(data), Piece("x", False, start, end, end - start))
    ]
    text = data.removeprefix(b"\xef\xbb\xbf") if step >= 3 else data
    if step >= 3 or not data.startswith(b"\xef\xbb\xbf"):
        assert found == [line for line in io.BytesIO(text) if not line.isspace()]


def test_a_large_file_is_cut_into_equal_stretches(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.jsonl", EVENTS)
    sizes = [piece.size_bytes for piece in pieces(trace_files(tmp_path), tmp_path, 5_000)]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= 5_000
    assert sum(sizes) == (tmp_path / "trace.jsonl").stat().st_size


def test_small_files_are_not_opened_to_plan(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"not parquet")
    assert len(plan(trace_files(tmp_path), tmp_path)) == 1
    with pytest.raises(TraceError, match=r"part-0\.parquet: cannot be read as Parquet"):
        plan(trace_files(tmp_path), tmp_path, 5)


# --- batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.jsonl", "x"])
def test_folders_give_columns(tmp_path: Path, name: str) -> None:
    write_trace(tmp_path / "run=r%201" / "domain=__HIVE_DEFAULT_PARTITION__" / name, EVENTS)
    (task,) = plan(trace_files(tmp_path), tmp_path)
    assert read(task) == read_trace(tmp_path)
    assert {event.run for event in read(task)} == {"r 1", FULL.run}


def foreign(**columns: pa.Array) -> pa.Table:
    rows = {"process": pa.array(["A", "B"]), "index": pa.array([0, 1], pa.int16()), "kind": pa.array(["send", "x"])}
    return pa.table({**rows, **columns})


@pytest.mark.parametrize(
    "table",
    [
        foreign(),
        foreign(process=pa.array(["A", "B"]).dictionary_encode(), to=pa.array([["A"], None], pa.large_list(pa.large_string()))),
        foreign(time=pa.array([1, None], pa.uint8()), message=pa.nulls(2), to=pa.array([[], None], pa.list_(pa.null()))),
        foreign(clock=pa.array([[("A", 1)], None], pa.map_(pa.large_string(), pa.int8())), other=pa.array([1.5, 2.5])),
    ],
)
def test_what_others_write_is_read_the_same(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "x.parquet")
    (task,) = plan(trace_files(tmp_path), tmp_path)
    assert read(task) == read_trace(tmp_path)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (foreign(process=pa.array(["A", None])), r"x\.parquet: row 2: column 'process': expected a string, found null"),
        (foreign(bytes=pa.array([2**40, 1])), r"x\.parquet: row 1: column 'bytes': expected an integer of 32 bits"),
        (foreign(to=pa.array([["A", None], None])), r"row 1: column 'to': expected a list of strings"),
        (foreign(time=pa.array(["1", "2"])), r"column 'time': expected an integer, found the type string"),
    ],
)
def test_bad_rows_are_named_as_read_trace_names_them(tmp_path: Path, table: pa.Table, says: str) -> None:
    pq.write_table(table, tmp_path / "x.parquet")
    (task,) = plan(trace_files(tmp_path), tmp_path)
    for columns in (COLUMNS, ("index",)):
        if columns == COLUMNS or "process" in says:
            with pytest.raises(TraceError, match=says):
                read(task, columns)
    with pytest.raises(TraceError, match=says):
        read_trace(tmp_path)


def test_rows_are_counted_over_row_groups(tmp_path: Path) -> None:
    table = pa.concat_tables([foreign(), foreign(process=pa.array(["A", None]))])
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    second = Piece(str(tmp_path / "x.parquet"), True, 1, 2, 1)
    with pytest.raises(TraceError, match="row 4: column 'process'"):
        read([second])


def test_bad_lines_are_named_by_their_byte(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"process":"A","index":0,"kind":"x"}\n7\n', encoding="utf-8")
    (task,) = plan(trace_files(tmp_path), tmp_path)
    with pytest.raises(TraceError, match=r"x\.jsonl: the line at byte 37: expected a JSON object, found 7"):
        read(task)


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_trace(tmp_path / "x.jsonl", EVENTS)
    monkeypatch.setattr(batches_module, "MAX_LINE_BYTES", 20)
    (task,) = plan(trace_files(tmp_path), tmp_path)
    with pytest.raises(TraceError, match="a line is longer than 20 bytes"):
        read(task)


def test_only_the_columns_asked_for_come(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace", EVENTS)
    (task,) = plan(trace_files(tmp_path), tmp_path)
    (batch,) = batches(task[0], ["message", "process"])
    assert batch.schema.names == ["message", "process"]
    assert batch.column("message").to_pylist() == [event.message for event in EVENTS]


# --- offsets -----------------------------------------------------------------------------------------------------------

NAMES = st.one_of(
    st.text(max_size=12),
    st.from_regex(r"(a|b/c)-[0-9]{1,20}(\.parquet)?", fullmatch=True),
    st.integers(0, 30).map(lambda number: f"part-{number:05d}.parquet"),
)


@given(st.sets(NAMES))
def test_an_offset_names_exactly_the_parts_it_was_made_from(names: set[str]) -> None:
    offset = to_offset(names)
    found = list(names_of(json.loads(json.dumps(offset))))
    assert sorted(found) == sorted(names)


def test_an_offset_stays_small() -> None:
    offset = to_offset(f"part-{number:05d}.parquet" for number in range(50_000) if number != 7)
    assert offset == {"5:5:part-.parquet": "0-6,8-49999"}


# --- the stream reader, without a stream -------------------------------------------------------------------------------


def follow(path: Path, **options: str) -> TraceStreamReader:
    return ThenceSource({"path": str(path), **options}).streamReader(house_schema())


def add(folder: Path, number: int) -> Event:
    event = Event(process="A", index=number, kind="note")
    write_trace(folder / f"part-{number:05d}.jsonl", [event])
    return event


def between(reader: TraceStreamReader, start: dict[str, str], end: dict[str, str]) -> list[int]:
    found = [row["index"] for task in reader.partitions(start, end) for batch in reader.read(task) for row in batch.to_pylist()]
    return [int(index) for index in found]


def test_parts_are_seen_once_whatever_their_order(tmp_path: Path) -> None:
    reader, everything = follow(tmp_path / "live"), ReadAllAvailable()
    start = reader.initialOffset()
    assert reader.latestOffset(start, everything) == start, "there is no folder yet"
    add(tmp_path / "live", 3)
    one = reader.latestOffset(start, everything)
    add(tmp_path / "live", 1)
    (tmp_path / "live" / ".part-9.jsonl").write_bytes(b"not yet")
    two = follow(tmp_path / "live").latestOffset(one, everything)
    assert between(reader, start, one) == [3]
    assert between(reader, one, two) == [1]
    assert between(reader, start, two) == [1, 3]
    assert reader.latestOffset(two, everything) == two
    assert list(reader.partitions(two, two)) == []


def test_a_step_takes_only_so_many_parts(tmp_path: Path) -> None:
    for number in range(7):
        add(tmp_path, number)
    reader = follow(tmp_path, maxPartsPerTrigger="3")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxFiles(3)
    assert follow(tmp_path).getDefaultReadLimit() == ReadMaxFiles(MAX_PARTS_PER_TRIGGER)
    offset, steps = reader.initialOffset(), []
    while (following := reader.latestOffset(offset, limit)) != offset:
        steps.append(between(reader, offset, following))
        offset = following
    assert steps == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.parametrize("name", ["trace.jsonl", "trace"])
@pytest.mark.parametrize("most", [1, 4_000])
def test_a_large_part_is_taken_piece_by_piece(tmp_path: Path, name: str, most: int) -> None:
    """A step takes whole pieces until it has enough bytes; a reader that is made anew goes on in the middle."""
    folder = tmp_path / "live"
    if name == "trace":
        write_groups(folder, 20, 100)
    else:
        write_trace(folder / name, EVENTS)
    options = {"targetBytes": "1024", "maxBytesPerTrigger": str(most)}
    offset: dict[str, str] = {}
    steps: list[list[Event]] = []
    while (following := follow(folder, **options).latestOffset(offset, ReadMaxFiles(2))) != offset:
        tasks = follow(folder, **options).partitions(offset, json.loads(json.dumps(following)))
        steps.append([event for task in tasks for event in read(task.pieces)])
        offset = following
    assert sorted((event for step in steps for event in step), key=repr) == sorted(EVENTS, key=repr)
    assert len(steps) >= (5 if most > 1 else 20)
    assert list(names_of(offset)) == [file.name for file in trace_files(folder)]


def test_where_not_all_can_be_taken_the_oldest_come_first(tmp_path: Path) -> None:
    """Otherwise the writer whose names sort last would be left far behind the others."""
    for number in range(4):
        add(tmp_path, number)
        os.utime(tmp_path / f"part-{number:05d}.jsonl", ns=(0, (5, 2, 1, 7)[number]))
    reader = follow(tmp_path)
    assert between(reader, {}, reader.latestOffset({}, ReadMaxFiles(2))) == [1, 2]


def test_what_comes_after_the_call_is_left_for_the_next(tmp_path: Path) -> None:
    add(tmp_path, 0)
    reader = follow(tmp_path)
    reader.prepareForTriggerAvailableNow()
    add(tmp_path, 1)
    assert list(names_of(reader.latestOffset({}, ReadAllAvailable()))) == ["part-00000.jsonl"]


def test_a_part_that_is_gone_is_named(tmp_path: Path) -> None:
    add(tmp_path, 0)
    reader = follow(tmp_path)
    end = reader.latestOffset({}, ReadAllAvailable())
    (tmp_path / "part-00000.jsonl").unlink()
    with pytest.raises(TraceError, match=r"part-00000\.jsonl: this part was there and is gone"):
        reader.partitions({}, end)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "a trace has a path"),
        ({"path": "x", "targetBytes": "5"}, "option targetBytes is '5': expected a whole number from 1024"),
        ({"path": "x", "maxPartsPerTrigger": "-1"}, "option maxPartsPerTrigger is '-1'"),
        ({"path": "x", "maxBytesPerTrigger": "0"}, "option maxBytesPerTrigger is '0'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ThenceSource(options).reader(house_schema())


def test_a_schema_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a trace has no column index of type string"):
        ThenceSource({"path": str(tmp_path)}).reader(StructType().add("index", "string"))
    (tmp_path / "x.jsonl").write_bytes(b"")
    with pytest.raises(ConfigError, match="a stream follows a folder, not a file"):
        follow(tmp_path / "x.jsonl").latestOffset({}, ReadAllAvailable())


def test_a_task_is_what_we_made() -> None:
    assert ReadTask((Piece("x", False, 0, None, 1),)).pieces[0].path == "x"
