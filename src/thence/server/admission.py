"""Whoever asks waits for its turn: questions cost a server more than their askers, so they get a share of its time and no more.

Questions are those about the server as a whole, such as its status, whose answers take long to make and are long.

Rules:

* Of each connection one question is being answered at a time. The next one has its turn when the answer is out, and not before
  the other side takes what it is told.
* With ``MAX_QUESTIONS`` that wait, a connection is not read any further: what is asked in advance waits where it comes from.
* Making answers takes at most one part in ``ANSWERING_SHARE`` of the server's time, whoever asks. Those who wait have their turns
  one after the other, however many questions each of them has.
* A question that nobody waits before is answered at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from thence.errors import MalformedFrame
from thence.net.framing import Connection

MAX_QUESTIONS: Final = 64
"""How many questions of one connection may wait."""

ANSWERING_SHARE: Final = 8
"""One part in so many of a server's time is the most that making answers takes."""

Done = Callable[[], None]
"""To be called when the answer is out."""

Question = Callable[[Done], None]
"""Makes the answer to a question, now or later."""


class Answering:
    """The turns of all who ask one server."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._loop = asyncio.get_running_loop()
        self._askers: dict[Asker, None] = {}
        """Those who wait for a turn, the next one first."""
        self._free_at = 0.0
        """When the next answer may be made."""
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self.seconds = 0.0
        """How long making answers took so far."""

    @property
    def free(self) -> bool:
        """Whether an answer may be made at once."""
        return not self._askers and self._loop.time() >= self._free_at

    def wait(self, asker: Asker) -> None:
        """Give somebody a turn when it is time."""
        self._askers[asker] = None
        self._wait()

    def drop(self, asker: Asker) -> None:
        """Somebody is gone."""
        self._askers.pop(asker, None)

    def answer(self, question: Question, done: Done) -> None:
        """Answer a question, and note how long that took."""
        begun = self._loop.time()
        self._busy = True
        try:
            question(done)
        finally:
            self._busy = False
            now = self._loop.time()
            self.seconds += now - begun
            self._free_at = now + (ANSWERING_SHARE - 1) * (now - begun)
            self._wait()

    def _wait(self) -> None:
        if self._timer is None and self._askers and not self._busy:  # When that answer is made it is known when the next one may.
            self._timer = self._loop.call_at(self._free_at, self._next)

    def _next(self) -> None:
        self._timer = None
        if self._askers:
            asker = next(iter(self._askers))
            del self._askers[asker]
            asker.turn()
        self._wait()


class Asker:
    """The questions of one connection."""

    def __init__(self, answering: Answering, connection: Connection) -> None:
        """``connection`` has asked nothing yet."""
        self._answering = answering
        self._connection = connection
        self.waiting: deque[Question] = deque()
        self._making = False
        """Whether an answer is being made."""

    def ask(self, question: Question) -> None:
        """Answer a question, at once or in its turn."""
        if self._answering.free and not self.waiting and self._may():
            self._answer(question)
            return
        self.waiting.append(question)
        if len(self.waiting) >= MAX_QUESTIONS:
            self._connection.pause("questions")
        self.go_on()

    def go_on(self) -> None:
        """Wait for a turn, if there is anything to answer and the other side takes what it is told."""
        if self.waiting and self._may():
            self._answering.wait(self)

    def turn(self) -> None:
        """It is our turn."""
        if self.waiting and self._may():
            try:
                self._answer(self.waiting.popleft())
            except MalformedFrame as error:
                self._connection.fail(error)
        if len(self.waiting) < MAX_QUESTIONS // 2:
            self._connection.resume("questions")

    def close(self) -> None:
        """Whoever asked is gone."""
        self.waiting.clear()
        self._answering.drop(self)

    def _may(self) -> bool:
        return not self._making and not self._connection.writer.full

    def _answer(self, question: Question) -> None:
        self._making = True
        self._answering.answer(question, self._done)

    def _done(self) -> None:
        self._making = False
        self.go_on()
