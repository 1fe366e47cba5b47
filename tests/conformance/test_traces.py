"""Every format of a trace gives back what was written, whole or not at all: JSON lines and Parquet. Broken ones do not pass."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.traces import random_trace
from thence.errors import TraceError
from thence.trace import Event, TraceWriter, files, read_trace, write_trace
from thence.trace.complaints import Complaints
from thence.trace.jsonl import JsonlSink, encode_line, read_jsonl

NAMES = ("trace.jsonl", "trace")
FULL = Event(
    process="Zoë\n\t\"'\\",
    index=0,
    kind="send",
    message="m-1 \u2028 …",
    to=("A", "Zoë\n\t\"'\\", ""),
    time=2**62,
    domain="",
    bytes=2**31 - 1,
    overhead=0,
    clock={"A": 2**62, "": 0},
    run="run 1",
)


def all_columns_come_back(path: Path) -> None:
    bare = Event(process="A", index=0, kind="crash")
    for events in ([FULL], [bare], [FULL, bare], []):
        assert write_trace(path, events) == len(events)
        assert read_trace(path) == events


def the_order_is_that_of_writing(path: Path) -> None:
    events = random_trace(random.Random(5), 6, 3_000, ordered=False)
    write_trace(path, events)
    assert read_trace(path) == events


def a_trace_is_whole_or_absent(path: Path) -> None:
    with suppress(RuntimeError), TraceWriter(path) as writer:
        writer.write(FULL)
        raise RuntimeError
    assert not path.exists()
    write_trace(path, [FULL])
    with suppress(RuntimeError), TraceWriter(path):
        raise RuntimeError
    assert read_trace(path) == [FULL]


def the_same_events_are_the_same_bytes(path: Path) -> None:
    events = random_trace(random.Random(6), 4, 200, ordered=False)
    found = []
    for _ in range(2):
        write_trace(path, events)
        found.append(sorted(file.read_bytes() for file in [path, *path.rglob("*")] if file.is_file()))
    assert found[0] == found[1]


def damage_is_refused_and_named(path: Path) -> None:
    write_trace(path, [FULL] * 50)
    file = path if path.is_file() else next(path.rglob("*.parquet"))
    written = file.read_bytes()
    file.write_bytes(written[: len(written) // 2 - 5])
    with pytest.raises(TraceError, match=file.name):
        read_trace(path)


Rule = Callable[[Path], None]
RULES: tuple[Rule, ...] = (
    all_columns_come_back,
    the_order_is_that_of_writing,
    a_trace_is_whole_or_absent,
    the_same_events_are_the_same_bytes,
    damage_is_refused_and_named,
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_format(rule: Rule, name: str, tmp_path: Path) -> None:
    rule(tmp_path / name)


# --- planted -----------------------------------------------------------------------------------------------------------


class DropsColumn(JsonlSink):
    """Forgets the clock."""

    def write(self, event: Event) -> None:
        super().write(msgspec.structs.replace(event, clock=None))


class Reorders(JsonlSink):
    """Writes in another order."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.waiting: list[Event] = []

    def write(self, event: Event) -> None:
        self.waiting.append(event)

    def close(self) -> None:
        for event in sorted(self.waiting, key=lambda one: (one.process, one.index)):
            super().write(event)
        super().close()


class Salted(JsonlSink):
    """Writes something else each time."""

    salt = 0

    def close(self) -> None:
        Salted.salt += 1
        self._file.write(encode_line(Event(process="A", index=Salted.salt, kind="note")))
        super().close()


@pytest.mark.parametrize(
    ("sink", "rule"),
    [
        (DropsColumn, all_columns_come_back),
        (Reorders, the_order_is_that_of_writing),
        (Salted, the_same_events_are_the_same_bytes),
    ],
)
def test_a_broken_format_is_noticed(sink: type[JsonlSink], rule: Rule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "JsonlSink", sink)
    with pytest.raises(AssertionError):
        rule(tmp_path / "trace.jsonl")


def test_a_writer_in_place_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TraceWriter, "abandon", TraceWriter.close)
    with pytest.raises(AssertionError):
        a_trace_is_whole_or_absent(tmp_path / "trace.jsonl")


def test_a_reader_that_goes_past_damage_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lenient(path: Path, _: Complaints, partition: Any, progress: Any) -> Iterator[Event]:
        return read_jsonl(path, Complaints(), partition, progress)

    monkeypatch.setattr(files, "read_jsonl", lenient)
    with pytest.raises(pytest.fail.Exception):
        damage_is_refused_and_named(tmp_path / "trace.jsonl")
