"""The trace of a server: every event once, over kills and over disks that are full for a while."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from thence.core.topology.toml import parse
from thence.core.wire.messages import Envelope
from thence.core.wire.records import Owed, Skipped, Submitted
from thence.errors import ConfigError, StorageError, StoreFull
from thence.node import history
from thence.node.driver import driver
from thence.node.history import TraceHistory
from thence.node.node import Node
from thence.node.options import NodeOptions
from thence.storage import files
from thence.storage.bodies import Joined
from thence.trace import parquet
from thence.trace.files import read_trace
from thence.trace.parquet import ParquetSink

TOPOLOGY = parse('name = "alone"\n[domains.D]\nmembers = ["s1"]\n')


def send(told: TraceHistory, sequence: int, number: int) -> None:
    told.record(sequence, [Envelope("s1", number, ("s1",), b"")], (), now=number)


def numbers(folder: Path) -> list[int]:
    """Return the numbers of the messages in the trace, and see that its events are numbered without a hole."""
    events = sorted(read_trace(folder), key=lambda event: event.index)
    assert [event.index for event in events] == list(range(len(events)))
    return [int((event.message or "").split(":")[1]) for event in events]


def test_only_what_is_durable_is_told(tmp_path: Path) -> None:
    told = TraceHistory(tmp_path, "s1", TOPOLOGY)
    for number in (1, 2, 3):
        send(told, number, number)
    told.release(2)
    told.flush()
    assert numbers(tmp_path) == [1, 2]


def test_after_a_kill_what_is_in_the_trace_is_left_out(tmp_path: Path) -> None:
    first = TraceHistory(tmp_path, "s1", TOPOLOGY)
    for number in (1, 2, 3):
        send(first, number, number)
    first.release(2)
    first.flush()
    first.release(3)  # In memory only, and then comes the kill.
    again = TraceHistory(tmp_path, "s1", TOPOLOGY)
    for number in (1, 2, 3, 4):
        send(again, 0, number)
    again.release(4)
    again.close()
    assert numbers(tmp_path) == [1, 2, 3, 4]


@pytest.mark.parametrize("durable", [True, False])
async def test_who_begins_anew_does_not_go_on_with_the_trace_of_another(durable: bool, tmp_path: Path) -> None:
    told = TraceHistory(tmp_path / "trace", "s1", TOPOLOGY)
    send(told, 0, 1)
    told.release(1)
    told.close()

    async def start(trace: Path) -> None:
        await Node(TOPOLOGY, "s1", NodeOptions(data=tmp_path / "data" if durable else None, trace=trace)).close()

    with pytest.raises(ConfigError, match=r"trace: has 1 event of 's1' that another store told\. Give a new folder"):
        await start(tmp_path / "trace")
    await start(tmp_path / "another")
    assert numbers(tmp_path / "trace") == [1]


def test_the_trace_of_a_server_with_a_similar_name_is_not_ours(tmp_path: Path) -> None:
    topology = parse('name = "two"\n[domains.D]\nmembers = ["s", "s.1"]\n')
    other = TraceHistory(tmp_path, "s.1", topology)
    other.record(1, [Envelope("s.1", 1, ("s",), b"")], (), now=1)
    other.release(1)
    other.close()
    ours = TraceHistory(tmp_path, "s", topology)
    ours.record(1, [Envelope("s", 1, ("s",), b"")], (), now=1)
    ours.release(1)
    ours.close()
    assert sorted(event.message or "" for event in read_trace(tmp_path)) == ["s.1:1", "s:1"]


def starts(folder: Path, count: int, *, parts: int = 3) -> None:
    """Start a server so often, and let it send a message for each part."""
    for _ in range(count):
        told = TraceHistory(folder, "s1", TOPOLOGY)
        told.resume(told.events_written, None)
        for number in range(told.events_written + 1, told.events_written + parts + 1):
            send(told, 0, number)
            told.release(0)
            told.flush()
        told.close()


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of which parts are opened from now on, by any of the ways to."""
    found: list[str] = []

    def open_file(self: pq.ParquetFile, source: Path, *rest: Any, **options: Any) -> None:
        found.append(f"{Path(source).parent.name}/{Path(source).name}")
        original(self, source, *rest, **options)

    original = pq.ParquetFile.__init__
    monkeypatch.setattr(pq.ParquetFile, "__init__", open_file)
    return found


