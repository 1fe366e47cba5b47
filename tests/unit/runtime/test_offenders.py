"""Log lines about others: bounded, escaped, and counted where they are left out; and the pace of arrivals of one place."""

from __future__ import annotations

import copy
import gc
import logging
import tracemalloc

import pytest

from thence.runtime import offenders as module
from thence.runtime.offenders import (
    ALL_BURST_LINES,
    ALL_LINE_EVERY_S,
    BURST_LINES,
    LINE_EVERY_S,
    MAX_PLACES,
    REPEAT_EVERY_S,
    ArrivalPace,
    Offender,
    OffenderLog,
    escaped,
    place_of,
)


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_flood_from_one_place_leaves_room_for_others(caplog: pytest.LogCaptureFixture) -> None:
    clock = Hand()
    complaints = OffenderLog(clock)
    for port in range(1_000):
        complaints.say(f"192.0.2.1:{port}", f"again {'x' * port}")
    assert len(caplog.records) == BURST_LINES
    complaints.say("192.0.2.2:1", "once")
    assert caplog.records[-1].getMessage() == f"192.0.2.2:1: once ({1_000 - BURST_LINES} lines like this were left out)"
    complaints.say("192.0.2.1:1", "too soon")
    assert len(caplog.records) == BURST_LINES + 1
    clock.now += LINE_EVERY_S
    complaints.say("192.0.2.1:1", "later")
    assert caplog.records[-1].getMessage() == "192.0.2.1:1: later (1 line like this was left out)"


def test_one_offender_is_named_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    clock = Hand()
    complaints = OffenderLog(clock)
    for attempt in range(500):
        complaints.say(f"192.0.2.1:{attempt}", f"client 'mallory': a frame of {attempt} bytes")
        complaints.say(f"192.0.2.1:{attempt}", f"client 'eve': a frame of {attempt} bytes")
        clock.now += 0.1
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "192.0.2.1:0: client 'mallory': a frame of 0 bytes",
        "192.0.2.1:0: client 'eve': a frame of 0 bytes",
    ]
    clock.now += REPEAT_EVERY_S
    complaints.say("192.0.2.1:7", "client 'eve': a frame of 7 bytes")
    assert caplog.records[-1].getMessage() == "192.0.2.1:7: client 'eve': a frame of 7 bytes (998 lines like this were left out)"


def test_an_offence_is_not_repeated_however_many_others_come_in_between(caplog: pytest.LogCaptureFixture) -> None:
    clock = Hand()
    complaints = OffenderLog(clock)
    attempts = int(REPEAT_EVERY_S) - 1
    for attempt in range(attempts):
        complaints.say(f"192.0.2.1:{attempt}", "the same")
        for other in range(100):
            complaints.say(f"192.0.2.1:{attempt}", f"other {'x' * attempt} {'y' * other}")
        clock.now += 1
    said = [record.getMessage() for record in caplog.records]
    assert sum("the same" in line for line in said) == 1
    assert BURST_LINES < len(said) <= BURST_LINES + attempts / LINE_EVERY_S


def test_what_was_left_out_may_be_said_when_there_is_room() -> None:
    clock = Hand()
    offender = Offender(clock())
    assert all(offender.may_say("x" * line, clock()) for line in range(BURST_LINES))
    assert not offender.may_say("left out", clock())
    clock.now += LINE_EVERY_S
    assert offender.may_say("left out", clock())
    assert not offender.may_say("left out", clock())


def test_a_few_places_cannot_hide_another_one(caplog: pytest.LogCaptureFixture) -> None:
    clock = Hand()
    complaints = OffenderLog(clock)
    for second in range(600):
        for place in range(12):
            for word in range(5):
                complaints.say(f"192.0.2.{place}:1", f"{'x' * second} {'y' * word}")
        if second == 300:
            complaints.say("198.51.100.1:1", "another one")
        clock.now += 1
    said = [record.getMessage() for record in caplog.records]
    assert sum("another one" in line for line in said) == 1
    assert ALL_BURST_LINES < len(said) <= ALL_BURST_LINES + 600 / ALL_LINE_EVERY_S


def test_texts_of_others_are_not_kept() -> None:
    clock = Hand()
    complaints = OffenderLog(clock)
    for place in range(MAX_PLACES):
        for word in range(BURST_LINES):
            complaints.say(f"2001:db8:0:{place:x}::1:1", "\U0001f600" * (900 + word))
        clock.now += 1
    gc.collect()
    tracemalloc.start()
    try:
        copied = copy.deepcopy(vars(complaints))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(copied["places"]) == MAX_PLACES
    assert kept < 1024 * 1024


def test_a_flood_from_everywhere_is_bounded_too(caplog: pytest.LogCaptureFixture) -> None:
    complaints = OffenderLog(Hand())
    for place in range(10 * MAX_PLACES):
        complaints.say(f"10.{place // 65536}.{place // 256 % 256}.{place % 256}:1", "again")
    assert len(caplog.records) == ALL_BURST_LINES
    assert len(complaints.places) == MAX_PLACES


def test_nobody_writes_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    OffenderLog(Hand()).say("192.0.2.1:1", "client 'x\n12:00:00.000 all is well\x1b[2J\u2028'")
    (record,) = caplog.records
    assert record.getMessage() == "192.0.2.1:1: client 'x\\n12:00:00.000 all is well\\x1b[2J\\u2028'"


def test_a_long_line_is_cut() -> None:
    line = escaped("x" * 1_000_000)
    assert line == "x" * module.MAX_LINE_CHARACTERS + "… (1000000 characters)"


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("somewhere", "somewhere"),
    ],
)
def test_what_counts_as_one_place(host: str, place: str) -> None:
    assert place_of(host) == place


def test_so_many_come_at_once_and_then_one_every_so_often() -> None:
    now = 100.0
    made = ArrivalPace(10, 3, 0.25, lambda: now)
    assert [made.delay("here") for _ in range(6)] == [0.0, 0.0, 0.0, pytest.approx(0.1), pytest.approx(0.2), None]
    assert made.delay("there") == 0.0
    now += 0.1
    assert made.delay("here") == pytest.approx(0.2), "who was turned away has taken no turn"
    now += 10
    assert [made.delay("here") for _ in range(3)] == [0.0, 0.0, 0.0], "no more are saved up"
    assert made.delay("here") == pytest.approx(0.1)


def test_so_many_places_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PLACES", 2)
    made = ArrivalPace(1, 1, 10, lambda: 100.0)
    for place in "aba":
        made.delay(place)
    assert made.delay("c") == 0.0
    assert made.delay("a") == 2.0
    assert made.delay("b") == 0.0, "it was quiet for longest"
