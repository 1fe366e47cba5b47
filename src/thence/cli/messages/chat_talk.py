"""``thence chat URL``: one person in a room, at a terminal or in a pipe.

Rules:

* A line is shown when it is delivered, also one's own: so everybody sees the order that the fabric keeps.
* The connection is made again for ever, and the person is told when it is lost and back. Lines typed meanwhile wait.
* Whoever leaves, by ``/quit``, the end of the input, Ctrl-C or SIGTERM, says so and gives up the name, so that nothing is kept
  for it; or keeps it, if asked to. If that is not through within ``LEAVE_WITHIN_S`` the server is away, and that is an error.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Final
from zlib import crc32

from rich.text import Text

from thence.cli import console
from thence.cli.messages.chat_room import ChatLine, Room
from thence.cli.messages.prompt import Input, opened
from thence.client.client import Client
from thence.errors import NotAllowed, ThenceError

LEAVE_WITHIN_S: Final = 5.0
ANNOUNCE_AFTER_S: Final = 3.0
"""How long after somebody has come it says once more that it is here."""
LOOK_EVERY_S: Final = 0.2
"""How often the connection is looked at."""
SHOWN_WAITS: Final = 10
MAX_ON_THE_WAY: Final = 1_000
"""How many lines may wait until the server has accepted them; then nothing more is read."""

STYLES: Final = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_magenta")
HELP: Final = """\
a line is said to all in the room; // at its beginning stands for /
/re N TEXT   answer line N
/who         who came and has not left
/waiting     which messages wait at this server, and for what
/quit        leave; so do Ctrl-C and Ctrl-D"""


async def talk(connected: Callable[[], Client], topic: str, *, keep: bool) -> None:
    """Be in a room until it is left."""
    with opened() as input_:
        async with connected() as client:
            talking = _Talk(client, topic, input_)
            await talking.run()
            try:
                async with asyncio.timeout(LEAVE_WITHIN_S):
                    await talking.leave()
                    await (client.flush() if keep else client.leave())
            except TimeoutError:
                why = client.trouble or "it does not answer"
                raise TimeoutError(f"what was said last may not have been accepted by {client.url}: {why}") from None


class _Talk:
    """The room, and who talks there."""

    def __init__(self, client: Client, topic: str, input_: Input) -> None:
        self._client = client
        self._topic = topic
        self._input = input_
        self._room = Room(client, topic, lambda line: input_.show(shown(line)), input_.note)
        self._saying: set[asyncio.Task[None]] = set()
        """Lines that are not accepted yet."""
        self._trouble = ""

    async def run(self) -> None:
        """Hear and obey until nothing more is to be said."""
        stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        self._hearing = asyncio.create_task(self._hear())
        await _until_one_ends(asyncio.shield(self._hearing), self._enter_and_obey(), self._watch(), stopping.wait())

    async def leave(self) -> None:
        """Say so, and hear everything up to that: what was said last has then been shown."""
        self._room.leave()
        await self._hearing

    async def _hear(self) -> None:
        async for message in self._client:
            self._room.heard(message)
            if self._room.is_left:
                return

    async def _watch(self) -> None:
        while True:
            trouble = self._client.trouble
            if bool(trouble) != bool(self._trouble):
                lost = f"the connection is lost ({trouble}); trying again, and what is said waits"
                self._input.note(lost if trouble else f"connected again, to {self._client.server}")
            self._trouble = trouble
            await asyncio.sleep(LOOK_EVERY_S)

    def _announce(self) -> None:
        if not self._hearing.done():
            self._room.announce()

    async def _enter_and_obey(self) -> None:
        await self._room.enter()
        asyncio.get_running_loop().call_later(ANNOUNCE_AFTER_S, self._announce)
        self._input.note(f"{self._client.name} is in {self._topic}, at {self._client.server}; /help lists what can be done")
        self._label()
        async for line in self._input.lines():
            if line.strip() == "/quit":
                return
            if line.strip():
                await self._obey(line)

    async def _obey(self, line: str) -> None:
        word, _, rest = line.strip().partition(" ")
        if word == "/who":
            people = self._room.people
            self._input.note(f"{len(people):,} {'person' if len(people) == 1 else 'people'}: {', '.join(people)}")
        elif word == "/help":
            for told in HELP.splitlines():
                self._input.note(told)
        elif word == "/waiting":
            await self._tell_waiting()
        elif word == "/re":
            number, _, text = rest.partition(" ")
            if not (number.isdecimal() and text.strip()):
                self._input.note("/re N TEXT: N is the number of a line")
            else:
                await self._say(text, int(number))
        elif word.startswith("/") and not word.startswith("//"):
            self._input.note(f"there is no {word}; /help lists what there is")
        else:
            await self._say(line.removeprefix("/") if word.startswith("//") else line)

    async def _say(self, text: str, answers: int | None = None) -> None:
        if len(self._saying) >= MAX_ON_THE_WAY:
            await asyncio.wait(self._saying, return_when=asyncio.FIRST_COMPLETED)
        if not self._room.say(text, answers):
            self._input.note(f"there is no line {answers} to answer")
            return
        saying = asyncio.create_task(self._accepted())
        self._saying.add(saying)
        saying.add_done_callback(self._said)
        self._label()

    async def _accepted(self) -> None:
        try:
            await self._client.flush()
        except ThenceError as error:
            self._input.note(f"not said: {error}")

    def _said(self, saying: asyncio.Task[None]) -> None:
        self._saying.discard(saying)
        self._label()

    def _label(self) -> None:
        state = f" ({len(self._saying)} on the way)" if self._saying else ""
        self._input.label(f"{console.plain(self._client.name)}{state}> ")

    async def _tell_waiting(self) -> None:
        try:
            status = await self._client.status()
        except (NotAllowed, OSError) as error:
            self._input.note(f"not told: {error}")
            return
        self._input.note(
            f"{console.count(status['waiting_count'], 'message')} waiting for an earlier one at {self._client.server}"
        )
        for wait in status["waiting"][:SHOWN_WAITS]:
            self._input.note(str(wait))
        more = status["waiting_count"] - min(len(status["waiting"]), SHOWN_WAITS)
        if more:
            self._input.note(f"… and {more:,} more")


def shown(line: ChatLine) -> Text:
    """Return a line as it is shown."""
    text = Text(f"[{line.number}] ", style="dim")
    text.append(console.plain(line.author), style=STYLES[crc32(line.author.encode()) % len(STYLES)])
    if line.private:
        text.append(" to you alone", style="dim")
    if line.answers is not None:
        text.append(f" to [{line.answers}]", style="dim")
    elif line.missing:
        text.append(" to a line that is not here", style="red")
    text.append(f": {console.plain(line.text)}", style="default")
    return text


async def _until_one_ends(*works: Awaitable[object]) -> None:
    """Do several things until one of them has ended; raise what it raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
