"""The readers: whatever bytes come, nothing but our own error leaves; whatever events go in come out."""

import random
import string
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.errors import TraceError
from thence.trace import Event, read_trace, write_trace
from thence.trace.events import COLUMNS, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from thence.trace.jsonl import decode_line, encode_line
from thence.trace.judge import PROPERTIES, judge

text = st.text(st.characters(codec="utf-8"), max_size=8)
int32 = st.integers(INT32_MIN, INT32_MAX)
int64 = st.integers(INT64_MIN, INT64_MAX)
events = st.builds(
    Event,
    run=st.none() | text,
    process=text,
    index=int64,
    kind=st.sampled_from(["send", "deliver", "crash", "note"]) | text,
    message=st.none() | text,
    to=st.none() | st.lists(text, max_size=4).map(tuple),
    time=st.none() | int64,
    domain=st.none() | text,
    bytes=st.none() | int32,
    overhead=st.none() | int32,
    clock=st.none() | st.dictionaries(text, int64, max_size=4),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
json_rows = st.dictionaries(st.sampled_from(COLUMNS) | text, json_values, max_size=len(COLUMNS))


T = TypeVar("T")


def unless_refused(work: Callable[[], T]) -> tuple[T | None, str]:
    """What came out, or what was said. Any error but our own passes through and fails the test."""
    try:
        return work(), ""
    except TraceError as error:
        return None, str(error)


def decode_or_refuse(line: bytes, partition: dict[str, str | None] | None = None) -> Event | None:
    event, said = unless_refused(lambda: decode_line(line, partition))
    assert (event is None) == bool(said)
    return event


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(line: bytes) -> None:
    event = decode_or_refuse(line)
    assert event is None or decode_line(encode_line(event)) == event


@given(json_rows)
def test_arbitrary_objects_are_read_or_refused(row: dict[str, object]) -> None:
    event = decode_or_refuse(msgspec.json.encode(row))
    if event is not None:
        assert {name: row[name] for name in ("process", "index", "kind")} == {
            "process": event.process,
            "index": event.index,
            "kind": event.kind,
        }
        judge([event], PROPERTIES)


@given(json_rows)
def test_objects_in_named_folders_are_read_or_refused(row: dict[str, object]) -> None:
    event = decode_or_refuse(msgspec.json.encode(row), {"process": "A", "kind": "note", "run": None})
    assert event is None or event.process == (row.get("process") or "A") or row["process"] == event.process


@given(events, st.integers(0, 300), st.integers(0, 255))
def test_a_line_with_one_byte_changed_is_read_or_refused(event: Event, place: int, byte: int) -> None:
    line = bytearray(encode_line(event))
    line[place % len(line)] = byte
    changed = decode_or_refuse(bytes(line))
    assert changed is None or isinstance(changed, Event)


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_arbitrary_files_are_read_or_refused(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        path.write_bytes(b"\n".join(lines))
        found, said = unless_refused(lambda: read_trace(path))
        assert f"{path}:" in said or (found is not None and len(found) <= sum(line.count(b"\n") + 1 for line in lines))


@given(st.lists(events, max_size=6), st.sampled_from(["trace.jsonl", "trace"]))
def test_what_is_written_is_read_back(rows: list[Event], name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_trace(Path(folder) / name, rows)
        assert read_trace(Path(folder) / name) == rows


@given(st.lists(events, max_size=6))
def test_both_forms_say_the_same(rows: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_trace(Path(folder) / "a.jsonl", rows)
        write_trace(Path(folder) / "b", rows)
        assert read_trace(Path(folder) / "a.jsonl") == read_trace(Path(folder) / "b")


@pytest.mark.parametrize("seed", range(60))
def test_a_parquet_file_with_a_few_bytes_changed_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows = [
        Event(process=chance.choice(string.ascii_uppercase), index=n, kind="send", message=f"m{n}", to=("A", "B"))
        for n in range(50)
    ]
    write_trace(tmp_path / "trace", rows)
    path = tmp_path / "trace" / "part-00000.parquet"
    content = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 4)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content[: chance.choice([len(content), len(content), chance.randrange(len(content))])])
    found, said = unless_refused(lambda: read_trace(path))
    assert str(path) in said or (found is not None and len(found) <= len(rows))
