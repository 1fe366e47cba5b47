"""Traces on disk: whole or absent, the same bytes twice, and read however they are laid out."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.traces import parse, random_trace
from tests.unit.trace.test_jsonl import FULL
from thence.errors import ConfigError, StorageError, TraceError
from thence.trace import Event, TraceWriter, read_trace, write_trace
from thence.trace.files import trace_files, trace_size_bytes

NAMES = ("trace.jsonl", "trace.ndjson", "trace", "trace.parquet")
EVENTS = [FULL, *parse("A send m1 -> B\n A send m2 ->\n A send m3\n B deliver m1\n B crash")]


def bytes_below(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    assert write_trace(tmp_path / name, EVENTS) == len(EVENTS)
    assert read_trace(tmp_path / name) == EVENTS
    assert (tmp_path / name).is_file() == name.endswith((".jsonl", ".ndjson"))


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_trace_is_a_trace(tmp_path: Path, name: str) -> None:
    write_trace(tmp_path / name, [])
    assert read_trace(tmp_path / name) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_same_events_give_the_same_bytes(tmp_path: Path, name: str) -> None:
    events = random_trace(random.Random(3), 5, 500, ordered=False)
    write_trace(tmp_path / "one" / name, events)
    write_trace(tmp_path / "two" / name, iter(events))
    assert bytes_below(tmp_path / "one" / name) == bytes_below(tmp_path / "two" / name)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_has_the_name_before_the_trace_is_whole(tmp_path: Path, name: str) -> None:
    with TraceWriter(tmp_path / name) as writer:
        writer.write(FULL)
        assert not (tmp_path / name).exists()
        with pytest.raises(TraceError):
            read_trace(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert writer.count == 1


def events_that_end_badly() -> Iterator[Event]:
    yield FULL
    raise RuntimeError("no more")


@pytest.mark.parametrize("name", NAMES)
def test_a_writer_that_fails_leaves_what_was_there(tmp_path: Path, name: str) -> None:
    write_trace(tmp_path / name, EVENTS)
    with pytest.raises(RuntimeError, match="no more"):
        write_trace(tmp_path / name, events_that_end_badly())
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert read_trace(tmp_path / name) == EVENTS


def test_a_trace_that_cannot_be_completed_leaves_nothing(tmp_path: Path) -> None:
    too_large = Event(process="A", index=2**70, kind="note")
    with pytest.raises(OverflowError), TraceWriter(tmp_path / "trace") as writer:
        writer.write(too_large)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_what_a_killed_writer_left_is_not_read_and_is_replaced(tmp_path: Path, name: str) -> None:
    code = (
        "import os, sys; from thence.trace import Event, TraceWriter;"
        "TraceWriter(sys.argv[1]).write(Event(process='A', index=0, kind='note')); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path / name], check=False).returncode == 9
    assert list(tmp_path.iterdir()) == [tmp_path / f".{name}.partial"]
    with pytest.raises(TraceError, match="no file in this folder"):
        read_trace(tmp_path)
    write_trace(tmp_path / name, EVENTS)
    assert read_trace(tmp_path) == EVENTS


@pytest.mark.parametrize("name", NAMES)
def test_a_new_trace_takes_the_place_of_the_old(tmp_path: Path, name: str) -> None:
    write_trace(tmp_path / name, EVENTS)
    write_trace(tmp_path / name, EVENTS[:2])
    assert read_trace(tmp_path / name) == EVENTS[:2]


def test_closing_twice_and_abandoning_after_is_harmless(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace.jsonl")
    writer.close()
    writer.close()
    writer.abandon()
    assert read_trace(tmp_path / "trace.jsonl") == []


def test_a_folder_that_holds_something_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep me", encoding="utf-8")
    with pytest.raises(ConfigError, match="a folder that is no trace is in the way"):
        TraceWriter(tmp_path)
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(ConfigError, match="a folder that is no trace is in the way"):
        TraceWriter(tmp_path / "folder.jsonl")
    with pytest.raises(ConfigError, match="a file is in the way"):
        TraceWriter(tmp_path / "precious.txt")
    assert (tmp_path / "precious.txt").read_text(encoding="utf-8") == "keep me"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"file/trace\.jsonl: "):
        TraceWriter(tmp_path / "file" / "trace.jsonl")


def test_a_folder_is_read_with_all_its_parts_but_hidden_ones(tmp_path: Path) -> None:
    write_trace(tmp_path / "b" / "trace.jsonl", EVENTS[:1])
    write_trace(tmp_path / "a", EVENTS[1:3])
    write_trace(tmp_path / "c" / "d.ndjson", EVENTS[3:])
    for ignored in ("_SUCCESS", "_tmp/x.jsonl", ".x.jsonl", "README.md", "b/.crc.parquet"):
        (tmp_path / ignored).parent.mkdir(exist_ok=True)
        (tmp_path / ignored).write_bytes(b"not a trace")
    assert read_trace(tmp_path) == [*EVENTS[1:3], *EVENTS[:1], *EVENTS[3:]]
    assert len(trace_files(tmp_path)) == 3


@pytest.mark.parametrize("name", ["x.jsonl", "x"])
def test_folder_names_give_columns(tmp_path: Path, name: str) -> None:
    event = Event(process="A", index=0, kind="note")
    write_trace(tmp_path / "run=r%201" / "domain=__HIVE_DEFAULT_PARTITION__" / name, [event])
    write_trace(tmp_path / "run=r2" / "colour=red" / name, [event])
    assert [(e.run, e.domain) for e in read_trace(tmp_path)] == [("r 1", None), ("r2", None)]


def test_folder_names_give_required_columns_too(tmp_path: Path) -> None:
    path = tmp_path / "process=A" / "x.jsonl"
    path.parent.mkdir()
    path.write_text('{"index":0,"kind":"note"}\n{"index":1,"kind":"note","process":"B"}\n', encoding="utf-8")
    assert [event.process for event in read_trace(tmp_path)] == ["A", "B"]
    path.write_text('{"index":"x","kind":"note"}\n7\n', encoding="utf-8")
    with pytest.raises(TraceError, match=r"process=A/x\.jsonl:1: column 'index': expected an integer"):
        read_trace(tmp_path)


def test_bad_rows_of_all_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("7\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text("\n8\n", encoding="utf-8")
    with pytest.raises(TraceError, match=r"(?s)a\.jsonl:1: .*b\.jsonl:2: .*2 bad rows in all"):
        read_trace(tmp_path)


def test_a_file_of_another_name_is_recognised_by_its_beginning(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace", EVENTS)
    write_trace(tmp_path / "trace.jsonl", EVENTS)
    (tmp_path / "one").write_bytes((tmp_path / "trace" / "part-00000.parquet").read_bytes())
    (tmp_path / "two").write_bytes((tmp_path / "trace.jsonl").read_bytes())
    assert read_trace(tmp_path / "one") == read_trace(tmp_path / "two") == EVENTS


def test_a_place_with_no_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="nowhere: no such file or folder"):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(TraceError, match=r"no file in this folder ends in \.jsonl"):
        read_trace(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_progress_adds_up_to_the_size(tmp_path: Path, name: str) -> None:
    write_trace(tmp_path / name, random_trace(random.Random(3), 5, 9_000, ordered=False, complete=False))
    heard: list[int] = []
    read_trace(tmp_path / name, heard.append)
    assert trace_size_bytes(tmp_path / name) == pytest.approx(sum(heard), abs=len(heard))
    assert len(heard) > 1 or name in {"trace", "trace.parquet"}


def test_json_lines_are_judged_without_pyarrow(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.jsonl", EVENTS)
    code = (
        "import sys; from thence.trace import read_trace; from thence.trace.judge import judge;"
        f"print(judge(read_trace({str(tmp_path / 'trace.jsonl')!r})).events, 'pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(EVENTS)), "False"]
