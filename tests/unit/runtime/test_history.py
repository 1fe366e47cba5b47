"""The trace of a server: every event once, over kills and over disks that are full for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from thence.core.messages import Envelope
from thence.core.topology_text import parse
from thence.errors import StoreFull
from thence.runtime import history
from thence.runtime.history import History
from thence.trace.files import read_trace
from thence.trace.parquet import ParquetSink

TOPOLOGY = parse('name = "alone"\n[domains.D]\nmembers = ["s1"]\n')


def send(told: History, sequence: int, number: int) -> None:
    told.record(sequence, [Envelope("s1", number, ("s1",), b"")], (), now=number)


def numbers(folder: Path) -> list[int]:
    """Return the numbers of the messages in the trace, and see that its events are numbered without a hole."""
    events = sorted(read_trace(folder), key=lambda event: event.index)
    assert [event.index for event in events] == list(range(len(events)))
    return [int((event.message or "").split(":")[1]) for event in events]


def test_only_what_is_durable_is_told(tmp_path: Path) -> None:
    told = History(tmp_path, "s1", TOPOLOGY)
    for number in (1, 2, 3):
        send(told, number, number)
    told.release(2)
    told.flush()
    assert numbers(tmp_path) == [1, 2]


def test_after_a_kill_what_is_in_the_trace_is_left_out(tmp_path: Path) -> None:
    first = History(tmp_path, "s1", TOPOLOGY)
    for number in (1, 2, 3):
        send(first, number, number)
    first.release(2)
    first.flush()
    first.release(3)  # In memory only, and then comes the kill.
    again = History(tmp_path, "s1", TOPOLOGY)
    for number in (1, 2, 3, 4):
        send(again, 0, number)
    again.release(4)
    again.close()
    assert numbers(tmp_path) == [1, 2, 3, 4]


def test_the_trace_of_a_server_with_a_similar_name_is_not_ours(tmp_path: Path) -> None:
    topology = parse('name = "two"\n[domains.D]\nmembers = ["s", "s.1"]\n')
    other = History(tmp_path, "s.1", topology)
    other.record(1, [Envelope("s.1", 1, ("s",), b"")], (), now=1)
    other.release(1)
    other.close()
    ours = History(tmp_path, "s", topology)
    ours.record(1, [Envelope("s", 1, ("s",), b"")], (), now=1)
    ours.release(1)
    ours.close()
    assert sorted(event.message or "" for event in read_trace(tmp_path)) == ["s.1:1", "s:1"]


@pytest.mark.parametrize("where", ["_flush", "_end_part"])
def test_a_full_disk_costs_no_event_and_doubles_none(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "ROWS_PER_PART", 2)
    told = History(tmp_path, "s1", TOPOLOGY)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

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
