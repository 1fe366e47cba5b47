"""``thence chat`` without a server: the same conversation in two fabrics over the same slow lines, with and without causal order.

Two fabrics of real servers run at the same time, alike but for the ordering of their domains: ``vector``, which is causal, and
``fifo``, in which every channel keeps its order and nothing more. Two lines of each are slow (``server.proxied_lines``). Four
people in each talk: each line of the script is said by its author when it has seen the line that it answers, as people do.

Rules:

* Nothing shown is written in advance: a pane holds what its reader's client was given, in that order.
* A line is *out of order* at a reader if something that led to it is not there yet: a line that its author had seen or said
  before, or that led to one of those. What an author had seen is noted when it speaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import SystemRandom
from typing import Final, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from thence.cli import console
from thence.cli.messages.chat_room import ChatLine, Room
from thence.cli.messages.demo_fabric import all_up, fleet_of, until
from thence.cli.servers.up import Fleet
from thence.client.client import Client, connect
from thence.core.topology.toml import write
from thence.net.proxy import Mode
from thence.server.proxied_lines import Lines

FABRIC: Final = """
name = "{name}"
promise = "{promise}"

[domains.north]
members = ["n1", "n2", "r1"]
ordering = "{ordering}"

[domains.middle]
members = ["r1", "r2"]
ordering = "{ordering}"