def test_a_start_opens_one_part_however_many_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts(tmp_path, 4)
    found = opened(monkeypatch)
    assert TraceHistory(tmp_path, "s1", TOPOLOGY).events_written == 12
    assert found == ["start=s1.0003/part-00002.parquet"]
    starts(tmp_path, 1)
    assert numbers(tmp_path) == list(range(1, 16))


def test_folders_of_old_starts_may_be_deleted(tmp_path: Path) -> None:
    starts(tmp_path, 3)
    for old in ("start=s1.0000", "start=s1.0001"):
        shutil.rmtree(tmp_path / old)
    starts(tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["start=s1.0002", "start=s1.0003"]
    assert sorted(event.index for event in read_trace(tmp_path)) == [6, 7, 8, 9, 10, 11]


def test_a_folder_holds_so_many_parts_and_then_comes_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "PARTS_PER_FOLDER", 2)
    synced: list[str] = []
    monkeypatch.setattr(files, "sync_folder", lambda folder: synced.append(folder.name))
    starts(tmp_path, 1, parts=5)
    assert [len(list((tmp_path / f"start=s1.{at:04d}").iterdir())) for at in range(3)] == [2, 2, 1]
    assert {"start=s1.0000", "start=s1.0001", "start=s1.0002"} <= set(synced)
    starts(tmp_path, 2, parts=1)
    assert numbers(tmp_path) == [1, 2, 3, 4, 5, 6, 7]


def test_what_a_kill_leaves_behind_does_not_count(tmp_path: Path) -> None:
    starts(tmp_path, 2)
    TraceHistory(tmp_path, "s1", TOPOLOGY).close()  # Nothing happened: its part is empty.
    half = tmp_path / "start=s1.0003" / ".part-00000.parquet"
    half.parent.mkdir()
    half.write_bytes(b"PAR1 and half a part")
    (tmp_path / "start=s1.0004").mkdir()
    starts(tmp_path, 1)
    assert (tmp_path / "start=s1.0005").is_dir()
    assert numbers(tmp_path) == list(range(1, 10))


def test_parts_are_counted_beyond_five_digits(tmp_path: Path) -> None:
    starts(tmp_path, 1)
    for old, new in ((2, 100_000), (1, 99_999)):
        (tmp_path / "start=s1.0000" / f"part-{old:05d}.parquet").rename(tmp_path / "start=s1.0000" / f"part-{new:05d}.parquet")
    assert TraceHistory(tmp_path, "s1", TOPOLOGY).events_written == 3


def test_a_newest_part_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    starts(tmp_path, 1)
    (tmp_path / "start=s1.0000" / "part-00002.parquet").write_bytes(b"")
    with pytest.raises(StorageError, match=r"s1\.0000/part-00002\.parquet: cannot be read"):
        TraceHistory(tmp_path, "s1", TOPOLOGY)


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("where", ["_flush", "_end_part"])
def test_a_full_disk_costs_no_event_and_doubles_none(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "ROWS_PER_PART", 2)
    told = TraceHistory(tmp_path, "s1", TOPOLOGY)

    for number in range(1, 4):
        send(told, number, number)
    told.release(3)
    with monkeypatch.context() as filled:
        filled.setattr(ParquetSink, where, full)
        for number in range(4, 8):
            send(told, number, number)
        told.release(7)
        told.tick()
        assert "No space left" in told.trouble
        with pytest.raises(StoreFull, match="the trace cannot be written"):
            told.flush()
    told.tick()
    assert not told.trouble
    send(told, 8, 8)
    told.release(8)
    told.close()
    assert numbers(tmp_path) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_with_too_many_events_that_cannot_be_written_nothing_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "ROWS_PER_PART", 2)
    monkeypatch.setattr(history, "MAX_UNWRITTEN", 5)
    told = TraceHistory(tmp_path, "s1", TOPOLOGY)
    with monkeypatch.context() as filled:
        filled.setattr(ParquetSink, "_flush", full)
        for number, why in ((4, ""), (5, "5 events are not in the trace (MAX_UNWRITTEN)"), (7, "No space left on device")):
            for sent in range(told.events + 1, number + 1):
                send(told, sent, sent)
                told.release(sent)
            assert why in told.full
            assert bool(why) == bool(told.full)
        told.tick()
        assert told.full, "nobody made room"
    told.tick()
    assert (told.full, told.trouble) == ("", "")
    told.close()
    assert numbers(tmp_path) == [1, 2, 3, 4, 5, 6, 7], "what was on its way is not left out"


