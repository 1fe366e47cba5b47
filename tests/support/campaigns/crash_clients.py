"""The clients of a crash campaign: a program with several of them, which may be killed and started again at any moment.

    python -m tests.support.campaigns.crash_clients FOLDER CLIENT[=URL]...

Each client writes what it did into ``FOLDER/clients/CLIENT.jsonl``: a line before it sends anything, and a line for each message
that it is handed, before it does anything about it. Every line is on disk at once, so a kill takes none of them back.
Each line says which life of the client it is of, since two programs with the same clients may run at the same time. The older one
is told so (``fenced``), with how many of its messages were not accepted, and ends.
A file ``FOLDER/die/CLIENT`` lets its program die when that client has got the next message, before it is acknowledged.
The file ``FOLDER/phase`` says what to do: ``join``, then ``hello`` to everyone, which shows that each knows all others, then
``traffic``, then ``quiet``, and then ``end``.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from tests.support.campaigns.crash_plan import TOPICS, Plan
from thence.client.client import Client
from thence.client.message import EVERYONE, Everyone, Message
from thence.client.parts.state import EndpointHooks
from thence.errors import Refusal, UsageError
from thence.runtime import event_loop

LOOK_S = 0.05
REQUEST_WITHIN_S = 20.0
MAX_DEPTH = 3
"""How many answers to answers there are."""
NOT_ACCEPTED = re.compile(r"(\d+) messages? of this program (?:was|were) not accepted, and never will be")


class Line(msgspec.Struct, omit_defaults=True):
    """Something that a client did.

    ``kind``: start, joined, try, sent, got, view, died, ready, flushed, fenced, told, failed, end.
    ``told``: the server does not go on,
    and said why.
    """

    kind: str
    message: str = ""
    to: list[str] = []
    position: int = 0
    """Of a message that came; or how many messages were not accepted: -1 if that is not known."""
    life: str = ""


class Said(msgspec.Struct, omit_defaults=True):
    """The body of a message."""

    id: str
    depth: int = 0
    pad: bytes = b""


class Logged(Client):
    """A client that also writes down replies, in the moment in which they come, and what ends it."""

    on_reply: Callable[[Message], object]
    on_failure: Callable[[Exception], object]
    on_view_message: Callable[[Message], object]

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name, connect_timeout=None)
        self._parts.state.on_end.insert(0, self._ended)
        replied = self._parts.requests.replied

        def noted(message: Message, *, everyone: bool = False) -> str:
            self.on_reply(message)
            return replied(message, everyone=everyone)

        self._parts.requests.replied = noted  # type: ignore[method-assign]
        views = self._parts.inbox.views
        told = views.on_message

        def viewed(message: Message, hooks: EndpointHooks) -> object:
            self.on_view_message(message)
            return told(message, hooks)

        views.on_message = viewed  # type: ignore[method-assign]

    def _ended(self, error: Exception) -> bool:
        if error is self._parts.state.failure:
            self.on_failure(error)
        return False


class Worker:
    """One client and what it does."""

    def __init__(self, plan: Plan, name: str, folder: Path, url: str = "") -> None:
        self.plan = plan
        self._url = url or plan.urls[name]
        self.name = name
        self.folder = folder
        self._life = os.environ.get("CRASH_PROGRAM", "") + os.urandom(4).hex()
        self._chance = Random(f"crash client/{plan.seed}/{name}/{self._life}")
        self._others = [client for client in plan.homes if client != name]
        self._tried = 0
        self._flushed = 0
        self._hellos: set[str] = set()
        path = folder / "clients" / f"{name}.jsonl"
        self._log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_DSYNC, 0o600)
        self._die = folder / "die" / name
        self._background: set[asyncio.Task[None]] = set()
        self._client: Logged

    async def run(self) -> None:
        """Live until the end."""
        self._note(Line("start"))
        try:
            self._client = client = Logged(self._url, self.name)
            client.on_reply = self._got
            client.on_failure = self._failed
            client.on_view_message = lambda message: self._note(Line("view", position=message.position))
            client.refused = self._refused  # type: ignore[method-assign]
            async with client:
                client.on_message(self._handle)
                for topic in self.plan.follows.get(self.name, ()):
                    await client.subscribe(topic)
                self._note(Line("joined"))
                await self._live()
            self._note(Line("end"))
        except Refusal:
            pass  # That is written down.
        except Exception as error:
            self._note(Line("failed", f"{type(error).__name__}: {error}"))
            raise

    def _failed(self, failure: Exception) -> None:
        """Write down that the client ends here, and why."""
        counted = NOT_ACCEPTED.search(str(failure))
        if isinstance(failure, Refusal) and "another program has the name" in str(failure):
            self._note(Line("fenced", str(failure), position=int(counted[1]) if counted else -1))
        elif isinstance(failure, Refusal):
            self._note(Line("told", str(failure)))
        else:
            self._note(Line("failed", f"{type(failure).__name__}: {failure}"))

    def _refused(self, reason: str) -> None:
        if self._client._parts.state.failure is None:  # Otherwise it was counted among those that were not accepted.
            self._note(Line("failed", f"refused: {reason}"))

    async def _live(self) -> None:
        greeted = False
        while (phase := self._phase()) != "end":
            if phase == "hello" and not greeted:
                greeted = True
                await self._send(EVERYONE, list(self.plan.homes), "hello ")
            elif phase == "traffic":
                await self._act()
                await asyncio.sleep(self._chance.expovariate(1 / self.plan.mean_gap_s))
                continue
            elif phase == "quiet":
                await self._flush()
            await asyncio.sleep(LOOK_S)
        for task in self._background:
            task.cancel()  # Their answers came, as all that was sent did; but perhaps to a life before this one.
        await self._flush()

    def _phase(self) -> str:
        return (self.folder / "phase").read_text(encoding="ascii").strip() or "join"

    # Sending.

    async def _act(self) -> None:
        chance = self._chance
        kind = chance.random()
        if kind < 0.35:
            to = chance.choice(self._others)
            await self._send(to, [to])
        elif kind < 0.5:
            several = chance.sample(self._others, chance.randint(2, 4))
            await self._send(several, several)
        elif kind < 0.6:
            await self._send(EVERYONE, list(self.plan.homes))
        elif kind < 0.75:
            topic = chance.choice(TOPICS)
            said = self._try(self.plan.followers[topic])
            await self._client.publish(topic, said)
            self._note(Line("sent", said.id))
        elif kind < 0.85:
            for _ in range(chance.randint(2, 30)):
                to = chance.choice(self._others[:3])
                self._client.post(to, self._try([to]))
        else:
            task = asyncio.create_task(self._request(chance.choice(self._others)))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _send(self, to: str | list[str] | Everyone, names: list[str], prefix: str = "") -> None:
        said = self._try(names, prefix=prefix)
        await self._client.send(to, said)
        self._note(Line("sent", said.id))

    async def _request(self, to: str) -> None:
        try:
            await self._client.request(to, self._try([to]), within=REQUEST_WITHIN_S)
        except (TimeoutError, Refusal):
            pass  # A server may be away for as long; the answer is still written down when it comes.
        except UsageError as error:
            self._note(Line("failed", f"request: {error}"))

    def _try(self, names: list[str], depth: int = 0, prefix: str = "") -> Said:
        """Write down that a message is about to be sent."""
        self._tried += 1
        size = 20_000 if self._chance.random() < 0.01 else self._chance.randrange(200)
        said = Said(f"{prefix}{self.name}:{self._life}:{self._tried}", depth, bytes(size))
        self._note(Line("try", said.id, names))
        return said

    async def _flush(self) -> None:
        tried = self._tried
        if tried > self._flushed:
            await self._client.flush()
            self._flushed = tried
            self._note(Line("flushed", str(tried)))

    # Receiving.

    def _got(self, message: Message) -> Said:
        said = message.value(Said)
        self._note(Line("got", said.id, position=message.position))
        return said

    def _handle(self, message: Message) -> None:
        said = self._got(message)
        if self._die.exists():
            self._die.unlink()
            self._note(Line("died", said.id, position=message.position))
            os.kill(os.getpid(), signal.SIGKILL)
        if said.id.startswith("hello "):
            self._hellos.add(message.sender)
            if len(self._hellos) == len(self.plan.homes):
                self._note(Line("ready"))
        elif message.wants_reply:
            message.reply(self._try([message.sender], said.depth + 1))
        elif said.depth < MAX_DEPTH and self._chance.random() < 0.1:
            to = self._chance.choice(self._others)
            self._client.post(to, self._try([to], said.depth + 1))

    def _note(self, line: Line) -> None:
        line.life = self._life
        os.write(self._log, _encoder.encode(line) + b"\n")


_encoder = msgspec.json.Encoder()


async def work(folder: Path, names: list[str]) -> None:
    """Run some of the clients."""
    plan = msgspec.json.decode((folder / "plan.json").read_bytes(), type=Plan)
    clients = [name.partition("=") for name in names]
    await asyncio.gather(*(Worker(plan, name, folder, url).run() for name, _, url in clients))


def main(arguments: list[str]) -> Any:
    """Run the clients that are named."""
    return event_loop.run(work(Path(arguments[0]), arguments[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