[domains.south]
members = ["r2", "s1", "s2"]
ordering = "{ordering}"
"""
HOMES: Final = {"ada": "n1", "bob": "n2", "cyd": "s1", "dan": "s2"}
"""The people, and where each of them is."""
READER: Final = "cyd"
"""Whose view is shown."""
SLOW: Final = (("n1", "r1"), ("r2", "s1"))
TOPIC: Final = "lobby"

COME_WITHIN_S: Final = 30.0
TALK_WITHIN_S: Final = 120.0


class ScriptLine(NamedTuple):
    """A line of the script: said by its author when it has seen the one that it answers."""

    author: str
    text: str
    answers: int | None = None


SCRIPT: Final = (
    ScriptLine("ada", "Shall we meet at ten?"),
    ScriptLine("bob", "Ten is too early for me.", 1),
    ScriptLine("dan", "At noon, then, in the library?", 2),
    ScriptLine("cyd", "It is closed on Mondays.", 3),
    ScriptLine("ada", "Noon is good.", 3),
    ScriptLine("bob", "For me too.", 5),
    ScriptLine("dan", "What about the café?", 4),
    ScriptLine("cyd", "Which one?", 7),
    ScriptLine("dan", "The one by the bridge.", 8),
    ScriptLine("ada", "I know it.", 9),
    ScriptLine("bob", "Is it the one with the boats?", 10),
    ScriptLine("ada", "Yes, that one.", 11),
    ScriptLine("bob", "Then I bring the maps.", 12),
    ScriptLine("cyd", "And I a cake.", 13),
    ScriptLine("dan", "Until noon!", 14),
)


class SeenLine(NamedTuple):
    """A line as it came to a reader."""

    number: int
    """Its number in the script."""
    missing: tuple[int, ...]
    """What led to it and was not there yet."""


class Conversation:
    """What was said in one fabric, and what each of its people saw."""

    def __init__(self, ordering: str) -> None:
        """Nobody has said anything."""
        self.ordering = ordering
        self.seen: dict[str, list[SeenLine]] = {name: [] for name in HOMES}
        self._led_to: dict[int, frozenset[int]] = {}
        """What led to each line that was said."""
        self._numbers = {said.text: number for number, said in enumerate(SCRIPT, start=1)}

    def speaks(self, author: str, number: int) -> None:
        """``author`` says a line of the script, now: whatever it has seen and said led to it."""
        own = {one for one in self._led_to if SCRIPT[one - 1].author == author}
        direct = {seen.number for seen in self.seen[author]} | own
        self._led_to[number] = frozenset(direct.union(*(self._led_to[one] for one in direct)))

    def sees(self, reader: str, text: str) -> int:
        """Note that a reader got a line; return its number in the script."""
        number = self._numbers[text]
        there = {seen.number for seen in self.seen[reader]}
        self.seen[reader].append(SeenLine(number, tuple(sorted(self._led_to[number] - there))))
        return number

    @property
    def deliveries(self) -> int:
        """How many lines came to all people together."""
        return sum(map(len, self.seen.values()))

    @property
    def out_of_order(self) -> int:
        """How many lines came before something that led to them."""
        return sum(bool(seen.missing) for seens in self.seen.values() for seen in seens)

    @property
    def early_answers(self) -> int:
        """How many lines came before the line that they answer."""
        return sum(SCRIPT[seen.number - 1].answers in seen.missing for seens in self.seen.values() for seen in seens)

    @property
    def is_over(self) -> bool:
        """Whether everybody has got everything."""
        return self.deliveries >= len(SCRIPT) * len(HOMES)


class Person:
    """Says its lines of the script, each when it has seen the one that it answers."""

    def __init__(self, client: Client, conversation: Conversation) -> None:
        self._name = client.name
        self._conversation = conversation
        self.room = Room(client, TOPIC, self._on_line, lambda _: None)
        client.on_message(self.room.heard)

    def begin(self) -> None:
        """Say what answers nothing."""
        self._say_answers(None, None)

    def _on_line(self, line: ChatLine) -> None:
        self._say_answers(self._conversation.sees(self._name, line.text), line.number)

    def _say_answers(self, answered: int | None, here: int | None) -> None:
        for number, said in enumerate(SCRIPT, start=1):
            if said.author == self._name and said.answers == answered:
                self._conversation.speaks(self._name, number)
                self.room.say(said.text, here)


async def play(folder: Path, conversation: Conversation, promise: str, slow_s: float, trace: Path | None) -> None:
    """Run a fabric, slow two of its lines, and let people talk in it."""
    text = FABRIC.format(name=f"chat-{conversation.ordering}", promise=promise, ordering=conversation.ordering)
    with fleet_of(text, folder, trace=trace, memory=True) as fleet:
        lines = Lines(fleet.topology, SystemRandom())
        await lines.start()
        try:
            start_behind(fleet, lines)
            await all_up(fleet.topology)
            async with _people(fleet.topology.addresses, conversation) as people:
                _set_slow(lines, slow_s)
                for person in people:
                    person.begin()
                await until(lambda: conversation.is_over, TALK_WITHIN_S, "not everybody got every line")
        finally:
            for proxy in lines.proxies.values():
                proxy.set_mode(Mode.WELL)
            await asyncio.to_thread(fleet.stop)
            await lines.close()


def start_behind(fleet: Fleet, lines: Lines) -> None:
    """Start all servers, each with a topology in which the others are behind the proxies: ``NAME.toml`` in the folder."""
    for name in fleet.topology.processes:
        file = fleet.data / f"{name}.toml"
        file.write_text(write(lines.seen_by(name)), encoding="utf-8")
        fleet.start_one(name, file)


@asynccontextmanager
async def _people(addresses: dict[str, str], conversation: Conversation) -> AsyncIterator[list[Person]]:
    """Let all people in, and wait until each knows of all."""
    async with AsyncExitStack() as stack:
        people = []
        for name, home in HOMES.items():
            client = await stack.enter_async_context(connect(f"thence://{addresses[home]}", name))
            people.append(Person(client, conversation))
        for person in people:
            await person.room.enter()
        await until(lambda: _all_know_all(people), COME_WITHIN_S, "not all have come")
        yield people


def _all_know_all(people: Sequence[Person]) -> bool:
    """Return whether all lists are complete; who may not have been heard says again that it is here."""
    if all(len(person.room.people) == len(HOMES) for person in people):
        return True
    for person in people:
        person.room.announce()
    return False


def _set_slow(lines: Lines, slow_s: float) -> None:
    for pair in SLOW:
        proxy = lines.proxies[pair]
        proxy.delay_s = slow_s
        proxy.set_mode(Mode.SLOW)


def frame(ordered: Conversation, unordered: Conversation) -> Sequence[RenderableType]:
    """Return both conversations side by side, as the reader sees them."""
    panes = [conversation.seen[READER] for conversation in (ordered, unordered)]
    rows = [[_cell(pane, at) for pane in panes] for at in range(max(map(len, panes)))]
    heads = (f"with causal order ({ordered.ordering})", f"without ({unordered.ordering})")
    return [
        Text(f"what {READER} reads, at {HOMES[READER]}; the lines {' and '.join('-'.join(pair) for pair in SLOW)} are slow"),
        console.table(heads, rows),
    ]


def _cell(pane: Sequence[SeenLine], at: int) -> Text:
    if at >= len(pane):
        return Text("")
    number, missing = pane[at]
    author, said, answers = SCRIPT[number - 1]
    text = Text(f"{number:2} {author}{'' if answers is None else f' to {answers}'}: {said}")
    if missing:
        mark = "its question" if answers in missing else ", ".join(map(str, missing))
        text.append(f"  << before {mark}", style="bold red")
    return text
