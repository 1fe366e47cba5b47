"""Turns of those who ask a server: one answer at a time for each, a share of the time for all. Loop and wire are played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from thence.errors import MalformedFrame
from thence.server import admission
from thence.server.admission import ANSWERING_SHARE, MAX_QUESTIONS, Answering, Asker, Done


class PlayedLoop:
    """A clock that goes when it is told to, and what is to be called at which time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> object:
        self.calls.append((when, call))
        return call

    def run(self, until: float) -> None:
        """Let time go by."""
        while self.calls and min(self.calls, key=lambda one: one[0])[0] <= until:
            one = min(self.calls, key=lambda each: each[0])
            self.calls.remove(one)
            self.now = max(self.now, one[0])
            one[1]()
        self.now = max(self.now, until)


class PlayedConnection:
    """Says whether it is read, and whether the other side reads."""

    def __init__(self) -> None:
        self.writer = self
        self.full = False
        self.paused = False
        self.failed: list[Exception] = []

    def pause(self, why: str) -> None:
        self.paused = True

    def resume(self, why: str) -> None:
        self.paused = False

    def fail(self, error: Exception) -> None:
        self.failed.append(error)


def is_paused(connection: PlayedConnection) -> bool:
    return connection.paused


class Asked:
    """A server that takes a while for each answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.01) -> None:
        self.loop = PlayedLoop()
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self.loop)
        self.answering = Answering()
        self.seconds = seconds
        self.answers: list[Any] = []
        self.made: list[Done] = []
        self.at_once = True

    def asker(self) -> tuple[Asker, PlayedConnection]:
        connection = PlayedConnection()
        return Asker(self.answering, connection), connection  # type: ignore[arg-type]

    def ask(self, asker: Asker, what: Any) -> None:
        def question(done: Done) -> None:
            self.loop.now += self.seconds
            self.answers.append(what)
            if self.at_once:
                done()
            else:
                self.made.append(done)

        asker.ask(question)


def test_answers_take_no_more_than_their_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    asker, _ = asked.asker()
    for number in range(60):
        asked.ask(asker, number)
    asked.loop.run(1.0)
    assert asked.answering.seconds <= 1.0 / ANSWERING_SHARE + 2 * asked.seconds
    asked.loop.run(100.0)
    assert asked.answers == list(range(60))


def test_one_alone_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    asker, _ = asked.asker()
    for number in range(3):
        asked.ask(asker, number)
        assert asked.answers[-1] == number
        asked.loop.run(asked.loop.now + ANSWERING_SHARE * asked.seconds)


def test_whoever_asks_much_waits_for_itself_and_not_others_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    greedy, _ = asked.asker()
    modest, _ = asked.asker()
    for number in range(50):
        asked.ask(greedy, number)
    asked.ask(modest, "mine")
    asked.loop.run(100.0)
    assert asked.answers.index("mine") <= 2
    assert len(asked.answers) == 51


def test_a_connection_with_many_questions_is_not_read_until_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    asker, connection = asked.asker()
    asked.ask(asker, "first")
    for number in range(MAX_QUESTIONS):
        assert not is_paused(connection)
        asked.ask(asker, number)
    assert is_paused(connection)
    while is_paused(connection):
        asked.loop.run(asked.loop.now + 0.01)
    assert len(asker.waiting) == MAX_QUESTIONS // 2 - 1


def test_the_next_answer_is_made_when_the_one_before_is_out_and_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    asker, connection = asked.asker()
    asked.at_once = False
    asked.ask(asker, 1)
    asked.ask(asker, 2)
    asked.loop.run(10.0)
    assert asked.answers == [1]
    connection.full = True
    asked.made.pop()()
    asked.loop.run(20.0)
    assert asked.answers == [1]
    connection.full = False
    asker.go_on()
    asked.loop.run(30.0)
    assert asked.answers == [1, 2]


def test_whoever_is_gone_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    gone, _ = asked.asker()
    other, _ = asked.asker()
    for number in range(5):
        asked.ask(gone, number)
    asked.ask(other, "other")
    gone.close()
    asked.loop.run(10.0)
    assert asked.answers == [0, "other"]


def test_a_question_that_cannot_be_read_ends_the_connection_also_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    asker, connection = asked.asker()

    def unreadable(_: Done) -> None:
        raise MalformedFrame("nonsense")

    with pytest.raises(MalformedFrame):
        asker.ask(unreadable)
    second, connection = asked.asker()
    asked.ask(second, 1)
    second.ask(unreadable)
    asked.loop.run(10.0)
    assert [str(error) for error in connection.failed] == ["nonsense"]
    assert admission.MAX_QUESTIONS > 1
