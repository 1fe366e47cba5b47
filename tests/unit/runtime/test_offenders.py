"""Log lines about others: bounded, escaped, and counted where they are left out; and the pace of arrivals of one place."""

from __future__ import annotations

import logging

import pytest

from thence.runtime import offenders as module
from thence.runtime.offenders import (
    ALL_BURST_LINES,
    BURST_LINES,
    LINE_EVERY_S,
    MAX_OFFENCES,
    MAX_PLACES,
    REPEAT_EVERY_S,
    ArrivalPace,
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


def test_many_different_offences_of_one_place_are_forgotten_one_by_one() -> None:
    complaints = OffenderLog(Hand())
    for messages in range(10 * MAX_OFFENCES):
        complaints.say("192.0.2.1:1", "x" * messages)
    (place,) = complaints._places.values()
    assert len(place._said) == MAX_OFFENCES


def test_a_flood_from_everywhere_is_bounded_too(caplog: pytest.LogCaptureFixture) -> None:
    complaints = OffenderLog(Hand())
    for place in range(10 * MAX_PLACES):
        complaints.say(f"10.{place // 65536}.{place // 256 % 256}.{place % 256}:1", "again")
    assert len(caplog.records) == ALL_BURST_LINES
    assert len(complaints._places) == MAX_PLACES


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