def test_a_full_disk_is_no_reason_not_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as filled:
        filled.setattr(Path, "mkdir", full)
        told = TraceHistory(tmp_path, "s1", TOPOLOGY)
        assert "No space left" in told.trouble
        send(told, 1, 1)
        told.release(1)
    told.tick()
    told.close()
    assert numbers(tmp_path) == [1]
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        TraceHistory(tmp_path / "file", "s1", TOPOLOGY)


@pytest.mark.parametrize("where", ["_flush", "_sync"])
def test_a_disk_that_is_full_again_after_some_parts_doubles_none(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that were finished in the meantime are in the trace, others may have read them: they are not written again."""
    monkeypatch.setattr(history, "ROWS_PER_PART", 2)
    told = TraceHistory(tmp_path, "s1", TOPOLOGY)
    with monkeypatch.context() as filled:
        filled.setattr(ParquetSink, "_flush", full)
        for number in range(1, 10):
            send(told, number, number)
        told.release(9)
    owner: Any = ParquetSink if where == "_flush" else parquet
    with monkeypatch.context() as filled:
        original, room = getattr(owner, where), iter(range(3))

        def sometimes(*given: Any) -> None:
            if next(room, None) is None:
                full()
            original(*given)

        filled.setattr(owner, where, sometimes)
        told.tick()
        assert "No space left" in told.trouble
    told.tick()
    told.close()
    assert numbers(tmp_path) == list(range(1, 10))


class _Clock:
    """A clock that tests set."""

    at = 0

    def now(self) -> int:
        return _Clock.at


async def test_after_a_kill_events_have_the_time_at_which_they_first_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "Clock", _Clock)
    options = NodeOptions(data=tmp_path / "data", trace=tmp_path / "trace")
    _Clock.at = 1_000
    first = Node(TOPOLOGY, "s1", options)
    for number in range(3):
        _Clock.at += 100
        first.intake.announce(Joined(f"client {number}", "s1", temporary=False))
    first.driver.store.commit()
    first.driver.store.close()  # As a kill does it: nothing of the trace is on disk.
    _Clock.at = 9_000
    again = Node(TOPOLOGY, "s1", options)
    _Clock.at = 9_100
    again.intake.announce(Joined("another", "s1", temporary=False))
    await again.close()
    events = sorted(read_trace(tmp_path / "trace"), key=lambda event: event.index)
    assert [(event.kind, event.time) for event in events] == [
        *[(kind, at) for at in (1_100, 1_200, 1_300) for kind in ("send", "deliver")],
        ("recover", 9_000),
        ("send", 9_100),
        ("deliver", 9_100),
    ]


def test_a_record_that_does_not_say_when_counts_as_made_with_the_last_that_did(tmp_path: Path) -> None:
    told = TraceHistory(tmp_path, "s1", TOPOLOGY)
    old = Submitted(Envelope("s1", 1, None, b""))
    assert told.time_of(old) == 0
    assert told.time_of(Submitted(Envelope("s1", 2, None, b""), 7)) == 7
    assert [told.time_of(record) for record in (old, Skipped("D", "s2", 1), Owed(1, "x", 99, True, ()))] == [7, 7, 7]
    told.started(0, 12)
    assert told.time_of(old) == 12
    told.close()
