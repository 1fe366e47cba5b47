"""Live traces: parts appear whole, in time, and never change."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.traces import random_trace
from thence.errors import ConfigError, StorageError
from thence.trace import Event, LiveTraceWriter, read_trace
from thence.trace.live import MAX_AGE_S, ROWS_PER_LIVE_PART

EVENTS = random_trace(random.Random(5), 4, 100, ordered=True)
DOCS = Path(__file__).parents[3] / "docs"


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def parts(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_part_appears_when_it_is_full(tmp_path: Path) -> None:
    with LiveTraceWriter(tmp_path / "live", rows_per_part=10) as writer:
        for count, event in enumerate(EVENTS[:35], 1):
            writer.write(event)
            whole = [name for name in parts(tmp_path / "live") if not name.startswith(".")]
            assert len(whole) == count // 10
            assert not whole or read_trace(tmp_path / "live") == EVENTS[: count // 10 * 10]
    assert read_trace(tmp_path / "live") == EVENTS[:35]
    assert parts(tmp_path / "live") == [f"part-0000{number}.parquet" for number in range(4)]
    assert writer.count == 35


def test_a_part_appears_when_it_is_old(tmp_path: Path) -> None:
    clock = Clock()
    writer = LiveTraceWriter(tmp_path, max_age_s=2, clock=clock)
    writer.write(EVENTS[0])
    clock.now_s = 1.9
    writer.write(EVENTS[1])
    assert parts(tmp_path) == []
    clock.now_s = 2.0
    writer.tick()
    assert read_trace(tmp_path) == EVENTS[:2]
    clock.now_s = 50
    writer.tick()
    assert len(parts(tmp_path)) == 1, "there is nothing to make a part of"
    writer.write(EVENTS[2])
    assert len(parts(tmp_path)) == 1, "the age counts from the first row of a part"
    clock.now_s = 52
    writer.write(EVENTS[3])
    assert len(parts(tmp_path)) == 2
    writer.close()
    writer.close()
    assert read_trace(tmp_path) == EVENTS[:4]


def test_what_has_appeared_stays_when_the_writer_fails(tmp_path: Path) -> None:
    writer = LiveTraceWriter(tmp_path, rows_per_part=3)

    def fail() -> None:
        with writer:
            for event in EVENTS[:8]:
                writer.write(event)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert parts(tmp_path) == ["part-00000.parquet", "part-00001.parquet"]
    assert read_trace(tmp_path) == EVENTS[:6]
    writer.close()
    assert len(parts(tmp_path)) == 2


def test_what_a_killed_writer_left_is_not_read(tmp_path: Path) -> None:
    code = (
        "import os, sys; from thence.trace import Event, LiveTraceWriter;"
        "writer = LiveTraceWriter(sys.argv[1], rows_per_part=2);"
        "write = lambda n: writer.write(Event(process='A', index=n, kind='note'));"
        "write(0); write(1); os.fsync = lambda handle: os._exit(9); write(2); write(3)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == 9
    assert parts(tmp_path) == [".part-00001.parquet", "part-00000.parquet"]
    assert [event.index for event in read_trace(tmp_path)] == [0, 1]


def test_a_live_trace_of_nothing_is_a_trace(tmp_path: Path) -> None:
    LiveTraceWriter(tmp_path / "live").close()
    assert read_trace(tmp_path / "live") == []


def test_it_needs_a_new_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"notes\.md is in the way"):
        LiveTraceWriter(tmp_path)
    with pytest.raises(ConfigError, match="a live trace is a folder"):
        LiveTraceWriter(tmp_path / "x.jsonl")
    with pytest.raises(StorageError, match=r"notes\.md"):
        LiveTraceWriter(tmp_path / "notes.md")


def test_the_limits_are_told() -> None:
    assert f"{ROWS_PER_LIVE_PART:,} rows or {MAX_AGE_S:g} seconds" in (DOCS / "reference" / "trace.md").read_text(
        encoding="utf-8"
    )


def test_rows_that_cannot_be_written_leave_no_part(tmp_path: Path) -> None:
    with pytest.raises(OverflowError), LiveTraceWriter(tmp_path) as writer:
        writer.write(Event(process="A", index=2**70, kind="note"))
    assert parts(tmp_path) == []
