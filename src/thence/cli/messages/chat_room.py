"""A room of ``thence chat``: people who follow one topic, and what each of them sees of it.

Rules:

* A room is a topic, and a line is a message published on it: text, whoever wrote it and with whatever program. Headers say more
  (``chat``: what the message is; ``line``: an id; ``answers``: the id of the line that it answers), and may be absent.
* Who comes says so on the topic, and everybody there answers that it is here; who leaves says so. So nobody has to keep a list.
  Two who come at the same moment may not hear of each other, since neither server knows yet that the other one follows the
  topic. So who has come says once more, a little later, that it is here.
* A person answers only what it has seen. Where order is causal the line that is answered is so here first. Where it is not here,
  it was said before we came, or order is not kept: that is shown, never hidden.
* What others write is shown with what cannot be printed escaped (``console.plain``), and what is remembered of it is bounded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from thence.client.endpoint import Endpoint
from thence.client.message import Message
from thence.errors import MalformedFrame

MAX_REMEMBERED_LINES: Final = 10_000
"""How many lines can be answered; older ones are forgotten."""
MAX_PEOPLE: Final = 10_000
"""How many are listed; further ones are not, and talk all the same."""

KIND: Final = "chat"
ID: Final = "line"
ANSWERS: Final = "answers"
CAME, HERE, LEFT = "came", "here", "left"


class ChatLine(NamedTuple):
    """What somebody said, as it is seen here."""

    number: int
    """Counts the lines that are seen here, from 1."""
    author: str
    text: str
    answers: int | None
    """The number of the line that it answers; None: it answers none, or one that is not here."""
    missing: bool
    """Whether it answers a line that is not here."""
    private: bool
    """Whether it came to us alone, not by the topic."""


class Room:
    """One person in a room. ``heard`` is to be called with everything that comes to its client."""

    def __init__(self, client: Endpoint, topic: str, on_line: Callable[[ChatLine], None], on_note: Callable[[str], None]) -> None:
        """``on_line`` gets the lines, in order; ``on_note`` who comes and goes."""
        self.people: dict[str, None] = {}
        """Who came and has not left, in the order in which we heard of it."""
        self.is_left = False
        """Whether we have heard that we left: what comes after that is for others."""
        self._farewell = os.urandom(6).hex()
        self._client = client
        self._topic = topic
        self._on_line = on_line
        self._on_note = on_note
        self._count = 0
        self._numbers: dict[str, int] = {}
        """The number of each line that can be answered, by its id."""
        self._ids: dict[int, str] = {}
        """The id of each line that can be answered, by its number."""

    async def enter(self) -> None:
        """Follow the topic, and say so."""
        await self._client.subscribe(self._topic)
        await self._client.publish(self._topic, b"", headers={KIND: CAME})

    def announce(self) -> None:
        """Say that we are here."""
        self._client.post_topic(self._topic, b"", headers={KIND: HERE})

    def say(self, text: str, answers: int | None = None) -> bool:
        """Say a line; it is shown when it comes back, at its place. False: the line that it would answer is not known."""
        headers = {ID: os.urandom(6).hex()}
        if answers is not None:
            if answers not in self._ids:
                return False
            headers[ANSWERS] = self._ids[answers]
        self._client.post_topic(self._topic, text.encode(), headers=headers)
        return True

    def leave(self) -> None:
        """Say that we leave."""
        self._client.post_topic(self._topic, b"", headers={KIND: LEFT, ID: self._farewell})

    def heard(self, message: Message) -> None:
        """Something came."""
        kind = message.headers.get(KIND)
        if kind is None:
            self._heard_line(message)
        elif message.topic == self._topic:
            self.is_left |= message.headers.get(ID) == self._farewell
            self._heard_of(message.sender, kind)

    def _heard_line(self, message: Message) -> None:
        if message.topic == self._topic:
            self._is_here(message.sender)
        self._count += 1
        answered = message.headers.get(ANSWERS)
        number = None if answered is None else self._numbers.get(answered)
        missing = answered is not None and number is None
        self._remember(message.headers.get(ID))
        self._on_line(ChatLine(self._count, message.sender, _text_of(message), number, missing, message.topic is None))

    def _remember(self, name: str | None) -> None:
        if name is None or name in self._numbers:
            return  # It cannot be answered: it has no id, or that of another line.
        self._numbers[name] = self._count
        self._ids[self._count] = name
        if len(self._numbers) > MAX_REMEMBERED_LINES:
            oldest = next(iter(self._ids))
            del self._numbers[self._ids.pop(oldest)]

    def _heard_of(self, name: str, kind: str) -> None:
        if kind == LEFT:
            if self.people.pop(name, self) is None and name != self._client.name:
                self._on_note(f"{name} has left")
        elif kind in {CAME, HERE}:
            self._is_here(name)
            if kind == CAME and name != self._client.name:
                self.announce()

    def _is_here(self, name: str) -> None:
        if name not in self.people and len(self.people) < MAX_PEOPLE:
            self.people[name] = None
            if name != self._client.name:
                self._on_note(f"{name} is here")


def _text_of(message: Message) -> str:
    """Return what a message says, also one that another program has sent as a value."""
    if message.item.coded:
        with suppress(MalformedFrame, RecursionError):
            return str(message.value())
    return message.body.decode("utf-8", "replace")
